// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_GC_TIMELINE_H_
#define TOUCHSTONE_BENCH_GC_TIMELINE_H_

#include <chrono>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include <touchstone/heap/heap_listener.h>
#include <touchstone/heap/pause_history.h>
#include <touchstone/tools/json_file.h>

#include "heap_run.h"

namespace touchstone::gc {

/// Keeps what a heap did and how it looked: every collection, and every 20 ms what is used,
/// resident and in huge pages. Tells another listener of violations too.
class Timeline final : public heap::HeapListener, public HeapWatcher {
 public:
  /// With `sampled`, the second.
  Timeline(heap::HeapListener& next, bool sampled) noexcept : next_(next), sampled_(sampled) {}

  void begin(const heap::detail::HeapCore& heap) override;
  void end() override;
  /// {"seconds", "collections": [...], "samples": [{"seconds", "used", "committed", "resident",
  /// "huge"}]}, thinned out where there are thousands.
  [[nodiscard]] tools::Json json() const;
  [[nodiscard]] tools::Json pauses() const;

  void on_collection_end(const heap::CollectionReport& report) noexcept override;
  void on_violation(const heap::Violation& violation) noexcept override {
    next_.on_violation(violation);
  }

 private:
  struct Sample {
    double seconds = 0;
    std::size_t used = 0;
    std::size_t committed = 0;
    std::size_t resident = 0;
    std::size_t huge = 0;
  };
  [[nodiscard]] double seconds() const;

  heap::HeapListener& next_;
  const bool sampled_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point end_ = begin_;
  mutable std::mutex mutex_;
  std::vector<heap::CollectionReport> collections_;
  std::vector<Sample> samples_;
  std::jthread sampler_;
};

}  // namespace touchstone::gc

#endif  // TOUCHSTONE_BENCH_GC_TIMELINE_H_
