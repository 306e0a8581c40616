// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_PAIRED_H_
#define TOUCHSTONE_BENCH_PAIRED_H_

#include <algorithm>
#include <chrono>
#include <limits>

#include <benchmark/benchmark.h>

namespace touchstone::bench {

/// Times two ways of doing the same, in turns, so that both meet the same machine. Each call of
/// `ours` and `theirs` does `operations` of them. Reports the time of an operation in the best turn
/// of each, and their ratio: the noise of a shared machine only ever adds.
template <typename Ours, typename Theirs>
void compare(benchmark::State& state, double operations, Ours&& ours, Theirs&& theirs) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  double best_ours = std::numeric_limits<double>::infinity();
  double best_theirs = best_ours;
  const auto seconds_of = [](auto&& work) {
    const auto start = Clock::now();
    work();
    return Seconds(Clock::now() - start).count();
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
