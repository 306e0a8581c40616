// SPDX-License-Identifier: MIT
// The helpers that -moutline-atomics calls: __aarch64_<operation><bytes>_<order> of libgcc and
// compiler-rt, which use LSE where the processor has it and LL/SC where not.
#ifndef TOUCHSTONE_ARCH_OPCHECK_OUTLINE_ATOMICS_H_
#define TOUCHSTONE_ARCH_OPCHECK_OUTLINE_ATOMICS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "code_image.h"
#include "function_flow.h"

namespace touchstone::arch::opcheck {

/// Is this the name of a helper? Thread-safe.
[[nodiscard]] bool is_outline_helper(std::string_view name) noexcept;

/// What the helper of that name does to its arguments; nothing where the name is another.
/// `address` is where calls to it lead. Thread-safe.
[[nodiscard]] std::optional<FunctionSummary> outline_helper_summary(std::string_view name,
                                                                    std::uint64_t address);

/// Does the code at `start` look like a helper, whatever its name? It loads a byte of data,
/// branches if that is zero, and performs one LSE atomic and returns if it is not. For stripped
/// files.
[[nodiscard]] bool has_outline_helper_shape(const CodeImage& image, std::uint64_t start) noexcept;

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_OUTLINE_ATOMICS_H_
