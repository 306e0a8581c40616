// SPDX-License-Identifier: MIT
// Loops as compilers emit them (SCAN_FIXTURES, built from scan_touch_fixture.cpp) and as written by
// hand.
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "code_inventory.h"
#include "code_source.h"
#include "elf_image.h"
#include "file_bytes.h"
#include "scan_elf_builder.h"
#include "touch_loops.h"

namespace touchstone::arch::opcheck {
namespace {

using ::testing::ElementsAre;
using testing::ElfBuilder;
using ::testing::IsEmpty;
using testing::kLdaddZero;
using testing::kRet;

std::vector<std::string> fixtures() {
  std::istringstream list(SCAN_FIXTURES);
  std::vector<std::string> paths;
  for (std::string path; std::getline(list, path, ':');) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

// touch_NAME_STRIDE: what the name says of the stride.
std::optional<std::int64_t> stride_by_name(std::string_view name) {
  const std::string last(name.substr(name.rfind('_') + 1));
  if (last == "unknown") return std::nullopt;
  return std::strtoll(last.c_str(), nullptr, 10);
}

TEST(ScanTouchLoops, FindsAllThatCompilersEmitAndNothingElse) {
  if (fixtures().empty()) GTEST_SKIP() << "no compiler for arm64: no fixtures";
  for (const std::string& path : fixtures()) {
    SCOPED_TRACE(path);
    const auto file = FileBytes::open(path);
    ASSERT_TRUE(file) << file.error().message();
    std::set<std::string> missing;
    const auto source = read_code(file->bytes(), [&](std::string_view, const CodeImage& image) {
      for (const CodeSymbol& symbol : image.functions) {
        if (symbol.name.starts_with("touch_") && symbol.name != "touch_one") {
          missing.emplace(symbol.name);
        }
      }
      EXPECT_EQ(missing.size(), 20U);
      for (const TouchLoop& loop : find_touch_loops(image).loops) {
        const CodeSymbol* const function = image.find_function(loop.site);
        ASSERT_NE(function, nullptr);
        EXPECT_TRUE(function->name.starts_with("touch_")) << "false report in " << function->name;
        missing.erase(std::string(function->name));
        const auto stride = stride_by_name(function->name);
        ASSERT_EQ(loop.stride.has_value(), stride.has_value()) << function->name;
        if (stride) {
          EXPECT_EQ(std::abs(*loop.stride), *stride) << function->name;
        }
        EXPECT_EQ(loop.confidence, stride ? Confidence::kHigh : Confidence::kMedium);
      }
    });
    ASSERT_TRUE(source) << source.error().message();
    EXPECT_THAT(missing, IsEmpty());
  }
}

TEST(ScanTouchLoops, TellsLseOutlineAndLlScApart) {
  if (fixtures().empty()) GTEST_SKIP() << "no compiler for arm64: no fixtures";
  for (const std::string& path : fixtures()) {
    SCOPED_TRACE(path);
    const auto file = FileBytes::open(path);
    ASSERT_TRUE(file);
    const auto source = read_code(file->bytes(), [&](std::string_view, const CodeImage& image) {
      const CodeInventory inventory = take_inventory(image);
      const bool outline = path.find("outline.") != std::string::npos;
      const bool lse = path.find("lse.") != std::string::npos;
      const bool llsc = path.find("llsc.") != std::string::npos;
      ASSERT_EQ(outline + lse + llsc, 1);
      EXPECT_EQ(inventory.outline_calls > 0, outline);
      EXPECT_EQ(inventory.inline_atomics > 0, lse);
      EXPECT_EQ(inventory.inline_store_exclusives > 0, llsc);
    });
    ASSERT_TRUE(source);
  }
}

// Loops by hand -------------------------------------------------------------------------------

std::vector<std::optional<std::int64_t>> strides(const std::vector<std::uint32_t>& code) {
  ElfBuilder builder;
  builder.code = code;
  const auto file = builder.build();
  const auto image = read_elf(file);
  std::vector<std::optional<std::int64_t>> found;
  if (!image) return found;
  for (const TouchLoop& loop : find_touch_loops(*image).loops) found.push_back(loop.stride);
  return found;
}

TEST(ScanTouchLoops, UnrolledLoopsAreToldByTheDistanceBetweenTouches) {
  EXPECT_THAT(strides({kLdaddZero,  // ldadd wzr, w2, [x0]
                       0x91400403,  // add x3, x0, #1, lsl #12
                       0xb83f0062,  // ldadd wzr, w2, [x3]
                       0x91400800,  // add x0, x0, #2, lsl #12
                       0xeb01001f,  // cmp x0, x1
                       0x54ffff63,  // b.lo .-20
                       kRet}),
              ElementsAre(4096, 4096));
}

TEST(ScanTouchLoops, UnrolledLinesAreNoPages) {
  // Two touches 64 bytes apart, each going on by 128: no page step, whatever the loop count.
  EXPECT_THAT(strides({kLdaddZero,  // ldadd wzr, w2, [x0]
                       0x91010003,  // add x3, x0, #64
                       0xb83f0062,  // ldadd wzr, w2, [x3]
                       0x91020000,  // add x0, x0, #128
                       0xeb01001f,  // cmp x0, x1
                       0x54ffff63,  // b.lo .-20
                       kRet}),
              IsEmpty());
}

TEST(ScanTouchLoops, StrideInARegisterSetBeforeTheLoop) {
  EXPECT_THAT(strides({0x52a00043,  // mov w3, #0x20000
                       kLdaddZero,  // ldadd wzr, w2, [x0]
                       0x8b030000,  // add x0, x0, x3
                       0xeb01001f,  // cmp x0, x1
                       0x54ffffa3,  // b.lo .-12
                       kRet}),
              ElementsAre(0x20000));
}

TEST(ScanTouchLoops, StrideThatChangesIsNone) {
  EXPECT_THAT(strides({kLdaddZero,  // ldadd wzr, w2, [x0]
                       0x8b030000,  // add x0, x0, x3
                       0x91400463,  // add x3, x3, #1, lsl #12
                       0xeb01001f,  // cmp x0, x1
                       0x54ffff83,  // b.lo .-16
                       kRet}),
              IsEmpty());
}

TEST(ScanTouchLoops, OperandOfAnyKindThatKeepsTheValue) {
  const auto with = [](std::uint32_t atomic, std::uint32_t before) {
    return strides({before, atomic,
                    0x91400400,  // add x0, x0, #1, lsl #12
                    0xeb01001f,  // cmp x0, x1
                    0x54ffffa3,  // b.lo .-12
                    kRet})
        .size();
  };
  constexpr std::uint32_t kAllOnes = 0x12800003;   // mov w3, #-1
  constexpr std::uint32_t kZero = 0x52800003;      // mov w3, #0
  constexpr std::uint32_t kLargest = 0x12b00003;   // mov w3, #0x7fffffff
  constexpr std::uint32_t kSmallest = 0x52b00003;  // mov w3, #0x80000000
  const auto atomic = [](std::uint32_t opc) { return 0xb8230002U | opc << 12U; };
  EXPECT_EQ(with(atomic(0), kZero), 1U);  // ldadd
  EXPECT_EQ(with(atomic(0), kAllOnes), 0U);
  EXPECT_EQ(with(atomic(1), kZero), 1U);  // ldclr
  EXPECT_EQ(with(atomic(1), kAllOnes), 0U);
  EXPECT_EQ(with(atomic(2), kZero), 1U);  // ldeor
  EXPECT_EQ(with(atomic(3), kZero), 1U);  // ldset
  EXPECT_EQ(with(atomic(3), kAllOnes), 0U);
  EXPECT_EQ(with(atomic(4), kSmallest), 1U);  // ldsmax
  EXPECT_EQ(with(atomic(4), kZero), 0U);
  EXPECT_EQ(with(atomic(5), kLargest), 1U);  // ldsmin
  EXPECT_EQ(with(atomic(5), kAllOnes), 0U);
  EXPECT_EQ(with(atomic(6), kZero), 1U);  // ldumax
  EXPECT_EQ(with(atomic(6), kAllOnes), 0U);
  EXPECT_EQ(with(atomic(7), kAllOnes), 1U);  // ldumin
  EXPECT_EQ(with(atomic(7), kZero), 0U);
  EXPECT_EQ(with(0xb8238002, kZero), 0U);              // swp
  EXPECT_EQ(with(0x193f3003 | 3U << 16U, kZero), 0U);  // ldsetp x3, x3: a pair needs x3 twice
}

TEST(ScanTouchLoops, UnreachableAndEndlessCodeIsTaken) {
  EXPECT_THAT(strides({0x14000000}), IsEmpty());                    // b .
  EXPECT_THAT(strides({kRet, kLdaddZero, 0x17ffffff}), IsEmpty());  // behind the return, no step
  EXPECT_THAT(strides({kRet, kLdaddZero, 0x91400400, 0x17fffffe}), ElementsAre(4096));
}

}  // namespace
}  // namespace touchstone::arch::opcheck
