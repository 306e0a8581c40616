// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_REPORT_SECTION_H_
#define TOUCHSTONE_BENCH_REPORT_SECTION_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <touchstone/tools/json_file.h>
#include <touchstone/tools/verdict.h>

/// What every JSON shape is turned into, and the only thing that the page knows.
namespace touchstone::report {

using tools::Verdict;
using tools::VerdictKind;

/// Horizontal bars: each dataset has a value, or none, for every label.
struct Chart {
  struct Dataset {
    std::string label;
    std::vector<std::optional<double>> values;
  };
  std::string title;
  std::string explanation;
  std::string unit;
  std::vector<std::string> labels;
  std::vector<Dataset> datasets;
  bool logarithmic = false;
};

struct Table {
  std::string title;
  std::string explanation;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

/// A file that went into a section: its name, and how its figures came about.
struct Source {
  std::string file;
  std::vector<std::pair<std::string, std::string>> facts;  ///< Name and value, in order.
};

struct Section {
  std::string id;  ///< Sections with the same id become one.
  std::string title;
  std::string question;           ///< What the section answers, in a sentence.
  std::vector<Verdict> advice;    ///< For the top of the page: what to do about it.
  std::vector<Verdict> verdicts;  ///< What was found.
  std::vector<Chart> charts;
  std::vector<Table> tables;
  std::vector<std::string> missing;  ///< What was not measured, why, and what would bring it.
  std::vector<Source> sources;
};

/// Adds what `more` has: rows to the table and bars to the chart of the same title and columns, the
/// rest behind what is there.
void join(Section& section, Section more);

[[nodiscard]] tools::Json to_json(const Section& section);

}  // namespace touchstone::report

#endif  // TOUCHSTONE_BENCH_REPORT_SECTION_H_
