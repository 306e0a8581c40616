// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_PRETOUCH_LIMITS_H_
#define TOUCHSTONE_HEAP_SRC_PRETOUCH_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include <touchstone/arch/error.h>
#include <touchstone/arch/machine.h>
#include <touchstone/heap/pretouch.h>

#include "page_probe.h"

namespace touchstone::heap {

/// Reads the limits of this process.
[[nodiscard]] PretouchLimits read_limits(const arch::SystemRoots& roots);

/// Bytes that can be touched before a limit: the smallest that is known, less what page tables for
/// `length` and `threads` threads take. UINT64_MAX when there is none.
[[nodiscard]] std::uint64_t memory_headroom(const PretouchLimits& limits, std::size_t length,
                                            arch::Geometry geometry, unsigned threads) noexcept;

/// How much of the range may be touched: its length, less under LimitPolicy::kClamp, or
/// kLimitExceeded. `probe` may be null; then nothing of the range counts as resident.
[[nodiscard]] Result<std::size_t> length_within(const PretouchLimits& limits, LimitPolicy policy,
                                                const std::byte* begin, std::size_t length,
                                                arch::Geometry geometry, unsigned threads,
                                                const PageProbe* probe);

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_PRETOUCH_LIMITS_H_
