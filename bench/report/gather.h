// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_REPORT_GATHER_H_
#define TOUCHSTONE_BENCH_REPORT_GATHER_H_

#include <string>
#include <vector>

#include "section.h"

namespace touchstone::report {

/// A file that is not in the report, and why.
struct Skipped {
  std::string file;
  std::string why;
};

struct Gathered {
  std::vector<Section> sections;  ///< In the order of all_readers(), then of file names.
  std::vector<Skipped> skipped;
};

/// Reads files, and the *.json files of folders (not of folders inside them). What cannot be read,
/// is no JSON, or has a shape no reader knows is skipped and named; the rest is kept.
[[nodiscard]] Gathered gather(const std::vector<std::string>& inputs);

/// The page's data: what was gathered, with the report's own command line and date.
[[nodiscard]] tools::Json report_json(const Gathered& gathered, const std::string& command);

}  // namespace touchstone::report

#endif  // TOUCHSTONE_BENCH_REPORT_GATHER_H_
