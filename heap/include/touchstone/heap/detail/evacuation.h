// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_EVACUATION_H_
#define TOUCHSTONE_HEAP_DETAIL_EVACUATION_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <touchstone/heap/detail/ephemeron_table.h>
#include <touchstone/heap/detail/object_finder.h>
#include <touchstone/heap/detail/region.h>
#include <touchstone/heap/detail/work_stack.h>
#include <touchstone/heap/roots.h>

namespace touchstone::heap::detail {

/// One worker of a young collection: copies what is reachable out of the regions that are moved.
///
/// The work is slots that hold the address of an object that has to move. A slot that lies in an
/// old object is tagged, as its card has to be marked when its object stays young.
template <typename Core, typename Model, bool kParallel>
class Evacuation {
 public:
  using Finder = ObjectFinder<Model>;
  using Bits = typename Finder::Bits;

  Evacuation(Core& core, const Model& model, unsigned worker) noexcept
      : core_(core),
        model_(model),
        tables_(core.tables()),
        worker_(worker),
        stack_(core.chunks(), core.share(), worker),
        weak_(core.chunks()),
        ephemerons_(core.chunks()) {
    wanted_.fill(kFirstBuffer);
  }

  // ---- The phases

  void evacuate_roots() noexcept {
    Roots roots(*this);
    core_.visit_roots(roots);
    for (Address region = core_.claim_region(); region != 0; region = core_.claim_region()) {
      scan_cards(region);
    }
    drain();
  }

  /// Keeps an object of a region that is moved where it is. True for the one worker that did it.
  bool keep(Address object, std::uint64_t header) noexcept {
    if constexpr (kParallel) {
      if (!exchange_word(object, header, header | kKeptBit)) return false;
      (void)Bits::template test_and_set<true>(tables_.marks, object);
    } else {
      store_word(object, header | kKeptBit);
      (void)Bits::template test_and_set<false>(tables_.marks, object);
    }
    Region& region = tables_.region(object);
    __atomic_store_n(&region.keeps, std::uint8_t{1}, __ATOMIC_RELAXED);
    // Its region becomes old as a whole and all of its cards are marked: no tag.
    model_.trace(at<void>(object), header, Tracer{*this, 0});
    return true;
  }

  void drain() noexcept {
    stack_.drain([](Address entry) { prefetch_for_write(load_shared(entry & ~kOldTag)); },
                 [this](Address entry) { process(entry); });
  }

  /// Serial. Whatever the overflowing stacks lost is in an object that was copied or kept.
  void rescan(Address object, bool old) noexcept {
    model_.trace(at<void>(object), Finder::header_of(object), Tracer{*this, old ? kOldTag : 0});
  }

  // ---- Weak references and the like: serial, by one worker for all

  [[nodiscard]] bool alive(Address object) const noexcept {
    return (tables_.target(object) & kTargetMask) == 0 || (load_word(object) & kCollectorBits) != 0;
  }
  [[nodiscard]] static Address moved_to(Address object) noexcept {
    const std::uint64_t header = load_acquire(object);
    return (header & kForwardedBit) != 0 ? header & ~kForwardedBit : object;
  }
  /// Where an object that may have moved is now.
  [[nodiscard]] Address current(Address object) const noexcept {
    return (tables_.target(object) & kTargetMask) == 0 ? object : moved_to(object);
  }
  void visit_root(void* slot) noexcept { evacuate_slot(address_of(slot)); }
  /// Updates a slot whose object is alive, and marks its card if need be.
  void settle(Address slot) noexcept {
    const Address object = load_word(slot);
    if (object == 0) return;
    const Address now = current(object);
    if (now != object) store_word(slot, now);
    if (tables_.in_heap(slot) && tables_.target(slot) == kTargetStay &&
        tables_.target(now) != kTargetStay) {
      tables_.mark_card(slot);
    }
  }
  /// A slot that counts as a plain one after all. It is put on the stack, as chains of them are
  /// long; more than once perhaps, since a pair that lies on two cards is found on both.
  void strong_slot(Address slot) noexcept {
    const Address object = load_word(slot);
    if (object == 0) return;
    if ((tables_.target(object) & kTargetMask) != 0) {
      const bool old = tables_.in_heap(slot) && tables_.target(slot) == kTargetStay;
      if (stack_.push(slot | kAgainTag | (old ? kOldTag : 0))) return;
      evacuate_slot(slot);
    }
    settle(slot);
  }

