// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_HEAP_OPTIONS_H_
#define TOUCHSTONE_HEAP_HEAP_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/reservation.h>

namespace touchstone::heap {

class HeapListener;

/// The most collections that an object can survive in the young generation.
inline constexpr unsigned kMaxTenuringAge = 4;

/// How a heap is to be. Sizes in bytes; 0 leaves the choice to the heap. What contradicts itself is
/// kInvalidArgument with the member named.
struct HeapOptions {
  /// The heap never exceeds this. 0: a quarter of what the memory cgroup allows, or of the memory
  /// that is available. At least kMinHeap.
  std::size_t max_size = 0;
  /// The heap stays below this unless there is no other way. 0: max_size.
  std::size_t soft_max_size = 0;
  /// It does not shrink below this. 0: 8 MiB or max_size, whichever is less.
  std::size_t min_size = 0;
  /// What it aims at first. 0: a sixteenth of max_size, but at least 64 MiB and at most
  /// soft_max_size.
  std::size_t initial_size = 0;
  /// A power of two from 64 KiB to 4 MiB. 0: about max_size / 1024, from 256 KiB to 4 MiB.
  std::size_t region_size = 0;
  /// A fixed budget for new objects between two young collections. 0: what the heap's size and the
  /// share of survivors leave.
  std::size_t young_size = 0;
  /// Collections that an object survives before it is promoted: 0 (at once) to kMaxTenuringAge.
  unsigned tenuring_age = 1;
  /// Threads that collect, the calling one included. 0: one for each usable CPU, at most 16.
  unsigned workers = 0;
  /// The heap grows while more than this share of time goes into collecting: above 0, below 1.
  double overhead_goal = 0.06;
  /// In a full collection, regions with less than this share alive are evacuated: 0 (never) to 1.
  double evacuation_threshold = 0.6;
  /// A stop that not all mutators have followed by then fails with kTimedOut. 0: none.
  std::chrono::nanoseconds safepoint_timeout{0};
  /// Check the heap before and after each collection: everything reachable, the cards, the counts.
  /// A finding is the collection's error (kCorrupt) and goes to HeapListener::on_violation().
  bool verify = false;
  /// Not 0: collect at every nth allocation, by turns young and full, and have every full
  /// collection move all it can. Slow; for finding missing roots and barriers.
  std::uint64_t stress_interval = 0;
  /// Fill what a collection frees with 0xdb, so that stale references are found at once.
  bool poison = false;
  HugePages huge_pages = HugePages::kPrefer;
  /// Touch each growth of the heap before use (pretouch.h, automatic strategy, limits refused).
  bool pretouch = false;
  /// Free memory is given back only in whole pieces of the huge page; its size comes from here. All
  /// zero: arch::geometry().
  arch::Geometry geometry{};
  /// Told what happens; null for nobody. Must outlive the heap.
  HeapListener* listener = nullptr;
  /// In /proc/PID/maps; see ReservationOptions::name.
  const char* name = "touchstone heap";
  /// Where the limits are read from.
  arch::SystemRoots roots{};
};

/// The smallest max_size.
inline constexpr std::size_t kMinHeap = std::size_t{1} << 20U;

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_HEAP_OPTIONS_H_
