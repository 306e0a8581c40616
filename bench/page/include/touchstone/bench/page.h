// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_PAGE_H_
#define TOUCHSTONE_BENCH_PAGE_H_

#include <string>

#include <touchstone/tools/json_file.h>

namespace touchstone::bench {

/// A page of bench/, each a template beside its tool.
enum class Page {
  kGc,
  kReport,
  kShatter,
};

/// One self-contained HTML page, with style, Chart.js and data in it: no request leaves the
/// browser. The page's own script finds `data` as a constant of that name.
[[nodiscard]] std::string render_page(Page page, const tools::Json& data);

}  // namespace touchstone::bench

#endif  // TOUCHSTONE_BENCH_PAGE_H_
