// SPDX-License-Identifier: MIT
// The table's mnemonics against LLVM's, for every value of the bits that are no register and
// several of those that are. touchstone-opcheck's sweep goes over all words and all disassemblers.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <touchstone/arch/a64/classify.h>

#include "a64_golden_words.h"
#include "oracle.h"

namespace touchstone::arch::a64 {
namespace {

/// The first release that decodes FEAT_LSUI and FEAT_LSFE.
constexpr unsigned kFirstComplete = 22;

std::vector<std::uint32_t> sample() {
  std::vector<std::uint32_t> words;
  for (std::uint32_t key = 0; key < 1U << detail::kKeyBits; ++key) {
    const std::uint32_t fixed = 0x08000000U | (key & 0x3fU) << 10U | (key & 0x3c0U) << 15U |
                                (key & 0x400U) << 16U | (key & 0x7800U) << 17U;
    for (const std::uint32_t rs : {4U, 5U, 31U}) {
      for (const std::uint32_t rt : {2U, 3U, 24U, 31U}) {
        words.push_back(fixed | rs << 16U | 1U << 5U | rt);
      }
    }
  }
  // SYS and SYSL.
  for (std::uint32_t low = 0; low < 1U << 19U; low += 16) {
    words.push_back(0xd5080000U | low | 3U);
    words.push_back(0xd5280000U | low | 3U);
  }
  return words;
}

TEST(Llvm, NamesEverySampledWordAsTheTableDoes) {
  const auto source = opcheck::find_llvm("");
  if (!source) GTEST_SKIP() << "no LLVM: " << source.error();
  if ((*source)->version().major < kFirstComplete) {
    GTEST_SKIP() << (*source)->name() << " does not decode FEAT_LSUI and FEAT_LSFE";
  }
  const auto oracle = (*source)->open();
  ASSERT_TRUE(oracle) << oracle.error();

  std::set<std::string_view> listed;
  for (const GoldenWord& golden : kGoldenWords) {
    const std::size_t first = golden.text.find(' ');
    const std::size_t comma = golden.text.find(',');
    listed.insert(golden.text.substr(0, golden.text.starts_with("dc ") ? comma : first));
  }

  const std::vector<std::uint32_t> words = sample();
  std::vector<const opcheck::Reading*> readings(words.size());
  ASSERT_TRUE((*oracle)->decode(words, readings));
  std::size_t named = 0;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint32_t word = words[i];
    const Mnemonic mnemonic = format_mnemonic(word);
    std::string_view theirs;
    if (readings[i] != nullptr && listed.contains(readings[i]->mnemonic)) {
      theirs = readings[i]->mnemonic;
    }
    // LLVM's C interface refuses what LLVM decodes with a warning.
    const MemoryAccess access = classify(word);
    const bool stgp_overlap = mnemonic.view() == "stgp" && ((word >> 10U) & 31U) == 1U;
    if (readings[i] == nullptr && (access.constrained || stgp_overlap)) {
      ++refused;
      continue;
    }
    EXPECT_EQ(mnemonic.view(), theirs) << std::hex << word;
    named += theirs.empty() ? 0U : 1U;
  }
  // That nothing is compared with nothing.
  EXPECT_GT(named, 20000U);
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace touchstone::arch::a64
