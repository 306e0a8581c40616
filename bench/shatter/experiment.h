// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_SHATTER_EXPERIMENT_H_
#define TOUCHSTONE_BENCH_SHATTER_EXPERIMENT_H_

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/pretouch.h>

#include "../spread.h"

/// What touchstone-shatter runs: every case on a fresh mapping of its own, taking turns.
namespace touchstone::shatter {

/// Whether the mapping asks for huge pages (MADV_HUGEPAGE) or refuses them (MADV_NOHUGEPAGE).
enum class Pages : std::uint8_t { kBase, kHuge };

/// One way of pre-touching: a row of the table.
struct Case {
  heap::PretouchStrategy strategy = heap::PretouchStrategy::kAutomatic;
  Pages pages = Pages::kBase;
  unsigned threads = 1;
};

struct Settings {
  /// Size of each mapping in bytes, a multiple of the huge page.
  std::size_t bytes = 0;
  /// Rounds that count; one more is run first and thrown away.
  unsigned repeat = 5;
  std::vector<heap::PretouchStrategy> strategies;
  std::vector<Pages> pages;
  std::vector<unsigned> threads;
  /// For atomic_rmw; null is the registered default.
  const heap::TouchKernel* touch_kernel = nullptr;
  arch::Geometry geometry;
};

/// What one run of one case showed.
struct Sample {
  double seconds = 0;
  /// Filling the same memory, resident by then, with as many threads.
  double memset_seconds = 0;
  double nontemporal_seconds = 0;
  std::size_t bytes = 0;
  std::uint64_t minor_faults = 0;
  /// By smaps; nullopt where it cannot be read or does not tell the truth (as in an emulator).
  std::optional<std::size_t> huge_bytes;
  std::optional<std::size_t> rss_bytes;
  /// System-wide deltas; nullopt where the kernel does not count them.
  std::optional<std::uint64_t> thp_fault_alloc;
  std::optional<std::uint64_t> thp_zero_page_alloc;
  std::optional<std::uint64_t> thp_split_pmd;
  /// What did it: the strategy that automatic chose, the kernel that atomic_rmw ran.
  heap::PretouchStrategy used = heap::PretouchStrategy::kNone;
  std::string touch_kernel;
  std::optional<heap::PretouchChoice> choice;
};

using bench::Spread;
using bench::spread_of;

/// A case with what its rounds showed.
struct Row {
  Case what;
  /// Not empty: the case could not be run, and this line says why. The figures then mean nothing.
  std::string error;
  /// Rounds that counted.
  std::size_t rounds = 0;
  Spread seconds;
  /// Medians of the rounds.
  double gib_per_second = 0;
  double relative_to_memset = 0;
  double relative_to_nontemporal = 0;
  std::uint64_t minor_faults = 0;
  double faults_per_page = 0;
  /// The least of the rounds: one round that shattered is not hidden by the others.
  std::optional<std::size_t> huge_bytes;
  /// Of the last round.
  Sample last;
};

/// Every case of the settings, in the order of the table. Collapse with base pages is none: the one
/// forbids the other.
[[nodiscard]] std::vector<Case> cases_of(const Settings& settings);

/// About how long all rounds take on base pages, which take the longest by far, at that many bytes
/// a second.
[[nodiscard]] double seconds_of_all(const Settings& settings, double base_page_rate);

/// Runs one case once on a fresh mapping. The error is one line for a person.
[[nodiscard]] std::expected<Sample, std::string> run_case(const Case& what,
                                                          const Settings& settings);

/// The row of a case: the samples summed up, or the error of the round that failed.
[[nodiscard]] Row summarise(const Case& what, const Settings& settings,
                            const std::vector<std::expected<Sample, std::string>>& rounds);

/// Runs all cases, interleaved: each round runs every case once; the first round is thrown away. A
/// case that fails is not run again. before_each is told what comes next.
[[nodiscard]] std::vector<Row> run_all(const Settings& settings,
                                       const std::function<void(const Case&)>& before_each);

/// "4K" or "THP 2M" and so on.
[[nodiscard]] std::string pages_name(Pages pages, const arch::Geometry& geometry);

}  // namespace touchstone::shatter

#endif  // TOUCHSTONE_BENCH_SHATTER_EXPERIMENT_H_
