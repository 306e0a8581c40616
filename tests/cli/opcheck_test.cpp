// SPDX-License-Identifier: MIT
// touchstone-opcheck as it is used: words in, text and exit codes out.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <touchstone/arch/a64/kernel_header.h>
#include <touchstone/arch/a64/table.h>

#include "command.h"
#include "oracle.h"

namespace touchstone::arch::opcheck {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;

  [[nodiscard]] Json json() const { return Json::parse(out); }
};

Outcome run(std::vector<const char*> arguments, const std::string& input = "") {
  arguments.insert(arguments.begin(), "touchstone-opcheck");
  std::istringstream in(input);
  std::ostringstream out;
  std::ostringstream err;
  Console console{.in = in, .out = out, .err = err};
  // What the option parser prints goes to the process's own streams.
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code = run_tool(static_cast<int>(arguments.size()), arguments.data(), console);
  outcome.out = ::testing::internal::GetCapturedStdout() + out.str();
  outcome.err = ::testing::internal::GetCapturedStderr() + err.str();
  return outcome;
}

std::size_t lines_in(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

bool have_llvm(unsigned release) {
  const auto source = find_llvm("");
  return source && (*source)->version().major >= release;
}

std::string temporary(std::string_view name) {
  return ::testing::TempDir() + std::string(name) + "." + std::to_string(getpid());
}

Json read_json(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

TEST(Classify, SaysWhatTheFirstFaultTells) {
  const Outcome outcome = run({"classify", "b8210002", "19221043", "f83f9042", "c85ffc02"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("b8210002  ldadd (forced write); lse"));
  EXPECT_THAT(outcome.out, HasSubstr("19221043  ldclrp (forced write, v5 misses it); lse128"));
  EXPECT_THAT(outcome.out, HasSubstr("f83f9042  st64b (already a write); ls64"));
  EXPECT_THAT(outcome.out, HasSubstr("c85ffc02  ldaxr (read, then STXR writes); exclusive"));
  EXPECT_THAT(outcome.out, HasSubstr("capstone: ldadd w1, w2, [x0]"));
  EXPECT_EQ(lines_in(outcome.out), 4U);
}

TEST(Classify, WhatV5TakesWithoutNeedAndWhatIsNotListed) {
  const Outcome outcome = run({"classify", "--oracle", "none", "f820b001", "0", "d50b7420"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out,
            "f820b001  - (not a listed memory access, v5 forces it without need)\n"
            "00000000  - (not a listed memory access)\n"
            "d50b7420  dc zva (already a write); dc-zero, A64 base, block zero, relaxed\n");
}

TEST(Classify, TakesEveryNotation) {
  for (const auto& [words, input] : {
           std::pair<std::vector<const char*>, std::string>{{"classify", "0xB8210002"}, ""},
           {{"classify", "--decimal", "3089170434"}, ""},
           {{"classify", "--bytes", "020021b8"}, ""},
           {{"classify"}, "b8210002"},
           {{"classify", "--bytes"}, "\n\t 020021b8 \r\n"},
       }) {
    const Outcome outcome = run(words, input);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, StartsWith("b8210002  ldadd (forced write)"));
  }
}

TEST(Classify, OddTokensAreALineEachAndTheRestIsDone) {
  const Outcome outcome = run({"classify", "zz", "b8210002", "123456789", "0x", "-z", "19221043"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(lines_in(outcome.out), 2U);
  EXPECT_EQ(lines_in(outcome.err), 4U);
  EXPECT_THAT(outcome.err, HasSubstr("touchstone-opcheck: 'zz' is not hexadecimal\n"));
  EXPECT_THAT(outcome.err, HasSubstr("'123456789' has 9 digits, a word has at most 8\n"));
  EXPECT_THAT(outcome.err, HasSubstr("'0x' has no digits\n"));
  EXPECT_THAT(outcome.err, HasSubstr("'-z' is not hexadecimal\n"));
}

TEST(Classify, OddInputIsALineEach) {
  const Outcome outcome =
      run({"classify"}, "b8210002\n" + std::string(100000, 'f') + " \x01\x80 b8210002");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(lines_in(outcome.out), 2U);
  EXPECT_EQ(lines_in(outcome.err), 2U);
  EXPECT_LT(outcome.err.size(), 400U);
  EXPECT_THAT(outcome.err, HasSubstr("'\\x01\\x80'"));
}

TEST(Classify, NoWordsAtAllAreAnError) {
  for (const char* const input : {"", " \n\t"}) {
    const Outcome outcome = run({"classify"}, input);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err, "touchstone-opcheck: no words given\n");
  }
}

TEST(Classify, JsonHasSchemaWordsAndErrors) {
  const Outcome outcome = run({"classify", "--json", "b8210002", "zz", "19221043", "0"});
  EXPECT_EQ(outcome.code, 2);
  const Json json = outcome.json();
  EXPECT_EQ(json["schema"], "touchstone.opcheck.classify");
  EXPECT_EQ(json["version"], 1);
  ASSERT_EQ(json["words"].size(), 3U);
  const Json& ldadd = json["words"][0];
  EXPECT_EQ(ldadd["mnemonic"], "ldadd");
  EXPECT_EQ(ldadd["family"], "lse");
  EXPECT_EQ(ldadd["width"], 4);
  EXPECT_EQ(ldadd["forced_write"], true);
  EXPECT_EQ(ldadd["v5_forced_write"], true);
  EXPECT_EQ(ldadd["wnr_unmapped"], "R");
  EXPECT_EQ(ldadd["wnr_read_only"], "W");
  EXPECT_EQ(ldadd["oracles"]["capstone"], "ldadd w1, w2, [x0]");
  EXPECT_EQ(json["words"][1]["v5_forced_write"], false);
  EXPECT_EQ(json["words"][2]["listed"], false);
  ASSERT_EQ(json["errors"].size(), 1U);
  EXPECT_EQ(json["errors"][0]["token"], "zz");
}

TEST(CommandLine, WrongOptionsAreOneLineAndExit2) {
  for (const std::vector<const char*>& arguments : {
           std::vector<const char*>{},
           {"frobnicate"},
           {"classify", "--frobnicate", "0"},
           {"classify", "--decimal", "--bytes", "1"},
           {"classify", "--oracle", "gas", "1"},
           {"sweep", "--all", "--sample"},
           {"sweep", "--rules", "v4"},
           {"sweep", "--jobs", "0"},
           {"sweep", "--jobs", "many"},
           {"sweep", "--oracle", "none"},
           {"sweep", "--oracle", "llvm", "--llvm-library", "/nonexistent.so"},
           {"sweep", "--llvm-library", "/nonexistent.so"},
           {"sweep", "--oracle", "objdump", "--objdump", "/nonexistent"},
           {"sweep", "--resume", "/nonexistent/state"},
           {"sweep", "--resume", "a", "--state", "b"},
           {"sweep", "extra"},
           {"table", "--format", "html"},
           {"masks", "extra"},
       }) {
    const Outcome outcome = run(arguments);
    const std::string shown = ::testing::PrintToString(arguments);
    EXPECT_EQ(outcome.code, 2) << shown;
    EXPECT_EQ(lines_in(outcome.err), 1U) << shown << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("touchstone-opcheck: ")) << shown;
    EXPECT_EQ(outcome.out, "") << shown;
  }
}

TEST(CommandLine, HelpAndVersionSucceed) {
  EXPECT_EQ(run({"--help"}).code, 0);
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, StartsWith("touchstone-opcheck "));
  for (const char* const command : {"classify", "sweep", "masks", "table", "oracles"}) {
    const Outcome help = run({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("--json")) << command;
  }
}

TEST(Oracles, AreListedWithVersionOrReason) {
  const Outcome outcome = run({"oracles", "--json", "--llvm-library", "/nonexistent.so"});
  EXPECT_EQ(outcome.code, 0);
  const Json json = outcome.json();
  EXPECT_EQ(json["schema"], "touchstone.opcheck.oracles");
  ASSERT_EQ(json["oracles"].size(), 3U);
  EXPECT_EQ(json["oracles"][0]["oracle"], "capstone");
  EXPECT_EQ(json["oracles"][0]["found"], true);
  EXPECT_THAT(json["oracles"][0]["version"].get<std::string>(), MatchesRegex("5\\..*"));
  EXPECT_EQ(json["oracles"][1]["found"], false);
  EXPECT_THAT(json["oracles"][1]["reason"].get<std::string>(), HasSubstr("/nonexistent.so"));
}

TEST(Masks, PrintTheDerivedHeader) {
  const Outcome outcome = run({"masks"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, *a64::kernel_header());
  EXPECT_THAT(outcome.out, HasSubstr("aarch64_insn_is_forced_write"));
}

TEST(Masks, CompareSaysHowManyComparesEachNeeds) {
  const Json json = run({"masks", "--json"}).json();
  EXPECT_EQ(json["schema"], "touchstone.opcheck.masks");
  const Json& decoders = json["decoders"];
  ASSERT_EQ(decoders.size(), 5U);
  EXPECT_EQ(decoders[0]["name"], "v5");
  EXPECT_EQ(decoders[0]["compares"], 7);
  EXPECT_GT(decoders[0]["missed"], 0);
  EXPECT_GT(decoders[0]["needless"], 0);
  for (const std::size_t exact : {1U, 2U, 3U}) {
    EXPECT_EQ(decoders[exact]["missed"], 0) << decoders[exact]["name"];
    EXPECT_EQ(decoders[exact]["compares"], decoders[exact]["terms"].size());
  }
  EXPECT_EQ(decoders[1]["needless"], 0);
  EXPECT_EQ(decoders[2]["needless"], 0);
  EXPECT_EQ(decoders[1]["words"], decoders[2]["words"]);
  EXPECT_EQ(decoders[4]["name"], "relaxed");
  EXPECT_EQ(decoders[4]["missed"], 0);
  EXPECT_GT(decoders[4]["needless"], 0);

  const Outcome text = run({"masks", "--compare", "--relaxed"});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("v5 "), HasSubstr("header"), HasSubstr("relaxed (mask")));
}

TEST(Table, IsMarkdownOrJson) {
  const Outcome markdown = run({"table"});
  EXPECT_EQ(markdown.code, 0);
  EXPECT_EQ(markdown.out, a64::markdown_table());
  const Json json = run({"table", "--format", "json"}).json();
  EXPECT_EQ(json["schema"], "touchstone.opcheck.table");
  EXPECT_EQ(json["rows"].size(), a64::kEncodings.size());
  EXPECT_EQ(json["rows"][0]["forced_write"], true);
  EXPECT_EQ(run({"table", "--json"}).json(), json);
}

TEST(Sweep, TheSampleHasNothingUnexplained) {
  const std::string path = temporary("sweep.json");
  const Outcome outcome = run({"sweep", "--sample", "--json", path.c_str()});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nunexplained: 0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("oracles capstone 5."));
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos) << "no progress bar in a pipe";
  const Json json = read_json(path);
  std::filesystem::remove(path);
  EXPECT_EQ(json["schema"], "touchstone.opcheck.sweep");
  EXPECT_EQ(json["version"], 2);
  EXPECT_THAT(json["command"].get<std::string>(), StartsWith("touchstone-opcheck sweep "));
  EXPECT_TRUE(json["machine"].contains("kernel"));
  EXPECT_EQ(json["rules"], "full");
  EXPECT_EQ(json["space"], "sample");
  EXPECT_EQ(json["unexplained"], 0);
  EXPECT_TRUE(json["disagreements"].empty()) << json["disagreements"];
  EXPECT_TRUE(json["stale_gaps"].empty()) << json["stale_gaps"];
  EXPECT_EQ(json["families"].size(), a64::kGroupCount);
  for (const Json& family : json["families"]) {
    EXPECT_GT(family["words"], 0) << family["family"];
    const bool capstone_knows = family["oracles"]["capstone"]["confirmed"] > 0;
    // What LLVM 22 knows and Capstone 5 does not.
    const bool newer = family["family"] == "lsui" || family["family"] == "lsfe";
    if (newer) {
      EXPECT_FALSE(capstone_knows) << family["family"];
    }
    // Words that no oracle can judge are those with unpredictable operands, where LLVM is new.
    if (have_llvm(22) && family["family"] != "mte-tag") {
      EXPECT_EQ(family["unjudged"], family["unjudged_unpredictable"]) << family["family"];
    }
    if (newer && !have_llvm(22)) {
      EXPECT_EQ(family["unjudged"], family["words"]);
    }
  }
  if (!have_llvm(22)) GTEST_SKIP() << "without LLVM 22, nothing judges LSUI and LSFE";
}

