// SPDX-License-Identifier: MIT
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "readers.h"

namespace touchstone::report {
namespace {

using tools::Json;

std::string number(double value) {
  const double size = std::fabs(value);
  if (size < 1e15 && (size >= 1000 || size == std::floor(size))) {
    return (value < 0 ? "-" : "") + grouped(static_cast<std::uint64_t>(std::llround(size)));
  }
  return fmt::format("{:.3g}", value);
}

std::string cell_text(const Json& cell) {
  if (cell.is_null()) return "–";
  std::string middle = number(cell.at("value"));
  if (!cell.contains("low")) return middle;
  return fmt::format("{} ({}–{})", middle, number(cell.at("low")), number(cell.at("high")));
}

std::string heading(const Json& column) {
  const std::string label = column.at("label");
  const std::string unit = column.at("unit");
  return label + (unit.empty() || unit == label ? "" : ", " + unit) +
         (column.at("origin") == "seed" ? " (seed)" : "");
}

Table table_of(const Json& document) {
  Table table{.title = document.at("title"),
              .explanation = document.at("explanation"),
              .columns = document.at("row_labels").get<std::vector<std::string>>(),
              .rows = {}};
  for (const Json& column : document.at("columns")) table.columns.push_back(heading(column));
  for (const Json& row : document.at("rows")) {
    auto line = row.at("labels").get<std::vector<std::string>>();
    for (const Json& column : document.at("columns")) {
      line.push_back(cell_text(row.at("cells").at(column.at("key").get<std::string>())));
    }
    table.rows.push_back(std::move(line));
  }
  return table;
}

/// Ratios are what can be compared between machines; only they are drawn, the seed's beside ours.
std::optional<Chart> chart_of(const Json& document) {
  Chart chart{.title = document.at("title"),
              .explanation = "Ratios; the seed's are those of its author's machine.",
              .unit = "ratio",
              .labels = {},
              .datasets = {}};
  for (const Json& row : document.at("rows")) {
    chart.labels.push_back(
        fmt::format("{}", fmt::join(row.at("labels").get<std::vector<std::string>>(), " ")));
  }
  bool seed = false;
  for (const Json& column : document.at("columns")) {
    if (column.at("unit") != "ratio") continue;
    seed = seed || column.at("origin") == "seed";
    Chart::Dataset dataset{.label = column.at("label").get<std::string>() +
                                    (column.at("origin") == "seed" ? " (seed)" : ""),
                           .values = {}};
    for (const Json& row : document.at("rows")) {
      const Json& cell = row.at("cells").at(column.at("key").get<std::string>());
      dataset.values.push_back(cell.is_null() ? std::nullopt
                                              : std::optional(cell.at("value").get<double>()));
    }
    chart.datasets.push_back(std::move(dataset));
  }
  return seed ? std::optional(std::move(chart)) : std::nullopt;
}

}  // namespace

Section read_seed(const Json& document) {
  const Json& machine = document.at("machine");
  const std::string effort = document.at("effort");
  Section section{.id = fmt::format("seed {} {} {}", document.at("seed").get<std::string>(),
                                    document.at("name").get<std::string>(),
                                    machine.at("kernel").get<std::string>()),
                  .title = fmt::format("{} (seed {})", document.at("title").get<std::string>(),
                                       document.at("seed").get<std::string>()),
                  .question = document.at("question")};
  for (const Json& verdict : document.at("verdicts")) {
    section.verdicts.push_back(tools::verdict_of(verdict));
  }
  // The first is what the bench is for.
  if (!section.verdicts.empty()) section.advice.push_back(section.verdicts.front());
  for (const Json& table : document.at("tables")) {
    if (auto chart = chart_of(table)) section.charts.push_back(*std::move(chart));
    section.tables.push_back(table_of(table));
  }
  for (const Json& each : document.at("missing")) {
    section.missing.push_back(fmt::format("{}: {}. {}", each.at("what").get<std::string>(),
                                          each.at("why").get<std::string>(),
                                          each.at("remedy").get<std::string>()));
  }
  Source source = provenance_source(document);
  if (effort != "full") {
    source.facts.emplace_back("Effort", effort == "quick" ? "quick: few samples, so that it shows "
                                                            "how it works rather than how it is"
                                                          : effort);
  }
  section.sources.push_back(std::move(source));
  return section;
}

}  // namespace touchstone::report
