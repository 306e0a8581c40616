// SPDX-License-Identifier: MIT
// Real libraries: counts equal to a disassembler's, and no loop reported where there is none.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <unistd.h>

#include <touchstone/arch/a64/encodings.h>

#include "code_inventory.h"
#include "code_source.h"
#include "file_bytes.h"
#include "touch_loops.h"

namespace touchstone::arch::opcheck {
namespace {

const char* const kFolder = "/usr/aarch64-linux-gnu/lib/";

// Standard output of a command, and whether it succeeded.
std::optional<std::string> output_of(const std::string& command) {
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 1U << 16U> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), got);
  }
  if (::pclose(pipe) != 0) return std::nullopt;
  return text;
}

std::string find_objdump() {
  for (const char* name : {"aarch64-linux-gnu-objdump", "llvm-objdump-22", "llvm-objdump-19"}) {
    if (output_of(std::string("command -v ") + name)) return name;
  }
  return "";
}

// The mnemonics of FEAT_LSE's atomics, by the manual's list of them.
bool is_lse_mnemonic(std::string_view mnemonic) {
  if (mnemonic.starts_with("cas") || mnemonic.starts_with("swp")) return true;
  for (const std::string_view prefix : {"ld", "st"}) {
    for (const std::string_view operation :
         {"add", "clr", "eor", "set", "smax", "smin", "umax", "umin"}) {
      if (mnemonic.starts_with(std::string(prefix) + std::string(operation))) return true;
    }
  }
  return false;
}

// What a disassembler lists.
struct Listed {
  std::uint64_t lse_atomics = 0;
  std::uint64_t exclusives = 0;
  std::uint64_t ordered = 0;
};

std::optional<Listed> listed(const std::string& objdump, const std::string& file) {
  // A mnemonic and its count on each line.
  const auto counts =
      output_of(objdump + " -d --no-show-raw-insn '" + file +
                "' | awk '/^ *[0-9a-f]+:/ {n[$2]++} END {for (m in n) print m, n[m]}'");
  if (!counts || counts->empty()) return std::nullopt;
  Listed total;
  std::istringstream lines(*counts);
  std::string mnemonic;
  for (std::uint64_t count = 0; lines >> mnemonic >> count;) {
    const std::string_view name = mnemonic;
    if (is_lse_mnemonic(name)) {
      total.lse_atomics += count;
    } else if (name.starts_with("ldx") || name.starts_with("ldax") || name.starts_with("stx") ||
               name.starts_with("stlx")) {
      // ldxr, ldxp, ldaxr, ldaxp, stxr, stxp, stlxr, stlxp and their b and h forms
      total.exclusives += count;
    } else if (name == "ldar" || name == "ldarb" || name == "ldarh" || name == "stlr" ||
               name == "stlrb" || name == "stlrh") {
      total.ordered += count;
    }
  }
  return total;
}

struct Scanned {
  std::uint64_t lse_atomics = 0;
  std::uint64_t exclusives = 0;
  std::uint64_t ordered = 0;
  std::uint64_t store_exclusives = 0;
  std::uint64_t outline_calls = 0;
  TouchLoops touch;
  std::string first_function;
};

std::optional<Scanned> scan(const std::string& path) {
  const auto file = FileBytes::open(path);
  if (!file) return std::nullopt;
  Scanned scanned;
  const auto source = read_code(file->bytes(), [&](std::string_view, const CodeImage& image) {
    const CodeInventory inventory = take_inventory(image);
    scanned.lse_atomics += inventory.lse_atomics;
    const auto of = [&inventory](a64::Group group) {
      return inventory.groups[static_cast<std::size_t>(group)];
    };
    scanned.exclusives += of(a64::Group::kExclusive) + of(a64::Group::kExclusivePair);
    scanned.ordered += of(a64::Group::kOrdered);
    scanned.store_exclusives += inventory.inline_store_exclusives;
    scanned.outline_calls += inventory.outline_calls;
    TouchLoops touch = find_touch_loops(image);
    if (!touch.loops.empty()) {
      const CodeSymbol* const symbol = image.find_function(touch.loops.front().site);
      if (symbol != nullptr) scanned.first_function = symbol->name;
    }
    scanned.touch.loops.insert(scanned.touch.loops.end(), touch.loops.begin(), touch.loops.end());
  });
  EXPECT_TRUE(source) << path;
  return scanned;
}

class ScanLibraries : public ::testing::TestWithParam<const char*> {};

TEST_P(ScanLibraries, CountsAgreeWithADisassemblerAndNoLoopIsReported) {
  const std::string path = std::string(kFolder) + GetParam();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not installed";
  const std::string objdump = find_objdump();
  if (objdump.empty()) GTEST_SKIP() << "no objdump for arm64";
  const auto scanned = scan(path);
  ASSERT_TRUE(scanned);
  const auto expected = listed(objdump, path);
  ASSERT_TRUE(expected);
  EXPECT_GT(expected->lse_atomics, 0U);
  EXPECT_EQ(scanned->lse_atomics, expected->lse_atomics);
  EXPECT_EQ(scanned->exclusives, expected->exclusives);
  EXPECT_EQ(scanned->ordered, expected->ordered);
  EXPECT_TRUE(scanned->touch.loops.empty()) << "reported in " << scanned->first_function;
}

INSTANTIATE_TEST_SUITE_P(Cross, ScanLibraries,
                         ::testing::Values("libc.so.6", "libstdc++.so.6", "libatomic.so.1",
                                           "libgomp.so.1"));

TEST(ScanLibraries, StrippedOutlineCallsAreFoundByShape) {
  const std::string path = std::string(kFolder) + "libc.so.6";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not installed";
  const auto scanned = scan(path);
  ASSERT_TRUE(scanned);
  EXPECT_GT(scanned->outline_calls, 100U);
  EXPECT_EQ(scanned->store_exclusives, 0U);
}

TEST(ScanLibraries, LibjvmOfDebian) {
  const std::string objdump = find_objdump();
  if (objdump.empty()) GTEST_SKIP() << "no objdump for arm64";
  const std::string folder = ::testing::TempDir() + "scan_libjvm_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const auto fetched = output_of(
      "cd '" + folder +
      "' && apt-get -q -o APT::Sandbox::User=root download openjdk-17-jre-headless:arm64 2>&1 && "
      "dpkg-deb -x openjdk-17-jre-headless_*.deb . 2>&1");
  const auto path =
      fetched ? output_of("find '" + folder + "' -name libjvm.so -type f | head -n 1") : fetched;
  if (!path || path->empty()) {
    std::filesystem::remove_all(folder);
    GTEST_SKIP() << "openjdk-17-jre-headless:arm64 cannot be fetched: no package archive here, or "
                    "arm64 is no foreign architecture";
  }
  const std::string file = path->substr(0, path->find('\n'));
  const auto scanned = scan(file);
  const auto expected = listed(objdump, file);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(scanned);
  ASSERT_TRUE(expected);
  // Its atomics are assembly stubs of exclusives, called through pointers, and no LSE: what it
  // runs on a processor that has LSE it generates.
  EXPECT_EQ(scanned->lse_atomics, expected->lse_atomics);
  EXPECT_EQ(scanned->exclusives, expected->exclusives);
  EXPECT_EQ(scanned->ordered, expected->ordered);
  EXPECT_GT(scanned->exclusives, 0U);
  EXPECT_GT(scanned->ordered, 1000U);
  // JDK 17 pre-touches with plain stores.
  EXPECT_TRUE(scanned->touch.loops.empty()) << "reported in " << scanned->first_function;
}

}  // namespace
}  // namespace touchstone::arch::opcheck
