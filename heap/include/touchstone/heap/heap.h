// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_HEAP_H_
#define TOUCHSTONE_HEAP_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include <touchstone/arch/error.h>
#include <touchstone/heap/detail/compaction.h>
#include <touchstone/heap/detail/ephemeron_table.h>
#include <touchstone/heap/detail/evacuation.h>
#include <touchstone/heap/detail/heap_core.h>
#include <touchstone/heap/detail/marking.h>
#include <touchstone/heap/detail/verification.h>
#include <touchstone/heap/heap_options.h>
#include <touchstone/heap/mutator.h>
#include <touchstone/heap/object_model.h>
#include <touchstone/heap/roots.h>

namespace touchstone::heap {

/// A generational, parallel, moving garbage-collected heap for the objects of one ObjectModel.
///
///     auto heap = Heap<Model>::create({.max_size = std::size_t{512} << 20});
///     auto mutator = (*heap)->attach("main");
///     Local<Node> root(**mutator, make_node(**heap, **mutator));
///
/// What else it can do is in detail::HeapCore: attach(), collect(), trim(), add_roots(),
/// add_finalizer(), statistics(), fast_path_layout().
///
/// Thread safety: as each member says. The heap is destroyed after its mutators and roots.
template <ObjectModel Model>
class Heap final : public detail::HeapCore {
 public:
  /// Reserves addresses for the whole max_size; memory comes as it is needed. Errors: those of
  /// HeapOptions (kInvalidArgument), of Reservation::reserve() and Reservation::commit(), and
  /// kUnavailable where max_size is 0 and nothing tells how much memory there is.
  [[nodiscard]] static Result<std::unique_ptr<Heap>> create(const HeapOptions& options,
                                                            Model model = {}) noexcept {
    std::unique_ptr<Heap> heap(new (std::nothrow) Heap(options, std::move(model)));
    const Error no_memory{.code = ErrorCode::kOutOfMemory, .operation = "Heap::create"};
    if (!heap) return std::unexpected(no_memory);
    if (Result<> made = static_cast<Heap&>(*heap).HeapCore::create(); !made) {
      return std::unexpected(made.error());
    }
    heap->serial_.reset(new (std::nothrow) Team<false>(1));
    heap->parallel_.reset(new (std::nothrow) Team<true>(heap->workers()));
    if (!heap->serial_ || !heap->serial_->members || !heap->parallel_ ||
        !heap->parallel_->members) {
      return std::unexpected(no_memory);
    }
    return heap;
  }
  ~Heap() override { end(); }

  /// Zeroed memory for an object of `size` bytes, rounded up to the alignment. Its header has to be
  /// written before the mutator's next safepoint. May collect: a safepoint.
  ///
  /// Errors: kInvalidArgument (0 bytes), kOutOfMemory (more than there is room for after a full
  /// collection; nothing else has changed), those of collect().
  [[gnu::always_inline]] Result<std::byte*> allocate(Mutator& mutator, std::size_t size) noexcept {
    std::byte* object = allocate_or_null(mutator, size);
    if (object == nullptr) [[unlikely]]
      return std::unexpected(mutator.error());
    return object;
  }
  /// The same with null for an error, which is then Mutator::error().
  [[gnu::always_inline]] std::byte* allocate_or_null(Mutator& mutator, std::size_t size) noexcept {
    std::byte* const object = mutator.try_allocate(detail::round_up(size, Model::kAlignment));
    if (object == nullptr) [[unlikely]]
      return mutator.allocate_slow(size);
    return object;
  }

  /// The same, and these pointers are roots meanwhile: for what is needed right after, such as what
  /// goes into the object. Costs nothing unless the slow path is taken, where a Local always does.
  template <typename... Kept>
    requires(sizeof...(Kept) != 0)
  [[gnu::always_inline]] std::byte* allocate_keeping(Mutator& mutator, std::size_t size,
                                                     Kept*&... kept) noexcept {
    std::byte* object = mutator.try_allocate(detail::round_up(size, Model::kAlignment));
    if (object == nullptr) [[unlikely]] {
      // Copies, so that the pointers themselves may be in registers.
      void* held[] = {kept...};
      object = allocate_slow_keeping(mutator, size, held, sizeof...(Kept));
      std::size_t i = 0;
      ((kept = static_cast<Kept*>(held[i++])), ...);
    }
    return object;
  }

