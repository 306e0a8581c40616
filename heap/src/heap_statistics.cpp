// SPDX-License-Identifier: MIT
#include <cstdint>
#include <string>
#include <string_view>

#include <touchstone/heap/heap_statistics.h>

namespace touchstone::heap {
namespace {

/// Numbers and fixed words need no escapes.
class JsonObject {
 public:
  void add(std::string_view name, std::uint64_t value) { add_text(name, std::to_string(value)); }
  void add(std::string_view name, const char* word) {
    add_text(name, '"' + std::string(word) + '"');
  }
  [[nodiscard]] std::string text() && {
    text_ += '}';
    return std::move(text_);
  }

 private:
  void add_text(std::string_view name, const std::string& value) {
    text_ += text_.empty() ? "{\"" : ", \"";
    text_ += name;
    text_ += "\": ";
    text_ += value;
  }
  std::string text_;
};

}  // namespace

const char* to_string(CollectionKind kind) noexcept {
  return kind == CollectionKind::kYoung ? "young" : "full";
}

const char* to_string(CollectionCause cause) noexcept {
  switch (cause) {
    case CollectionCause::kRequest:
      return "request";
    case CollectionCause::kAllocation:
      return "allocation";
    case CollectionCause::kOccupancy:
      return "occupancy";
    case CollectionCause::kNoRoom:
      return "no room";
    case CollectionCause::kTrim:
      return "trim";
    case CollectionCause::kStress:
      return "stress";
  }
  return "unknown";
}

std::string to_json(const HeapStatistics& s) {
  JsonObject json;
  json.add("young_collections", s.young_collections);
  json.add("full_collections", s.full_collections);
  json.add("pause_ns", s.pause_ns);
  json.add("longest_pause_ns", s.longest_pause_ns);
  json.add("stop_ns", s.stop_ns);
  json.add("longest_stop_ns", s.longest_stop_ns);
  json.add("safepoint_timeouts", s.safepoint_timeouts);
  json.add("allocated", s.allocated);
  json.add("copied", s.copied);
  json.add("promoted", s.promoted);
  json.add("compacted", s.compacted);
  json.add("kept_regions", s.kept_regions);
  json.add("pinned_objects", s.pinned_objects);
  json.add("out_of_memory", s.out_of_memory);
  json.add("trimmed", s.trimmed);
  json.add("violations", s.violations);
  json.add("max_size", s.max_size);
  json.add("soft_max_size", s.soft_max_size);
  json.add("target_size", s.target_size);
  json.add("committed", s.committed);
  json.add("side_tables", s.side_tables);
  json.add("used", s.used);
  json.add("pinned_bytes", s.pinned_bytes);
  json.add("pinned_regions", s.pinned_regions);
  json.add("retained_bytes", s.retained_bytes);
  json.add("live_after_full", s.live_after_full);
  json.add("region_size", s.region_size);
  json.add("chunk_size", s.chunk_size);
  json.add("eden_regions", s.eden_regions);
  json.add("survivor_regions", s.survivor_regions);
  json.add("old_regions", s.old_regions);
  json.add("large_regions", s.large_regions);
  json.add("free_regions", s.free_regions);
  json.add("mutators", s.mutators);
  json.add("workers", s.workers);
  return std::move(json).text();
}

std::string to_json(const CollectionReport& r) {
  JsonObject json;
  json.add("number", r.number);
  json.add("kind", to_string(r.kind));
  json.add("cause", to_string(r.cause));
  json.add("workers", r.workers);
  json.add("start_ns", r.start_ns);
  json.add("stop_ns", r.stop_ns);
  json.add("pause_ns", r.pause_ns);
  json.add("mark_ns", r.mark_ns);
  json.add("move_ns", r.move_ns);
  json.add("used_before", r.used_before);
  json.add("used_after", r.used_after);
  json.add("committed", r.committed);
  json.add("copied", r.copied);
  json.add("promoted", r.promoted);
  json.add("compacted", r.compacted);
  json.add("marked", r.marked);
  json.add("kept_regions", r.kept_regions);
  json.add("pinned_objects", r.pinned_objects);
  json.add("pinned_bytes", r.pinned_bytes);
  json.add("pinned_regions", r.pinned_regions);
  json.add("retained_bytes", r.retained_bytes);
  json.add("dirty_cards", r.dirty_cards);
  json.add("freed_regions", r.freed_regions);
  json.add("freed_large", r.freed_large);
  return std::move(json).text();
}

}  // namespace touchstone::heap
