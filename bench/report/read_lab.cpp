// SPDX-License-Identifier: MIT
#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "readers.h"

namespace touchstone::report {
namespace {

using tools::Json;

/// The rows of one measure for all series of one kernel: keys name a row, one column a series.
class Grid {
 public:
  Grid(const std::vector<const Json*>& runs, const char* measure)
      : runs_(runs), measure_(measure) {}

  using Keys = std::function<std::vector<std::string>(const Json& row)>;  ///< None: left out.
  using Cell = std::function<std::string(const Json& row)>;

  [[nodiscard]] Table table(std::string title, std::string explanation,
                            std::vector<std::string> heads, const Keys& keys,
                            const Cell& cell) const {
    Table table{.title = std::move(title),
                .explanation = std::move(explanation),
                .columns = std::move(heads),
                .rows = {}};
    const std::size_t named = table.columns.size();
    for (const Json* run : runs_) table.columns.push_back(run->at("series"));
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      for (const Json& row : runs_[i]->at(measure_)) {
        std::vector<std::string> name = keys(row);
        if (name.empty()) continue;
        auto line = std::ranges::find_if(table.rows, [&](const auto& each) {
          return std::equal(name.begin(), name.end(), each.begin());
        });
        if (line == table.rows.end()) {
          name.resize(named + runs_.size(), "–");
          line = table.rows.insert(table.rows.end(), std::move(name));
        }
        (*line)[named + i] = cell(row);
      }
    }
    return table;
  }

