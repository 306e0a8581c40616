// SPDX-License-Identifier: MIT
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "../arch/scan_elf_builder.h"
#include "command.h"

namespace touchstone::arch::opcheck {
namespace {

using testing::Bytes;
using testing::ElfBuilder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

Outcome run(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"touchstone-opcheck", "scan"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  Console console{.in = in, .out = out, .err = err};
  const int code = run_tool(static_cast<int>(argv.size()), argv.data(), console);
  return {code, out.str(), err.str()};
}

class OpcheckScan : public ::testing::Test {
 protected:
  OpcheckScan() : folder_(::testing::TempDir() + "opcheck_scan_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~OpcheckScan() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const Bytes& bytes) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  static ElfBuilder program() {
    ElfBuilder builder;
    builder.code = testing::touch_loop();
    builder.symbols = {{.name = "touch", .value = ElfBuilder::kCode, .size = 20}};
    return builder;
  }

  std::string folder_;
};

TEST_F(OpcheckScan, TextNamesTheLoop) {
  const Outcome result = run({file("program", program().build())});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("arm64 shared object, 20 bytes of code"));
  EXPECT_THAT(result.out, HasSubstr("atomics: LSE (1 instructions)"));
  EXPECT_THAT(result.out, HasSubstr("touch at 0x10000: add 0, 4 bytes, every 4096 bytes (LSE); "
                                    "confidence high"));
  EXPECT_EQ(result.err, "");
}

TEST_F(OpcheckScan, JsonHasSchemaCountsAndLoops) {
  ElfBuilder builder = program();
  builder.segment_flags = PF_X;
  const Outcome result = run({"--json", file("program", builder.build())});
  EXPECT_EQ(result.code, 0);
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_THAT(document.at("schema").get<std::string>(), ::testing::EndsWith("opcheck.scan"));
  EXPECT_EQ(document.at("version"), 2);
  EXPECT_THAT(document.at("command").get<std::string>(),
              ::testing::StartsWith("touchstone-opcheck scan"));
  const auto& entry = document.at("files").at(0);
  EXPECT_EQ(entry.at("status"), "scanned");
  EXPECT_EQ(entry.at("words"), 5);
  EXPECT_EQ(entry.at("groups").at("lse"), 1);
  EXPECT_EQ(entry.at("atomics").at("lse_instructions"), 1);
  EXPECT_EQ(entry.at("execute_only"), true);
  EXPECT_EQ(entry.at("execute_only_places").at(0), ".text");
  const auto& loop = entry.at("touch_loops").at(0);
  EXPECT_EQ(loop.at("function"), "touch");
  EXPECT_EQ(loop.at("address"), "0x10000");
  EXPECT_EQ(loop.at("instruction"), "ldadd");
  EXPECT_EQ(loop.at("stride"), 4096);
  EXPECT_EQ(loop.at("confidence"), "high");
  EXPECT_EQ(entry.at("functions").at(0).at("groups").at("lse"), 1);
}

TEST_F(OpcheckScan, BadFilesAreOneLineEachAndTheRestIsScanned) {
  ElfBuilder arm32 = program();
  arm32.machine = EM_ARM;
  const std::string unreadable = file("unreadable", program().build());
  std::filesystem::permissions(unreadable, std::filesystem::perms::none);
  const bool is_root = ::geteuid() == 0;  // may read it all the same
  Bytes cut = program().build();
  cut.resize(40);
  std::vector<std::string> bad{folder_,
                               file("empty", {}),
                               file("cut", cut),
                               file("arm32", arm32.build()),
                               folder_ + "/absent",
                               file("text", Bytes(64, std::byte{'a'}))};
  if (!is_root) bad.push_back(unreadable);
  std::vector<std::string> arguments = bad;
  arguments.insert(arguments.begin() + 2, file("good", program().build()));
  const Outcome result = run(arguments);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.out, HasSubstr("touch at 0x10000"));
  std::istringstream lines(result.err);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_LT(count, bad.size());
    EXPECT_THAT(line, StartsWith("touchstone-opcheck: " + bad[count] + ": "));
  }
  EXPECT_EQ(count, bad.size());
  EXPECT_THAT(result.err, HasSubstr("/arm32: 32-bit ARM, not arm64"));
  EXPECT_THAT(result.err, HasSubstr("/empty: an empty file"));

  arguments.insert(arguments.begin(), "--json");
  const auto document = nlohmann::json::parse(run(arguments).out);
  EXPECT_EQ(document.at("files").size(), bad.size() + 1);
  EXPECT_EQ(document.at("files").at(0).at("status"), "unusable");
  EXPECT_EQ(document.at("files").at(0).at("reason"), "a directory");
}

TEST_F(OpcheckScan, X86IsToldPolitely) {
  ElfBuilder builder = program();
  builder.machine = EM_X86_64;
  const Outcome result = run({file("x86", builder.build())});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("x86, not arm64: nothing to decode"));
  EXPECT_EQ(result.err, "");
}

TEST_F(OpcheckScan, NamesFromFilesCannotReachTheTerminal) {
  ElfBuilder builder = program();
  builder.symbols[0].name = "evil\x1b[2J\n";
  const Outcome result = run({file("evil", builder.build())});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("evil\\x1b[2J\\x0a at"));
}

TEST_F(OpcheckScan, Usage) {
  // What is wrong with options goes to the standard error of the process.
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run({}).code, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("a FILE or --pid is required"));
  EXPECT_EQ(run({"--pid", "0"}).code, 2);
  EXPECT_EQ(run({"--pid", "x"}).code, 2);
  EXPECT_EQ(run({"--min-stride", "0", "/bin/true"}).code, 2);
  const Outcome large = run({"--min-stride", "8192", file("program", program().build())});
  EXPECT_EQ(large.code, 0);
  EXPECT_THAT(large.out, HasSubstr("pre-touch loops: 0"));
}

TEST_F(OpcheckScan, OwnProcess) {
  const Outcome result = run({"--pid", std::to_string(::getpid())});
#if defined(__x86_64__)
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("x86, not arm64"));
#else
  // Under an emulator /proc shows the emulator's memory, or the guest's: either is an answer.
  EXPECT_TRUE(result.code == 0 || result.code == 2);
  EXPECT_NE(result.out + result.err, "");
#endif
  const Outcome absent = run({"--pid", "2147483647"});
  EXPECT_EQ(absent.code, 2);
  EXPECT_THAT(absent.err, HasSubstr("process 2147483647: "));
}

}  // namespace
}  // namespace touchstone::arch::opcheck
