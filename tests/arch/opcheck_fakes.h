// SPDX-License-Identifier: MIT
// Oracles and word spaces of a test's own making.
#ifndef TOUCHSTONE_TESTS_ARCH_OPCHECK_FAKES_H_
#define TOUCHSTONE_TESTS_ARCH_OPCHECK_FAKES_H_

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracle.h"
#include "reading.h"
#include "word_space.h"

namespace touchstone::arch::opcheck {

/// The words listed, two to a chunk.
class ListedWords final : public WordSpace {
 public:
  explicit ListedWords(std::vector<std::uint32_t> words) : words_(std::move(words)) {}
  std::string_view name() const override { return "listed"; }
  std::size_t chunk_count() const override { return (words_.size() + 1) / 2; }
  std::uint64_t chunk_size(std::size_t chunk) const override {
    return chunk * 2 + 1 < words_.size() ? 2 : 1;
  }
  void fill(std::size_t chunk, std::vector<std::uint32_t>& words) const override {
    const auto begin = words_.begin() + static_cast<std::ptrdiff_t>(chunk * 2);
    words.assign(begin, begin + static_cast<std::ptrdiff_t>(chunk_size(chunk)));
  }

 private:
  std::vector<std::uint32_t> words_;
};

/// "mnemonic operands" of a word, or nothing where the oracle decodes nothing.
using Disassembler = std::function<std::optional<std::string>(std::uint32_t word)>;

class FakeOracle final : public Oracle {
 public:
  FakeOracle(Disassembler disassembler, std::string failure)
      : disassembler_(std::move(disassembler)), failure_(std::move(failure)) {}

  std::expected<void, std::string> decode(std::span<const std::uint32_t> words,
                                          std::span<const Reading*> readings) override {
    if (!failure_.empty()) return std::unexpected(failure_);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::optional<std::string> text = disassembler_(words[i]);
      readings[i] = nullptr;
      if (!text) continue;
      const std::string_view view = *text;
      const std::size_t space = std::min(view.find(' '), view.size());
      readings[i] = table_.intern(view.substr(0, space), view.substr(space));
    }
    return {};
  }

  std::expected<std::optional<std::string>, std::string> text(std::uint32_t word) override {
    return disassembler_(word);
  }

 private:
  Disassembler disassembler_;
  std::string failure_;
  ReadingTable table_;
};

/// Makes FakeOracles. With a failure, they fail at the first word.
class FakeSource final : public OracleSource {
 public:
  explicit FakeSource(Disassembler disassembler, OracleVersion version = {1, 0, 0},
                      std::string failure = "")
      : disassembler_(std::move(disassembler)), version_(version), failure_(std::move(failure)) {}
  OracleKind kind() const override { return OracleKind::kLlvm; }
  OracleVersion version() const override { return version_; }
  std::string location() const override { return "test"; }
  std::expected<std::unique_ptr<Oracle>, std::string> open() const override {
    return std::make_unique<FakeOracle>(disassembler_, failure_);
  }

 private:
  Disassembler disassembler_;
  OracleVersion version_;
  std::string failure_;
};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_TESTS_ARCH_OPCHECK_FAKES_H_