 private:
  const std::vector<const Json*>& runs_;
  const char* measure_;
};

/// One touch a page by one thread over the full 64 MiB (or more, with larger pages).
bool headline(const Json& row) {
  return row.at("threads") == 1 && row.at("bytes").get<std::uint64_t>() >= (64U << 20U);
}

const Json* find_fault(const Json& run, std::string_view touch, std::string_view memory,
                       std::string_view text) {
  for (const Json& row : run.at("faults")) {
    if (headline(row) && row.at("touch") == touch && row.at("memory") == memory &&
        row.at("text") == text) {
      return &row;
    }
  }
  return nullptr;
}

std::string faults_text(const Json& row) {
  const auto huge = row.at("huge_kb").get<std::uint64_t>();
  return grouped(row.at("faults")) + (huge > 0 ? fmt::format(" ({})", huge >> 10U) : "");
}

std::string millions(const Json& row, const char* key) {
  return fmt::format("{:.2f}", row.at(key).get<double>() / 1e6);
}

std::string sentence(const Json& row) {
  return fmt::format("{} faults, {} of {} MiB in huge pages", grouped(row.at("faults")),
                     row.at("huge_kb").get<std::uint64_t>() >> 10U,
                     row.at("bytes").get<std::uint64_t>() >> 20U);
}

const Json* find_run(const std::vector<const Json*>& runs, std::string_view series) {
  const auto found =
      std::ranges::find_if(runs, [&](const Json* run) { return run->at("series") == series; });
  return found == runs.end() ? nullptr : *found;
}

/// What a Java heap that is touched at the start tells about its own switch.
void judge_java(Section& section, const std::string& kernel, const Json& stock) {
  const auto row = [&](const char* what) {
    const Json& rows = stock.at("runtimes");
    const auto found =
        std::ranges::find_if(rows, [&](const Json& each) { return each.at("what") == what; });
    return found == rows.end() ? nullptr : &*found;
  };
  const Json* const atomic = row("Serial,THP,atomic");
  const Json* const populate = row("Serial,THP,populate");
  if (atomic == nullptr || populate == nullptr) return;
  const auto text = [](const Json& each) {
    return fmt::format("{} faults and {} huge pages split", grouped(each.at("faults")),
                       grouped(each.at("thp_split_pmd")));
  };
  if (atomic->at("faults").get<std::uint64_t>() > populate->at("faults").get<std::uint64_t>()) {
    section.advice.push_back(
        {VerdictKind::kBad,
         fmt::format("OpenJDK with AlwaysPreTouch, arm64, Linux {}: leave UseMadvPopulateWrite on.",
                     kernel),
         fmt::format("Without it the start of a 512 MiB heap takes {}, with it {}.", text(*atomic),
                     text(*populate))});
  }
}

void judge(Section& section, const std::string& kernel, const std::vector<const Json*>& runs) {
  const Json* const stock = find_run(runs, "stock");
  const Json* const ours = find_run(runs, "ours");
  const Json* const exclusives = find_run(runs, "ours+exclusives");
  const auto fault = [](const Json* run, const char* touch, const char* text) {
    return run == nullptr ? nullptr : find_fault(*run, touch, "anon-thp", text);
  };
  const Json* const atomic = fault(stock, "ldadd", "normal");
  const Json* const store = fault(stock, "store", "normal");
  if (atomic != nullptr && store != nullptr) {
    if (atomic->at("faults").get<std::uint64_t>() > store->at("faults").get<std::uint64_t>()) {
      section.advice.push_back(
          {VerdictKind::kBad,
           fmt::format("arm64, Linux {}: never pre-touch with an atomic; store, or populate.",
                       kernel),
           fmt::format("LDADD: {}. A plain store: {}.", sentence(*atomic), sentence(*store))});
    }
    section.verdicts.push_back(
        {VerdictKind::kNote, "Stock, an atomic touch of memory meant for huge pages.",
         fmt::format("LDADD: {}. A plain store: {}.", sentence(*atomic), sentence(*store))});
  }
  if (const Json* const row = fault(ours, "ldadd", "normal"); row != nullptr && store != nullptr) {
    const bool good = row->at("faults") == store->at("faults");
    const Json* const hidden = fault(ours, "ldadd", "execute-only");
    section.verdicts.push_back(
        {good ? VerdictKind::kGood : VerdictKind::kBad, "With the series, an atomic touch.",
         fmt::format("LDADD: {}{}.", sentence(*row),
                     hidden == nullptr
                         ? ""
                         : fmt::format("; from execute-only text {}", sentence(*hidden)))});
  }
  const Json* const loop = fault(stock, "ldxr-stxr", "normal");
  if (const Json* const row = fault(exclusives, "ldxr-stxr", "normal"); row != nullptr) {
    section.verdicts.push_back(
        {row->at("faults").get<std::uint64_t>() < 1000 ? VerdictKind::kGood : VerdictKind::kBad,
         "LDXR/STXR loops, as OpenJDK's pre-touch, need the patch for load-exclusives.",
         fmt::format("With it: {}{}.", sentence(*row),
                     loop == nullptr ? "" : "; stock: " + sentence(*loop))});
  }
}

Chart fault_chart(const std::vector<const Json*>& runs) {
  Chart chart{.title = "Faults of a touch of 64 MiB meant for huge pages",
              .explanation =
                  "32 is one for each huge page. Shorter is better; the scale is "
                  "logarithmic.",
              .unit = "faults",
              .labels = {},
              .datasets = {},
              .logarithmic = true};
  for (const auto& [touch, text, label] :
       {std::tuple{"store", "normal", "store"}, std::tuple{"ldadd", "normal", "LDADD"},
        std::tuple{"ldadd", "execute-only", "LDADD, execute-only text"},
        std::tuple{"ldxr-stxr", "normal", "LDXR/STXR"}}) {
    std::vector<std::optional<double>> values;
    bool any = false;
    for (const Json* run : runs) {
      const Json* const row = find_fault(*run, touch, "anon-thp", text);
      values.push_back(row == nullptr ? std::nullopt
                                      : std::optional(row->at("faults").get<double>()));
      any = any || row != nullptr;
    }
    if (any) chart.datasets.push_back({label, std::move(values)});
  }
  for (const Json* run : runs) chart.labels.push_back(run->at("series"));
  return chart;
}

}  // namespace

