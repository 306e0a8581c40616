// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_PAUSE_HISTORY_H_
#define TOUCHSTONE_HEAP_PAUSE_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <touchstone/arch/export.h>

namespace touchstone::heap {

/// The pauses of a heap's life, and what they say of it. Nanoseconds, of any one clock. Not
/// thread-safe.
class TOUCHSTONE_API PauseHistory {
 public:
  /// In order of time, without overlap. Throws std::bad_alloc.
  void add(std::uint64_t start_ns, std::uint64_t pause_ns);
  [[nodiscard]] std::size_t count() const noexcept { return pauses_.size(); }
  /// The shortest pause that so large a share of all do not exceed; 0 without pauses.
  [[nodiscard]] std::uint64_t quantile(double share) const;

  struct Bucket {
    std::uint64_t below_ns = 0;  ///< And at least half of it.
    std::size_t count = 0;
  };
  /// By powers of two, from that of the shortest pause to that of the longest.
  [[nodiscard]] std::vector<Bucket> histogram() const;

  /// Minimum mutator utilisation: of every window of that length between `begin_ns` and `end_ns`,
  /// the least share that was not paused. That of the whole time where it is shorter.
  [[nodiscard]] double mmu(std::uint64_t window_ns, std::uint64_t begin_ns,
                           std::uint64_t end_ns) const noexcept;

  /// {"count", "p50_ns", "p99_ns", "histogram": [{"below_ns", "count"}], "mmu": [{"window_ns",
  /// "utilisation"}]}, with windows from 1 ms to 1 s.
  [[nodiscard]] std::string to_json(std::uint64_t begin_ns, std::uint64_t end_ns) const;

 private:
  struct Pause {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t before = 0;  // Paused before it, in sum.
  };
  [[nodiscard]] std::uint64_t paused_until(std::uint64_t time) const noexcept;
  std::vector<Pause> pauses_;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_PAUSE_HISTORY_H_
