// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_PAGE_EMBEDDED_H_
#define TOUCHSTONE_BENCH_PAGE_EMBEDDED_H_

#include <string_view>

#include <touchstone/bench/page.h>

/// Files that the build puts into the tools, so that a tool can be copied alone.
namespace touchstone::bench {

/// Chart.js, as the system's package has it (MIT licence; its notice is in the text).
[[nodiscard]] std::string_view chart_library() noexcept;
/// What all pages look like, and the functions that build their tables and charts.
[[nodiscard]] std::string_view page_style() noexcept;
[[nodiscard]] std::string_view page_script() noexcept;
[[nodiscard]] std::string_view page_body(Page page) noexcept;

}  // namespace touchstone::bench

#endif  // TOUCHSTONE_BENCH_PAGE_EMBEDDED_H_
