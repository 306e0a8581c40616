// SPDX-License-Identifier: MIT
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <touchstone/bench/page.h>
#include <touchstone/tools/json_file.h>

#include "gather.h"
#include "readers.h"

namespace touchstone::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using tools::Json;

class Gathering : public ::testing::Test {
 protected:
  Gathering()
      : folder_(std::filesystem::temp_directory_path() /
                ("touchstone-report-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Gathering() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    std::ofstream(path) << text;
    return path.string();
  }
  std::string write(const std::string& name, const Json& json) { return write(name, json.dump()); }

  Gathered gathered() { return gather({folder_.string()}); }

  std::filesystem::path folder_;
};

void add_provenance(Json& json) {
  json["touchstone"] = "0.1.0";
  json["command"] = "a-command --with 'an option'";
  json["date"] = "2026-01-31T12:00:00Z";
  json["machine"] = {{"architecture", "arm64"},
                     {"kernel", "6.12.0"},
                     {"cpu", "a CPU"},
                     {"cores", 2},
                     {"thp_mode", "madvise"}};
}

Json gc_document(const std::string& workload, std::uint64_t pause_ns, bool correct = true) {
  Json json = tools::json_document("touchstone.gc", 2);
  add_provenance(json);
  json.update(Json{{"workload", workload},
                   {"depth", 4},
                   {"seconds", 2.0},
                   {"correct", correct},
                   {"heap",
                    {{"violations", 0},
                     {"pause_ns", pause_ns},
                     {"longest_pause_ns", pause_ns},
                     {"allocated", 1U << 30U},
                     {"young_collections", 3},
                     {"full_collections", 1},
                     {"committed", 1U << 20U},
                     {"max_size", 2U << 20U},
                     {"side_tables", 4096},
                     {"workers", 2}}}});
  return json;
}

Json shatter_row(const char* name, bool huge, std::uint64_t faults, std::uint64_t huge_bytes) {
  return {{"name", name},
          {"pages", huge ? "THP 2M" : "4K"},
          {"huge_pages_advised", huge},
          {"threads", 1},
          {"detail", "populate_write"},
          {"bytes", 64U << 20U},
          {"minor_faults", faults},
          {"faults_per_page", static_cast<double>(faults) / 16384},
          {"huge_bytes", huge_bytes},
          {"seconds", {{"median", 0.5}, {"min", 0.4}, {"max", 0.6}}},
          {"gib_per_second", 0.125},
          {"relative_to_memset", 0.5}};
}

Json shatter_document(std::uint64_t huge_bytes) {
  Json json = tools::json_document("touchstone.shatter", 1);
  add_provenance(json);
  json["settings"] = {{"bytes", 64U << 20U}, {"repeat", 5}};
  json["verdicts"] = {{{"kind", "bad"}, {"headline", "It faults twice."}, {"explanation", "So."}}};
  json["rows"] = {shatter_row("atomic_rmw", true, 16416, huge_bytes),
                  shatter_row("automatic", true, 32, 64U << 20U),
                  {{"name", "store"},
                   {"pages", "4K"},
                   {"huge_pages_advised", false},
                   {"threads", 1},
                   {"error", "out of memory"}}};
  return json;
}

Json lab_fault(const char* touch, const char* text, std::uint64_t faults, std::uint64_t huge_kb) {
  return {{"touch", touch},    {"memory", "anon-thp"}, {"text", text},      {"threads", 1},
          {"bytes", 64 << 20}, {"faults", faults},     {"huge_kb", huge_kb}};
}

Json lab_run(const char* series, const Json& faults) {
  Json run{{"series", series}, {"release", "6.12.1"}, {"cpu", "max"}, {"faults", faults}};
  for (const char* const none : {"costs", "populates", "runtimes", "heap_uses", "failures"}) {
    run[none] = Json::array();
  }
  run["skipped"] = {{{"what", "soft-dirty"}, {"why", "arm64 has none"}}};
  return run;
}

Json lab_document() {
  Json json = tools::json_document("touchstone.lab", 2);
  json.update(Json{{"command", "lab/run"},
                   {"date", "2026-01-31T12:00:00Z"},
                   {"qemu", "10.0.2"},
                   {"workload", "matrix"}});
  json["runs"] = {lab_run("stock", {lab_fault("store", "normal", 32, 65536),
                                    lab_fault("ldadd", "normal", 16416, 0)}),
                  lab_run("ours", {lab_fault("store", "normal", 32, 65536),
                                   lab_fault("ldadd", "normal", 32, 65536),
                                   lab_fault("ldadd", "execute-only", 32, 65536)})};
  return json;
}

TEST_F(Gathering, DocumentsOfOneShapeMakeOneSection) {
  write("a.json", gc_document("first", 5'000'000));
  write("b.json", gc_document("second", 7'000'000));
  const Gathered result = gathered();
  EXPECT_THAT(result.skipped, IsEmpty());
  ASSERT_THAT(result.sections, SizeIs(1));
  const Section& gc = result.sections.front();
  ASSERT_THAT(gc.tables, SizeIs(1));
  ASSERT_THAT(gc.tables[0].rows, SizeIs(2));
  EXPECT_EQ(gc.tables[0].rows[1][0], "second 4");
  EXPECT_THAT(gc.charts[0].labels, ElementsAre("first 4", "second 4"));
  EXPECT_THAT(gc.charts[0].datasets[0].values, ElementsAre(5.0, 7.0));
  EXPECT_THAT(gc.sources, SizeIs(2));
  ASSERT_THAT(gc.verdicts, SizeIs(1));
  EXPECT_EQ(gc.verdicts[0].explanation, "The longest pause was 7.00 ms, in second 4.");
}

TEST_F(Gathering, AWrongResultIsTheVerdict) {
  write("a.json", gc_document("first", 5'000'000, false));
  const Gathered result = gathered();
  ASSERT_THAT(result.sections, SizeIs(1));
  ASSERT_THAT(result.sections[0].verdicts, SizeIs(1));
  EXPECT_EQ(result.sections[0].verdicts[0].kind, VerdictKind::kBad);
}

TEST_F(Gathering, AdviceFollowsWhatTheAtomicLeft) {
  write("a.json", shatter_document(0));
  const Gathered shattered = gathered();
  ASSERT_THAT(shattered.sections, SizeIs(1));
  ASSERT_THAT(shattered.sections[0].advice, SizeIs(1));
  EXPECT_EQ(shattered.sections[0].advice[0].kind, VerdictKind::kBad);
  EXPECT_EQ(shattered.sections[0].advice[0].explanation,
            "It leaves 0 KiB of 64 MiB in huge pages. `automatic` picks populate_write.");
  EXPECT_THAT(shattered.sections[0].missing, ElementsAre("store, 4K: out of memory"));

  write("a.json", shatter_document(64U << 20U));
  const Gathered whole = gathered();
  ASSERT_THAT(whole.sections[0].advice, SizeIs(1));
  EXPECT_EQ(whole.sections[0].advice[0].kind, VerdictKind::kGood);
}

TEST_F(Gathering, TheLabsSeriesAreColumns) {
  write("lab.json", lab_document());
  const Gathered result = gathered();
  EXPECT_THAT(result.skipped, IsEmpty());
  ASSERT_THAT(result.sections, SizeIs(1));
  const Section& lab = result.sections[0];
  ASSERT_THAT(lab.tables, SizeIs(1));
  EXPECT_THAT(lab.tables[0].columns, ElementsAre("touch", "memory", "text", "stock", "ours"));
  EXPECT_THAT(lab.tables[0].rows,
              ElementsAre(ElementsAre("store", "anon-thp", "normal", "32 (64)", "32 (64)"),
                          ElementsAre("ldadd", "anon-thp", "normal", "16,416", "32 (64)"),
                          ElementsAre("ldadd", "anon-thp", "execute-only", "–", "32 (64)")));
  ASSERT_THAT(lab.advice, SizeIs(1));
  EXPECT_EQ(lab.advice[0].explanation,
            "LDADD: 16,416 faults, 0 of 64 MiB in huge pages. A plain store: 32 faults, 64 of 64 "
            "MiB in huge pages.");
  EXPECT_THAT(lab.missing, ElementsAre("soft-dirty: arm64 has none"));
}

Json seed_document() {
  Json json = tools::json_document("touchstone.seed", 1);
  add_provenance(json);
  json.update(Json{
      {"seed", "000"},
      {"name", "quarantine"},
      {"title", "Quarantine"},
      {"question", "What does it cost?"},
      {"effort", "quick"},
      {"verdicts", {{{"kind", "good"}, {"headline", "No fault."}, {"explanation", "Counted."}}}},
      {"missing", {{{"what", "guard"}, {"why", "Linux 6.13 is older"}, {"remedy", "Take 6.15"}}}},
      {"tables",
       {{{"title", "The programs"},
         {"explanation", ""},
         {"row_labels", {"program", "KiB"}},
         {"columns",
          {{{"key", "s"}, {"label", "ratio"}, {"unit", "ratio"}, {"origin", "seed"}},
           {{"key", "r"}, {"label", "ratio"}, {"unit", "ratio"}, {"origin", "here"}},
           {{"key", "t"}, {"label", "mprotect"}, {"unit", "ns"}, {"origin", "here"}}}},
         {"rows",
          {{{"labels", {"memset", "128"}},
            {"cells",
             {{"s", {{"value", 8.9}}},
              {"r", {{"value", 1.25}}},
              {"t", {{"value", 10935.0}, {"low", 10898.0}, {"high", 11058.5}}}}}},
           {{"labels", {"memset", "1024"}},
            {"cells", {{"s", nullptr}, {"r", {{"value", 1.5}}}, {"t", nullptr}}}}}}}}}});
  return json;
}

TEST_F(Gathering, TheSeedsFiguresStandBesideOurs) {
  write("000.json", seed_document());
  const Gathered result = gathered();
  EXPECT_THAT(result.skipped, IsEmpty());
  ASSERT_THAT(result.sections, SizeIs(1));
  const Section& seed = result.sections[0];
  ASSERT_THAT(seed.tables, SizeIs(1));
  EXPECT_THAT(seed.tables[0].columns,
              ElementsAre("program", "KiB", "ratio (seed)", "ratio", "mprotect, ns"));
  EXPECT_THAT(seed.tables[0].rows,
              ElementsAre(ElementsAre("memset", "128", "8.9", "1.25", "10,935 (10,898–11,059)"),
                          ElementsAre("memset", "1024", "–", "1.5", "–")));
  ASSERT_THAT(seed.charts, SizeIs(1));
  EXPECT_THAT(seed.charts[0].labels, ElementsAre("memset 128", "memset 1024"));
  ASSERT_THAT(seed.charts[0].datasets, SizeIs(2));
  EXPECT_THAT(seed.charts[0].datasets[0].values, ElementsAre(8.9, std::nullopt));
  EXPECT_THAT(seed.missing, ElementsAre("guard: Linux 6.13 is older. Take 6.15"));
  ASSERT_THAT(seed.advice, SizeIs(1));
}

TEST_F(Gathering, WhatCannotBeUsedIsNamedAndTheRestIsKept) {
  write("good.json", gc_document("first", 1));
  write("bad1.json", std::string("{"));
  write("bad2.json", std::string("[1, 2]"));
  write("bad3.json", std::string(R"({"schema": "somebody.else", "version": 1})"));
  write("bad4.json", std::string(R"({"schema": "touchstone.gc", "version": 1})"));
  write("bad5.json", std::string(R"({"schema": "touchstone.gc", "version": 2})"));
  write("bad6.json", std::string());
  write("no-json.txt", std::string("x"));
  const Gathered result = gathered();
  EXPECT_THAT(result.sections, SizeIs(1));
  ASSERT_THAT(result.skipped, SizeIs(6));
  EXPECT_EQ(result.skipped[0].why, "no JSON");
  EXPECT_THAT(result.skipped[1].why, HasSubstr("without a schema"));
  EXPECT_THAT(result.skipped[2].why, HasSubstr("its schema is \"somebody.else\"; known are"));
  EXPECT_EQ(result.skipped[3].why, "version 1 of touchstone.gc; this report reads version 2");
  EXPECT_THAT(result.skipped[4].why, HasSubstr("damaged"));
  EXPECT_THAT(gather({"/nonexistent"}).skipped, SizeIs(1));
}

/// Every truncation of a good document, and every key taken out, is named and brings down nothing.
TEST_F(Gathering, DamageAnywhereIsNamed) {
  for (const Json& whole :
       {gc_document("first", 1), shatter_document(0), lab_document(), seed_document()}) {
    const std::string text = whole.dump();
    for (std::size_t length = 0; length < text.size(); length += 37) {
      write("a.json", text.substr(0, length));
      EXPECT_THAT(gathered().skipped, SizeIs(1)) << length;
    }
    for (const auto& [key, value] : whole.items()) {
      Json without = whole;
      without.erase(key);
      write("a.json", without);
      const Gathered result = gathered();
      EXPECT_EQ(result.skipped.size() + result.sections.size(), 1U) << key;
    }
    for (const auto& [key, value] : whole.items()) {
      Json other = whole;
      other[key] = "a text";
      write("a.json", other);
      const Gathered result = gathered();
      EXPECT_EQ(result.skipped.size() + result.sections.size(), 1U) << key;
    }
  }
}

TEST_F(Gathering, ThePageHoldsItsDataAndAsksForNothingElse) {
  write("a.json", gc_document("</script><b>", 1));
  const std::string page =
      bench::render_page(bench::Page::kReport, report_json(gathered(), "touchstone-report"));
  EXPECT_THAT(page, HasSubstr("\\u003c/script>"));
  EXPECT_EQ(page.find("@DATA@"), std::string::npos);
  EXPECT_EQ(page.find("src=\"http"), std::string::npos);
  EXPECT_EQ(page.find("href=\"http"), std::string::npos);
}

}  // namespace
}  // namespace touchstone::report
