// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_JIT_INLINE_WRAPPER_H_
#define TOUCHSTONE_TESTS_JIT_INLINE_WRAPPER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/jit/rmw.h>

namespace touchstone::jit {

/// What goes into the registers of an inline read-modify-write and what they hold afterwards.
struct InlineFrame {
  std::array<std::uint64_t, 5> in{};  ///< address, operand low and high, expected low and high
  std::array<std::uint64_t, 5> out{};
  std::array<std::uint64_t, 2> result{};
};

/// A function void(InlineFrame*) around one inline read-modify-write in the given registers, which
/// must not have SP as the address. Registers that are not given stay 0 in the frame.
Result<std::vector<std::byte>> wrap_inline(const RmwShape& shape, const RmwRegisters& registers);

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_TESTS_JIT_INLINE_WRAPPER_H_
