// SPDX-License-Identifier: MIT
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "child_process.h"
#include "oracle.h"

namespace touchstone::arch::opcheck {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint32_t kLdadd = 0xb8210002;
constexpr std::uint32_t kUdf = 0x00000000;
// No release of any of the oracles decodes it: bits 28:25 are unallocated.
constexpr std::uint32_t kUnallocated = 0x02000000;

// What holds of every oracle, whatever its release.
void expect_oracle(const OracleSource& source) {
  auto oracle = source.open();
  ASSERT_TRUE(oracle) << oracle.error();
  const auto text = (*oracle)->text(kLdadd);
  ASSERT_TRUE(text) << text.error();
  EXPECT_EQ(*text, "ldadd w1, w2, [x0]");
  const auto nothing = (*oracle)->text(kUnallocated);
  ASSERT_TRUE(nothing) << nothing.error();
  EXPECT_EQ(*nothing, std::nullopt);

  const std::vector<std::uint32_t> words{kLdadd, kUnallocated, kLdadd ^ 1, kUdf, kUdf, kUdf, kUdf};
  std::vector<const Reading*> readings(words.size());
  ASSERT_TRUE((*oracle)->decode(words, readings));
  ASSERT_NE(readings[0], nullptr);
  EXPECT_EQ(readings[0]->mnemonic, "ldadd");
  EXPECT_EQ(readings[0]->operands, "ww");
  EXPECT_TRUE(readings[0]->access.has_value());
  EXPECT_EQ(readings[1], nullptr);
  EXPECT_EQ(readings[2], readings[0]) << "they differ in a register alone";
  ASSERT_NE(readings[6], nullptr) << "runs of zeros are words like others";
  EXPECT_EQ(readings[6]->mnemonic, "udf");

  auto second = source.open();
  ASSERT_TRUE(second);
  std::vector<const Reading*> again(words.size());
  ASSERT_TRUE((*second)->decode(words, again));
  EXPECT_EQ(again[0]->mnemonic, "ldadd");
}

TEST(Capstone, DecodesAndIsRelease5OrNewer) {
  const auto source = capstone_source();
  EXPECT_GE(source->version(), (OracleVersion{5, 0, 0}));
  EXPECT_THAT(source->name(), StartsWith("capstone 5."));
  expect_oracle(*source);
}

TEST(Llvm, DecodesWhereFound) {
  const auto source = find_llvm("");
  if (!source) GTEST_SKIP() << source.error();
  EXPECT_GE((*source)->version().major, 14U);
  EXPECT_THAT((*source)->location(), HasSubstr("LLVM"));
  expect_oracle(**source);
}

TEST(Llvm, SaysWhatIsWrongWithALibrary) {
  const auto missing = find_llvm("/nonexistent/libLLVM.so");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error(), HasSubstr("/nonexistent/libLLVM.so"));
  const auto other = find_llvm("libc.so.6");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error(), HasSubstr("libc.so.6 is no libLLVM"));
}

TEST(Objdump, DecodesWhereFound) {
  const auto source = find_objdump("");
  if (!source) GTEST_SKIP() << source.error();
  EXPECT_GE((*source)->version().major, 2U);
  expect_oracle(**source);
}

TEST(Objdump, SaysWhatIsWrongWithAProgram) {
  const auto missing = find_objdump("/nonexistent/objdump");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error(), HasSubstr("cannot run /nonexistent/objdump"));
  const auto other = find_objdump("true");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error(), HasSubstr("is not GNU objdump"));
}

// A program of the test's own that answers as objdump does to --version and -i, and then lists less
// than it was given.
TEST(Objdump, AListingThatIsShortIsAnError) {
  const std::string path = ::testing::TempDir() + "short_objdump." + std::to_string(getpid());
  {
    std::ofstream script(path);
    script << "#!/bin/sh\n"
              "case $1 in\n"
              "--version) echo 'GNU objdump (GNU Binutils) 2.44.50' ;;\n"
              "-i) echo elf64-littleaarch64 ;;\n"
              "*) printf '   0:\\tnop\\n' ;;\n"
              "esac\n";
  }
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const auto source = find_objdump(path);
  ASSERT_TRUE(source) << source.error();
  EXPECT_EQ((*source)->version(), (OracleVersion{2, 44, 50}));
  auto oracle = (*source)->open();
  ASSERT_TRUE(oracle);
  const std::vector<std::uint32_t> words{kLdadd, kLdadd};
  std::vector<const Reading*> readings(words.size());
  const auto done = (*oracle)->decode(words, readings);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error(), HasSubstr("listed 1 of 2 words"));
  std::filesystem::remove(path);
}

TEST(RunProgram, HandsOverLinesAndTheLastWithoutItsEnd) {
  std::vector<std::string> lines;
  const auto done = run_program({"sh", "-c", "printf 'a\\n\\nb'"},
                                [&](std::string_view line) { lines.emplace_back(line); });
  ASSERT_TRUE(done) << done.error();
  EXPECT_THAT(lines, ElementsAre("a", "", "b"));
}

TEST(RunProgram, SaysHowAProgramEnded) {
  const auto ignore = [](std::string_view) {};
  const auto failed = run_program({"sh", "-c", "exit 3"}, ignore);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error(), "sh ended with exit status 3");
  const auto killed = run_program({"sh", "-c", "kill -9 $$"}, ignore);
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error(), "sh was ended by signal 9");
}

TEST(Oracle, NamesAreFoundAgain) {
  for (const OracleKind kind : {OracleKind::kCapstone, OracleKind::kLlvm, OracleKind::kObjdump}) {
    EXPECT_EQ(oracle_kind_of(to_string(kind)), kind);
  }
  EXPECT_EQ(oracle_kind_of("gas"), std::nullopt);
}

}  // namespace
}  // namespace touchstone::arch::opcheck
