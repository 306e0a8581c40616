// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <touchstone/tools/command_line.h>
#include <touchstone/tools/json_file.h>
#include <touchstone/tools/progress.h>
#include <touchstone/tools/provenance.h>

namespace touchstone::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Parsed {
  std::optional<int> exit;
  std::string error;
};

Parsed parse(std::initializer_list<const char*> words) {
  CLI::App app{"", "tool"};
  int size = 0;
  app.add_option("--size", size)->check(CLI::Range(1, 9));
  std::vector<const char*> argv{"tool"};
  argv.insert(argv.end(), words);
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const auto code = parse_command_line(app, static_cast<int>(argv.size()), argv.data());
  ::testing::internal::GetCapturedStdout();
  return {code, ::testing::internal::GetCapturedStderr()};
}

TEST(CommandLine, GoodOptionsLetTheToolGoOn) {
  EXPECT_FALSE(parse({"--size", "3"}).exit);
}

TEST(CommandLine, HelpEndsWithSuccess) {
  const Parsed parsed = parse({"--help"});
  EXPECT_EQ(parsed.exit, kExitSuccess);
  EXPECT_EQ(parsed.error, "");
}

TEST(CommandLine, UnknownOptionIsOneLineThatSaysWhatIsAccepted) {
  const Parsed parsed = parse({"--sise", "3"});
  EXPECT_EQ(parsed.exit, kExitUsage);
  EXPECT_THAT(parsed.error, StartsWith("tool: "));
  EXPECT_THAT(parsed.error, HasSubstr("--sise"));
  EXPECT_THAT(parsed.error, HasSubstr("accepted: --help, --size"));
  EXPECT_EQ(std::count(parsed.error.begin(), parsed.error.end(), '\n'), 1);
}

TEST(CommandLine, ValueOutOfRangeNamesTheRange) {
  const Parsed parsed = parse({"--size", "12"});
  EXPECT_EQ(parsed.exit, kExitUsage);
  EXPECT_THAT(parsed.error, HasSubstr("12 not in range"));
  EXPECT_EQ(std::count(parsed.error.begin(), parsed.error.end(), '\n'), 1);
}

TEST(CommandLine, AnErrorOfManyLinesIsPrintedAsOne) {
  ::testing::internal::CaptureStderr();
  print_error("tool", "first\nsecond\n");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "tool: first; second\n");
}

class JsonFile : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 ("touchstone-json-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  [[nodiscard]] std::string path(const char* name) const { return (directory_ / name).string(); }
  static std::string contents(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::filesystem::path directory_;
};

TEST_F(JsonFile, BeginsWithSchemaAndVersionAndIsWhole) {
  Json document = json_document("touchstone.test", 3);
  document["rows"] = Json::array({1, 2});
  ASSERT_TRUE(write_json_file(path("a.json"), document));
  EXPECT_THAT(contents(path("a.json")),
              StartsWith("{\n  \"schema\": \"touchstone.test\",\n  \"version\": 3"));
  EXPECT_EQ(Json::parse(contents(path("a.json"))), document);
  EXPECT_FALSE(std::filesystem::exists(path("a.json.partial")));
}

TEST_F(JsonFile, AFailureKeepsWhatWasThere) {
  ASSERT_TRUE(write_text_file(path("a"), "old"));
  // A directory in the way of the new file makes opening it fail.
  std::filesystem::create_directory(path("a.partial"));
  const auto result = write_text_file(path("a"), "new");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().system_errno, EISDIR);
  EXPECT_EQ(contents(path("a")), "old");
}

TEST_F(JsonFile, AMissingDirectoryIsAnError) {
  const auto result = write_text_file(path("none/a"), "x");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().system_errno, ENOENT);
}

TEST_F(JsonFile, AFullDeviceIsAnErrorAndStaysADevice) {
  const auto result = write_text_file("/dev/full", "x");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().system_errno, ENOSPC);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(Progress, RendersShareRateAndTimeLeft) {
  Progress progress(1000, "words");
  progress.advance(250);
  progress.describe("ldadd");
  EXPECT_EQ(progress.render(0.5, 60),
            "[#####.................]  25% 500.0 words/s 0:02 left ldadd");
}

TEST(Progress, AResumedRunCountsItsOwnRate) {
  Progress progress(1000, "words");
  progress.start_at(500);
  progress.advance(250);
  EXPECT_THAT(progress.render(1, 60), HasSubstr(" 75% 250.0 words/s 0:01 left"));
}

TEST(Progress, NeverWiderThanTheTerminal) {
  Progress progress(10, "w");
  progress.advance(5);
  progress.describe(std::string(300, 'x'));
  EXPECT_LE(progress.render(1, 40).size(), 39u);
}

TEST(Progress, SilentInAPipe) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    Progress progress(10, "w", file);
    progress.advance(5);
    progress.clear();
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(Provenance, QuotesWhatAShellWouldSplit) {
  const char* const argv[] = {"bin/touchstone-shatter", "--json", "a b'c", ""};
  EXPECT_EQ(command_text(4, argv), R"(touchstone-shatter --json 'a b'\''c' '')");
}

}  // namespace
}  // namespace touchstone::tools
