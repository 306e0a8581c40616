// SPDX-License-Identifier: MIT
#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <touchstone/arch/a64/kernel_header.h>

namespace {

constexpr std::string_view kPath = "arch/arm64/include/asm/force-write-insn.h";

/// What the patch adds as the new file at kPath.
std::string added_header(const std::string& patch) {
  std::ifstream in(patch);
  EXPECT_TRUE(in.is_open()) << patch;
  std::string text;
  bool in_file = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "+++ b/" + std::string(kPath)) {
      in_file = true;
    } else if (in_file && line.starts_with('+')) {
      text += line.substr(1) + "\n";
    } else if (in_file && !line.starts_with("@@")) {
      break;
    }
  }
  return text;
}

class KernelPatch : public testing::TestWithParam<const char*> {};

// The predicates in a series are the table's, byte for byte.
TEST_P(KernelPatch, FirstPatchAddsTheGeneratedHeader) {
  const auto header = touchstone::arch::a64::kernel_header();
  ASSERT_TRUE(header.has_value());
  const std::string patch = std::string(KERNEL_PATCH_FOLDER "/") + GetParam() +
                            "/0001-arm64-insn-tell-the-instructions-that-both-read-and-.patch";
  EXPECT_EQ(added_header(patch), *header);
}

INSTANTIATE_TEST_SUITE_P(Versions, KernelPatch, testing::Values("6.1", "6.12"));

}  // namespace
