// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/discard.h>
#include <touchstone/heap/system_calls.h>

#include "address_range.h"

namespace touchstone::heap {
namespace {

constexpr std::size_t kMostRanges = 1024;  // UIO_MAXIOV, which IOV_MAX is on Linux.

// "This thread's process" where a pidfd is wanted (include/uapi/linux/pidfd.h, Linux 6.14). Before
// that it is an invalid descriptor: EBADF.
constexpr int kPidfdSelf = -10000;

constexpr const char* kOperation = "discard";

int advice_of(DiscardPolicy policy) noexcept {
  return policy == DiscardPolicy::kLazily ? MADV_FREE : MADV_DONTNEED;
}

const std::byte* end_of(MemoryRange range) noexcept {
  return range.data() + range.size();
}

Result<> check_options(const DiscardOptions& options, std::size_t page) noexcept {
  const auto refuse = [](const char* detail) {
    return std::unexpected(
        Error{.code = ErrorCode::kInvalidArgument, .operation = kOperation, .detail = detail});
  };
  if (options.granule != 0 && (!std::has_single_bit(options.granule) || options.granule < page)) {
    return refuse("granule is not a power of two of at least the base page");
  }
  if (options.ranges_per_call == 0 || options.ranges_per_call > kMostRanges) {
    return refuse("ranges per call are not 1 to 1024");
  }
  return {};
}

}  // namespace

/// One pass over a list of ranges.
class BatchedDiscard::Batch {
 public:
  Batch(BatchedDiscard& owner, std::span<const MemoryRange> ranges, std::size_t page,
        DiscardProgress& progress) noexcept
      : owner_(owner),
        ranges_(ranges),
        page_(page),
        granule_(std::max(page, owner.options_.granule)),
        advice_(advice_of(owner.options_.policy)),
        progress_(progress) {}
  ~Batch() {
    // Nothing can be done about a failure to close, and the memory is not concerned.
    if (pidfd_ >= 0) (void)system_calls().close(pidfd_);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  [[nodiscard]] Result<> run() noexcept {
    while (gather(), count_ != 0) {
      int refusal = 0;
      if (count_ > 1 && have_target()) {
        const ssize_t done = advise_many(refusal);
        if (done > 0) {
          ++progress_.batches;
          if (advice_ == MADV_FREE) progress_.lazy_bytes += static_cast<std::size_t>(done);
          consume(static_cast<std::size_t>(done));
          continue;
        }
        if (refusal == EBADF && target() == Target::kSelf) {
          owner_.target_.store(Target::kOpenedPidfd, std::memory_order_relaxed);
          continue;
        }
      }
      bool same_advice = true;
      const Prefix one = advise_first(same_advice);
      consume(one.done);
      if (one.error != 0) return failed(one.error);
      // What the kernel does for one range and not for many is refused as such.
      if (same_advice && (refusal == EPERM || refusal == ENOSYS || refusal == EBADF ||
                          refusal == EINVAL || refusal == ESRCH)) {
        owner_.target_.store(Target::kNone, std::memory_order_relaxed);
      }
    }
    move_to(ranges_.size(), 0, 0);
    return {};
  }

 private:
  /// A part of the list to give back at once: what is whole granules of ranges that touch.
  struct Piece {
    std::byte* start = nullptr;
    std::size_t size = 0;
    std::size_t next_range = 0;  // The first range behind the run that it is of.
  };

  [[nodiscard]] Target target() const noexcept {
    return owner_.target_.load(std::memory_order_relaxed);
  }

  /// Whether there is something to name this process to process_madvise by.
  [[nodiscard]] bool have_target() noexcept {
    if (target() == Target::kSelf) return true;
    if (target() == Target::kNone || pidfd_refused_) return false;
    // Opened anew each time: after fork() a descriptor kept from before would name the parent.
    if (pidfd_ < 0) {
      ++progress_.calls;
      pidfd_ = system_calls().pidfd_open(::getpid(), 0);
      if (pidfd_ < 0) {
        pidfd_refused_ = true;
        if (errno == ENOSYS || errno == EPERM) {
          owner_.target_.store(Target::kNone, std::memory_order_relaxed);
        }
      }
    }
    return pidfd_ >= 0;
  }

  /// Collects the next pieces from where `progress_` is.
  void gather() noexcept {
    count_ = 0;
    if (progress_.range >= ranges_.size()) return;
    // A granule may begin in ranges that are finished already.
    std::size_t first = progress_.range;
    while (first > 0 && end_of(ranges_[first - 1]) == ranges_[first].data()) --first;
    const std::byte* const from = ranges_[progress_.range].data() + progress_.offset;
    bool resuming = true;
    while (first < ranges_.size() && count_ < owner_.options_.ranges_per_call) {
      std::size_t next = first + 1;
      while (next < ranges_.size() && end_of(ranges_[next - 1]) == ranges_[next].data()) ++next;
      std::byte* const run = ranges_[first].data();
      const std::uintptr_t begin = address_of(run);
      std::uintptr_t piece_begin = (begin + granule_ - 1) & ~(granule_ - 1);
      const std::uintptr_t piece_end = address_of(end_of(ranges_[next - 1])) & ~(granule_ - 1);
      if (piece_begin < begin) piece_begin = piece_end;  // Rounding up wrapped.
      if (resuming) piece_begin = std::max(piece_begin, address_of(from));
      resuming = false;
      if (piece_begin < piece_end) {
        pieces_[count_++] = {run + (piece_begin - begin), piece_end - piece_begin, next};
      }
      first = next;
    }
  }

  /// All pieces at once. Bytes done, or 0 with the reason.
  [[nodiscard]] ssize_t advise_many(int& error) noexcept {
    std::array<iovec, kMostRanges> vector;
    for (std::size_t i = 0; i < count_; ++i) vector[i] = {pieces_[i].start, pieces_[i].size};
    const int pidfd = target() == Target::kSelf ? kPidfdSelf : pidfd_;
    ssize_t done = 0;
    error = retried([&] {
      ++progress_.calls;
      done = system_calls().process_madvise(pidfd, vector.data(), count_, advice_, 0);
      return done < 0 ? -1 : 0;
    });
    return std::max<ssize_t>(done, 0);
  }

  /// The first piece alone. Says whether all of it was done with the advice of the policy.
  [[nodiscard]] Prefix advise_first(bool& same_advice) noexcept {
    const Piece& piece = pieces_[0];
    const auto advise = [&](std::size_t from, int advice) {
      return exact_prefix(piece.start + from, piece.size - from, page_,
                          [&](std::byte* start, std::size_t length) {
                            ++progress_.calls;
                            return system_calls().madvise(start, length, advice);
                          });
    };
    Prefix prefix = advise(0, advice_);
    if (advice_ != MADV_FREE) return prefix;
    progress_.lazy_bytes += prefix.done;
    if (prefix.error != EINVAL) return prefix;
    // Not this memory, or not this kernel: what was asked for is memory, not laziness.
    same_advice = false;
    const std::size_t lazily = prefix.done;
    prefix = advise(lazily, MADV_DONTNEED);
    prefix.done += lazily;
    return prefix;
  }

  /// Takes note that this many bytes of the pieces, from the first on, are given back.
  void consume(std::size_t bytes) noexcept {
    for (std::size_t i = 0; i < count_ && bytes != 0; ++i) {
      const Piece& piece = pieces_[i];
      const std::size_t here = std::min(bytes, piece.size);
      bytes -= here;
      if (here == piece.size) {
        move_to(piece.next_range, 0, here);
        continue;
      }
      // Into the range that holds the address; the run's ranges touch.
      const std::byte* const stop = piece.start + here;
      std::size_t range = progress_.range;
      while (!holds(ranges_[range], stop)) ++range;
      move_to(range, static_cast<std::size_t>(stop - ranges_[range].data()), here);
    }
  }

  [[nodiscard]] static bool holds(MemoryRange range, const std::byte* address) noexcept {
    return address_of(address) - address_of(range.data()) < range.size();
  }

  /// Moves on; of what lies between, `given` bytes were given back and the rest was kept.
  void move_to(std::size_t range, std::size_t offset, std::size_t given) noexcept {
    std::size_t passed = offset;
    for (std::size_t i = progress_.range; i < range; ++i) passed += ranges_[i].size();
    passed -= progress_.offset;
    progress_.range = range;
    progress_.offset = offset;
    progress_.bytes += given;
    progress_.kept_bytes += passed - given;
  }

  /// The error for the page that `progress_` is at.
  [[nodiscard]] std::unexpected<Error> failed(int error) noexcept {
    // What was passed over before the failing piece is settled as well.
    const std::byte* const stop = pieces_[0].start;
    if (progress_.range < ranges_.size() &&
        address_of(ranges_[progress_.range].data()) + progress_.offset < address_of(stop)) {
      std::size_t range = progress_.range;
      while (!holds(ranges_[range], stop)) ++range;
      move_to(range, static_cast<std::size_t>(stop - ranges_[range].data()), 0);
    }
    const char* operation = advice_ == MADV_FREE ? "madvise(MADV_FREE)" : "madvise(MADV_DONTNEED)";
    const MemoryRange range = ranges_[progress_.range];
    // Neither advice splits a mapping, so ENOMEM is not about memory.
    if (error == ENOMEM) {
      return range_failure(ErrorCode::kOutOfRange, operation, range, error, progress_.offset,
                           "not mapped");
    }
    return range_failure(code_of_errno(error), operation, range, error, progress_.offset);
  }

  BatchedDiscard& owner_;
  const std::span<const MemoryRange> ranges_;
  const std::size_t page_;
  const std::size_t granule_;
  const int advice_;
  DiscardProgress& progress_;
  int pidfd_ = -1;
  bool pidfd_refused_ = false;
  std::size_t count_ = 0;
  std::array<Piece, kMostRanges> pieces_;
};

BatchedDiscard::BatchedDiscard(DiscardOptions options) noexcept : options_(options) {}

bool BatchedDiscard::batching() const noexcept {
  return target_.load(std::memory_order_relaxed) != Target::kNone;
}

Result<> BatchedDiscard::discard(std::span<const MemoryRange> ranges,
                                 DiscardProgress& progress) noexcept {
  const std::size_t page = arch::base_page_size();
  if (Result<> fine = check_options(options_, page); !fine) return fine;
  for (const MemoryRange& each : ranges) {
    if (Result<> fine = check_pages(kOperation, each, page); !fine) return fine;
  }
  if (progress.range > ranges.size() ||
      (progress.range == ranges.size()
           ? progress.offset != 0
           : progress.offset >= ranges[progress.range].size() || progress.offset % page != 0)) {
    return std::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                                 .operation = kOperation,
                                 .detail = "progress is not of this list"});
  }
  return Batch(*this, ranges, page, progress).run();
}