  WorkList& weak_slots() noexcept { return weak_; }
  WorkList& ephemeron_slots() noexcept { return ephemerons_; }
  /// From now on every object that is copied or kept is looked up.
  void watch(EphemeronTable* table) noexcept { watched_ = table; }

  // ---- The end

  void retire_buffers() noexcept {
    for (std::uint8_t target = 1; target <= kTargetOld; ++target) {
      core_.retire_buffer(target, buffers_[target]);
    }
  }
  void finish() noexcept {
    retire_buffers();
    core_.work().copied.fetch_add(copied_, std::memory_order_relaxed);
    core_.work().promoted.fetch_add(promoted_, std::memory_order_relaxed);
    core_.work().dirty_cards.fetch_add(dirty_cards_, std::memory_order_relaxed);
  }

  /// An object that moves: where it is afterwards.
  Address evacuate(Address object, std::uint8_t target) noexcept {
    const std::uint64_t header = kParallel ? load_acquire(object) : load_word(object);
    if ((header & kCollectorBits) != 0) {
      return (header & kForwardedBit) != 0 ? header & ~kForwardedBit : object;
    }
    const std::size_t size = model_.size(at<const void>(object), header);
    target &= kTargetMask;
    CopyBuffer* buffer = &buffers_[target];
    Address to = buffer->top;
    bool own = true;
    if (size > buffer->end - to) [[unlikely]] {
      to = make_room(target, size, own);
      if (to == 0) {
        if (keep(object, header) && watched_ != nullptr) found_alive(object);
        return moved_to(object);
      }
      buffer = &buffers_[target];
    }
    copy_body<kParallel>(to, object, size);
    store_word(to, header);
    if constexpr (kParallel) {
      std::uint64_t expected = header;
      if (!exchange_word(object, expected, to | kForwardedBit)) {
        // Another worker was faster.
        if (!own) discard(target, to, size);
        return (expected & kForwardedBit) != 0 ? expected & ~kForwardedBit : object;
      }
    } else {
      store_word(object, to | kForwardedBit);
    }
    if (own) buffer->top = to + size;
    if (target == kTargetOld) {
      Bits::set(tables_.marks, to);
      Finder::note_extent(tables_, to, size);
      promoted_ += size;
      model_.trace(at<void>(to), header, Tracer{*this, kOldTag});
    } else {
      copied_ += size;
      model_.trace(at<void>(to), header, Tracer{*this, 0});
    }
    if (watched_ != nullptr) [[unlikely]]
      found_alive(object);
    return to;
  }

 private:
  static constexpr Address kOldTag = 1;    ///< The slot lies in an old object.
  static constexpr Address kAgainTag = 2;  ///< Perhaps it was updated already.
  static constexpr Address kTags = kOldTag | kAgainTag;
  static constexpr std::size_t kFirstBuffer = std::size_t{8} << 10U;

  /// Takes note of the slots of an object that was copied.
  struct Tracer {
    Evacuation& self;
    Address tag;
    [[gnu::always_inline]] void operator()(void* slot) const noexcept {
      const Address object = load_word(address_of(slot));
      if (object == 0) return;
      if ((self.tables_.target(object) & kTargetMask) == 0) {
        // Made young by this collection already, and referred to by an object promoted by it?
        // Only a rescan meets that.
        if (tag != 0 && self.tables_.target(object) != kTargetStay) {
          self.tables_.mark_card(address_of(slot));
        }
        return;
      }
      if (!self.stack_.push(address_of(slot) | tag)) [[unlikely]] {
        self.core_.work().overflowed.store(true, std::memory_order_relaxed);
      }
    }
    void weak(void* slot) const noexcept { self.note_weak(address_of(slot)); }
    void ephemeron(void* key, void* value) const noexcept {
      self.note_ephemeron(address_of(key), address_of(value));
    }
  };

