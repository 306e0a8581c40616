// SPDX-License-Identifier: MIT
// What does it cost to emit and publish one function, and does a cache grow as 100 000 are emitted,
// released and reused? The aims: under 20 us, and no growth.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <benchmark/benchmark.h>

#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/rmw_function.h>

namespace {

using namespace touchstone::jit;

void emit_and_publish(benchmark::State& state) {
  CodeCacheOptions options;
  options.execute_only = state.range(0) != 0;
  options.synchronisation =
      state.range(1) != 0 ? CodeSynchronisation::kVisitCpus : CodeSynchronisation::kAutomatic;
  const auto cache = CodeCache::create(options);
  if (!cache) {
    state.SkipWithError(cache.error().message().c_str());
    return;
  }
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  for (auto iteration : state) {
    const auto start = Clock::now();
    auto function = RmwFunction::create_for_host(**cache, {.op = RmwOp::kUmax, .width = 8});
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (!function) {
      state.SkipWithError(function.error().message().c_str());
      return;
    }
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["best_us"] = best * 1e6;
}
BENCHMARK(emit_and_publish)
    ->ArgNames({"execute_only", "visit_cpus"})
    ->Args({0, 0})
    ->Args({1, 0})
    ->Args({0, 1})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

void hundred_thousand_functions(benchmark::State& state) {
  const auto cache = CodeCache::create({.huge_pages = false});
  if (!cache) {
    state.SkipWithError(cache.error().message().c_str());
    return;
  }
  constexpr std::size_t count = 100'000;
  constexpr std::size_t alive = 1000;
  std::size_t early = 0;
  for (auto iteration : state) {
    std::vector<const void*> entries(alive);
    for (std::size_t i = 0; i < count; ++i) {
      const void*& entry = entries[i % alive];
      if (entry != nullptr && !(*cache)->release(entry)) {
        state.SkipWithError("release failed");
        return;
      }
      std::array<std::byte, kMaxRmwFunctionSize> code{};
      const auto size = emit_rmw_function({.op = static_cast<RmwOp>(i % kRmwOpCount),
                                           .width = static_cast<std::uint8_t>(1U << (i % 4)),
                                           .target = best_rmw_target(host_features())},
                                          code);
      const auto added = (*cache)->add(std::span(code).first(size.value_or(0)), "function");
      if (!added) {
        state.SkipWithError(added.error().message().c_str());
        return;
      }
      entry = *added;
      if (i == 2 * alive) early = (*cache)->statistics().high_water;
    }
    for (const void* entry : entries) {
      if (!(*cache)->release(entry)) state.SkipWithError("release failed");
    }
  }
  state.counters["early_bytes"] = static_cast<double>(early);
  state.counters["final_bytes"] = static_cast<double>((*cache)->statistics().high_water);
}
BENCHMARK(hundred_thousand_functions)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
