// SPDX-License-Identifier: MIT
#include "seed_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <numeric>
#include <system_error>

#include <fmt/format.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/residency.h>
#include <touchstone/tools/command_line.h>
#include <touchstone/tools/json_file.h>
#include <touchstone/tools/provenance.h>
#include <touchstone/tools/text_table.h>

#include "../spread.h"

namespace touchstone::bench {
namespace {

using tools::Json;

const char* effort_name(Effort effort) {
  switch (effort) {
    case Effort::kFull:
      return "full";
    case Effort::kQuick:
      return "quick";
    case Effort::kCounted:
      break;
  }
  return "instructions";
}

double nanoseconds(clockid_t clock) noexcept {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

std::string number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  if (std::abs(value) >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::string cell_text(const Row& row, const std::string& key) {
  const auto found = row.cells.find(key);
  if (found == row.cells.end() || std::holds_alternative<std::monostate>(found->second)) return "-";
  if (const auto* value = std::get_if<double>(&found->second)) return number(*value);
  const Figure& figure = std::get<Figure>(found->second);
  if (figure.samples < 2 || figure.low == figure.high) return number(figure.median);
  return fmt::format("{} [{}, {}]", number(figure.median), number(figure.low), number(figure.high));
}

std::string table_text(const Table& table) {
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string> heads = table.row_labels;
  std::vector<std::string> units(heads.size());
  for (const Column& column : table.columns) {
    heads.push_back(column.label);
    units.push_back(column.origin == Origin::kSeed ? "seed, " + column.unit : column.unit);
  }
  lines.push_back(std::move(heads));
  lines.push_back(std::move(units));
  for (const Row& row : table.rows) {
    std::vector<std::string> line = row.labels;
    for (const Column& column : table.columns) line.push_back(cell_text(row, column.key));
    lines.push_back(std::move(line));
  }
  std::string text = "\n" + table.title + "\n";
  if (!table.explanation.empty()) text += table.explanation + "\n";
  text += tools::text_table(lines, table.row_labels.size());
  return text;
}

Json cell_json(const Cell& cell) {
  if (const auto* value = std::get_if<double>(&cell)) return {{"value", *value}};
  if (const auto* figure = std::get_if<Figure>(&cell)) {
    return {{"value", figure->median},
            {"mean", figure->mean},
            {"low", figure->low},
            {"high", figure->high},
            {"samples", figure->samples}};
  }
  return nullptr;
}

Json table_json(const Table& table) {
  Json columns = Json::array();
  for (const Column& column : table.columns) {
    columns.push_back({{"key", column.key},
                       {"label", column.label},
                       {"unit", column.unit},
                       {"origin", column.origin == Origin::kSeed ? "seed" : "here"}});
  }
  Json rows = Json::array();
  for (const Row& row : table.rows) {
    Json cells = Json::object();
    for (const Column& column : table.columns) {
      const auto found = row.cells.find(column.key);
      cells[column.key] = found == row.cells.end() ? Json(nullptr) : cell_json(found->second);
    }
    rows.push_back({{"labels", row.labels}, {"cells", std::move(cells)}});
  }
  return {{"title", table.title},
          {"explanation", table.explanation},
          {"row_labels", table.row_labels},
          {"columns", std::move(columns)},
          {"rows", std::move(rows)}};
}

Json run_json(const SeedRun& run) {
  const SeedDescription& about = run.description();
  Json document{{"seed", about.seed},
                {"name", about.name},
                {"title", about.title},
                {"question", about.question},
                {"effort", effort_name(run.effort())},
                {"verdicts", tools::verdicts_json(run.verdicts())},
                {"tables", Json::array()},
                {"missing", Json::array()}};
  for (const Table& table : run.tables()) document["tables"].push_back(table_json(table));
  for (const Missing& each : run.all_missing()) {
    document["missing"].push_back(
        {{"what", each.what}, {"why", each.why}, {"remedy", each.remedy}});
  }
  return document;
}

}  // namespace

Figure figure_of(std::vector<double> samples) {
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  const std::size_t count = samples.size();
  const Spread spread = spread_of(std::move(samples));
  return {.median = spread.median,
          .mean = sum / static_cast<double>(count),
          .low = spread.min,
          .high = spread.max,
          .samples = count};
}

double middle(const Cell& cell) {
  if (const auto* value = std::get_if<double>(&cell)) return *value;
  if (const auto* figure = std::get_if<Figure>(&cell)) return figure->median;
  return std::numeric_limits<double>::quiet_NaN();
}

Cell ratio(const Cell& of, const Cell& to) {
  const double value = middle(of) / middle(to);
  return std::isfinite(value) ? Cell(value) : Cell();
}

void SeedRun::missing(const Missing& missing) {
  const auto same = [&](const Missing& each) { return each.what == missing.what; };
  if (std::ranges::any_of(missing_, same)) return;
  fmt::print(stderr, "{}: not measured: {}: {}; {}\n", description_.name, missing.what, missing.why,
             missing.remedy);
  missing_.push_back(missing);
}

void SeedRun::verdict(VerdictKind kind, std::string headline, std::string explanation) {
  verdicts_.push_back({kind, std::move(headline), std::move(explanation)});
}

bool SeedRun::has_memory(std::size_t bytes, const std::string& what) {
  constexpr std::size_t kSpare = std::size_t{64} << 20U;
  const auto lacks = [&](std::size_t room, const std::string& why, const char* remedy) {
    if (room >= bytes + kSpare) return false;
    missing({what,
             fmt::format("needs {} MiB, and {} leaves {} MiB", (bytes + kSpare) >> 20U, why,
                         room >> 20U),
             remedy});
    return true;
  };
  const auto cgroup = arch::cgroup_memory();
  if (cgroup && *cgroup && lacks((*cgroup)->headroom(), "the memory cgroup", "a higher limit")) {
    return false;
  }
  const auto available = arch::available_memory();
  return !available || !lacks(*available, "the machine", "more memory");
}

std::string SeedRun::to_text() const {
  std::string text = fmt::format("{} (seed {}): {}\n", description_.title, description_.seed,
                                 description_.question);
  for (const Verdict& each : verdicts_) {
    text += fmt::format("  {} {}\n", each.headline, each.explanation);
  }
  for (const Table& table : tables_) text += table_text(table);
  if (!missing_.empty()) text += "\nNot measured\n";
  for (const Missing& each : missing_) {
    text += fmt::format("  {}: {}; {}\n", each.what, each.why, each.remedy);
  }
  return text;
}

double SeedRun::clock() const noexcept {
  return effort_ == Effort::kCounted ? now() : processor_time();
}

double now() noexcept {
  return nanoseconds(CLOCK_MONOTONIC);
}

double processor_time() noexcept {
  return nanoseconds(CLOCK_THREAD_CPUTIME_ID);
}

double faults_so_far() noexcept {
  const auto faults = heap::thread_faults();
  return faults ? static_cast<double>(faults->minor + faults->major) : 0;
}

int run_seed(int argc, const char* const* argv, const SeedDescription& description,
             void (*measure)(SeedRun&)) {
  const std::string name(description.name);
  CLI::App app{fmt::format("{} Repeats seed {}.", description.question, description.seed), name};
  bool quick = false;
  bool counted = false;
  std::string json_file;
  app.set_version_flag("--version", name + " " TOUCHSTONE_VERSION);
  app.add_flag("--quick", quick, "A few seconds: fewer repetitions, less memory");
  app.add_flag("--count-instructions", counted,
               "The clock counts instructions and repeats exactly (an emulator): measure once")
      ->excludes("--quick");
  app.add_option("--json", json_file, "Write the result as JSON to this file; - prints");
  if (const auto code = tools::parse_command_line(app, argc, argv)) return *code;
  // Before anything is measured, so that nothing is lost.
  const std::filesystem::path folder = std::filesystem::path(json_file).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    tools::print_error(name, fmt::format("--json: {} is not a folder", folder.string()));
    return tools::kExitUsage;
  }
  Effort effort = quick ? Effort::kQuick : Effort::kFull;
  if (counted) effort = Effort::kCounted;
  SeedRun run(description, effort);
  measure(run);
  fmt::print(json_file == "-" ? stderr : stdout, "{}", run.to_text());
  if (!json_file.empty()) {
    Json document = tools::json_document("touchstone.seed", 1);
    tools::add_provenance(document, tools::provenance_of(argc, argv));
    document.update(run_json(run));
    if (const auto written = tools::write_json_file(json_file, document); !written) {
      tools::print_error(name, fmt::format("{}: {}", json_file, written.error().message()));
      return tools::kExitFailure;
    }
  }
  return tools::kExitSuccess;
}

}  // namespace touchstone::bench
