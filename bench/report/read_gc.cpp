// SPDX-License-Identifier: MIT
#include <algorithm>

#include <fmt/format.h>

#include "readers.h"

namespace touchstone::report {

using tools::Json;

Section read_gc(const Json& document) {
  Section section{.id = "gc",
                  .title = "The collector",
                  .question =
                      "How long do programs take on the collector, and how long does it "
                      "stop them?"};
  const Json& heap = document.at("heap");
  const std::string name = fmt::format("{} {}", document.at("workload").get<std::string>(),
                                       document.at("depth").get<unsigned>());
  const auto violations = heap.at("violations").get<std::uint64_t>();
  if (!document.at("correct").get<bool>() || violations > 0) {
    section.verdicts.push_back(
        {VerdictKind::kBad, name + " went wrong.",
         fmt::format("Its result is {}; verification found {} violations.",
                     document.at("correct").get<bool>() ? "right" : "wrong", violations)});
  }
  const auto milliseconds = [&](const char* key) { return heap.at(key).get<double>() / 1e6; };
  const auto seconds = document.at("seconds").get<double>();
  const auto allocated = heap.at("allocated").get<std::uint64_t>();
  section.charts.push_back({.title = "Longest pause",
                            .explanation = "The longest that a collection stopped the program.",
                            .unit = "ms",
                            .labels = {name},
                            .datasets = {{"pause", {milliseconds("longest_pause_ns")}}}});
  section.charts.push_back({.title = "Share of time in collections",
                            .explanation = "All pauses to the program's time.",
                            .unit = "per cent",
                            .labels = {name},
                            .datasets = {{"pauses", {milliseconds("pause_ns") / 10 / seconds}}}});
  section.tables.push_back(
      {.title = "Workloads",
       .explanation = "Checked: the program's own result was compared with the one it must have.",
       .columns = {"workload", "seconds", "allocated", "MiB/s", "young", "full", "longest pause",
                   "committed", "side tables", "workers", "checked"},
       .rows = {{name, fmt::format("{:.3f}", seconds), bytes_text(allocated),
                 fmt::format("{:.0f}", static_cast<double>(allocated) / (1 << 20) / seconds),
                 grouped(heap.at("young_collections")), grouped(heap.at("full_collections")),
                 fmt::format("{:.2f} ms", milliseconds("longest_pause_ns")),
                 fmt::format("{} of {}", bytes_text(heap.at("committed")),
                             bytes_text(heap.at("max_size"))),
                 bytes_text(heap.at("side_tables")), grouped(heap.at("workers")),
                 document.at("correct").get<bool>() ? "yes" : "WRONG"}}});
  section.sources.push_back(provenance_source(document));
  return section;
}

void conclude_gc(Section& section) {
  if (!section.verdicts.empty()) return;
  const Chart& pauses = section.charts.front();
  const auto longest = std::ranges::max_element(pauses.datasets.front().values);
  const auto at = static_cast<std::size_t>(longest - pauses.datasets.front().values.begin());
  section.verdicts.push_back(
      {VerdictKind::kGood,
       fmt::format("{} program{} ran to the right result.", pauses.labels.size(),
                   pauses.labels.size() == 1 ? "" : "s"),
       fmt::format("The longest pause was {:.2f} ms, in {}.", longest->value_or(0),
                   pauses.labels[at])});
}

}  // namespace touchstone::report
