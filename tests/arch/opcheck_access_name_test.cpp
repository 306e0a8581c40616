// SPDX-License-Identifier: MIT
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "access_name.h"
#include "reading.h"

namespace touchstone::arch::opcheck {
namespace {

using a64::Group;
using a64::Kind;
using a64::Order;

std::optional<AccessName> name_of(std::string_view mnemonic, std::string_view operands) {
  ReadingTable table;
  return table.intern(mnemonic, operands)->access;
}

TEST(AccessName, ReadsOrderAndWidth) {
  EXPECT_EQ(name_of("ldaddalb", "w1, w2, [x0]"),
            (AccessName{Group::kLse, Kind::kReadModifyWrite, Order::kAcquireRelease, 1}));
  EXPECT_EQ(name_of("staddlh", "w1, [x0]"),
            (AccessName{Group::kLse, Kind::kReadModifyWrite, Order::kRelease, 2}));
  EXPECT_EQ(name_of("ldadd", "x1, xzr, [sp]"),
            (AccessName{Group::kLse, Kind::kReadModifyWrite, Order::kRelaxed, 8}));
  EXPECT_EQ(name_of("swpa", "w1, wzr, [x0]"),
            (AccessName{Group::kSwp, Kind::kReadModifyWrite, Order::kAcquire, 4}));
}

TEST(AccessName, TellsPairsAndUnprivilegedFormsApart) {
  EXPECT_EQ(name_of("cas", "w1, w2, [x0]")->group, Group::kCas);
  EXPECT_EQ(name_of("casp", "x0, x1, x2, x3, [x4]"),
            (AccessName{Group::kCasp, Kind::kReadModifyWrite, Order::kRelaxed, 16}));
  EXPECT_EQ(name_of("caspal", "w0, w1, w2, w3, [x4]")->width, 8);
  EXPECT_EQ(name_of("cast", "x1, x2, [x0]")->group, Group::kLsuiCas);
  EXPECT_EQ(name_of("caspalt", "x0, x1, x2, x3, [x4]"),
            (AccessName{Group::kLsuiCas, Kind::kReadModifyWrite, Order::kAcquireRelease, 16}));
  EXPECT_EQ(name_of("swpp", "x1, x2, [x0]")->group, Group::kLse128);
  EXPECT_EQ(name_of("swpt", "w1, w2, [x0]")->group, Group::kLsui);
  EXPECT_EQ(name_of("rcwsset", "x1, x2, [x0]")->group, Group::kRcw);
  EXPECT_EQ(name_of("rcwssetpl", "x1, x2, [x0]")->group, Group::kRcwPair);
  EXPECT_EQ(name_of("rcwscaspa", "x0, x1, x2, x3, [x4]")->group, Group::kRcwCas);
}

TEST(AccessName, StoreExclusivesTellTheirWidthBehindTheStatus) {
  EXPECT_EQ(name_of("stlxr", "w0, x1, [x2]"),
            (AccessName{Group::kExclusive, Kind::kStoreExclusive, Order::kRelease, 8}));
  EXPECT_EQ(name_of("stxp", "w0, w1, w3, [x2]")->width, 8);
  EXPECT_EQ(name_of("ldaxrb", "w1, [x2]"),
            (AccessName{Group::kExclusive, Kind::kLoadExclusive, Order::kAcquire, 1}));
}

TEST(AccessName, OperandsTellFormsOfOneNameApart) {
  EXPECT_EQ(name_of("ldapr", "w1, [x2]")->group, Group::kRcpc);
  EXPECT_EQ(name_of("ldapr", "w1, [x2], #4")->group, Group::kRcpcWriteback);
  EXPECT_EQ(name_of("stlr", "w1, [x2]")->group, Group::kOrdered);
  EXPECT_EQ(name_of("stlr", "w1, [x2, #-4]!")->group, Group::kRcpcWriteback);
  EXPECT_EQ(name_of("ldapur", "w1, [x2]")->group, Group::kRcpcUnscaled);
  EXPECT_EQ(name_of("ldapur", "q1, [x2]"),
            (AccessName{Group::kRcpcSimd, Kind::kLoad, Order::kAcquirePc, 16}));
  EXPECT_EQ(name_of("ldapursw", "x1, [x2]")->width, 4);
}

TEST(AccessName, MemoryCopyAndSetTakeTheirOptionsAlone) {
  EXPECT_EQ(name_of("cpyfprtwn", "[x0]!, [x1]!, x2!")->group, Group::kCopy);
  EXPECT_EQ(name_of("setgetn", "[x0]!, x1!, x2")->group, Group::kSet);
  EXPECT_EQ(name_of("setf8", "w0"), std::nullopt);
  EXPECT_EQ(name_of("setffr", ""), std::nullopt);
  EXPECT_EQ(name_of("cpy", "z0.b, p0/z, #1"), std::nullopt);
}

TEST(AccessName, SystemInstructionsAreNamedByTheirOperation) {
  EXPECT_EQ(name_of("dc", "zva, x0")->group, Group::kZero);
  EXPECT_EQ(name_of("dc", "ZVA, x0")->group, Group::kZero);
  EXPECT_EQ(name_of("dc", "civac, x0"), std::nullopt);
}

TEST(AccessName, NamesNothingElse) {
  for (const char* const mnemonic : {"ldr", "str", "ldp", "add", "casx", "ldaddx", "ldxrx", ""}) {
    EXPECT_EQ(name_of(mnemonic, "x0, [x1]"), std::nullopt) << mnemonic;
  }
  EXPECT_TRUE(is_plain_access("ldr"));
  EXPECT_TRUE(is_plain_access("prfm"));
  EXPECT_FALSE(is_plain_access("ldadd"));
  EXPECT_FALSE(is_plain_access("ldfoo"));
}

TEST(Reading, IsSharedByWordsThatDifferInRegistersAlone) {
  ReadingTable table;
  const Reading* const first = table.intern("ldadd", "w1, w2, [x0]");
  EXPECT_EQ(table.intern("ldadd", "w30, wzr, [sp]"), first);
  EXPECT_NE(table.intern("ldadd", "x1, x2, [x0]"), first);
  EXPECT_EQ(first->operands, "ww");
  EXPECT_EQ(table.intern("ldr", "x0, [x1], #8")->operands, "x!");
  EXPECT_EQ(table.intern("nop", "")->operands, "");
}

}  // namespace
}  // namespace touchstone::arch::opcheck
