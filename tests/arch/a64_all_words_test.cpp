// SPDX-License-Identifier: MIT
// Every one of the 2^32 words, where the fast tests leave out the register that nothing looks at.
#include <cstdint>

#include <gtest/gtest.h>

#include <touchstone/arch/a64/classify.h>
#include <touchstone/arch/a64/covers.h>

#include "a64_kernel_header.h"

namespace touchstone::arch::a64 {
namespace {

/// A sixteenth of the words, so that no case comes near a time limit where it is emulated.
class AllWords : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  template <typename Visit>
  void for_each_word(Visit visit) {
    const std::uint32_t first = GetParam() << 28U;
    for (std::uint32_t i = 0; i < 1U << 28U; ++i) visit(first | i);
  }
};

TEST_P(AllWords, TheKernelHeaderIsThePredicates) {
  std::uint64_t wrong = 0;
  for_each_word([&](std::uint32_t word) {
    wrong += kernel_is_forced_write(word) != is_forced_write(word) ? 1U : 0U;
    wrong += kernel_is_load_exclusive(word) != is_load_exclusive(word) ? 1U : 0U;
  });
  EXPECT_EQ(wrong, 0U);
}

TEST_P(AllWords, TheExactCoverIsTheForcedWrites) {
  const Result<Cover> cover = exact_cover();
  ASSERT_TRUE(cover);
  std::uint64_t wrong = 0;
  for_each_word([&](std::uint32_t word) {
    wrong += cover->matches(word) != is_forced_write(word) ? 1U : 0U;
  });
  EXPECT_EQ(wrong, 0U);
}

TEST_P(AllWords, ThePredicatesAreTheClassification) {
  std::uint64_t wrong = 0;
  std::uint64_t forced = 0;
  for_each_word([&](std::uint32_t word) {
    const FirstFault fault = classify(word).first_fault;
    wrong += is_forced_write(word) != (fault == FirstFault::kForcedWrite) ? 1U : 0U;
    wrong += is_load_exclusive(word) != (fault == FirstFault::kReadThenStxr) ? 1U : 0U;
    forced += fault == FirstFault::kForcedWrite ? 1U : 0U;
  });
  EXPECT_EQ(wrong, 0U);
  // The words of the exact cover with these four top bits, by symbolic counting.
  std::vector<Term> cover = exact_cover().value().terms;
  std::vector<Term> here;
  for (Term term : cover) {
    const std::uint32_t top = GetParam() << 28U;
    if (((term.cube.value ^ top) & term.cube.mask & 0xf0000000U) != 0) continue;
    term.cube.mask |= 0xf0000000U;
    term.cube.value |= top;
    here.push_back(term);
  }
  EXPECT_EQ(count_words(here), forced);
}

INSTANTIATE_TEST_SUITE_P(Top, AllWords, ::testing::Range(0U, 16U));

}  // namespace
}  // namespace touchstone::arch::a64
