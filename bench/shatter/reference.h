// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_SHATTER_REFERENCE_H_
#define TOUCHSTONE_BENCH_SHATTER_REFERENCE_H_

#include <cstddef>

/// The limits that a pre-touch is compared with: filling memory that is resident already.
namespace touchstone::shatter {

/// Seconds that memset(3) takes for [begin, begin + bytes), split evenly over the threads. bytes is
/// a multiple of 64 times the threads' number. The threads' creation counts, as it does for a
/// pre-touch. Throws std::system_error when a thread cannot be had.
[[nodiscard]] double time_memset(std::byte* begin, std::size_t bytes, unsigned threads);

/// The same with non-temporal stores (MOVNTDQ; STNP on arm64), which do not read the lines first.
[[nodiscard]] double time_nontemporal(std::byte* begin, std::size_t bytes, unsigned threads);

}  // namespace touchstone::shatter

#endif  // TOUCHSTONE_BENCH_SHATTER_REFERENCE_H_
