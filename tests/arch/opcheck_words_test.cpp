// SPDX-License-Identifier: MIT
#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "words.h"

namespace touchstone::arch::opcheck {
namespace {

using ::testing::HasSubstr;

std::string reason(std::string_view token, WordNotation notation = WordNotation::kHex) {
  const auto word = parse_word(token, notation);
  return word ? "accepted" : word.error();
}

TEST(ParseWord, HexadecimalWithAndWithoutPrefix) {
  EXPECT_EQ(parse_word("b8210002", WordNotation::kHex), 0xb8210002U);
  EXPECT_EQ(parse_word("0xB8210002", WordNotation::kHex), 0xb8210002U);
  EXPECT_EQ(parse_word("0X1f", WordNotation::kHex), 0x1fU);
  EXPECT_EQ(parse_word("0", WordNotation::kHex), 0U);
  EXPECT_EQ(parse_word("ffffffff", WordNotation::kHex), 0xffffffffU);
}

TEST(ParseWord, DecimalIsTheValueAndHasNoPrefix) {
  EXPECT_EQ(parse_word("4294967295", WordNotation::kDecimal), 0xffffffffU);
  EXPECT_EQ(parse_word("10", WordNotation::kDecimal), 10U);
  EXPECT_THAT(reason("4294967296", WordNotation::kDecimal), HasSubstr("exceeds 32 bits"));
  EXPECT_THAT(reason("99999999999999999999999", WordNotation::kDecimal),
              HasSubstr("exceeds 32 bits"));
  EXPECT_THAT(reason("0x10", WordNotation::kDecimal), HasSubstr("not decimal"));
  EXPECT_THAT(reason("ff", WordNotation::kDecimal), HasSubstr("not decimal"));
}

TEST(ParseWord, BytesAreInMemoryOrder) {
  EXPECT_EQ(parse_word("020021b8", WordNotation::kBytes), 0xb8210002U);
  EXPECT_THAT(reason("20021b8", WordNotation::kBytes), HasSubstr("7 hexadecimal digits"));
  EXPECT_THAT(reason("020021b800", WordNotation::kBytes), HasSubstr("10 hexadecimal digits"));
}

TEST(ParseWord, SaysWhyATokenIsNoWord) {
  EXPECT_THAT(reason(""), HasSubstr("empty"));
  EXPECT_THAT(reason("0x"), HasSubstr("no digits"));
  EXPECT_THAT(reason("xyz"), HasSubstr("not hexadecimal"));
  EXPECT_THAT(reason("-1"), HasSubstr("not hexadecimal"));
  EXPECT_THAT(reason("+1"), HasSubstr("not hexadecimal"));
  EXPECT_THAT(reason(" 1"), HasSubstr("not hexadecimal"));
  EXPECT_THAT(reason("0x0x1"), HasSubstr("not hexadecimal"));
  EXPECT_THAT(reason("123456789"), HasSubstr("9 digits"));
  EXPECT_THAT(reason(std::string_view("1\0", 2)), HasSubstr("not hexadecimal"));
}

TEST(Printable, EscapesAndCuts) {
  EXPECT_EQ(printable("b821"), "b821");
  EXPECT_EQ(printable("a\n\x1b\xff"), "a\\x0a\\x1b\\xff");
  EXPECT_EQ(printable(std::string(50, 'a')), std::string(40, 'a') + "...");
}

}  // namespace
}  // namespace touchstone::arch::opcheck
