// SPDX-License-Identifier: MIT
#include <array>
#include <bit>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <capstone/capstone.h>

#include <touchstone/arch/a64/classify.h>
#include <touchstone/jit/disassembly.h>

namespace touchstone::jit {
namespace {

constexpr const char* kOperation = "disassemble";

struct Closer {
  void operator()(csh* handle) const noexcept {
    cs_close(handle);
    delete handle;
  }
};
struct Freer {
  void operator()(cs_insn* instruction) const noexcept { cs_free(instruction, 1); }
};

/// LDCLRP, LDSETP and SWPP all have Rt, Rt2 and Rn where these are looked for.
std::string pair_operands(std::uint32_t word) {
  const std::uint32_t base = (word >> 5U) & 31U;
  const std::string address = base == 31 ? "sp" : "x" + std::to_string(base);
  return "x" + std::to_string(word & 31U) + ", x" + std::to_string((word >> 16U) & 31U) + ", [" +
         address + "]";
}

DisassembledInstruction unknown_to_capstone(InstructionSet instruction_set,
                                            std::span<const std::byte> bytes,
                                            std::uint64_t address) {
  DisassembledInstruction instruction{
      .address = address, .bytes = {bytes.begin(), bytes.end()}, .mnemonic = {}, .operands = {}};
  std::array<char, 16> text{};
  if (instruction_set == InstructionSet::kX86_64) {
    std::snprintf(text.data(), text.size(), "0x%02x", std::to_integer<unsigned>(bytes[0]));
    instruction.mnemonic = ".byte";
    instruction.operands = text.data();
    return instruction;
  }
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = std::byteswap(word);
  const arch::a64::MemoryAccess access = arch::a64::classify(word);
  if (access && access.encoding->group == arch::a64::Group::kLse128) {
    instruction.mnemonic = arch::a64::format_mnemonic(word).view();
    instruction.operands = pair_operands(word);
    return instruction;
  }
  std::snprintf(text.data(), text.size(), "0x%08" PRIx32, word);
  instruction.mnemonic = ".word";
  instruction.operands = text.data();
  if (access) {
    instruction.operands += "  // ";
    instruction.operands += arch::a64::format_mnemonic(word).view();
  }
  return instruction;
}

}  // namespace

std::string DisassembledInstruction::text() const {
  return operands.empty() ? mnemonic : mnemonic + " " + operands;
}

Result<std::vector<DisassembledInstruction>> disassemble(InstructionSet instruction_set,
                                                         std::span<const std::byte> code,
                                                         std::uint64_t address) {
  const bool a64 = instruction_set == InstructionSet::kA64;
  const std::size_t unit = a64 ? 4 : 1;
  if (address % unit != 0 || code.size() % unit != 0) {
    return std::unexpected(Error{.code = ErrorCode::kMisaligned,
                                 .operation = kOperation,
                                 .address = address,
                                 .length = code.size(),
                                 .detail = "A64 code comes in words of 4 bytes"});
  }
  int major = 0;
  int minor = 0;
  cs_version(&major, &minor);
  if (major < 5) {
    return std::unexpected(
        Error{.code = ErrorCode::kUnsupported,
              .operation = kOperation,
              .detail = "Capstone before 5 leaves out the arm64 atomics without saying so"});
  }
  auto opened = std::make_unique<csh>();
  const cs_err error = a64 ? cs_open(CS_ARCH_ARM64, CS_MODE_LITTLE_ENDIAN, opened.get())
                           : cs_open(CS_ARCH_X86, CS_MODE_64, opened.get());
  if (error != CS_ERR_OK) {
    return std::unexpected(
        Error{.code = error == CS_ERR_MEM ? ErrorCode::kOutOfMemory : ErrorCode::kUnsupported,
              .operation = kOperation,
              .detail = cs_strerror(error)});
  }
  const std::unique_ptr<csh, Closer> handle(opened.release());
  const std::unique_ptr<cs_insn, Freer> decoded(cs_malloc(*handle));
  if (decoded == nullptr) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfMemory, .operation = kOperation});
  }

  std::vector<DisassembledInstruction> instructions;
  const auto* next = reinterpret_cast<const std::uint8_t*>(code.data());
  std::size_t left = code.size();
  while (left != 0) {
    const std::uint64_t before = address;
    const auto* bytes = reinterpret_cast<const std::byte*>(next);
    if (cs_disasm_iter(*handle, &next, &left, &address, decoded.get())) {
      instructions.push_back({.address = before,
                              .bytes = {bytes, bytes + decoded->size},
                              .mnemonic = decoded->mnemonic,
                              .operands = decoded->op_str});
    } else {
      instructions.push_back(unknown_to_capstone(instruction_set, {bytes, unit}, before));
      next += unit;
      left -= unit;
      address += unit;
    }
  }
  return instructions;
}

Result<std::string> disassemble_to_text(InstructionSet instruction_set,
                                        std::span<const std::byte> code, std::uint64_t address) {
  const Result<std::vector<DisassembledInstruction>> instructions =
      disassemble(instruction_set, code, address);
  if (!instructions) return std::unexpected(instructions.error());
  std::string text;
  for (const DisassembledInstruction& instruction : *instructions) {
    std::array<char, 32> head{};
    std::snprintf(head.data(), head.size(), "%12" PRIx64 ":  ", instruction.address);
    text += head.data();
    std::string bytes;
    for (const std::byte byte : instruction.bytes) {
      std::snprintf(head.data(), head.size(), "%02x ", std::to_integer<unsigned>(byte));
      bytes += head.data();
    }
    const std::size_t column = instruction_set == InstructionSet::kA64 ? 14 : 26;
    if (bytes.size() < column) bytes.append(column - bytes.size(), ' ');
    text += bytes + instruction.text() + "\n";
  }
  return text;
}

}  // namespace touchstone::jit
