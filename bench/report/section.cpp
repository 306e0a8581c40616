// SPDX-License-Identifier: MIT
#include "section.h"

#include <algorithm>
#include <iterator>

namespace touchstone::report {
namespace {

using tools::Json;

Json to_json(const Chart& chart) {
  Json datasets = Json::array();
  for (const Chart::Dataset& dataset : chart.datasets) {
    Json values = Json::array();
    for (const auto& value : dataset.values) values.push_back(value ? Json(*value) : Json());
    datasets.push_back({{"label", dataset.label}, {"data", std::move(values)}});
  }
  return {{"title", chart.title},   {"explanation", chart.explanation},
          {"unit", chart.unit},     {"logarithmic", chart.logarithmic},
          {"labels", chart.labels}, {"datasets", std::move(datasets)}};
}

Json to_json(const Table& table) {
  return {{"title", table.title},
          {"explanation", table.explanation},
          {"columns", table.columns},
          {"rows", table.rows}};
}

template <typename T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  std::ranges::move(from, std::back_inserter(to));
}

bool same_bars(const Chart& a, const Chart& b) {
  return a.title == b.title && std::ranges::equal(a.datasets, b.datasets, {},
                                                  &Chart::Dataset::label, &Chart::Dataset::label);
}

}  // namespace

void join(Section& section, Section more) {
  // Two runs of the same give the same advice.
  std::erase_if(more.advice, [&](const Verdict& each) {
    return std::ranges::find(section.advice, each.headline, &Verdict::headline) !=
           section.advice.end();
  });
  append(section.advice, std::move(more.advice));
  append(section.verdicts, std::move(more.verdicts));
  append(section.missing, std::move(more.missing));
  append(section.sources, std::move(more.sources));
  for (Chart& chart : more.charts) {
    const auto same = std::ranges::find_if(
        section.charts, [&](const Chart& each) { return same_bars(each, chart); });
    if (same == section.charts.end()) {
      section.charts.push_back(std::move(chart));
      continue;
    }
    append(same->labels, std::move(chart.labels));
    for (std::size_t i = 0; i < chart.datasets.size(); ++i) {
      append(same->datasets[i].values, std::move(chart.datasets[i].values));
    }
  }
  for (Table& table : more.tables) {
    const auto same = std::ranges::find_if(section.tables, [&](const Table& each) {
      return each.title == table.title && each.columns == table.columns;
    });
    if (same == section.tables.end()) {
      section.tables.push_back(std::move(table));
    } else {
      append(same->rows, std::move(table.rows));
    }
  }
}

Json to_json(const Section& section) {
  Json json{{"id", section.id},
            {"title", section.title},
            {"question", section.question},
            {"advice", tools::verdicts_json(section.advice)},
            {"verdicts", tools::verdicts_json(section.verdicts)},
            {"charts", Json::array()},
            {"tables", Json::array()},
            {"missing", section.missing},
            {"sources", Json::array()}};
  for (const Chart& chart : section.charts) json["charts"].push_back(to_json(chart));
  for (const Table& table : section.tables) json["tables"].push_back(to_json(table));
  for (const Source& source : section.sources) {
    json["sources"].push_back({{"file", source.file}, {"facts", source.facts}});
  }
  return json;
}

}  // namespace touchstone::report
