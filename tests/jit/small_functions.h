// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_JIT_SMALL_FUNCTIONS_H_
#define TOUCHSTONE_TESTS_JIT_SMALL_FUNCTIONS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <touchstone/jit/instruction_set.h>

namespace touchstone::jit {

inline void append_word(std::vector<std::byte>& code, std::uint32_t word) {
  const auto at = code.size();
  code.resize(at + sizeof word);
  std::memcpy(code.data() + at, &word, sizeof word);
}

/// uint64_t() for this host, returning `value`, which takes several instructions to build on arm64
/// so that half of an old function and half of a new one would give neither value. `landing_pad`
/// leaves BTI c out on arm64 when false.
inline std::vector<std::byte> constant_function(std::uint64_t value, bool landing_pad = true) {
  std::vector<std::byte> code;
  if constexpr (kHostInstructionSet == InstructionSet::kA64) {
    if (landing_pad) append_word(code, 0xd503245f);
    append_word(code, 0xd2800000U | static_cast<std::uint32_t>(value & 0xffffU) << 5U);  // MOVZ X0
    for (unsigned part = 1; part < 4; ++part) {
      const auto bits = static_cast<std::uint32_t>(value >> (16 * part) & 0xffffU);
      append_word(code, 0xf2800000U | part << 21U | bits << 5U);  // MOVK X0, LSL #16 * part
    }
    append_word(code, 0xd65f03c0);  // RET
  } else {
    code = {std::byte{0x48}, std::byte{0xb8}};  // MOV RAX, imm64
    code.resize(10);
    std::memcpy(code.data() + 2, &value, sizeof value);
    code.push_back(std::byte{0xc3});  // RET
  }
  return code;
}

inline std::uint64_t call(const void* function) {
  return std::bit_cast<std::uint64_t (*)()>(function)();
}

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_TESTS_JIT_SMALL_FUNCTIONS_H_
