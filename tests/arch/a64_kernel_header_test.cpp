// SPDX-License-Identifier: MIT
#include "a64_kernel_header.h"

#include <cstdint>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/arch/a64/classify.h>
#include <touchstone/arch/a64/covers.h>
#include <touchstone/arch/a64/kernel_header.h>

namespace touchstone::arch::a64 {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(KernelHeader, CompiledAsCIsThePredicates) {
  std::uint64_t wrong = 0;
  std::uint64_t forced = 0;
  for (std::uint32_t high = 0; high < 1U << 22U; ++high) {
    // All of Rt in the load/store space; the slow tests visit every word.
    const std::uint32_t registers = detail::in_load_store_space(high << 10U) ? 32 : 1;
    for (std::uint32_t low = 0; low < registers; ++low) {
      const std::uint32_t word = high << 10U | low;
      forced += kernel_is_forced_write(word) ? 1U : 0U;
      wrong += kernel_is_forced_write(word) != is_forced_write(word) ? 1U : 0U;
      wrong += kernel_is_load_exclusive(word) != is_load_exclusive(word) ? 1U : 0U;
    }
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(forced, 356388U);
}

TEST(KernelHeader, IsInKernelStyle) {
  const Result<std::string> text = kernel_header();
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, StartsWith("/* SPDX-License-Identifier: GPL-2.0-only */\n"));
  EXPECT_THAT(*text,
              HasSubstr("static __always_inline bool aarch64_insn_is_forced_write(u32 insn)"));
  EXPECT_THAT(*text,
              HasSubstr("static __always_inline bool aarch64_insn_is_load_exclusive(u32 insn)"));
  std::istringstream lines(*text);
  std::string line;
  while (std::getline(lines, line)) {
    std::size_t columns = 0;
    for (const char c : line) columns = c == '\t' ? (columns / 8 + 1) * 8 : columns + 1;
    EXPECT_LE(columns, 80U) << line;
    EXPECT_FALSE(line.ends_with(' ') || line.ends_with('\t')) << line;
    EXPECT_FALSE(line.starts_with("  ")) << line;
  }
  EXPECT_TRUE(text->ends_with("#endif /* __ASM_FORCE_WRITE_INSN_H */\n"));
}

TEST(KernelHeader, HoldsEveryTermOfTheCoversOnce) {
  const std::string text = kernel_header().value();
  std::size_t compares = 0;
  for (std::size_t at = 0; (at = text.find("if ((insn & 0x", at)) != std::string::npos; ++at) {
    ++compares;
  }
  const Cover cover = exact_cover().value();
  // A gate for each branch and one test of the two registers besides.
  EXPECT_EQ(compares, cover.terms.size() + decision_tree(cover).branches.size() + 1);
}

}  // namespace
}  // namespace touchstone::arch::a64
