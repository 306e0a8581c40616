// SPDX-License-Identifier: MIT
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <capstone/capstone.h>
#include <fmt/format.h>

#include "oracle.h"

namespace touchstone::arch::opcheck {
namespace {

struct InstructionDeleter {
  void operator()(cs_insn* instruction) const { cs_free(instruction, 1); }
};

class CapstoneOracle final : public Oracle {
 public:
  // Takes over an open handle.
  CapstoneOracle(csh handle, cs_insn* instruction) : handle_(handle), instruction_(instruction) {}
  ~CapstoneOracle() override {
    instruction_.reset();
    cs_close(&handle_);
  }

  std::expected<void, std::string> decode(std::span<const std::uint32_t> words,
                                          std::span<const Reading*> readings) override {
    for (std::size_t i = 0; i < words.size(); ++i) {
      readings[i] = disassemble(words[i])
                        ? table_.intern(instruction_->mnemonic, instruction_->op_str)
                        : nullptr;
    }
    return {};
  }

  std::expected<std::optional<std::string>, std::string> text(std::uint32_t word) override {
    if (!disassemble(word)) return std::nullopt;
    return fmt::format("{} {}", instruction_->mnemonic, instruction_->op_str);
  }

 private:
  bool disassemble(std::uint32_t word) {
    const auto bytes = std::bit_cast<std::array<std::uint8_t, 4>>(word);
    const std::uint8_t* code = bytes.data();
    std::size_t size = bytes.size();
    std::uint64_t address = 0;
    return cs_disasm_iter(handle_, &code, &size, &address, instruction_.get());
  }

  csh handle_;
  std::unique_ptr<cs_insn, InstructionDeleter> instruction_;
  ReadingTable table_;
};

class CapstoneSource final : public OracleSource {
 public:
  OracleKind kind() const override { return OracleKind::kCapstone; }

  OracleVersion version() const override {
    int major = 0;
    int minor = 0;
    cs_version(&major, &minor);
    // cs_version leaves the patch level out; the header that the tool was built with has it.
    const bool same = major == CS_VERSION_MAJOR && minor == CS_VERSION_MINOR;
    return {.major = static_cast<unsigned>(major),
            .minor = static_cast<unsigned>(minor),
            .patch = same ? static_cast<unsigned>(CS_VERSION_EXTRA) : 0U};
  }

  std::string location() const override { return "linked in"; }

  std::expected<std::unique_ptr<Oracle>, std::string> open() const override {
    csh handle = 0;
    const cs_err status = cs_open(CS_ARCH_ARM64, CS_MODE_LITTLE_ENDIAN, &handle);
    if (status != CS_ERR_OK) {
      return std::unexpected(fmt::format("capstone: {}", cs_strerror(status)));
    }
    cs_insn* const instruction = cs_malloc(handle);
    if (instruction == nullptr) {
      cs_close(&handle);
      return std::unexpected("capstone: out of memory");
    }
    return std::make_unique<CapstoneOracle>(handle, instruction);
  }
};

}  // namespace

std::unique_ptr<OracleSource> capstone_source() {
  return std::make_unique<CapstoneSource>();
}

}  // namespace touchstone::arch::opcheck
