// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_WORK_STACK_H_
#define TOUCHSTONE_HEAP_DETAIL_WORK_STACK_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include <touchstone/arch/export.h>
#include <touchstone/heap/detail/words.h>

namespace touchstone::heap::detail {

/// A piece of a work stack, handed from worker to worker as a whole.
struct WorkChunk {
  static constexpr std::size_t kEntries = 1022;
  WorkChunk* next = nullptr;
  std::size_t count = 0;
  Address entries[kEntries];
};

/// Where chunks come from and go to; all workers of a heap share one.
class TOUCHSTONE_API ChunkPool {
 public:
  ChunkPool() = default;
  ~ChunkPool();
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  /// Null when there is no memory, or no more are allowed. Thread-safe, like give().
  [[nodiscard]] WorkChunk* take() noexcept;
  void give(WorkChunk* chunk) noexcept;
  /// Frees what is not in use, but for some.
  void shrink(std::size_t keep) noexcept;
  /// For tests: no more than so many exist at a time.
  void limit(std::size_t chunks) noexcept { limit_.store(chunks, std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  WorkChunk* free_ = nullptr;
  std::size_t free_count_ = 0;
  std::size_t in_use_ = 0;
  std::atomic<std::size_t> limit_{SIZE_MAX};
};

/// The work that is to be had from others, and whether there is any left: one for all workers of a
/// parallel phase. A worker's published chunks are taken back by itself, newest first, or stolen by
/// others. When every worker is idle there is none left: a worker becomes idle only with an empty
/// stack and an empty list of its own, and nobody else adds to that list.
class TOUCHSTONE_API WorkShare {
 public:
  static constexpr unsigned kMaxWorkers = 64;

  /// Before a phase.
  void reset(unsigned workers) noexcept;
  /// Whether someone waits for work; cheap.
  [[nodiscard]] bool hungry() const noexcept { return idle_.load(std::memory_order_relaxed) != 0; }
  void publish(unsigned worker, WorkChunk* chunk) noexcept;
  /// One of the worker's own, or null.
  [[nodiscard]] WorkChunk* take_back(unsigned worker) noexcept;
  /// Waits for another's; null when all work of the phase is done.
  [[nodiscard]] WorkChunk* steal(unsigned worker) noexcept;

 private:
  struct alignas(64) List {
    std::mutex mutex;
    WorkChunk* first = nullptr;
    std::atomic<std::size_t> count{0};
  };
  WorkChunk* take_from(List& list) noexcept;

  List lists_[kMaxWorkers];
  alignas(64) std::atomic<unsigned> idle_{0};
  unsigned workers_ = 1;
};

/// A worker's stack of addresses: the top chunk is its own, full ones are published.
class TOUCHSTONE_API WorkStack {
 public:
  WorkStack(ChunkPool& pool, WorkShare& share, unsigned worker) noexcept
      : pool_(pool), share_(share), worker_(worker) {}
  ~WorkStack();
  WorkStack(const WorkStack&) = delete;
  WorkStack& operator=(const WorkStack&) = delete;

  /// False if there was no memory: the entry is lost, which the caller has to make up for.
  [[gnu::always_inline]] bool push(Address entry) noexcept {
    if (top_ == limit_) [[unlikely]] {
      if (!grow()) return false;
    }
    *top_++ = entry;
    return true;
  }
  /// False when the stack and the worker's published chunks are empty.
  [[gnu::always_inline]] bool pop(Address& entry) noexcept {
    if (top_ == bottom_) [[unlikely]] {
      if (!refill()) return false;
    }
    entry = *--top_;
    return true;
  }
  /// Publishes the older half, for those who are hungry.
  void share_half() noexcept;
  /// Whether another worker waits for work.
  [[nodiscard]] bool is_wanted() const noexcept { return share_.hungry(); }
  /// Waits for another's work; false when the phase is done. The stack must be empty.
  [[nodiscard]] bool steal() noexcept;

 private:
  bool grow() noexcept;
  bool refill() noexcept;
  void adopt(WorkChunk* chunk) noexcept;

  Address* top_ = nullptr;
  Address* limit_ = nullptr;
  Address* bottom_ = nullptr;
  WorkChunk* chunk_ = nullptr;
  ChunkPool& pool_;
  WorkShare& share_;
  const unsigned worker_;
};

/// A worker's stack together with the few entries that were taken from it last: what they lead to
/// is on its way into the cache while they wait their turn.
template <bool kParallel, std::size_t kWaiting>
class PrefetchedStack : public WorkStack {
 public:
  using WorkStack::WorkStack;

  /// Until all work of the phase is done, that of the other workers included: prefetch(entry), and
  /// a few entries later process(entry), which may push.
  template <typename Prefetch, typename Process>
  [[gnu::always_inline]] void drain(Prefetch&& prefetch, Process&& process) noexcept {
    [[maybe_unused]] unsigned until_share = kShareInterval;  // NOLINT(misc-const-correctness)
    for (;;) {
      Address entry = 0;
      while (pop(entry)) {
        prefetch(entry);
        std::swap(entry, waiting_[at_++ % kWaiting]);
        if (entry == 0) continue;
        process(entry);
        if constexpr (kParallel) {
          if (--until_share == 0) [[unlikely]] {
            until_share = kShareInterval;
            if (is_wanted()) share_half();
          }
        }
      }
      bool any = false;
      for (Address& place : waiting_) {
        const Address last = std::exchange(place, 0);
        if (last == 0) continue;
        any = true;
        process(last);
      }
      if (any) continue;
      if constexpr (kParallel) {
        if (steal()) continue;
      }
      return;
    }
  }

 private:
  static constexpr unsigned kShareInterval = 256;
  std::array<Address, kWaiting> waiting_{};
  std::size_t at_ = 0;
};

/// A list that several phases may add to and that is read from the start: what push() loses for
/// want of memory the caller has to treat at once.
class TOUCHSTONE_API WorkList {
 public:
  explicit WorkList(ChunkPool& pool) noexcept : pool_(pool) {}
  ~WorkList() { clear(); }
  WorkList(const WorkList&) = delete;
  WorkList& operator=(const WorkList&) = delete;

  [[nodiscard]] bool push(Address entry) noexcept {
    if (last_ == nullptr || last_->count == WorkChunk::kEntries) {
      if (!grow()) return false;
    }
    last_->entries[last_->count++] = entry;
    ++size_;
    return true;
  }
  /// Two that each_pair() gives together again. A list holds either pairs or single entries.
  [[nodiscard]] bool push_pair(Address first, Address second) noexcept {
    static_assert(WorkChunk::kEntries % 2 == 0);
    return push(first) && push(second);
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  void clear() noexcept;
  template <typename Use>
  void each(Use&& use) const {
    for (WorkChunk* chunk = first_; chunk != nullptr; chunk = chunk->next) {
      for (std::size_t i = 0; i < chunk->count; ++i) use(chunk->entries[i]);
    }
  }
  template <typename Use>
  void each_pair(Use&& use) const {
    for (WorkChunk* chunk = first_; chunk != nullptr; chunk = chunk->next) {
      for (std::size_t i = 0; i < chunk->count; i += 2) {
        use(chunk->entries[i], chunk->entries[i + 1]);
      }
    }
  }

 private:
  bool grow() noexcept;
  ChunkPool& pool_;
  WorkChunk* first_ = nullptr;
  WorkChunk* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_WORK_STACK_H_
