// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DISCARD_H_
#define TOUCHSTONE_HEAP_DISCARD_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>
#include <touchstone/heap/memory_range.h>
#include <touchstone/heap/reservation.h>

namespace touchstone::heap {

/// How to give memory back.
struct DiscardOptions {
  DiscardPolicy policy = DiscardPolicy::kAtOnce;
  /// Only whole, aligned pieces of this many bytes are given back: a power of two, at least the
  /// base page. 0 means the base page. Set it to arch::Geometry::pmd for whole huge pages only: a
  /// hole smaller than that splits a huge page, and khugepaged then fills it again.
  std::size_t granule = 0;
  /// Ranges handed to the kernel at once, 1 to 1024 (IOV_MAX).
  std::size_t ranges_per_call = 1024;
};

/// Where a list of ranges has got to, and what came of it so far.
struct DiscardProgress {
  std::size_t range = 0;       ///< Index of the first range that is not finished.
  std::size_t offset = 0;      ///< Bytes of that range that are finished.
  std::size_t bytes = 0;       ///< Given back; with kLazily, given or offered.
  std::size_t lazy_bytes = 0;  ///< Of these, offered with MADV_FREE.
  std::size_t kept_bytes = 0;  ///< Not given back, being less than a whole granule.
  std::size_t calls = 0;       ///< System calls made for it.
  std::size_t batches = 0;     ///< Of these, process_madvise calls that got somewhere.
};

/// Gives many ranges back with few system calls: process_madvise on this process itself, which
/// takes any advice since Linux 6.13, and madvise where the kernel, a seccomp filter or an emulator
/// refuses that. What was learnt about the kernel is remembered by the object.
///
/// Thread safety: all members may be called from several threads at once.
class TOUCHSTONE_API BatchedDiscard {
 public:
  explicit BatchedDiscard(DiscardOptions options = {}) noexcept;

  /// Gives back what the ranges cover, in their order, from `progress` on; an empty DiscardProgress
  /// starts at the beginning. Afterwards the memory reads as DiscardPolicy says. Ranges that touch
  /// and follow each other in the list count as one, so sort them by address.
  ///
  /// Ranges must be multiples of the base page and not empty: kInvalidArgument, kMisaligned or
  /// kOverflow before any system call otherwise, as for options that are out of bounds.
  ///
  /// When the kernel fails on a page, everything before it is done, `progress` names that page, and
  /// the Error has its range as `address` and `length` and the offset in it as `progress`. Calling
  /// again tries the page again; setting `range` one further and `offset` to 0 goes on behind its
  /// range. Pages behind it in the same range may have been given back already, which is harmless
  /// to repeat: with memory that is not mapped in the middle (ENOMEM, kOutOfRange) the kernel goes
  /// on behind the gap before it tells.
  [[nodiscard]] Result<> discard(std::span<const MemoryRange> ranges,
                                 DiscardProgress& progress) noexcept;

  /// The same from the beginning.
  [[nodiscard]] Result<DiscardProgress> discard(std::span<const MemoryRange> ranges) noexcept;

  [[nodiscard]] const DiscardOptions& options() const noexcept { return options_; }

  /// False once the kernel has refused process_madvise.
  [[nodiscard]] bool batching() const noexcept;

 private:
  enum class Target : std::uint8_t { kSelf, kOpenedPidfd, kNone };
  class Batch;

  DiscardOptions options_;
  std::atomic<Target> target_{Target::kSelf};
};

/// Gives memory back after a delay, unless it is used again before: what a collector frees is often
/// wanted soon, and faulting it in again costs more than keeping it.
///
/// Whoever reuses a range calls cancel() first and may touch the memory when it returns. With a
/// granule, pieces smaller than it wait until their neighbours are due as well.
///
/// Thread safety: all members may be called from several threads at once; cancel() waits for a give
/// back of the same memory that is under way, and only for that.
class TOUCHSTONE_API DelayedDiscard {
 public:
  /// Time since any fixed moment. Called with a lock held: it must not call back or throw.
  using Clock = std::function<std::chrono::nanoseconds()>;

  /// Without a clock, std::chrono::steady_clock.
  explicit DelayedDiscard(std::chrono::nanoseconds delay, DiscardOptions options = {},
                          Clock clock = {});

  /// Has a range given back once the delay has passed. One that is waiting already starts anew.
  /// Errors: kInvalidArgument, kMisaligned, kOverflow, kOutOfMemory (bookkeeping; then nothing of
  /// it is scheduled).
  [[nodiscard]] Result<> schedule(MemoryRange range) noexcept;

  /// Keeps a range, or what of it is waiting. Returns the bytes that had been waiting. When memory
  /// for bookkeeping is short, the rest of a piece that would be cut in two is kept too.
  std::size_t cancel(MemoryRange range) noexcept;

  /// Gives back what is due. On an Error, which is the first of them, the range it names is
  /// forgotten from the failing page on; everything else that was due has been worked on. See
  /// totals().
  [[nodiscard]] Result<DiscardProgress> run_due() noexcept;

  /// Gives back everything that waits, due or not. Errors as run_due().
  [[nodiscard]] Result<DiscardProgress> flush() noexcept;

  /// When something becomes due next, by the clock; nothing if nothing waits for its time.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> next_due() const noexcept;

  /// Bytes that wait.
  [[nodiscard]] std::size_t pending_bytes() const noexcept;

  /// Sums over all calls so far; `range` and `offset` are unused.
  [[nodiscard]] DiscardProgress totals() const noexcept;

 private:
  struct Pending {
    std::uintptr_t end = 0;
    std::chrono::nanoseconds due{};
    bool looked_at = false;  // Was due, but part of a granule only.
  };
  using Map = std::map<std::uintptr_t, Pending>;

  [[nodiscard]] Result<DiscardProgress> run(bool all) noexcept;
  [[nodiscard]] bool collect(std::uintptr_t& from, std::chrono::nanoseconds now, bool all);
  std::size_t forget(std::uintptr_t begin, std::uintptr_t end) noexcept;
  [[nodiscard]] bool in_flight(MemoryRange range) const noexcept;

  const std::chrono::nanoseconds delay_;
  const Clock clock_;
  BatchedDiscard discard_;
  std::mutex running_;  // One run at a time; taken before mutex_.
  mutable std::mutex mutex_;
  std::condition_variable landed_;
  Map pending_;
  std::vector<MemoryRange> in_flight_;
  DiscardProgress totals_;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_DISCARD_H_