  [[nodiscard]] const Model& model() const noexcept { return model_; }

 private:
  [[gnu::noinline]] static std::byte* allocate_slow_keeping(Mutator& mutator, std::size_t size,
                                                            void** kept,
                                                            std::size_t count) noexcept {
    if (count == 0) return mutator.allocate_slow(size);
    const Local<std::byte> root(mutator, static_cast<std::byte*>(*kept));
    std::byte* const object = allocate_slow_keeping(mutator, size, kept + 1, count - 1);
    *kept = root.get();
    return object;
  }

  using Core = detail::HeapCore;
  using Address = detail::Address;
  using Finder = detail::ObjectFinder<Model>;
  using Bits = typename Finder::Bits;

  template <bool kParallel>
  struct Member {
    std::optional<detail::Evacuation<Core, Model, kParallel>> evacuation;
    std::optional<detail::Marking<Core, Model, kParallel>> marking;
    std::optional<detail::Compaction<Core, Model>> compaction;
  };
  template <bool kParallel>
  struct Team {
    explicit Team(unsigned workers) noexcept
        : members(new(std::nothrow) Member<kParallel>[workers]) {}
    std::unique_ptr<Member<kParallel>[]> members;
    unsigned size = 0;
  };

  Heap(const HeapOptions& options, Model model) noexcept
      : HeapCore(options, Model::kAlignment), model_(std::move(model)), pinned_(chunks_) {}

 protected:
  void fill(Address begin, std::size_t size) noexcept override {
    model_.write_filler(detail::at<void>(begin), size);
  }
  void begin_collection() noexcept override {
    if (work_.workers > 1) {
      begin(*parallel_);
    } else {
      begin(*serial_);
    }
  }
  void end_collection() noexcept override {
    finish(*parallel_);
    finish(*serial_);
    pinned_.clear();
  }
  void run_phase(detail::Phase phase, unsigned worker) noexcept override {
    if (work_.workers > 1) {
      run_phase(*parallel_, phase, worker);
    } else {
      run_phase(*serial_, phase, worker);
    }
  }

 private:
  template <bool kParallel>
  void begin(Team<kParallel>& team) noexcept {
    team.size = work_.workers;
    for (unsigned i = 0; i < team.size; ++i) team.members[i].evacuation.emplace(*this, model_, i);
  }
  template <bool kParallel>
  void finish(Team<kParallel>& team) noexcept {
    for (unsigned i = 0; i < team.size; ++i) {
      team.members[i].evacuation.reset();
      team.members[i].marking.reset();
      team.members[i].compaction.reset();
    }
    team.size = 0;
  }

  // NOLINTBEGIN(bugprone-unchecked-optional-access): the first phase emplaces what later ones use
  template <bool kParallel>
  void run_phase(Team<kParallel>& team, detail::Phase phase, unsigned worker) noexcept {
    using detail::Phase;
    Member<kParallel>& me = team.members[worker];
    switch (phase) {
      case Phase::kPinYoung:
        pin_young(*me.evacuation);
        break;
      case Phase::kYoung:
        me.evacuation->evacuate_roots();
        break;
      case Phase::kYoungWeak:
        resolve(team, &Member<kParallel>::evacuation);
        break;
      case Phase::kYoungEnd:
        for (unsigned i = 0; i < team.size; ++i) team.members[i].evacuation->finish();
        unmark_kept();
        break;
      case Phase::kPinOld:
        pin_old();
        for (unsigned i = 0; i < team.size; ++i) team.members[i].marking.emplace(*this, model_, i);
        break;
      case Phase::kMark:
        if (worker == 0) pinned_.each([&](Address object) { me.marking->push(object); });
        me.marking->mark_roots();
        break;
      case Phase::kMarkWeak:
        resolve(team, &Member<kParallel>::marking);
        break;
      case Phase::kMarkEnd:
        for (unsigned i = 0; i < team.size; ++i) {
          team.members[i].marking->finish();
          team.members[i].marking.reset();
          team.members[i].compaction.emplace(*this, model_);
        }
        break;
      case Phase::kMove:
        me.compaction->move();
        break;
      case Phase::kMoveEnd:
        for (unsigned i = 0; i < team.size; ++i) team.members[i].compaction->end_move();
        break;
      case Phase::kFix:
        if (worker == 0) fix_weak(*me.compaction);
        me.compaction->fix();
        break;
      case Phase::kVerify:
        verify();
        break;
    }
  }