  /// Evacuates at once what the slots of a dirty card hold.
  struct CardVisitor {
    Evacuation& self;
    bool& young;
    void operator()(void* slot) const noexcept {
      const Address object = load_word(address_of(slot));
      if (object == 0) return;
      const std::uint8_t target = self.tables_.target(object);
      if (target == kTargetStay) return;
      Address now = object;
      if ((target & kTargetMask) != 0) {
        now = self.evacuate(object, target);
        if (now != object) store_shared(address_of(slot), now);
      }
      if (self.tables_.target(now) == kTargetYoung) young = true;
    }
    void weak(void* slot) const noexcept { self.note_weak(address_of(slot)); }
    void ephemeron(void* key, void* value) const noexcept {
      self.note_ephemeron(address_of(key), address_of(value));
    }
  };

  class Roots final : public RootVisitor {
   public:
    explicit Roots(Evacuation& self) noexcept : self_(self) {}
    void visit(void* slot) noexcept override { self_.evacuate_slot(address_of(slot)); }
    void visit_ambiguous(const void*, const void*) noexcept override {}

   private:
    Evacuation& self_;
  };

  void evacuate_slot(Address slot) noexcept {
    const Address object = load_word(slot);
    if (object == 0) return;
    const std::uint8_t target = tables_.target(object);
    if ((target & kTargetMask) != 0) store_word(slot, evacuate(object, target));
  }

  [[gnu::always_inline]] void process(Address entry) noexcept {
    const Address slot = entry & ~kTags;
    const Address object = load_shared(slot);
    const std::uint8_t target = tables_.target(object);
    if ((entry & kAgainTag) != 0 && (target & kTargetMask) == 0) [[unlikely]]
      return;
    const Address now = evacuate(object, target);
    store_shared(slot, now);
    if ((entry & kOldTag) != 0 && tables_.target(now) == kTargetYoung) {
      tables_.mark_card(slot);
    }
  }

  /// Room where the buffer has none; `target` may change. With `own` it is at the top of the
  /// (new) buffer, else apart.
  [[gnu::noinline]] Address make_room(std::uint8_t& target, std::size_t size, bool& own) noexcept {
    for (;;) {
      CopyBuffer& buffer = buffers_[target];
      if (buffer.end - buffer.top >= size) return buffer.top;
      std::size_t& wanted = wanted_[target];
      if (size > wanted / 8) {
        // Rather apart than throw away what is left of the buffer.
        CopyBuffer apart = core_.take_buffer(target, size, size);
        if (apart.top != 0) {
          own = false;
          const Address to = apart.top;
          apart.top += size;
          core_.retire_buffer(target, apart);
          return to;
        }
      } else {
        core_.retire_buffer(target, buffer);
        wanted = std::min(wanted * 2, tables_.region_size / 4);
        buffer = core_.take_buffer(target, size, std::max(wanted, size));
        if (buffer.top != 0) return buffer.top;
      }
      if (target == kTargetOld) return 0;
      // No room for survivors: promoted early is better than not moved.
      target = kTargetOld;
    }
  }

  /// A copy that is not needed, apart from the buffer.
  void discard(std::uint8_t target, Address to, std::size_t size) noexcept {
    // Survivor regions are walked; in old ones it is nothing, having no mark bit.
    if (target != kTargetOld) model_.write_filler(at<void>(to), size);
  }

  void found_alive(Address object) noexcept {
    watched_->take(object, [this](Address key_slot, Address value_slot) {
      settle(key_slot);
      strong_slot(value_slot);
    });
  }

  void note_weak(Address slot) noexcept {
    const Address object = load_word(slot);
    if (object == 0 || tables_.target(object) == kTargetStay) return;
    // Without memory for the list it is a strong one.
    if (!weak_.push(slot)) strong_slot(slot);
  }

