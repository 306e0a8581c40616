// SPDX-License-Identifier: MIT
#include "report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <span>
#include <string_view>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <touchstone/bench/embedded.h>

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

std::string kernel_text(const arch::Machine& machine) {
  return machine.kernel ? machine.kernel->release : "unknown";
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

std::string replace(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

}  // namespace

std::string command_text(int argc, const char* const* argv) {
  std::string command;
  for (const char* argument : std::span(argv, static_cast<std::size_t>(argc))) {
    const std::string_view word = argument;
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-./,:=+@%") == std::string_view::npos;
    if (!command.empty()) command += ' ';
    if (command.empty() && word.find('/') != std::string_view::npos) {
      command += word.substr(word.rfind('/') + 1);  // Where it was built matters to nobody.
    } else if (plain) {
      command += word;
    } else {
      command += "'" + replace(std::string(word), "'", "'\\''") + "'";
    }
  }
  return command;
}

std::string date_text() {
  return fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

std::string cpu_text() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::string table_text(const Report& report) {
  constexpr std::array kHeads{"strategy", "pages",   "thr",    "minor flt", "flt/page",
                              "AnonHuge", "RSS",     "alloc*", "zero*",     "split*",
                              "ms",       "min-max", "GiB/s",  "/memset",   "/nontemp"};
  std::vector<std::vector<std::string>> lines;
  lines.emplace_back(kHeads.begin(), kHeads.end());
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
  }
  std::array<std::size_t, kHeads.size()> widths{};
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string line;
    for (std::size_t j = 0; j < lines[i].size(); ++j) {
      line += j < 2 ? fmt::format("{:<{}}  ", lines[i][j], widths[j])
                    : fmt::format("{:>{}}  ", lines[i][j], widths[j]);
    }
    if (i > 0 && !report.rows[i - 1].error.empty()) line += report.rows[i - 1].error;
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
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
  json["touchstone"] = TOUCHSTONE_VERSION;
  json["command"] = report.command;
  json["date"] = report.date;
  const arch::Machine& machine = report.machine;
  json["machine"] = {
      {"architecture", machine.architecture},
      {"kernel", kernel_text(machine)},
      {"cpu", report.cpu},
      {"cpu_features", machine.cpu.to_string()},
      {"cores", machine.cpus},
      {"page_bytes", machine.geometry.base_page},
      {"pmd_bytes", machine.pmd_size ? Json(*machine.pmd_size) : Json(nullptr)},
      {"thp_mode", machine.thp_mode ? arch::to_string(*machine.thp_mode) : "unknown"},
      {"thp_defrag", machine.thp_defrag ? arch::to_string(*machine.thp_defrag) : "unknown"}};
  json["settings"] = {{"bytes", report.settings.bytes},
                      {"repeat", report.settings.repeat},
                      {"touch_kernel", report.kernel_listing}};
  json["verdicts"] = Json::array();
  for (const Verdict& verdict : report.verdicts) {
    json["verdicts"].push_back({{"kind", to_string(verdict.kind)},
                                {"headline", verdict.headline},
                                {"explanation", verdict.explanation}});
  }
  if (report.java) {
    json["java"] = report.java->has_value() ? java_json(**report.java)
                                            : Json{{"missing", report.java->error()}};
  }
  json["rows"] = Json::array();
  for (const Row& row : report.rows) json["rows"].push_back(row_json(row, report.settings));
  return json;
}

std::string report_html(const Report& report) {
  // "</" would end the script element that carries the data.
  const std::string data = replace(
      report_json(report).dump(-1, ' ', false, Json::error_handler_t::replace), "</", "<\\/");
  std::string page(bench::shatter_page());
  page = replace(std::move(page), "@CHART_LIBRARY@", bench::chart_library());
  return replace(std::move(page), "@DATA@", data);
}

}  // namespace touchstone::shatter
