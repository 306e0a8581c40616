// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_DISASSEMBLY_H_
#define TOUCHSTONE_JIT_DISASSEMBLY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/jit/instruction_set.h>

/// Emitted code as text, for diagnostics. A component of its own, touchstone::jit_disassembly, as
/// it needs Capstone and nothing else here does.
namespace touchstone::jit {

/// One instruction.
struct DisassembledInstruction {
  std::uint64_t address = 0;
  std::vector<std::byte> bytes;
  std::string mnemonic;  ///< With its prefix: "lock xadd".
  std::string operands;

  /// "ldaddal x1, x0, [x2]".
  [[nodiscard]] std::string text() const;
};

/// Disassembles `code`, whose first byte lies at `address`. A64 words that Capstone does not know
/// are named by arch's table of memory accesses; what neither knows becomes ".word" or ".byte".
/// Errors: kUnsupported where Capstone was built without the instruction set or is older than 5
/// (4 leaves out the arm64 atomics without saying so); kOutOfMemory; kMisaligned for A64 code whose
/// address or size is no multiple of 4. Thread-safe.
[[nodiscard]] Result<std::vector<DisassembledInstruction>> disassemble(
    InstructionSet instruction_set, std::span<const std::byte> code, std::uint64_t address = 0);

/// The same as lines of address, bytes and text.
[[nodiscard]] Result<std::string> disassemble_to_text(InstructionSet instruction_set,
                                                      std::span<const std::byte> code,
                                                      std::uint64_t address = 0);

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_DISASSEMBLY_H_