TEST(Sweep, V5IsShownToMissAndToTakeTooMuch) {
  const Outcome outcome = run({"sweep", "--sample", "--rules", "v5", "--json", "-"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["rules"], "v5");
  EXPECT_EQ(json["unexplained"], 0);
  std::vector<std::string> missed;
  for (const Json& entry : json["forced_write"]["missed"]) {
    missed.push_back(entry["family"]);
    EXPECT_GT(entry["words"], 0);
    if (!have_llvm(22)) continue;
    EXPECT_EQ(entry["oracles"]["llvm"]["confirmed"], entry["words"]) << entry["family"];
  }
  std::ranges::sort(missed);
  EXPECT_EQ(missed, (std::vector<std::string>{"lse128", "lsfe", "lsui", "lsui-cas", "rcw-cas",
                                              "rcw-pair"}));
  std::vector<std::string> needless;
  for (const Json& entry : json["forced_write"]["needless"]) {
    needless.push_back(entry["family"]);
    EXPECT_EQ(entry["oracles"]["capstone"]["confirmed"], entry["words"]) << entry["family"];
  }
  std::ranges::sort(needless);
  EXPECT_EQ(needless, (std::vector<std::string>{"ls64", "unallocated"}));
}

// The handler is there once the sweep has begun: the signal cannot come too early.
TEST(Sweep, InterruptedAndResumedEqualsUninterrupted) {
  const std::string state = temporary("interrupted.state");
  const std::string path = temporary("resumed.json");
  struct sigaction ignore{};
  struct sigaction before{};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGINT, &ignore, &before), 0);
  Outcome interrupted;
  {
    std::jthread tool([&] {
      interrupted = run({"sweep", "--oracle", "capstone", "--jobs", "1", "--state", state.c_str()});
    });
    struct sigaction now{};
    do {
      std::this_thread::yield();
      ASSERT_EQ(sigaction(SIGINT, nullptr, &now), 0);
    } while (now.sa_handler == SIG_IGN);
    ASSERT_EQ(kill(getpid(), SIGINT), 0);
  }
  ASSERT_EQ(interrupted.code, 130) << interrupted.err;
  EXPECT_EQ(interrupted.out, "");
  EXPECT_EQ(lines_in(interrupted.err), 1U);
  EXPECT_THAT(interrupted.err, HasSubstr("--resume " + state + " goes on"));
  ASSERT_TRUE(std::filesystem::exists(state));

  const Outcome other =
      run({"sweep", "--rules", "v5", "--oracle", "capstone", "--resume", state.c_str()});
  EXPECT_EQ(other.code, 2) << "the state is of other rules";
  EXPECT_THAT(other.err, HasSubstr("belongs to a sweep with rules"));

  const Outcome resumed =
      run({"sweep", "--oracle", "capstone", "--resume", state.c_str(), "--json", path.c_str()});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_FALSE(std::filesystem::exists(state)) << "a finished sweep has no state";
  Json first = read_json(path);
  const Outcome whole = run({"sweep", "--oracle", "capstone", "--json", path.c_str()});
  EXPECT_EQ(whole.code, 0) << whole.err;
  Json second = read_json(path);
  std::filesystem::remove(path);
  for (const char* const key : {"seconds", "command", "date"}) {
    first.erase(key);
    second.erase(key);
  }
  EXPECT_EQ(first, second);
  ASSERT_EQ(sigaction(SIGINT, &before, nullptr), 0);
}

// Before the sweep, not after hours of it.
TEST(Sweep, AFileThatCannotBeWrittenIsAnErrorAtOnce) {
  for (const char* const option : {"--json", "--state"}) {
    const Outcome outcome = run({"sweep", "--all", option, "/nonexistent/file"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err, "touchstone-opcheck: /nonexistent/file: No such file or directory\n");
  }
}

}  // namespace
}  // namespace touchstone::arch::opcheck
