// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_INSTRUCTION_SET_H_
#define TOUCHSTONE_JIT_INSTRUCTION_SET_H_

#include <cstdint>

namespace touchstone::jit {

/// What code is made of.
enum class InstructionSet : std::uint8_t { kA64, kX86_64 };

/// What this process runs.
#if defined(__aarch64__)
inline constexpr InstructionSet kHostInstructionSet = InstructionSet::kA64;
#else
inline constexpr InstructionSet kHostInstructionSet = InstructionSet::kX86_64;
#endif

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_INSTRUCTION_SET_H_
