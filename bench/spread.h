// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_SPREAD_H_
#define TOUCHSTONE_BENCH_SPREAD_H_

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace touchstone::bench {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

/// Median (of an even number: the mean of the middle two), least and most. values is not empty.
[[nodiscard]] inline Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : std::midpoint(values[middle - 1], values[middle]);
  return {.median = median, .min = values.front(), .max = values.back()};
}

}  // namespace touchstone::bench

#endif  // TOUCHSTONE_BENCH_SPREAD_H_
