// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_INTERVAL_SET_H_
#define TOUCHSTONE_HEAP_SRC_INTERVAL_SET_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace touchstone::heap {

/// A half-open run of addresses.
struct Interval {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  friend bool operator==(const Interval&, const Interval&) = default;
};

/// A set of addresses as sorted, disjoint, non-touching intervals. A sorted vector: the sets are
/// small (a mapping each at most), and a query is a binary search.
///
/// A change is claimed before it is made, so that the bookkeeping cannot run out of memory after
/// the system call that it describes: one claim() for each insert() or erase(), which never
/// allocate.
class IntervalSet {
 public:
  /// Sets room aside for one change; false when out of memory.
  [[nodiscard]] bool claim() noexcept {
    if (intervals_.size() + claims_ >= intervals_.capacity()) {
      try {
        intervals_.reserve(std::max<std::size_t>(8, intervals_.capacity() * 2));
      } catch (const std::bad_alloc&) {
        return false;
      }
    }
    ++claims_;
    return true;
  }

  void insert(Interval added) noexcept {
    --claims_;
    if (added.begin >= added.end) return;
    // All that overlap or touch are replaced by one.
    const auto first = std::lower_bound(
        intervals_.begin(), intervals_.end(), added.begin,
        [](const Interval& each, std::uintptr_t begin) { return each.end < begin; });
    auto last = first;
    for (; last != intervals_.end() && last->begin <= added.end; ++last) {
      added.begin = std::min(added.begin, last->begin);
      added.end = std::max(added.end, last->end);
    }
    if (first == last) {
      intervals_.insert(first, added);
    } else {
      *first = added;
      intervals_.erase(first + 1, last);
    }
  }

  void erase(Interval removed) noexcept {
    --claims_;
    if (removed.begin >= removed.end) return;
    auto at = first_ending_behind(removed.begin);
    if (at == intervals_.end()) return;
    if (at->begin < removed.begin && at->end > removed.end) {
      const Interval tail{removed.end, at->end};
      at->end = removed.begin;
      intervals_.insert(at + 1, tail);
      return;
    }
    if (at->begin < removed.begin) {
      at->end = removed.begin;
      ++at;
    }
    auto last = at;
    while (last != intervals_.end() && last->end <= removed.end) ++last;
    if (last != intervals_.end() && last->begin < removed.end) last->begin = removed.end;
    intervals_.erase(at, last);
  }

  [[nodiscard]] bool intersects(Interval range) const noexcept {
    const auto at = first_ending_behind(range.begin);
    return at != intervals_.end() && at->begin < range.end;
  }

  [[nodiscard]] bool contains(Interval range) const noexcept {
    const auto at = first_ending_behind(range.begin);
    return at != intervals_.end() && at->begin <= range.begin && at->end >= range.end;
  }

  /// Addresses in the set.
  [[nodiscard]] std::size_t total() const noexcept {
    std::size_t sum = 0;
    for (const Interval& each : intervals_) sum += each.end - each.begin;
    return sum;
  }

  void clear() noexcept { intervals_.clear(); }
  [[nodiscard]] const std::vector<Interval>& intervals() const noexcept { return intervals_; }

 private:
  [[nodiscard]] std::vector<Interval>::const_iterator first_ending_behind(
      std::uintptr_t address) const noexcept {
    return std::upper_bound(
        intervals_.begin(), intervals_.end(), address,
        [](std::uintptr_t value, const Interval& each) { return value < each.end; });
  }
  [[nodiscard]] std::vector<Interval>::iterator first_ending_behind(
      std::uintptr_t address) noexcept {
    return std::upper_bound(
        intervals_.begin(), intervals_.end(), address,
        [](std::uintptr_t value, const Interval& each) { return value < each.end; });
  }

  std::vector<Interval> intervals_;
  std::size_t claims_ = 0;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_INTERVAL_SET_H_
