// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_HEAP_CORE_H_
#define TOUCHSTONE_HEAP_DETAIL_HEAP_CORE_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>
#include <touchstone/heap/detail/region.h>
#include <touchstone/heap/detail/work_stack.h>
#include <touchstone/heap/detail/worker_gang.h>
#include <touchstone/heap/fast_path_layout.h>
#include <touchstone/heap/heap_listener.h>
#include <touchstone/heap/heap_options.h>
#include <touchstone/heap/heap_statistics.h>
#include <touchstone/heap/mutator.h>
#include <touchstone/heap/reservation.h>
#include <touchstone/heap/roots.h>

namespace touchstone::heap::detail {

/// The steps of a collection that know objects. Each is run by all workers at once, but for those
/// marked serial, which worker 0 runs alone.
enum class Phase : std::uint8_t {
  kPinYoung,   ///< Serial: keeps what ambiguous roots hit of what is to be moved.
  kYoung,      ///< Evacuates from the roots and dirty cards.
  kYoungWeak,  ///< Serial: what overflowing work stacks lost; ephemerons, weak references,
               ///< finalizers.
  kYoungEnd,   ///< Serial: gives the workers' buffers back, unmarks what was kept.
  kPinOld,     ///< Serial: finds the old objects that ambiguous roots hit.
  kMark,       ///< Marks from the roots.
  kMarkWeak,   ///< Serial: as kYoungWeak.
  kMarkEnd,    ///< Serial: adds up what was found alive.
  kMove,       ///< Evacuates the regions in moving().
  kMoveEnd,    ///< Serial.
  kFix,        ///< Updates all references to what was moved.
  kVerify,     ///< Serial.
};

/// What the workers of a collection claim, count and find.
struct CollectionWork {
  CollectionReport report{};
  unsigned workers = 1;
  std::size_t regions = 0;  ///< Committed when the phase began.
  std::size_t violations = 0;
  bool promote_all = false;
  bool move_all = false;
  std::atomic<std::size_t> next_root{0};
  std::atomic<std::size_t> next_region{0};
  std::atomic<std::size_t> copied{0};
  std::atomic<std::size_t> promoted{0};
  std::atomic<std::size_t> compacted{0};
  std::atomic<std::size_t> marked{0};
  std::atomic<std::size_t> dirty_cards{0};
  std::atomic<std::size_t> pinned_objects{0};
  std::atomic<std::size_t> pinned_bytes{0};
  std::atomic<bool> overflowed{false};
};

/// An object whose end the embedder wants to know.
struct Finalizable {
  Address object = 0;
  std::uint32_t priority = 0;
  void* context = nullptr;
};

/// All of a heap that does not depend on the object model: memory, regions, mutators, safepoints,
/// sizing, the order of a collection's steps. See Heap for what users may call.
class TOUCHSTONE_API HeapCore {
 public:
  HeapCore(const HeapCore&) = delete;
  HeapCore& operator=(const HeapCore&) = delete;
  virtual ~HeapCore();

  /// Makes the calling thread a mutator, in running state; waits for a collection under way. The
  /// name is for reports. Errors: kOutOfMemory. Thread-safe.
  [[nodiscard]] Result<MutatorPointer> attach(std::string_view name = {}) noexcept;

  /// Collects now. `self` is the calling thread's mutator, or null where it is none. When others
  /// collect already, waits for them and then collects. Errors: kTimedOut (see
  /// HeapOptions::safepoint_timeout; nothing has changed), kCorrupt (verification), kBusy (called
  /// by a mutator in a native section).
  [[nodiscard]] Result<CollectionReport> collect(
      Mutator* self, CollectionKind kind = CollectionKind::kFull) noexcept;

  /// Collects fully, moving all that makes whole huge pages free, and gives these back to the
  /// system in batches. The bytes given back. Errors as collect(), and those of BatchedDiscard.
  [[nodiscard]] Result<std::size_t> trim(Mutator* self) noexcept;

