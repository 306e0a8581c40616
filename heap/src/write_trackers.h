// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_WRITE_TRACKERS_H_
#define TOUCHSTONE_HEAP_SRC_WRITE_TRACKERS_H_

#include <atomic>
#include <cstddef>
#include <memory>

#include <touchstone/heap/write_tracking.h>

/// The methods of write tracking, each with its file. What they are given has been checked.
namespace touchstone::heap {

using WriteTrackerResult = Result<std::unique_ptr<WriteTracker>>;

[[nodiscard]] WriteTrackerResult track_by_protection(MemoryRange range,
                                                     std::size_t granule) noexcept;
[[nodiscard]] WriteTrackerResult track_by_soft_dirty(MemoryRange range,
                                                     std::size_t granule) noexcept;
[[nodiscard]] WriteTrackerResult track_by_userfaultfd(MemoryRange range,
                                                      std::size_t granule) noexcept;
[[nodiscard]] WriteTrackerResult track_asynchronously(MemoryRange range,
                                                      std::size_t granule) noexcept;

/// Granules that were written, as one thread may note them while another asks.
class WrittenBits {
 public:
  /// False where memory is short.
  [[nodiscard]] bool allocate(std::size_t granules) noexcept;
  void set(std::size_t granule) noexcept {
    words_[granule / 64].fetch_or(std::uint64_t{1} << (granule % 64), std::memory_order_release);
  }
  void set_all() noexcept;
  void clear() noexcept;
  [[nodiscard]] bool get(std::size_t granule) const noexcept {
    return (words_[granule / 64].load(std::memory_order_acquire) >> (granule % 64) & 1) != 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return granules_; }

 private:
  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
  std::size_t granules_ = 0;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_WRITE_TRACKERS_H_
