// SPDX-License-Identifier: MIT
// What does it cost to reserve addresses, and to commit, protect and give back a piece of them?
#include <algorithm>
#include <cstddef>
#include <fstream>

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <touchstone/heap/reservation.h>

namespace {

using touchstone::Result;
using touchstone::heap::MemoryRange;
using touchstone::heap::Protection;
using touchstone::heap::Reservation;

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr std::size_t kTiB = std::size_t{1} << 40U;

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Reserving and destroying so many TiB. rss_KiB is what resident memory grew by while they were
/// held; the aim is at most 5 ms and 4096 KiB for 16 TiB.
void reserve(benchmark::State& state) {
  const std::size_t size = static_cast<std::size_t>(state.range(0)) * kTiB;
  std::size_t grown = 0;
  for (auto iteration : state) {
    state.PauseTiming();
    const std::size_t before = resident_bytes();
    state.ResumeTiming();
    Result<Reservation> made = Reservation::reserve({.size = size, .alignment = 2 * kMiB});
    state.PauseTiming();
    if (!made) {
      state.SkipWithError(made.error().message().c_str());
      return;
    }
    const std::size_t after = resident_bytes();
    grown = std::max(grown, after > before ? after - before : 0);
    state.ResumeTiming();
    if (Result<> gone = made->destroy(); !gone) {
      state.SkipWithError(gone.error().message().c_str());
      return;
    }
  }
  state.counters["rss_KiB"] = static_cast<double>(grown) / 1024;
}
BENCHMARK(reserve)->Arg(1)->Arg(16)->Unit(benchmark::kMicrosecond);

/// A verb and what undoes it, on 2 MiB that were never touched: the price of the system calls.
void commit_and_uncommit(benchmark::State& state) {
  Result<Reservation> made = Reservation::reserve({.size = 64 * kMiB, .alignment = 2 * kMiB});
  if (!made) {
    state.SkipWithError(made.error().message().c_str());
    return;
  }
  const MemoryRange piece = made->range().subspan(2 * kMiB, 2 * kMiB);
  for (auto iteration : state) {
    if (!made->commit(piece) || !made->uncommit(piece)) {
      state.SkipWithError("a verb failed");
      return;
    }
  }
}
BENCHMARK(commit_and_uncommit)->Unit(benchmark::kMicrosecond);

void protect_and_back(benchmark::State& state) {
  Result<Reservation> made = Reservation::reserve({.size = 64 * kMiB, .alignment = 2 * kMiB});
  if (!made || !made->commit(made->range())) {
    state.SkipWithError("cannot commit 64 MiB");
    return;
  }
  const MemoryRange piece = made->range().subspan(2 * kMiB, 2 * kMiB);
  for (auto iteration : state) {
    if (!made->protect(piece, Protection::kNone) || !made->protect(piece, Protection::kReadWrite)) {
      state.SkipWithError("a verb failed");
      return;
    }
  }
}
BENCHMARK(protect_and_back)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
