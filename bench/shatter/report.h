// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_SHATTER_REPORT_H_
#define TOUCHSTONE_BENCH_SHATTER_REPORT_H_

#include <expected>
#include <optional>
#include <string>
#include <vector>

#include <touchstone/tools/json_file.h>
#include <touchstone/tools/provenance.h>

#include "experiment.h"
#include "java_peer.h"
#include "verdict.h"

/// The same results three ways: a table for a terminal, JSON, and a page for a browser.
namespace touchstone::shatter {

struct Report {
  tools::Provenance provenance;
  Settings settings;
  /// The loop that atomic_rmw ran, as disassembled.
  std::string kernel_listing;
  std::vector<Row> rows;
  std::vector<Verdict> verdicts;
  /// With --peers: the comparison, or the line that says why there is none.
  std::optional<std::expected<JavaComparison, std::string>> java;
};

[[nodiscard]] std::string table_text(const Report& report);
[[nodiscard]] std::string verdict_text(const Report& report);
/// Schema "touchstone.shatter", version 1.
[[nodiscard]] tools::Json report_json(const Report& report);
/// One self-contained page: no request leaves the browser.
[[nodiscard]] std::string report_html(const Report& report);

}  // namespace touchstone::shatter

#endif  // TOUCHSTONE_BENCH_SHATTER_REPORT_H_