  // ---- Ambiguous roots

  [[nodiscard]] bool is_filler(Address object) const noexcept {
    if constexpr (FillerTelling<Model>) {
      return model_.is_filler(detail::at<const void>(object), Finder::header_of(object));
    } else {
      return false;
    }
  }

  template <typename Worker>
  void pin_young(Worker& worker) noexcept {
    std::size_t i = 0;
    while (i < ambiguous_.size()) {
      const Address bottom = tables_.bottom(ambiguous_[i]);
      const Address region_end = bottom + tables_.region_size;
      if ((tables_.target(bottom) & detail::kTargetMask) != 0) {
        const Address top = tables_.region(bottom).top;
        for (Address object = bottom; object < top && i < ambiguous_.size();) {
          const std::size_t size = Finder::size_of(model_, object);
          if (ambiguous_[i] - object < size) {
            if (!is_filler(object)) {
              worker.keep(object, Finder::header_of(object));
              tables_.region(bottom).pinned = 1;
              note_pinned(size);
            }
            while (i < ambiguous_.size() && ambiguous_[i] - object < size) ++i;
          }
          object += size;
        }
      }
      while (i < ambiguous_.size() && ambiguous_[i] < region_end) ++i;
    }
  }
  void note_pinned(std::size_t size) noexcept {
    work_.pinned_objects.fetch_add(1, std::memory_order_relaxed);
    work_.pinned_bytes.fetch_add(size, std::memory_order_relaxed);
  }
  void pin_old() noexcept {
    // What was young and hit is old by now, and found again.
    work_.pinned_objects = 0;
    work_.pinned_bytes = 0;
    Address last = 0;
    for (const Address word : ambiguous_) {
      const Address object = Finder::object_at(model_, tables_, word);
      if (object == 0 || object == last) continue;
      last = object;
      tables_.region(object).pinned = 1;
      note_pinned(Finder::size_of(model_, object));
      if (!pinned_.push(object)) pins_lost_ = true;
    }
  }

  // ---- Weak references, ephemerons, finalizers

  template <typename Team, typename Which>
  void resolve(Team& team, Which which) noexcept {
    auto& first = *(team.members[0].*which);
    complete(team, first);
    detail::EphemeronTable table;
    first.watch(&table);
    for (unsigned i = 0; i < team.size; ++i) {
      detail::WorkList& pairs = (*(team.members[i].*which)).ephemeron_slots();
      pairs.each_pair([&](Address key_slot, Address value_slot) {
        const Address key = detail::load_word(key_slot);
        if (key != 0 && !first.alive(key) && table.insert(key, key_slot, value_slot)) return;
        if (key != 0 && !first.alive(key)) {
          first.strong_slot(key_slot);
        } else {
          first.settle(key_slot);
        }
        first.strong_slot(value_slot);
      });
      pairs.clear();
    }
    first.drain();
    complete(team, first);
    clear_dead(team, which, first, table);
    // What only finalizers are left for comes back, with all it refers to.
    std::size_t left = 0;
    const std::size_t waiting = finalizable_.size();
    for (Finalizable& each : finalizers_) {
      if (first.alive(each.object)) {
        each.object = first.current(each.object);
        finalizers_[left++] = each;
      } else {
        // add_finalizer() has made room for it.
        finalizable_.push_back(each);
      }
    }
    finalizers_.resize(left);
    for (std::size_t i = waiting; i < finalizable_.size(); ++i) {
      first.visit_root(&finalizable_[i].object);
    }
    first.drain();
    complete(team, first);
    clear_dead(team, which, first, table);
    first.watch(nullptr);
  }