Result<DiscardProgress> BatchedDiscard::discard(std::span<const MemoryRange> ranges) noexcept {
  DiscardProgress progress;
  if (Result<> done = discard(ranges, progress); !done) return std::unexpected(done.error());
  return progress;
}

DelayedDiscard::DelayedDiscard(std::chrono::nanoseconds delay, DiscardOptions options, Clock clock)
    : delay_(delay),
      clock_(clock ? std::move(clock) : [] {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::steady_clock::now().time_since_epoch());
      }),
      discard_(options) {}

Result<> DelayedDiscard::schedule(MemoryRange range) noexcept {
  const std::size_t page = arch::base_page_size();
  if (Result<> fine = check_options(discard_.options(), page); !fine) return fine;
  if (Result<> fine = check_pages("schedule", range, page); !fine) return fine;
  const auto [begin, end] = interval_of(range);
  const std::lock_guard lock(mutex_);
  try {
    Map made;
    made.emplace(begin, Pending{.end = end, .due = clock_() + delay_});
    forget(begin, end);
    pending_.merge(made);
  } catch (const std::bad_alloc&) {
    return no_bookkeeping("schedule", range);
  }
  return {};
}

std::size_t DelayedDiscard::cancel(MemoryRange range) noexcept {
  if (range.empty()) return 0;
  const auto [begin, end] = interval_of(range);
  std::unique_lock lock(mutex_);
  landed_.wait(lock, [&] { return !in_flight(range); });
  return forget(begin, end);
}

