// SPDX-License-Identifier: MIT
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/reservation.h>
#include <touchstone/heap/residency.h>

#include "experiment.h"
#include "report.h"
#include "verdict.h"

namespace touchstone::shatter {
namespace {

using heap::PretouchStrategy;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kBytes = std::size_t{64} << 20U;
constexpr std::uint64_t kBasePages = kBytes / 4096;

Settings settings() {
  Settings settings;
  settings.bytes = kBytes;
  settings.geometry = arch::kGeometry4K;
  settings.strategies = {PretouchStrategy::kStore, PretouchStrategy::kAtomicRmw};
  settings.pages = {Pages::kBase, Pages::kHuge};
  settings.threads = {1, 2};
  return settings;
}

Sample sample(std::uint64_t faults, std::size_t huge, double seconds = 0.5) {
  return {.seconds = seconds,
          .memset_seconds = seconds / 2,
          .nontemporal_seconds = seconds / 4,
          .bytes = kBytes,
          .minor_faults = faults,
          .huge_bytes = huge,
          .rss_bytes = kBytes,
          .used = PretouchStrategy::kStore,
          .touch_kernel = "test kernel"};
}

Row row(PretouchStrategy strategy, Pages pages, std::uint64_t faults, std::size_t huge) {
  return summarise({.strategy = strategy, .pages = pages, .threads = 1}, settings(),
                   {sample(faults, huge)});
}

std::string headlines(const std::vector<Row>& rows, const arch::Machine& machine) {
  std::string text;
  for (const Verdict& verdict : verdicts_of(rows, machine)) {
    text += std::string(to_string(verdict.kind)) + ": " + verdict.headline + "\n";
  }
  return text;
}

arch::Machine machine() {
  arch::Machine machine = arch::read_machine();
  machine.thp_mode = arch::ThpMode::kMadvise;
  return machine;
}

TEST(ShatterSpread, MedianOfOddAndEven) {
  EXPECT_EQ(spread_of({3, 1, 2}).median, 2);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).min, 1);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).max, 4);
}

TEST(ShatterCases, EveryCombinationOnce) {
  EXPECT_EQ(cases_of(settings()).size(), 8U);
}

TEST(ShatterPages, NamesFollowTheGeometry) {
  EXPECT_EQ(pages_name(Pages::kBase, arch::kGeometry64K), "64K");
  EXPECT_EQ(pages_name(Pages::kHuge, arch::kGeometry64K), "THP 512M");
}

TEST(ShatterSummary, TakesMediansAndTheLeastHugeBytes) {
  const Row summed =
      summarise({}, settings(),
                {sample(10, kBytes, 1.0), sample(30, kBytes / 2, 0.25), sample(20, kBytes, 0.5)});
  EXPECT_EQ(summed.error, "");
  EXPECT_EQ(summed.rounds, 3U);
  EXPECT_EQ(summed.seconds.median, 0.5);
  EXPECT_EQ(summed.minor_faults, 20U);
  EXPECT_EQ(summed.huge_bytes, kBytes / 2);
  EXPECT_DOUBLE_EQ(summed.gib_per_second, 0.125);
  EXPECT_DOUBLE_EQ(summed.relative_to_memset, 0.5);
  EXPECT_DOUBLE_EQ(summed.relative_to_nontemporal, 0.25);
}

TEST(ShatterSummary, AFailedRoundIsTheRowsError) {
  const Row failed =
      summarise({}, settings(), {sample(1, 1), std::unexpected(std::string("no memory"))});
  EXPECT_EQ(failed.error, "no memory");
}

TEST(ShatterVerdict, AnUnpatchedArm64KernelDoubleFaultsAndShatters) {
  // 64 MiB on arm64 Linux 6.12, as the kernel lab counts them.
  const std::string text =
      headlines({row(PretouchStrategy::kAtomicRmw, Pages::kBase, 2 * kBasePages, 0),
                 row(PretouchStrategy::kStore, Pages::kHuge, 32, kBytes),
                 row(PretouchStrategy::kAtomicRmw, Pages::kHuge, 16416, 0)},
                machine());
  EXPECT_THAT(text, HasSubstr("bad: An atomic touch (test kernel) faults twice a page here."));
  EXPECT_THAT(text, HasSubstr("bad: An atomic touch (test kernel) shatters huge pages here."));
}

