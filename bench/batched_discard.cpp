// SPDX-License-Identifier: MIT
// How much faster are many small pieces given back by batched process_madvise than one by one?
//
// 1 GiB of resident base pages is given back in pieces of 4 KiB, in an order in which no two that
// follow each other touch, so that nothing can be merged: both ways, turn by turn, over the same
// memory. The aim is a ratio of at least 3.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <touchstone/heap/discard.h>
#include <touchstone/heap/reservation.h>

namespace {

using touchstone::Result;
using touchstone::heap::BatchedDiscard;
using touchstone::heap::DiscardProgress;
using touchstone::heap::HugePages;
using touchstone::heap::MemoryRange;
using touchstone::heap::Reservation;

constexpr std::size_t kSize = std::size_t{1} << 30U;

double milliseconds_of(auto work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

struct Times {
  double median = 0;
  double spread = 0;  // (largest - smallest) / median.
};

Times summary(std::vector<double> times) {
  std::ranges::sort(times);
  const double median = times[times.size() / 2];
  return {.median = median, .spread = (times.back() - times.front()) / median};
}

void give_back_1_gib(benchmark::State& state) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto per_call = static_cast<std::size_t>(state.range(0));
  Result<Reservation> memory =
      Reservation::reserve({.size = kSize, .huge_pages = HugePages::kAvoid});
  if (!memory || !memory->commit(memory->range())) {
    state.SkipWithError("cannot commit 1 GiB");
    return;
  }
  std::vector<MemoryRange> pieces;
  pieces.reserve(kSize / page);
  for (const std::size_t odd : {0U, 1U}) {
    for (std::size_t i = odd; i < kSize / page; i += 2) {
      pieces.push_back(memory->range().subspan(i * page, page));
    }
  }
  BatchedDiscard batched({.ranges_per_call = per_call});
  std::vector<double> by_batch;
  std::vector<double> by_one;
  bool warm_up = true;
  const auto populate = [&] { std::memset(memory->data(), 1, kSize); };
  for (auto iteration : state) {
    populate();
    bool one_failed = false;
    const double one = milliseconds_of([&] {
      for (const MemoryRange& each : pieces) {
        one_failed |= ::madvise(each.data(), each.size(), MADV_DONTNEED) != 0;
      }
    });
    populate();
    Result<DiscardProgress> done;
    const double batch = milliseconds_of([&] { done = batched.discard(pieces); });
    if (one_failed || !done || done->bytes != kSize) {
      state.SkipWithError("giving back failed");
      return;
    }
    state.SetIterationTime(batch / 1000);
    // The first touch of memory that the host has not given yet is slower than any other.
    if (!warm_up || state.max_iterations == 1) {
      by_one.push_back(one);
      by_batch.push_back(batch);
    }
    warm_up = false;
  }
  const Times one = summary(by_one);
  const Times batch = summary(by_batch);
  state.counters["single_ms"] = one.median;
  state.counters["single_spread"] = one.spread;
  state.counters["batched_ms"] = batch.median;
  state.counters["batched_spread"] = batch.spread;
  state.counters["ratio"] = one.median / batch.median;
  if (!batched.batching()) state.SetLabel("this kernel takes no batches: madvise did both");
}
BENCHMARK(give_back_1_gib)
    ->ArgName("ranges_per_call")
    ->Arg(16)
    ->Arg(256)
    ->Arg(1024)
    ->Iterations(6)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