  /// Roots of the whole heap; a safepoint for nobody: to be called by a running mutator, or while
  /// there is no collection. kOutOfMemory.
  [[nodiscard]] Result<> add_roots(const RootCallback& callback) noexcept;
  /// False if there was no such.
  bool remove_roots(const RootCallback& callback) noexcept;

  /// Has next_finalizable() hand an object out once nothing else reaches it. Lower priorities come
  /// first. An object may be registered again, also by its finalizer. kOutOfMemory. Thread-safe,
  /// for running mutators.
  [[nodiscard]] Result<> add_finalizer(void* object, std::uint32_t priority = 0,
                                       void* context = nullptr) noexcept;
  /// An object that was found dead but for finalizers, and whatever it refers to: alive again, for
  /// the embedder to finalize on a thread of its choice. Nothing if there is none. By a running
  /// mutator; the object is no root any more. Thread-safe.
  struct Finalization {
    void* object = nullptr;
    void* context = nullptr;
  };
  [[nodiscard]] std::optional<Finalization> next_finalizable() noexcept;
  [[nodiscard]] std::size_t finalizable_count() const noexcept;

  /// What emitted code has to know. Constant.
  [[nodiscard]] FastPathLayout fast_path_layout() const noexcept;

  /// Whether the address lies in the heap's reservation. Thread-safe.
  [[nodiscard]] bool contains(const void* address) const noexcept {
    return tables_.in_heap(detail::address_of(address));
  }
  /// Whether an object may still move at a young collection. By a running mutator.
  [[nodiscard]] bool is_young(const void* object) const noexcept {
    return tables_.target(detail::address_of(object)) != kTargetStay;
  }

  /// Thread-safe; the figures are of one moment if the caller is a running mutator.
  [[nodiscard]] HeapStatistics statistics() const noexcept;
  /// The last collection's report; all zero before the first.
  [[nodiscard]] CollectionReport last_collection() const noexcept;
  [[nodiscard]] const HeapOptions& options() const noexcept { return options_; }
  /// Larger objects get regions of their own.
  [[nodiscard]] std::size_t large_object_size() const noexcept { return tables_.region_size / 2; }
  [[nodiscard]] MemoryRange range() const noexcept { return reservation_.range(); }

  /// Keeps the last detached mutators of the process for a while, in a state in which their slow
  /// paths fail, so that a use after detach() can be told: for interfaces whose users hold plain
  /// pointers. Before the first attach().
  void keep_detached_mutators() noexcept { keep_detached_ = true; }

  /// For tests: the collector's work stacks have to make do with so many chunks.
  void limit_work_chunks(std::size_t chunks) noexcept { chunks_.limit(chunks); }
  /// For tests: the nth slow path of an allocation from now on fails with kOutOfMemory; 0 none.
  void fail_allocation(std::uint64_t nth) noexcept { fail_allocation_.store(nth); }

 protected:
  HeapCore(const HeapOptions& options, std::size_t alignment) noexcept;
  /// Reserves everything. Only once, before all else.
  [[nodiscard]] Result<> create() noexcept;
  /// To be called by the destructor of the class that has the phases.
  void end() noexcept;

  // ---- What depends on the object model.
  virtual void run_phase(Phase phase, unsigned worker) noexcept = 0;
  virtual void begin_collection() noexcept = 0;
  virtual void end_collection() noexcept = 0;
  virtual void fill(Address begin, std::size_t size) noexcept = 0;

