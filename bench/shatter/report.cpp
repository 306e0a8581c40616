// SPDX-License-Identifier: MIT
#include "report.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <touchstone/bench/page.h>
#include <touchstone/tools/text_table.h>

namespace touchstone::shatter {
namespace {

using tools::Json;

std::string counter(const std::optional<std::uint64_t>& value) {
  return value ? fmt::format("{}", *value) : "-";
}

std::string mebibytes(const std::optional<std::size_t>& bytes) {
  return bytes ? fmt::format("{}M", *bytes >> 20U) : "-";
}

Json json_of(const std::optional<std::uint64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string name_of(const Row& row) {
  return heap::to_string(row.what.strategy);
}

/// What ran under the name: the strategy that automatic chose, the kernel that atomic_rmw ran.
std::string detail_of(const Row& row) {
  if (row.what.strategy == heap::PretouchStrategy::kAutomatic) {
    return heap::to_string(row.last.used);
  }
  return row.last.touch_kernel;
}

Json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

Json java_json(const JavaComparison& java) {
  return {{"version", java.version},
          {"bytes", java.bytes},
          {"rounds", java.rounds},
          {"seconds_with_pretouch", spread_json(java.with_pretouch)},
          {"seconds_without", spread_json(java.without)},
          {"seconds_automatic", spread_json(java.automatic)},
          {"times_as_fast", java.ratio()}};
}

Json row_json(const Row& row, const Settings& settings) {
  Json json{{"name", name_of(row)},
            {"pages", pages_name(row.what.pages, settings.geometry)},
            {"huge_pages_advised", row.what.pages == Pages::kHuge},
            {"threads", row.what.threads}};
  if (!row.error.empty()) {
    json["error"] = row.error;
    return json;
  }
  json["detail"] = detail_of(row);
  json["bytes"] = row.last.bytes;
  json["rounds"] = row.rounds;
  json["minor_faults"] = row.minor_faults;
  json["faults_per_page"] = row.faults_per_page;
  json["huge_bytes"] = json_of(row.huge_bytes);
  json["rss_bytes"] = json_of(row.last.rss_bytes);
  json["thp_fault_alloc"] = json_of(row.last.thp_fault_alloc);
  json["thp_zero_page_alloc"] = json_of(row.last.thp_zero_page_alloc);
  json["thp_split_pmd"] = json_of(row.last.thp_split_pmd);
  json["seconds"] = spread_json(row.seconds);
  json["gib_per_second"] = row.gib_per_second;
  json["relative_to_memset"] = row.relative_to_memset;
  json["relative_to_nontemporal"] = row.relative_to_nontemporal;
  return json;
}

}  // namespace

std::string table_text(const Report& report) {
  constexpr std::array kHeads{"strategy", "pages",   "thr",    "minor flt", "flt/page",
                              "AnonHuge", "RSS",     "alloc*", "zero*",     "split*",
                              "ms",       "min-max", "GiB/s",  "/memset",   "/nontemp"};
  std::vector<std::vector<std::string>> lines;
  lines.emplace_back(kHeads.begin(), kHeads.end());
  std::vector<std::string> errors(1);
  for (const Row& row : report.rows) {
    std::vector<std::string> cells{name_of(row),
                                   pages_name(row.what.pages, report.settings.geometry),
                                   fmt::format("{}", row.what.threads)};
    if (row.error.empty()) {
      cells.insert(
          cells.end(),
          {fmt::format("{}", row.minor_faults), fmt::format("{:.4f}", row.faults_per_page),
           mebibytes(row.huge_bytes), mebibytes(row.last.rss_bytes),
           counter(row.last.thp_fault_alloc), counter(row.last.thp_zero_page_alloc),
           counter(row.last.thp_split_pmd), fmt::format("{:.1f}", 1e3 * row.seconds.median),
           fmt::format("{:.1f}-{:.1f}", 1e3 * row.seconds.min, 1e3 * row.seconds.max),
           fmt::format("{:.2f}", row.gib_per_second), fmt::format("{:.2f}", row.relative_to_memset),
           fmt::format("{:.2f}", row.relative_to_nontemporal)});
    }
    lines.push_back(std::move(cells));
    errors.push_back(row.error);
  }
  std::string text = tools::text_table(lines, 2, errors);
  text += "*  system-wide counters: other processes count too, and no verdict rests on them.\n";
  return text;
}

std::string verdict_text(const Report& report) {
  std::string text;
  for (const Verdict& verdict : report.verdicts) {
    text += fmt::format("{} {}\n    {}\n",
                        verdict.kind == VerdictKind::kBad    ? "[!]"
                        : verdict.kind == VerdictKind::kGood ? "[+]"
                                                             : "[i]",
                        verdict.headline, verdict.explanation);
  }
  return text;
}

tools::Json report_json(const Report& report) {
  Json json = tools::json_document("touchstone.shatter", 1);
  tools::add_provenance(json, report.provenance);
  json["settings"] = {{"bytes", report.settings.bytes},
                      {"repeat", report.settings.repeat},
                      {"touch_kernel", report.kernel_listing}};
  json["verdicts"] = tools::verdicts_json(report.verdicts);
  if (report.java) {
    json["java"] = report.java->has_value() ? java_json(**report.java)
                                            : Json{{"missing", report.java->error()}};
  }
  json["rows"] = Json::array();
  for (const Row& row : report.rows) json["rows"].push_back(row_json(row, report.settings));
  return json;
}

std::string report_html(const Report& report) {
  return bench::render_page(bench::Page::kShatter, report_json(report));
}

}  // namespace touchstone::shatter