/// Takes a range out of what waits; the bytes that were in it.
std::size_t DelayedDiscard::forget(std::uintptr_t begin, std::uintptr_t end) noexcept {
  std::size_t forgotten = 0;
  auto at = pending_.upper_bound(begin);
  if (at != pending_.begin() && std::prev(at)->second.end > begin) --at;
  while (at != pending_.end() && at->first < end) {
    const std::uintptr_t piece = at->first;
    const Pending waiting = at->second;
    forgotten += std::min(end, waiting.end) - std::max(begin, piece);
    if (waiting.end > end) {
      try {
        Pending tail = waiting;
        pending_.emplace(end, tail);
      } catch (const std::bad_alloc&) {
        forgotten += waiting.end - end;  // Kept, which is safe, where it cannot be noted.
      }
    }
    if (piece < begin) {
      at->second.end = begin;
      ++at;
    } else {
      at = pending_.erase(at);
    }
  }
  return forgotten;
}

bool DelayedDiscard::in_flight(MemoryRange range) const noexcept {
  const auto [begin, end] = interval_of(range);
  return std::ranges::any_of(in_flight_, [&](MemoryRange each) {
    const auto [each_begin, each_end] = interval_of(each);
    return each_begin < end && begin < each_end;
  });
}

/// Moves the next due pieces, from an address on and not too many, from pending_ to in_flight_;
/// false when there are none left. Whole granules only: the rest of a run stays and waits for
/// neighbours.
bool DelayedDiscard::collect(std::uintptr_t& from, std::chrono::nanoseconds now, bool all) {
  // Few enough that cancel() seldom waits for what it does not need.
  constexpr std::size_t kRuns = 64;
  const std::size_t granule = std::max(arch::base_page_size(), discard_.options().granule);
  const auto ready = [&](const Pending& waiting) { return all || waiting.due <= now; };
  in_flight_.clear();
  in_flight_.reserve(kRuns);
  for (auto at = pending_.lower_bound(from); at != pending_.end() && in_flight_.size() < kRuns;) {
    if (!ready(at->second)) {
      from = at->second.end;
      ++at;
      continue;
    }
    const std::uintptr_t begin = at->first;
    std::uintptr_t end = begin;
    auto last = at;
    for (; last != pending_.end() && last->first == end && ready(last->second); ++last) {
      end = last->second.end;
      if (last->second.due <= now) last->second.looked_at = true;
    }
    from = end;
    const std::uintptr_t whole_begin = (begin + granule - 1) & ~(granule - 1);
    const std::uintptr_t whole_end = end & ~(granule - 1);
    if (whole_begin >= begin && whole_begin < whole_end) {
      // The address comes from a range that schedule() was given.
      in_flight_.emplace_back(
          reinterpret_cast<std::byte*>(whole_begin),  // NOLINT(performance-no-int-to-ptr)
          whole_end - whole_begin);
      forget(whole_begin, whole_end);
    }
    at = pending_.lower_bound(from);
  }
  return !in_flight_.empty();
}