  // ---- For the workers.
  template <typename, typename, bool>
  friend class Evacuation;
  template <typename, typename, bool>
  friend class Marking;
  template <typename, typename>
  friend class Compaction;
  template <typename, typename>
  friend class Verification;
  [[nodiscard]] const HeapTables& tables() const noexcept { return tables_; }
  [[nodiscard]] CollectionWork& work() noexcept { return work_; }
  [[nodiscard]] ChunkPool& chunks() noexcept { return chunks_; }
  [[nodiscard]] WorkShare& share() noexcept { return share_; }
  [[nodiscard]] const std::vector<Address>& moving() const noexcept { return moving_; }
  [[nodiscard]] std::size_t region_count() const noexcept { return committed_regions_; }
  [[nodiscard]] unsigned workers() const noexcept { return options_.workers; }
  /// Room for at least `least` bytes, `wanted` if that can be had; empty if there is none.
  [[nodiscard]] CopyBuffer take_buffer(std::uint8_t target, std::size_t least,
                                       std::size_t wanted) noexcept;
  /// The end of a buffer's use: the rest is given back or filled. Empty ones are fine.
  void retire_buffer(std::uint8_t target, CopyBuffer& buffer) noexcept;
  /// Shows the roots that are there, shared out between the workers: each calls it once a phase.
  void visit_roots(RootVisitor& visitor) noexcept;
  void reset_claims() noexcept;
  /// The next committed region's address for a worker of the phase, 0 at the end.
  [[nodiscard]] Address claim_region() noexcept;
  [[nodiscard]] Address committed_end() const noexcept {
    return tables_.base + std::uint64_t{committed_regions_} * tables_.region_size;
  }
  void report_violation(const char* what, Address object, Address field, Address value) noexcept;

  HeapTables tables_{};
  CollectionWork work_{};
  ChunkPool chunks_;
  WorkShare share_;
  /// Words of ambiguous roots that may point into the heap, sorted.
  std::vector<Address> ambiguous_;
  bool pins_lost_ = false;  // No memory to list what is pinned: nothing may move.
  std::vector<Finalizable> finalizers_;
  std::vector<Finalizable> finalizable_;
  std::vector<Address> moving_;
  RootNode* weak_roots_ = nullptr;
  template <typename Use>
  static void each_node(RootNode* first, Use&& use) {
    for (RootNode* node = first; node != nullptr; node = node->next_) use(node->value_);
  }
  template <typename Use>
  void each_weak_root(Use&& use) const {
    each_node(weak_roots_, use);
  }
  const std::size_t alignment_;
  std::size_t buffer_unit_ =
      0;  // Old buffers start at multiples: words of mark bits are not shared.

 private:
  friend class ::touchstone::heap::Mutator;
  friend struct ::touchstone::heap::MutatorDetach;
  friend class RootNode;

  // memory
  [[nodiscard]] Result<> check_options();
  [[nodiscard]] Result<> reserve() noexcept;
  bool grow(std::unique_lock<std::mutex>& lock, std::size_t regions) noexcept;
  [[nodiscard]] Result<> commit_regions(std::size_t first, std::size_t count) noexcept;
  Address acquire_region(std::unique_lock<std::mutex>& lock, RegionKind kind, std::uint8_t age,
                         bool for_mutator) noexcept;
  void set_kind(Address region, RegionKind kind, std::uint8_t age) noexcept;
  void free_region(Address region) noexcept;
  void clear_side_tables(Address begin, Address end) noexcept;
  [[nodiscard]] std::size_t available_regions() const noexcept;
  [[nodiscard]] Address region_address(std::size_t index) const noexcept {
    return tables_.base + std::uint64_t{index} * tables_.region_size;
  }

  // allocation
  [[nodiscard]] std::byte* allocate_slow(Mutator& mutator, std::size_t size) noexcept;
  [[nodiscard]] Address take_room(Mutator& mutator, std::size_t size) noexcept;
  [[nodiscard]] Address take_medium(std::size_t size) noexcept;
  [[nodiscard]] Address take_large(std::size_t size) noexcept;
  [[nodiscard]] bool new_tlab(Mutator& mutator, std::size_t size) noexcept;
  void open_window(Mutator& mutator, std::size_t size) noexcept;
  void retire_tlab(Mutator& mutator) noexcept;

