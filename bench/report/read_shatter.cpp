// SPDX-License-Identifier: MIT
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "readers.h"

namespace touchstone::report {
namespace {

using tools::Json;

const Json* find_row(const Json& rows, std::string_view name, bool huge) {
  for (const Json& row : rows) {
    if (row.at("name") == name && row.at("huge_pages_advised") == huge && !row.contains("error")) {
      return &row;
    }
  }
  return nullptr;
}

/// What an atomic touch does to huge pages here, and what to use.
void advise(Section& section, const Json& document) {
  const Json& rows = document.at("rows");
  const Json* const atomic = find_row(rows, "atomic_rmw", true);
  const Json* const automatic = find_row(rows, "automatic", true);
  const std::string where =
      fmt::format("Linux {}, {}", document.at("machine").at("kernel").get<std::string>(),
                  document.at("machine").at("architecture").get<std::string>());
  const std::string pick =
      automatic == nullptr
          ? ""
          : fmt::format(" `automatic` picks {}.", automatic->at("detail").get<std::string>());
  const auto huge =
      atomic == nullptr ? std::nullopt : value_at<std::uint64_t>(*atomic, "huge_bytes");
  if (!huge) return;
  const auto bytes = atomic->at("bytes").get<std::uint64_t>();
  if (*huge * 2 < bytes) {
    section.advice.push_back({VerdictKind::kBad,
                              fmt::format("{}: do not pre-touch with an atomic.", where),
                              fmt::format("It leaves {} of {} in huge pages.{}", bytes_text(*huge),
                                          bytes_text(bytes), pick)});
  } else {
    section.advice.push_back({VerdictKind::kGood,
                              fmt::format("{}: an atomic pre-touch is harmless.", where),
                              fmt::format("{} of {} are in huge pages afterwards.{}",
                                          bytes_text(*huge), bytes_text(bytes), pick)});
  }
}

Chart bars(const Json& rows, const char* title, const char* explanation, const char* unit,
           std::optional<double> (*pick)(const Json&)) {
  Chart chart{
      .title = title, .explanation = explanation, .unit = unit, .labels = {}, .datasets = {}};
  std::vector<std::string> modes;
  for (const Json& row : rows) {
    if (row.contains("error")) continue;
    const auto add = [](std::vector<std::string>& to, const std::string& text) {
      if (std::ranges::find(to, text) == to.end()) to.push_back(text);
    };
    add(chart.labels, row.at("name"));
    add(modes, row.at("pages"));
  }
  for (const std::string& mode : modes) {
    Chart::Dataset dataset{.label = mode, .values = {}};
    for (const std::string& label : chart.labels) {
      const auto row = std::ranges::find_if(rows, [&](const Json& each) {
        return !each.contains("error") && each.at("name") == label && each.at("pages") == mode;
      });
      dataset.values.push_back(row == rows.end() ? std::nullopt : pick(*row));
    }
    chart.datasets.push_back(std::move(dataset));
  }
  return chart;
}

}  // namespace

Section read_shatter(const Json& document) {
  const Json& machine = document.at("machine");
  const std::string kernel = machine.at("kernel");
  Section section{.id = "shatter " + kernel + machine.at("cpu").get<std::string>(),
                  .title = "Pre-touching, " + machine.at("architecture").get<std::string>(),
                  .question = fmt::format("What does each way of touching fresh memory cost on "
                                          "Linux {}, in faults, huge pages and time?",
                                          kernel)};
  advise(section, document);
  for (const Json& verdict : document.at("verdicts")) {
    section.verdicts.push_back(tools::verdict_of(verdict));
  }
  const Json& rows = document.at("rows");
  section.charts.push_back(
      bars(rows, "Speed, one thread", "Longer is faster.", "GiB/s, median",
           [](const Json& row) { return value_at<double>(row, "gib_per_second"); }));
  section.charts.push_back(
      bars(rows, "Page faults", "One a page is the least that touching base pages can take.",
           "minor faults per base page",
           [](const Json& row) { return value_at<double>(row, "faults_per_page"); }));
  section.charts.push_back(bars(
      rows, "Huge pages", "How much of the memory huge pages back afterwards.",
      "per cent of the bytes", [](const Json& row) {
        const auto huge = value_at<double>(row, "huge_bytes");
        return huge ? std::optional(100 * *huge / row.at("bytes").get<double>()) : std::nullopt;
      }));
  Table table{.title = "Every way of pre-touching",
              .explanation =
                  "Time is the median of the rounds, with the fastest and slowest behind "
                  "it; of memset compares with filling resident memory in the same round.",
              .columns = {"strategy", "pages", "threads", "faults", "a page", "huge", "ms", "GiB/s",
                          "of memset"},
              .rows = {}};
  for (const Json& row : rows) {
    std::vector<std::string> cells{row.at("name"), row.at("pages"),
                                   std::to_string(row.at("threads").get<unsigned>())};
    if (row.contains("error")) {
      section.missing.push_back(
          fmt::format("{}, {}: {}", cells[0], cells[1], row.at("error").get<std::string>()));
      continue;
    }
    const Json& seconds = row.at("seconds");
    const auto huge = value_at<std::uint64_t>(row, "huge_bytes");
    cells.insert(
        cells.end(),
        {grouped(row.at("minor_faults")),
         fmt::format("{:.4f}", row.at("faults_per_page").get<double>()),
         huge ? bytes_text(*huge) : "–",
         fmt::format("{:.1f} ({:.1f}–{:.1f})", 1e3 * seconds.at("median").get<double>(),
                     1e3 * seconds.at("min").get<double>(), 1e3 * seconds.at("max").get<double>()),
         fmt::format("{:.2f}", row.at("gib_per_second").get<double>()),
         fmt::format("{:.2f}", row.at("relative_to_memset").get<double>())});
    table.rows.push_back(std::move(cells));
  }
  section.tables.push_back(std::move(table));
  Source source = provenance_source(document);
  source.facts.emplace_back(
      "Method", fmt::format("{} a mapping, {} rounds that count",
                            bytes_text(document.at("settings").at("bytes").get<std::uint64_t>()),
                            document.at("settings").at("repeat").get<unsigned>()));
  section.sources.push_back(std::move(source));
  return section;
}

}  // namespace touchstone::report