  void note_ephemeron(Address key_slot, Address value_slot) noexcept {
    const Address key = load_word(key_slot);
    if (watched_ != nullptr) {
      if (key != 0 && !alive(key) && watched_->insert(key, key_slot, value_slot)) return;
    } else if (key != 0 && (tables_.target(key) & kTargetMask) != 0) {
      // Whether it is alive will be seen when everybody is done.
      if (ephemerons_.push_pair(key_slot, value_slot)) return;
    }
    strong_slot(key_slot);
    strong_slot(value_slot);
  }

  void scan_cards(Address bottom) noexcept {
    const Region& region = tables_.region(bottom);
    if (region.scanned_in != core_.work().report.number) return;
    Address large = 0;
    Address end = region.scan_end;
    if (region.kind == RegionKind::kLarge || region.kind == RegionKind::kLargeTail) {
      large = Finder::large_start(tables_, bottom);
      end = std::min(bottom + tables_.region_size, large + tables_.region(large).large_size);
    } else if (region.kind != RegionKind::kOld) {
      return;
    }
    if (end <= bottom) return;
    constexpr Address group = 8 * Finder::kCard;
    static_assert(Mutator::kDirtyCard == 0 && Mutator::kCleanCard == 0xff);
    constexpr Address line = 8 * group;
    const auto eight_cards = [&](Address eight) {
      return load_shared(address_of(&tables_.card(eight)));
    };
    for (Address eight = bottom; eight < end; eight += group) {
      // All clean is what nearly all are: a cache line of cards at a time. Behind `end` there are
      // cards of the same region.
      if (eight % line == 0) {
        // Where the hardware's own prefetch ends, at the end of a page, this goes on.
        prefetch_for_read(address_of(&tables_.card(eight)) + 1024);
        std::uint64_t all = ~std::uint64_t{0};
        for (Address i = 0; i < line; i += group) all &= eight_cards(eight + i);
        if (all == ~std::uint64_t{0}) {
          eight += line - group;
          continue;
        }
      }
      if (eight_cards(eight) == ~std::uint64_t{0}) continue;
      const Address stop = std::min(end, eight + group);
      for (Address card = eight; card < stop; card += Finder::kCard) {
        if (tables_.card_value(card) == Mutator::kDirtyCard) {
          scan_card(card, std::min(end, card + Finder::kCard), large);
        }
      }
    }
  }

  void scan_card(Address begin, Address end, Address large) noexcept {
    ++dirty_cards_;
    tables_.set_card(begin, Mutator::kCleanCard);
    bool young = false;
    CardVisitor visitor{*this, young};
    if (large != 0) {
      Finder::trace_range(model_, large, Finder::header_of(large), begin, end, visitor);
    } else {
      if (const Address over = Finder::object_over(model_, tables_, begin); over != 0) {
        Finder::trace_range(model_, over, Finder::header_of(over), begin, end, visitor);
      }
      Bits::each(tables_.marks, begin, end, [&](Address object) {
        const std::uint64_t header = Finder::header_of(object);
        if (object + model_.size(at<const void>(object), header) <= end) {
          model_.trace(at<void>(object), header, visitor);
        } else {
          Finder::trace_range(model_, object, header, begin, end, visitor);
        }
      });
    }
    if (young) tables_.mark_card(begin);
  }

  Core& core_;
  const Model& model_;
  const HeapTables tables_;
  const unsigned worker_;
  PrefetchedStack<kParallel, 8> stack_;
  std::array<CopyBuffer, kTargetOld + 1> buffers_{};
  EphemeronTable* watched_ = nullptr;
  std::size_t copied_ = 0;
  std::size_t promoted_ = 0;
  std::size_t dirty_cards_ = 0;
  std::array<std::size_t, kTargetOld + 1> wanted_{};
  WorkList weak_;
  WorkList ephemerons_;
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_EVACUATION_H_