  // mutators and safepoints
  [[nodiscard]] Result<> check_outside(const char* operation) const noexcept;
  [[nodiscard]] Result<> detach(Mutator& mutator) noexcept;
  void wait_while_stopped(Mutator& mutator, std::unique_lock<std::mutex>& lock) noexcept;
  static void note_stack(Mutator& mutator) noexcept;
  static void keep_ending_frames(Mutator& mutator) noexcept;
  static void visit_fake_frames(RootVisitor& visitor, const Mutator& mutator) noexcept;
  void poll_slow(Mutator& mutator) noexcept;
  void enter_native(Mutator& mutator) noexcept;
  void leave_native(Mutator& mutator) noexcept;
  [[nodiscard]] Result<> stop_world(Mutator* self, std::unique_lock<std::mutex>& lock) noexcept;
  void resume_world() noexcept;

  // collection
  /// With `seen`, only if there have been no more collections than that. With `trimmed`, memory is
  /// given back before the world goes on.
  [[nodiscard]] Result<CollectionReport> collect_at_safepoint(
      Mutator* self, CollectionKind kind, CollectionCause cause,
      std::optional<std::uint64_t> seen = {}, Result<std::size_t>* trimmed = nullptr) noexcept;
  [[nodiscard]] Result<> collect_stopped(CollectionKind kind, CollectionCause cause,
                                         std::uint64_t stop_ns) noexcept;
  void run(Phase phase) noexcept;
  void run_serial(Phase phase) noexcept;
  [[nodiscard]] bool gather_ambiguous() noexcept;
  void collect_young() noexcept;
  void collect_full() noexcept;
  void count_stranded(const Region& region) noexcept;
  bool select_moving(bool all) noexcept;
  void resize(bool full) noexcept;
  [[nodiscard]] Result<std::size_t> give_back() noexcept;
  [[nodiscard]] std::size_t used_bytes() const noexcept;
  [[nodiscard]] std::uint64_t now() const noexcept;
  static void gang_task(void* core, unsigned worker) noexcept;

  HeapOptions options_;
  Reservation reservation_;
  Reservation side_;
  std::size_t total_regions_ = 0;
  std::size_t committed_regions_ = 0;
  std::size_t side_committed_ = 0;
  bool root_region_ = false;  // The leak sanitizer looks for pointers in the heap.
  std::size_t chunk_size_ = 0;
  struct SideTable {
    std::size_t offset = 0;  // In side_.
    std::size_t size = 0;
    unsigned shift = 0;  // A byte for each 1 << shift bytes of heap.
  };
  std::array<SideTable, 5> side_tables_{};

  /// Regions, and who is in which kind.
  mutable std::mutex space_mutex_;
  std::condition_variable grown_;
  bool growing_ = false;
  std::vector<std::uint64_t> free_bits_;
  std::size_t free_hint_ = 0;
  std::size_t free_regions_ = 0;
  std::size_t counts_[6] = {};
  std::size_t eden_limit_ = 0;
  std::size_t reserve_regions_ = 0;
  std::size_t large_since_full_ = 0;
  bool full_wanted_ = false;
  std::size_t target_ = 0;
  std::size_t live_after_full_ = 0;
  Address medium_ = 0;                // The region that medium objects and small TLABs come from.
  std::array<Address, 6> copying_{};  // The regions that take_buffer() cuts from.
  std::uint64_t allocated_ = 0;

  /// Mutators, roots, and who collects.
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  std::condition_variable resumed_;
  bool stopping_ = false;
  Mutator* mutators_ = nullptr;
  std::size_t mutator_count_ = 0;
  std::uint64_t next_id_ = 1;
  std::uint64_t collections_ = 0;
  std::vector<RootCallback> callbacks_;
  RootNode* strong_roots_ = nullptr;

  WorkerGang gang_;
  Phase phase_ = Phase::kYoung;
  HeapStatistics sums_{};
  CollectionReport last_report_{};
  std::uint64_t created_ns_ = 0;
  std::uint64_t last_end_ns_ = 0;
  double overhead_ = 0;
  double survival_ = 0.2;
  std::atomic<std::uint64_t> stress_left_{0};
  std::uint64_t stress_turn_ = 0;
  std::atomic<std::uint64_t> fail_allocation_{0};
  bool keep_detached_ = false;
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_HEAP_CORE_H_