TEST(ShatterVerdict, X86FaultsOnceAndKeepsThem) {
  const std::string text =
      headlines({row(PretouchStrategy::kAtomicRmw, Pages::kBase, kBasePages + 3, 0),
                 row(PretouchStrategy::kStore, Pages::kHuge, 32, kBytes),
                 row(PretouchStrategy::kAtomicRmw, Pages::kHuge, 33, kBytes)},
                machine());
  EXPECT_THAT(text, HasSubstr("good: An atomic touch (test kernel) faults once a page here."));
  EXPECT_THAT(text, HasSubstr("good: An atomic touch (test kernel) keeps huge pages here."));
}

TEST(ShatterVerdict, AnEmulationThatDoesNotEmulateIsNoGoodNews) {
  EXPECT_THAT(
      headlines({row(PretouchStrategy::kLoadThenStore, Pages::kBase, kBasePages, 0)}, machine()),
      HasSubstr("note: The arm64 double fault cannot be emulated here."));
}

TEST(ShatterVerdict, WithoutHugePagesShatteringCannotBeTold) {
  const std::string text =
      headlines({row(PretouchStrategy::kStore, Pages::kHuge, kBasePages, 0),
                 row(PretouchStrategy::kAtomicRmw, Pages::kHuge, kBasePages, 0)},
                machine());
  EXPECT_THAT(text, AllOf(HasSubstr("note: Whether"), Not(HasSubstr("shatters huge pages here"))));
}

TEST(ShatterVerdict, WithoutSmapsShatteringCannotBeToldButFaultsCan) {
  Row blind = row(PretouchStrategy::kAtomicRmw, Pages::kHuge, 32, 0);
  blind.huge_bytes = std::nullopt;
  const std::string text = headlines(
      {row(PretouchStrategy::kAtomicRmw, Pages::kBase, 2 * kBasePages, 0), blind}, machine());
  EXPECT_THAT(text, HasSubstr("bad: An atomic touch (test kernel) faults twice a page here."));
  EXPECT_THAT(text, HasSubstr("note: Whether an atomic touch shatters"));
}

TEST(ShatterVerdict, SaysSoWhenThpIsOff) {
  arch::Machine off = machine();
  off.thp_mode = arch::ThpMode::kNever;
  EXPECT_THAT(headlines({row(PretouchStrategy::kAtomicRmw, Pages::kBase, kBasePages, 0)}, off),
              HasSubstr("note: Transparent huge pages are switched off"));
}

TEST(ShatterVerdict, NoRowsNoClaim) {
  EXPECT_EQ(headlines({}, machine()), "note: These rows allow no verdict.\n");
}

Report report() {
  Report report{.provenance = {.command = "touchstone-shatter",
                               .date = "2026-01-31T12:00:00Z",
                               .cpu = "Test </script> CPU",
                               .machine = machine()},
                .settings = settings(),
                .rows = {row(PretouchStrategy::kStore, Pages::kBase, kBasePages, 0),
                         summarise({.strategy = PretouchStrategy::kCollapse}, settings(),
                                   {std::unexpected(std::string("refused"))})},
                .verdicts = {}};
  report.verdicts = verdicts_of(report.rows, report.provenance.machine);
  return report;
}

TEST(ShatterReport, JsonCarriesEveryColumn) {
  const tools::Json json = report_json(report());
  EXPECT_EQ(json["schema"], "touchstone.shatter");
  EXPECT_EQ(json["version"], 1);
  const tools::Json& first = json["rows"][0];
  for (const char* key :
       {"name", "pages", "threads", "minor_faults", "faults_per_page", "huge_bytes", "rss_bytes",
        "thp_fault_alloc", "thp_zero_page_alloc", "thp_split_pmd", "seconds", "gib_per_second",
        "relative_to_memset", "relative_to_nontemporal"}) {
    EXPECT_TRUE(first.contains(key)) << key;
  }
  EXPECT_EQ(first["minor_faults"], kBasePages);
  EXPECT_TRUE(first["thp_split_pmd"].is_null());
  EXPECT_EQ(json["rows"][1]["error"], "refused");
}

