// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_MARKING_H_
#define TOUCHSTONE_HEAP_DETAIL_MARKING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include <touchstone/heap/detail/ephemeron_table.h>
#include <touchstone/heap/detail/object_finder.h>
#include <touchstone/heap/detail/region.h>
#include <touchstone/heap/detail/work_stack.h>
#include <touchstone/heap/roots.h>

namespace touchstone::heap::detail {

/// One worker of the marking of a full collection. There are no young objects then.
///
/// The work is objects that may or may not be marked, and parts of large objects, which are tagged:
/// the address where the part begins.
template <typename Core, typename Model, bool kParallel>
class Marking {
 public:
  using Finder = ObjectFinder<Model>;
  using Bits = typename Finder::Bits;

  Marking(Core& core, const Model& model, unsigned worker) noexcept
      : core_(core),
        model_(model),
        tables_(core.tables()),
        stack_(core.chunks(), core.share(), worker),
        weak_(core.chunks()),
        ephemerons_(core.chunks()),
        // Zeroed by the kernel where it is large, and touched where there are live objects.
        live_(
            static_cast<std::uint64_t*>(std::calloc(core.region_count(), sizeof(std::uint64_t)))) {}

  void mark_roots() noexcept {
    Roots roots(*this);
    core_.visit_roots(roots);
    drain();
  }
  void push(Address object) noexcept {
    if (!stack_.push(object)) [[unlikely]] {
      core_.work().overflowed.store(true, std::memory_order_relaxed);
    }
  }
  void drain() noexcept {
    stack_.drain(
        [this](Address entry) {
          // The tag does not matter to a prefetch.
          prefetch_for_read(entry);
          prefetch_for_write(Bits::word_of(tables_.marks, entry));
        },
        [this](Address entry) { process(entry); });
  }
  /// Serial: what a marked object refers to, once more.
  void rescan(Address object) noexcept {
    model_.trace(at<void>(object), load_word(object), Rescanner{*this});
  }

  // ---- Weak references and the like: serial, by one worker for all
  [[nodiscard]] bool alive(Address object) const noexcept {
    return Bits::get(tables_.marks, object);
  }
  [[nodiscard]] static Address current(Address object) noexcept { return object; }
  void strong_slot(Address slot) noexcept { visit_root(at<void>(slot)); }
  void visit_root(void* slot) noexcept {
    if (const Address object = load_word(address_of(slot)); object != 0) push(object);
  }
  void settle(Address /*slot*/) const noexcept {}
  WorkList& weak_slots() noexcept { return weak_; }
  WorkList& ephemeron_slots() noexcept { return ephemerons_; }
  void watch(EphemeronTable* table) noexcept { watched_ = table; }

  void finish() noexcept {
    core_.work().marked.fetch_add(marked_, std::memory_order_relaxed);
    if (live_ == nullptr) return;
    for (std::size_t i = 0; i < core_.region_count(); ++i) {
      if (live_.get()[i] != 0) tables_.region(region_address(i)).live += live_.get()[i];
    }
  }

 private:
  static constexpr Address kPartTag = 1;
  /// Large objects are traced in parts of this size, so that workers share them.
  static constexpr std::size_t kPart = std::size_t{64} << 10U;

  struct Tracer {
    Marking& self;
    [[gnu::always_inline]] void operator()(void* slot) const noexcept {
      const Address object = load_word(address_of(slot));
      if (object != 0) self.push(object);
    }
    void weak(void* slot) const noexcept {
      const Address object = load_word(address_of(slot));
      if (object == 0 || self.alive(object)) return;
      if (!self.weak_.push(address_of(slot))) self.push(object);
    }
    void ephemeron(void* key_slot, void* value_slot) const noexcept {
      self.note_ephemeron(address_of(key_slot), address_of(value_slot));
    }
  };

  /// Only what is not marked yet: a full stack makes progress all the same.
  struct Rescanner {
    Marking& self;
    void operator()(void* slot) const noexcept {
      const Address object = load_word(address_of(slot));
      if (object != 0 && !self.alive(object)) self.push(object);
    }
    void weak(void* slot) const noexcept { Tracer{self}.weak(slot); }
    void ephemeron(void* key, void* value) const noexcept { Tracer{self}.ephemeron(key, value); }
  };

  class Roots final : public RootVisitor {
   public:
    explicit Roots(Marking& self) noexcept : self_(self) {}
    void visit(void* slot) noexcept override { self_.visit_root(slot); }
    void visit_ambiguous(const void*, const void*) noexcept override {}

   private:
    Marking& self_;
  };

  [[nodiscard]] Address region_address(std::size_t index) const noexcept {
    return tables_.base + std::uint64_t{index} * tables_.region_size;
  }

  [[gnu::always_inline]] void process(Address entry) noexcept {
    if ((entry & kPartTag) != 0) [[unlikely]] {
      trace_part(entry & ~kPartTag);
      return;
    }
    if (!Bits::template test_and_set<kParallel>(tables_.marks, entry)) return;
    const std::uint64_t header = load_word(entry);
    const std::size_t size = model_.size(at<const void>(entry), header);
    marked_ += size;
    if (watched_ != nullptr) [[unlikely]]
      found_alive(entry);
    // Not every object of that size is in regions of its own: an open TLAB takes what fits.
    if (size > core_.large_object_size() && tables_.region(entry).kind == RegionKind::kLarge)
        [[unlikely]] {
      if (size > 2 * kPart && Finder::traces_ranges(model_)) {
        for (Address part = entry; part < entry + size; part += kPart) push(part | kPartTag);
        return;
      }
    } else if (live_ != nullptr) {
      live_.get()[(entry - tables_.base) >> tables_.region_shift] += size;
    } else {
      __atomic_fetch_add(&tables_.region(entry).live, size, __ATOMIC_RELAXED);
    }
    model_.trace(at<void>(entry), header, Tracer{*this});
  }

  void trace_part(Address part) noexcept {
    const Address object = Finder::large_start(tables_, part);
    const Address end = object + tables_.region(object).large_size;
    Finder::trace_range(model_, object, load_word(object), part, std::min(end, part + kPart),
                        Tracer{*this});
  }

  void found_alive(Address object) noexcept {
    watched_->take(object,
                   [this](Address, Address value_slot) { visit_root(at<void>(value_slot)); });
  }

  void note_ephemeron(Address key_slot, Address value_slot) noexcept {
    const Address key = load_word(key_slot);
    if (key != 0 && !alive(key)) {
      if (watched_ != nullptr) {
        if (watched_->insert(key, key_slot, value_slot)) return;
      } else if (ephemerons_.push_pair(key_slot, value_slot)) {
        return;
      }
      push(key);
    }
    visit_root(at<void>(value_slot));
  }

  struct Free {
    void operator()(std::uint64_t* memory) const noexcept { std::free(memory); }
  };

  Core& core_;
  const Model& model_;
  const HeapTables tables_;
  PrefetchedStack<kParallel, 16> stack_;
  EphemeronTable* watched_ = nullptr;
  std::size_t marked_ = 0;
  WorkList weak_;
  WorkList ephemerons_;
  std::unique_ptr<std::uint64_t, Free> live_;
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_MARKING_H_
