// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_PAIRED_H_
#define TOUCHSTONE_BENCH_PAIRED_H_

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <vector>

#include <benchmark/benchmark.h>

namespace touchstone::bench {

/// Which of the turns counts.
enum class Turn : std::uint8_t {
  kBest,    ///< What else a shared machine does only ever adds.
  kMedian,  ///< Where a disturbance may also help: threads that do not meet do not contend.
};

/// Times two ways of doing the same, in turns, so that both meet the same machine. Each call of
/// `ours` and `theirs` does `operations` of them. Reports the processor time of an operation, all
/// threads together, in the turn that counts of each, and their ratio; waiting for a processor does
/// not count.
template <typename Ours, typename Theirs>
void compare(benchmark::State& state, double operations, Ours&& ours, Theirs&& theirs,
             Turn turn = Turn::kBest) {
  std::vector<double> times_of_ours;
  std::vector<double> times_of_theirs;
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
    times_of_ours.push_back(ours_now);
    times_of_theirs.push_back(theirs_now);
    state.SetIterationTime(ours_now);
  }
  const auto counted = [turn](std::vector<double>& times) {
    std::ranges::sort(times);
    return turn == Turn::kBest ? times.front() : times[times.size() / 2];
  };
  const double of_ours = counted(times_of_ours);
  const double of_theirs = counted(times_of_theirs);
  state.counters["ours_ns"] = of_ours / operations * 1e9;
  state.counters["theirs_ns"] = of_theirs / operations * 1e9;
  state.counters["ratio"] = of_ours / of_theirs;
}

}  // namespace touchstone::bench

#endif  // TOUCHSTONE_BENCH_PAIRED_H_
