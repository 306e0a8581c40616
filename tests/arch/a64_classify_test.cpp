// SPDX-License-Identifier: MIT
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <touchstone/arch/a64/classify.h>

namespace touchstone::arch::a64 {
namespace {

// The words that the documentation of touchstone-opcheck shows.
static_assert(format_mnemonic(0xb8210002).view() == "ldadd");
static_assert(classify(0xb8210002).first_fault == FirstFault::kForcedWrite);
static_assert(is_forced_write(0xb8210002) && v5::is_forced_write(0xb8210002));
static_assert(format_mnemonic(0x19221043).view() == "ldclrp");
static_assert(is_forced_write(0x19221043) && !v5::is_forced_write(0x19221043));
static_assert(format_mnemonic(0xf83f9042).view() == "st64b");
static_assert(classify(0xf83f9042).first_fault == FirstFault::kWrite);
static_assert(!is_forced_write(0xf83f9042));
static_assert(format_mnemonic(0xc85ffc02).view() == "ldaxr");
static_assert(classify(0xc85ffc02).first_fault == FirstFault::kReadThenStxr);
static_assert(is_load_exclusive(0xc85ffc02) && !is_forced_write(0xc85ffc02));

TEST(Table, ValuesLieWithinTheirMasks) {
  for (const Encoding& row : kEncodings) {
    EXPECT_EQ(row.cube.value & ~row.cube.mask, 0U) << row.pattern;
    EXPECT_FALSE(row.pattern.empty());
    EXPECT_FALSE(row.section.empty()) << row.pattern;
  }
}

}  // namespace
}  // namespace touchstone::arch::a64
