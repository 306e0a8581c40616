// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_HEAP_STATISTICS_H_
#define TOUCHSTONE_HEAP_HEAP_STATISTICS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include <touchstone/arch/export.h>

namespace touchstone::heap {

/// What a collection goes over.
enum class CollectionKind : std::uint8_t {
  kYoung,  ///< New objects and survivors; what lies in old regions counts as alive.
  kFull,   ///< Everything.
};

/// Why there was one.
enum class CollectionCause : std::uint8_t {
  kRequest,     ///< collect().
  kAllocation,  ///< The budget for new objects was used up.
  kOccupancy,   ///< Too much had been promoted since the last full collection.
  kNoRoom,      ///< The last try before an allocation fails.
  kTrim,        ///< trim().
  kStress,      ///< HeapOptions::stress_interval.
};

[[nodiscard]] TOUCHSTONE_API const char* to_string(CollectionKind kind) noexcept;
[[nodiscard]] TOUCHSTONE_API const char* to_string(CollectionCause cause) noexcept;

/// One collection. Bytes, nanoseconds.
struct CollectionReport {
  std::uint64_t number = 0;  ///< From 1.
  CollectionKind kind = CollectionKind::kYoung;
  CollectionCause cause = CollectionCause::kRequest;
  unsigned workers = 0;
  std::uint64_t start_ns = 0;   ///< Of the pause, since the heap was made.
  std::uint64_t stop_ns = 0;    ///< From the request to the moment all mutators stood.
  std::uint64_t pause_ns = 0;   ///< From then on until they could go on.
  std::uint64_t mark_ns = 0;    ///< Of pause_ns; full collections.
  std::uint64_t move_ns = 0;    ///< Of pause_ns: evacuating old regions and fixing up references.
  std::size_t used_before = 0;  ///< In regions, fillers and unused ends included.
  std::size_t used_after = 0;
  std::size_t committed = 0;       ///< After it.
  std::size_t copied = 0;          ///< Moved to survivor regions.
  std::size_t promoted = 0;        ///< Moved to old regions.
  std::size_t compacted = 0;       ///< Moved from old region to old region.
  std::size_t marked = 0;          ///< Found alive by a full collection, large objects included.
  std::size_t kept_regions = 0;    ///< Young regions that became old where they were.
  std::size_t pinned_objects = 0;  ///< Objects that ambiguous roots kept in place.
  std::size_t pinned_bytes = 0;    ///< Of these.
  std::size_t pinned_regions = 0;  ///< Stranded: stay where they are for the sake of these.
  std::size_t retained_bytes = 0;  ///< Of these regions, what no live object takes.
  std::size_t dirty_cards = 0;     ///< Cards that were scanned.
  std::size_t freed_regions = 0;
  std::size_t freed_large = 0;  ///< Bytes of large objects that were freed.
};

/// Sums and the present state. Bytes, nanoseconds.
struct HeapStatistics {
  std::uint64_t young_collections = 0;
  std::uint64_t full_collections = 0;
  std::uint64_t pause_ns = 0;
  std::uint64_t longest_pause_ns = 0;
  std::uint64_t stop_ns = 0;
  std::uint64_t longest_stop_ns = 0;
  std::uint64_t safepoint_timeouts = 0;
  std::uint64_t allocated = 0;  ///< In TLABs and large objects; the present TLABs' ends included.
  std::uint64_t copied = 0;
  std::uint64_t promoted = 0;
  std::uint64_t compacted = 0;
  std::uint64_t kept_regions = 0;
  std::uint64_t pinned_objects = 0;
  std::uint64_t out_of_memory = 0;  ///< Allocations that failed.
  std::uint64_t trimmed = 0;        ///< Given back by trim().
  std::uint64_t violations = 0;     ///< Findings of verification.

  std::size_t max_size = 0;
  std::size_t soft_max_size = 0;
  std::size_t target_size = 0;  ///< What sizing aims at now.
  std::size_t committed = 0;    ///< Of the heap, what trim() gave back included.
  std::size_t side_tables = 0;  ///< Committed for card table, crossing map, mark bits, regions.
  std::size_t used = 0;
  std::size_t pinned_bytes = 0;  ///< These three as the last collection found them.
  std::size_t pinned_regions = 0;
  std::size_t retained_bytes = 0;
  std::size_t live_after_full = 0;  ///< In old regions and large objects after the last one.
  std::size_t region_size = 0;
  std::size_t chunk_size = 0;
  std::size_t eden_regions = 0;
  std::size_t survivor_regions = 0;
  std::size_t old_regions = 0;
  std::size_t large_regions = 0;
  std::size_t free_regions = 0;  ///< Committed ones.
  std::size_t mutators = 0;
  unsigned workers = 0;
};

/// One JSON object, a member for each of the above. Throws std::bad_alloc.
[[nodiscard]] TOUCHSTONE_API std::string to_json(const HeapStatistics& statistics);
[[nodiscard]] TOUCHSTONE_API std::string to_json(const CollectionReport& report);

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_HEAP_STATISTICS_H_