Result<DiscardProgress> DelayedDiscard::run(bool all) noexcept {
  if (Result<> fine = check_options(discard_.options(), arch::base_page_size()); !fine) {
    return std::unexpected(fine.error());
  }
  const std::lock_guard one_at_a_time(running_);
  DiscardProgress sum;
  Result<> first;
  std::uintptr_t from = 0;
  std::unique_lock lock(mutex_);
  const std::chrono::nanoseconds now = clock_();
  for (;;) {
    try {
      if (!collect(from, now, all)) break;
    } catch (const std::bad_alloc&) {
      if (first) first = no_bookkeeping("run_due", {});
      break;
    }
    lock.unlock();
    DiscardProgress progress;
    // Only this thread changes in_flight_, and only under the lock.
    while (progress.range < in_flight_.size()) {
      const Result<> done = discard_.discard(in_flight_, progress);
      if (done) break;
      if (first) first = done;
      ++progress.range;
      progress.offset = 0;
    }
    sum.bytes += progress.bytes;
    sum.lazy_bytes += progress.lazy_bytes;
    sum.calls += progress.calls;
    sum.batches += progress.batches;
    lock.lock();
    in_flight_.clear();
    landed_.notify_all();
  }
  totals_.bytes += sum.bytes;
  totals_.lazy_bytes += sum.lazy_bytes;
  totals_.calls += sum.calls;
  totals_.batches += sum.batches;
  if (!first) return std::unexpected(first.error());
  return sum;
}

Result<DiscardProgress> DelayedDiscard::run_due() noexcept {
  return run(false);
}

Result<DiscardProgress> DelayedDiscard::flush() noexcept {
  return run(true);
}

std::optional<std::chrono::nanoseconds> DelayedDiscard::next_due() const noexcept {
  const std::lock_guard lock(mutex_);
  std::optional<std::chrono::nanoseconds> next;
  for (const auto& [begin, waiting] : pending_) {
    if (!waiting.looked_at && (!next || waiting.due < *next)) next = waiting.due;
  }
  return next;
}

std::size_t DelayedDiscard::pending_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const auto& [begin, waiting] : pending_) sum += waiting.end - begin;
  return sum;
}

DiscardProgress DelayedDiscard::totals() const noexcept {
  const std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace touchstone::heap