TEST(ShatterReport, TheTableShowsErrorsInTheirRow) {
  const std::string table = table_text(report());
  EXPECT_THAT(table, HasSubstr("16384"));
  EXPECT_THAT(table, ::testing::ContainsRegex("collapse.*refused\n"));
}

TEST(ShatterReport, ThePageIsSelfContainedAndItsDataCannotEscape) {
  const std::string page = report_html(report());
  EXPECT_THAT(page, AllOf(Not(HasSubstr("@DATA@")), Not(HasSubstr("@CHART_LIBRARY@")),
                          Not(HasSubstr("@STYLE@")), Not(HasSubstr("@PAGE_SCRIPT@"))));
  EXPECT_THAT(page, HasSubstr("Test \\u003c/script> CPU"));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script src")), Not(HasSubstr("<link "))));
  EXPECT_GT(page.size(), 100'000U) << "the chart library is missing";
}

/// Faults that a load and then a store of an untouched page take here: two where the load maps the
/// zero page, one where the kernel (of some virtual machines) gives a page of its own at once.
std::uint64_t faults_of_load_then_store() {
  const std::size_t page = arch::base_page_size();
  auto memory = heap::Reservation::reserve({.size = page, .huge_pages = heap::HugePages::kAvoid});
  EXPECT_TRUE(memory && memory->commit(memory->range()));
  volatile std::byte* first = memory->data();
  static_cast<void>(*first);
  const auto after_load = heap::thread_faults();
  *first = std::byte{1};
  const auto after_store = heap::thread_faults();
  EXPECT_TRUE(after_load && after_store);
  return 1 + after_store->since(*after_load).minor;
}

TEST(ShatterRun, RealMemoryGivesOneRowForEachCase) {
  Settings small;
  small.geometry = arch::geometry();
  small.bytes = 2 * small.geometry.pmd;
  small.repeat = 1;
  small.strategies = {PretouchStrategy::kStore, PretouchStrategy::kLoadThenStore};
  small.pages = {Pages::kBase};
  small.threads = {1, 2};
  std::size_t announced = 0;
  const std::vector<Row> rows = run_all(small, [&](const Case&) { ++announced; });
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(announced, 8U) << "a warm-up round and one that counts";
  const std::uint64_t pages = small.bytes / small.geometry.base_page;
  const std::uint64_t load_then_store = faults_of_load_then_store();
  for (const Row& each : rows) {
    ASSERT_EQ(each.error, "");
    EXPECT_EQ(each.last.bytes, small.bytes);
    if (each.last.rss_bytes) {  // An emulator's smaps does not tell.
      EXPECT_EQ(*each.last.rss_bytes, small.bytes);
    }
    // A few faults of the thread's own stack come on top.
    const std::uint64_t expected =
        pages * (each.what.strategy == PretouchStrategy::kStore ? 1 : load_then_store);
    EXPECT_GE(each.minor_faults, expected);
    EXPECT_LE(each.minor_faults, expected + 64);
  }
}

TEST(ShatterRun, MoreThanThereIsIsAnErrorOfTheRow) {
  Settings huge;
  huge.geometry = arch::geometry();
  const auto available = arch::available_memory();
  ASSERT_TRUE(available);
  huge.bytes = 4 * *available / huge.geometry.pmd * huge.geometry.pmd;
  huge.repeat = 1;
  huge.strategies = {PretouchStrategy::kStore};
  huge.pages = {Pages::kBase};
  huge.threads = {1};
  const std::vector<Row> rows = run_all(huge, [](const Case&) {});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(rows[0].error, HasSubstr("limit exceeded"));
}

}  // namespace
}  // namespace touchstone::shatter
