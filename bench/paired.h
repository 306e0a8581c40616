// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_PAIRED_H_
#define TOUCHSTONE_BENCH_PAIRED_H_

#include <algorithm>
#include <ctime>
#include <limits>

#include <benchmark/benchmark.h>

namespace touchstone::bench {

/// Times two ways of doing the same, in turns, so that both meet the same machine. Each call of
/// `ours` and `theirs` does `operations` of them. Reports the processor time of an operation, all
/// threads together, in the best turn of each, and their ratio: what else a shared machine does
/// only ever adds, and waiting for a processor does not count.
template <typename Ours, typename Theirs>
void compare(benchmark::State& state, double operations, Ours&& ours, Theirs&& theirs) {
  double best_ours = std::numeric_limits<double>::infinity();
  double best_theirs = best_ours;
  const auto seconds_of = [](auto&& work) {
    const auto now = [] {
      timespec time{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    };
    const double start = now();
    work();
    return now() - start;
  };
  for (auto iteration : state) {
    const double ours_now = seconds_of(ours);
    const double theirs_now = seconds_of(theirs);
    best_ours = std::min(best_ours, ours_now);
    best_theirs = std::min(best_theirs, theirs_now);
    state.SetIterationTime(ours_now);
  }
  state.counters["ours_ns"] = best_ours / operations * 1e9;
  state.counters["theirs_ns"] = best_theirs / operations * 1e9;
  state.counters["ratio"] = best_ours / best_theirs;
}

}  // namespace touchstone::bench

#endif  // TOUCHSTONE_BENCH_PAIRED_H_
