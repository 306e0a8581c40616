// SPDX-License-Identifier: MIT
// Is an emitted read-modify-write as fast as the one the compiler makes for the same operation and
// width? Both are called through a pointer. The aim is a ratio of at most 1.05, and 1.10 when
// threads contend.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <sched.h>

#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/rmw_function.h>

#include "paired.h"

namespace {

using touchstone::jit::CodeCache;
using touchstone::jit::RmwEntry;
using touchstone::jit::RmwFunction;
using touchstone::jit::RmwOp;
using touchstone::jit::RmwOrder;

template <typename T>
std::uint64_t zero_extended(T value) {
  return std::uint64_t{value};
}

template <typename T>
[[gnu::noinline]] std::uint64_t compiled_add(void* at, std::uint64_t operand, std::uint64_t) {
  return zero_extended(
      __atomic_fetch_add(static_cast<T*>(at), static_cast<T>(operand), __ATOMIC_SEQ_CST));
}
template <typename T>
[[gnu::noinline]] std::uint64_t compiled_clear(void* at, std::uint64_t operand, std::uint64_t) {
  return zero_extended(
      __atomic_fetch_and(static_cast<T*>(at), static_cast<T>(~operand), __ATOMIC_SEQ_CST));
}
template <typename T>
[[gnu::noinline]] std::uint64_t compiled_set(void* at, std::uint64_t operand, std::uint64_t) {
  return zero_extended(
      __atomic_fetch_or(static_cast<T*>(at), static_cast<T>(operand), __ATOMIC_SEQ_CST));
}
template <typename T>
[[gnu::noinline]] std::uint64_t compiled_eor(void* at, std::uint64_t operand, std::uint64_t) {
  return zero_extended(
      __atomic_fetch_xor(static_cast<T*>(at), static_cast<T>(operand), __ATOMIC_SEQ_CST));
}
template <typename T>
[[gnu::noinline]] std::uint64_t compiled_swap(void* at, std::uint64_t operand, std::uint64_t) {
  return zero_extended(
      __atomic_exchange_n(static_cast<T*>(at), static_cast<T>(operand), __ATOMIC_SEQ_CST));
}
template <typename T>
[[gnu::noinline]] std::uint64_t compiled_compare_swap(void* at, std::uint64_t operand,
                                                      std::uint64_t expected) {
  T before = static_cast<T>(expected);
  __atomic_compare_exchange_n(static_cast<T*>(at), &before, static_cast<T>(operand), false,
                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return zero_extended(before);
}

struct Compiled {
  RmwOp op;
  std::array<RmwEntry, 4> entries;  ///< for 1, 2, 4 and 8 bytes
};
// NOLINTBEGIN(bugprone-macro-parentheses): the name of a template
#define TOUCHSTONE_ALL_WIDTHS(name) \
  {name<std::uint8_t>, name<std::uint16_t>, name<std::uint32_t>, name<std::uint64_t>}
// NOLINTEND(bugprone-macro-parentheses)
constexpr std::array kCompiled{
    Compiled{RmwOp::kAdd, TOUCHSTONE_ALL_WIDTHS(compiled_add)},
    Compiled{RmwOp::kClear, TOUCHSTONE_ALL_WIDTHS(compiled_clear)},
    Compiled{RmwOp::kSet, TOUCHSTONE_ALL_WIDTHS(compiled_set)},
    Compiled{RmwOp::kEor, TOUCHSTONE_ALL_WIDTHS(compiled_eor)},
    Compiled{RmwOp::kSwap, TOUCHSTONE_ALL_WIDTHS(compiled_swap)},
    Compiled{RmwOp::kCompareSwap, TOUCHSTONE_ALL_WIDTHS(compiled_compare_swap)},
};
#undef TOUCHSTONE_ALL_WIDTHS

CodeCache& cache() {
  static const std::unique_ptr<CodeCache> made = [] {
    auto created = CodeCache::create();
    if (!created) {
      std::cerr << created.error().message() << "\n";
      std::exit(1);
    }
    return *std::move(created);
  }();
  return *made;
}

alignas(128) std::uint64_t memory[16];

void run(RmwEntry entry, unsigned operations) {
  // Kept from being inlined or hoisted: what is timed is a call through a pointer.
  benchmark::DoNotOptimize(entry);
  for (unsigned i = 0; i < operations; ++i) {
    std::uint64_t before = entry(memory, i, i);
    benchmark::DoNotOptimize(before);
  }
}

void uncontended(benchmark::State& state, const Compiled& compiled, std::size_t width_log2) {
  const auto emitted =
      RmwFunction::create_for_host(cache(), {.op = compiled.op,
                                             .width = static_cast<std::uint8_t>(1U << width_log2),
                                             .order = RmwOrder::kSeqCst});
  if (!emitted) {
    state.SkipWithError(emitted.error().message().c_str());
    return;
  }
  constexpr unsigned operations = 20'000;
  touchstone::bench::compare(
      state, operations, [&] { run(emitted->entry(), operations); },
      [&] { run(compiled.entries[width_log2], operations); });
}

void contended(benchmark::State& state, const Compiled& compiled, std::size_t width_log2) {
  const auto emitted =
      RmwFunction::create_for_host(cache(), {.op = compiled.op,
                                             .width = static_cast<std::uint8_t>(1U << width_log2),
                                             .order = RmwOrder::kSeqCst});
  if (!emitted) {
    state.SkipWithError(emitted.error().message().c_str());
    return;
  }
  static constexpr unsigned operations = 40'000;
  static constexpr unsigned threads = 2;
  // Each on a processor of its own, and off together.
  const auto all = [&](RmwEntry entry) {
    std::atomic<unsigned> ready{0};
    std::vector<std::jthread> running;
    running.reserve(threads);
    for (unsigned i = 0; i < threads; ++i) {
      running.emplace_back([entry, i, &ready] {
        cpu_set_t own;
        CPU_ZERO(&own);
        CPU_SET(i, &own);
        // Where it is refused the scheduler does as it thinks best.
        static_cast<void>(sched_setaffinity(0, sizeof own, &own));
        ready.fetch_add(1);
        while (ready.load() < threads) std::this_thread::yield();
        run(entry, operations);
      });
    }
  };
  touchstone::bench::compare(
      state, operations * threads, [&] { all(emitted->entry()); },
      [&] { all(compiled.entries[width_log2]); }, touchstone::bench::Turn::kMedian);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const Compiled& compiled : kCompiled) {
    for (std::size_t width = 0; width < 4; ++width) {
      const std::string name =
          std::string(to_string(compiled.op)) + "/" + std::to_string(1U << width);
      benchmark::RegisterBenchmark(("uncontended/" + name).c_str(), uncontended, compiled, width)
          ->UseManualTime();
      benchmark::RegisterBenchmark(("contended/" + name).c_str(), contended, compiled, width)
          ->MinTime(2)  // for a median of hundreds of turns
          ->UseManualTime();
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
