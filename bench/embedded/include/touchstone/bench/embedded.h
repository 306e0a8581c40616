// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_EMBEDDED_H_
#define TOUCHSTONE_BENCH_EMBEDDED_H_

#include <string_view>

/// Files that the build puts into the tools, so that a tool can be copied alone.
namespace touchstone::bench {

/// Chart.js, as the system's package has it (MIT licence; its notice is in the text).
[[nodiscard]] std::string_view chart_library() noexcept;

/// The page of touchstone-shatter, with @DATA@ and @CHART_LIBRARY@ to be filled in.
[[nodiscard]] std::string_view shatter_page() noexcept;

}  // namespace touchstone::bench

#endif  // TOUCHSTONE_BENCH_EMBEDDED_H_
