// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_GC_TARGETS_H_
#define TOUCHSTONE_BENCH_GC_TARGETS_H_

#include <functional>
#include <string>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/tools/json_file.h>

namespace touchstone::gc {

/// Something the collector has to reach, as measured here and now.
struct Target {
  enum class Bound : std::uint8_t { kAtMost, kAtLeast };
  std::string name;
  double figure = 0;
  double limit = 0;
  Bound bound = Bound::kAtMost;
  std::string unit;
  std::string note;         ///< What else there is to know of the measurement.
  std::string unavailable;  ///< Not empty: why the figure says nothing here.

  [[nodiscard]] bool met() const noexcept {
    return bound == Bound::kAtMost ? figure <= limit : figure >= limit;
  }
};

/// Groups of targets, by name: what needs peers, speed of allocation, pauses, marking, space.
[[nodiscard]] std::vector<std::string> target_groups();

/// Measures a group; each target is told as soon as there is a figure. Errors: of the heaps it
/// makes; a few GiB are needed.
[[nodiscard]] Result<> measure_targets(const std::string& group, unsigned rounds,
                                       const std::function<void(const Target&)>& tell);

[[nodiscard]] std::string target_text(const Target& target);
[[nodiscard]] tools::Json target_json(const Target& target);

}  // namespace touchstone::gc

#endif  // TOUCHSTONE_BENCH_GC_TARGETS_H_