  template <typename Team, typename Which, typename Worker>
  void clear_dead(Team& team, Which which, Worker& first, detail::EphemeronTable& table) noexcept {
    for (unsigned i = 0; i < team.size; ++i) {
      detail::WorkList& slots = (*(team.members[i].*which)).weak_slots();
      slots.each([&](Address slot) {
        const Address object = detail::load_word(slot);
        if (object == 0) return;
        if (first.alive(object)) {
          first.settle(slot);
        } else {
          detail::store_word(slot, 0);
        }
      });
      slots.clear();
    }
    each_weak_root([&](Address& value) {
      if (value != 0) value = first.alive(value) ? first.current(value) : 0;
    });
    table.each([](Address key_slot, Address value_slot) {
      detail::store_word(key_slot, 0);
      detail::store_word(value_slot, 0);
    });
    table.clear();
  }

  /// Makes up for work that was lost for want of memory.
  template <bool kParallel>
  void complete(Team<kParallel>& team, detail::Evacuation<Core, Model, kParallel>& first) noexcept {
    while (work_.overflowed.exchange(false)) {
      for (unsigned i = 0; i < team.size; ++i) team.members[i].evacuation->retire_buffers();
      each_region([](Address, detail::Region& region) {
        if (region.kind == detail::RegionKind::kSurvivor) region.scan_end = region.top;
      });
      each_region([&](Address bottom, detail::Region& region) {
        if (tables_.target(bottom) == detail::kTargetYoung) {
          for (Address object = bottom; object < region.scan_end;) {
            const std::size_t size = Finder::size_of(model_, object);
            first.rescan(object, false);
            object += size;
          }
        } else if (region.kind == detail::RegionKind::kOld) {
          Bits::each(tables_.marks, detail::round_up(region.scan_end, Bits::kSpan), region.top,
                     [&](Address object) { first.rescan(object, true); });
        } else if (region.keeps != 0) {
          Bits::each(tables_.marks, bottom, region.top,
                     [&](Address object) { first.rescan(object, false); });
        } else {
          return;
        }
        first.drain();
      });
    }
  }
  template <bool kParallel>
  void complete(Team<kParallel>& /*team*/,
                detail::Marking<Core, Model, kParallel>& first) noexcept {
    while (work_.overflowed.exchange(false)) {
      each_region([&](Address bottom, detail::Region& region) {
        if (region.kind != detail::RegionKind::kOld && region.kind != detail::RegionKind::kLarge) {
          return;
        }
        const Address end =
            region.kind == detail::RegionKind::kOld ? region.top : bottom + Bits::kSpan;
        Bits::each(tables_.marks, bottom, end, [&](Address object) {
          first.rescan(object);
          first.drain();
        });
      });
    }
  }
  template <typename Use>
  void each_region(Use&& use) noexcept {
    const Address end = committed_end();
    for (Address bottom = tables_.base; bottom < end; bottom += tables_.region_size) {
      use(bottom, tables_.region(bottom));
    }
  }

  /// Takes the collector's bit off what stayed where it was, and has its region ready to be old.
  void unmark_kept() noexcept {
    each_region([&](Address bottom, detail::Region& region) {
      if (region.keeps == 0) return;
      region.live = 0;
      Bits::each(tables_.marks, bottom, region.top, [&](Address object) {
        detail::store_word(object, Finder::header_of(object));
        const std::size_t size = Finder::size_of(model_, object);
        region.live += size;
        Finder::note_extent(tables_, object, size);
      });
    });
  }

  void fix_weak(detail::Compaction<Core, Model>& compaction) noexcept {
    each_weak_root([&](Address& value) { compaction.fix_slot(detail::address_of(&value)); });
    for (Finalizable& each : finalizers_) compaction.fix_slot(detail::address_of(&each.object));
  }

  void verify() noexcept {
    try {
      detail::Verification<Core, Model>(*this, model_).run();
    } catch (const std::bad_alloc&) {
      report_violation("verification ran out of memory", 0, 0, 0);
    }
  }

  // NOLINTEND(bugprone-unchecked-optional-access)

  using Finalizable = detail::Finalizable;

  [[no_unique_address]] const Model model_;
  detail::WorkList pinned_;
  std::unique_ptr<Team<false>> serial_;
  std::unique_ptr<Team<true>> parallel_;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_HEAP_H_