Section read_lab(const Json& document) {
  Section section{.id = "lab",
                  .title = "arm64 kernels, as they are and patched",
                  .question =
                      "What does the kernel make of the first touch of a page, and what "
                      "would each patch change? Counted in an emulated guest."};
  const std::string workload = document.at("workload");
  // A kernel with other pages is another kernel.
  const auto name_of = [](const Json& run) {
    const auto page = value_at<unsigned>(run, "page_size").value_or(4096);
    return run.at("release").get<std::string>() +
           (page == 4096 ? "" : fmt::format(", {}K pages", page / 1024));
  };
  std::vector<std::string> kernels;
  for (const Json& run : document.at("runs")) {
    std::string name = name_of(run);
    if (std::ranges::find(kernels, name) == kernels.end()) kernels.push_back(std::move(name));
  }
  std::set<std::string> cpus;
  for (const std::string& kernel : kernels) {
    std::vector<const Json*> runs;
    for (const Json& run : document.at("runs")) {
      if (name_of(run) == kernel) runs.push_back(&run);
      cpus.insert(run.at("cpu"));
      for (const Json& failure : run.at("failures")) {
        section.verdicts.push_back(
            {VerdictKind::kBad,
             fmt::format("A check failed on {}.", run.at("series").get<std::string>()),
             failure.at("what")});
      }
    }
    const auto has = [&](const char* measure) {
      return std::ranges::any_of(runs, [&](const Json* run) { return !run->at(measure).empty(); });
    };
    const auto title = [&](const std::string& text) {
      return fmt::format("Linux {}: {}", kernel, text);
    };
    const auto two = [](const char* a, const char* b) {
      return [a, b](const Json& row) {
        return std::vector<std::string>{row.at(a).get<std::string>(), row.at(b).get<std::string>()};
      };
    };
    if (has("faults")) {
      judge(section, kernel, runs);
      Chart chart = fault_chart(runs);
      if (!chart.datasets.empty()) {
        chart.title = title("faults of touching 64 MiB meant for huge pages");
        section.charts.push_back(std::move(chart));
      }
      section.tables.push_back(Grid(runs, "faults")
                                   .table(
                                       title("faults of one touch a page"),
                                       "In brackets the MiB in huge pages afterwards, where "
                                       "there are any.",
                                       {"touch", "memory", "text"},
                                       [](const Json& row) {
                                         if (!headline(row)) return std::vector<std::string>{};
                                         return std::vector<std::string>{
                                             row.at("touch"), row.at("memory"), row.at("text")};
                                       },
                                       faults_text));
    }
    if (has("costs")) {
      section.tables.push_back(
          Grid(runs, "costs")
              .table(
                  title("instructions of one fault"), "Instructions, not time.",
                  {"touch", "VMA", "text"},
                  [](const Json& row) {
                    return std::vector<std::string>{row.at("touch"), row.at("vma"), row.at("text")};
                  },
                  [](const Json& row) {
                    return fmt::format("{:.1f}", row.at("instructions").get<double>() /
                                                     row.at("faults").get<double>());
                  }));
    }
    if (has("populates")) {
      const Grid grid(runs, "populates");
      section.tables.push_back(grid.table(
          title("faults of populating 1 GiB"), "In brackets the MiB in huge pages afterwards.",
          {"touch", "memory"}, two("touch", "memory"), faults_text));
      section.tables.push_back(grid.table(
          title("instructions of populating 1 GiB, and of random accesses then"),
          "Millions of instructions, not time.", {"touch", "memory"}, two("touch", "memory"),
          [](const Json& row) {
            return millions(row, "instructions") + ", " + millions(row, "random_instructions");
          }));
    }
    const auto whole = [](const Json& row) {
      return value_at<bool>(row, "sampled").value_or(false)
                 ? std::vector<std::string>{}
                 : std::vector<std::string>{row.at("what").get<std::string>()};
    };
    if (has("runtimes")) {
      if (const Json* const stock = find_run(runs, "stock")) judge_java(section, kernel, *stock);
      section.tables.push_back(
          Grid(runs, "runtimes")
              .table(title("the start of " + workload),
                     "Minor faults / huge pages on a fault / huge pages split; millions of "
                     "instructions.",
                     {"heap"}, whole, [](const Json& row) {
                       return fmt::format("{}/{}/{}; {}", grouped(row.at("faults")),
                                          grouped(row.at("thp_fault_alloc")),
                                          grouped(row.at("thp_split_pmd")),
                                          millions(row, "instructions"));
                     }));
    }
    if (has("heap_uses")) {
      section.tables.push_back(
          Grid(runs, "heap_uses")
              .table(
                  title("the heap of " + workload + " used at random afterwards"),
                  "Millions of instructions, and faults; in brackets the MiB in huge pages.",
                  {"heap", "pass"},
                  [](const Json& row) {
                    return std::vector<std::string>{row.at("what").get<std::string>(),
                                                    std::to_string(row.at("pass").get<unsigned>())};
                  },
                  [](const Json& row) {
                    return fmt::format("{}; {}", millions(row, "instructions"), faults_text(row));
                  }));
    }
    std::set<std::string> skipped;
    for (const Json* run : runs) {
      for (const Json& each : run->at("skipped")) {
        skipped.insert(each.at("what").get<std::string>() + ": " +
                       each.at("why").get<std::string>());
      }
    }
    section.missing.insert(section.missing.end(), skipped.begin(), skipped.end());
  }
  section.sources.push_back(
      {.file = {},
       .facts = {{"Command", document.at("command")},
                 {"Kernel", fmt::format("{}, in the guest", fmt::join(kernels, ", "))},
                 {"CPU", fmt::format("QEMU {}, -cpu {}", document.at("qemu").get<std::string>(),
                                     fmt::join(cpus, ", "))},
                 {"Date", document.at("date")}}});
  return section;
}

}  // namespace touchstone::report
