// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_COMPACTION_H_
#define TOUCHSTONE_HEAP_DETAIL_COMPACTION_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <touchstone/heap/detail/object_finder.h>
#include <touchstone/heap/detail/region.h>
#include <touchstone/heap/roots.h>

namespace touchstone::heap::detail {

/// One worker of the evacuation of sparse old regions: first what is alive in them is copied, then
/// every reference to it is updated, in two passes over addresses, not over the graph.
template <typename Core, typename Model>
class Compaction {
 public:
  using Finder = ObjectFinder<Model>;
  using Bits = typename Finder::Bits;

  Compaction(Core& core, const Model& model) noexcept
      : core_(core), model_(model), tables_(core.tables()) {}

  /// Regions are claimed whole, so headers and mark bits of what moves are this worker's alone.
  void move() noexcept {
    const auto& moving = core_.moving();
    for (;;) {
      const std::size_t index = core_.work().next_region.fetch_add(1, std::memory_order_relaxed);
      if (index >= moving.size()) return;
      move_region(moving[index]);
    }
  }
  void end_move() noexcept {
    core_.retire_buffer(kTargetOld, buffer_);
    core_.work().compacted.fetch_add(moved_, std::memory_order_relaxed);
    moved_ = 0;
  }

  void fix() noexcept {
    Roots roots(*this);
    core_.visit_roots(roots);
    for (Address region = core_.claim_region(); region != 0; region = core_.claim_region()) {
      fix_region(region);
    }
    fix_pending();
  }
  void fix_slot(Address slot) noexcept {
    const Address object = load_word(slot);
    if (object == 0 || tables_.target(object) != kTargetOld) return;
    const std::uint64_t header = load_word(object);
    if ((header & kForwardedBit) != 0) store_word(slot, header & ~kForwardedBit);
  }

 private:
  static constexpr std::size_t kPending = 16;

  struct Fixer {
    Compaction& self;
    [[gnu::always_inline]] void operator()(void* slot) const noexcept {
      const Address object = load_word(address_of(slot));
      if (object == 0 || self.tables_.target(object) != kTargetOld) return;
      prefetch_for_read(object);
      const Address earlier =
          std::exchange(self.pending_[self.pending_at_++ % kPending], address_of(slot));
      if (earlier != 0) self.fix_slot(earlier);
    }
    void weak(void* slot) const noexcept { (*this)(slot); }
    void ephemeron(void* key, void* value) const noexcept {
      (*this)(key);
      (*this)(value);
    }
  };

  class Roots final : public RootVisitor {
   public:
    explicit Roots(Compaction& self) noexcept : self_(self) {}
    void visit(void* slot) noexcept override { self_.fix_slot(address_of(slot)); }
    void visit_ambiguous(const void*, const void*) noexcept override {}

   private:
    Compaction& self_;
  };

  void move_region(Address bottom) noexcept {
    Region& region = tables_.region(bottom);
    bool full = false;
    std::uint64_t left = 0;
    Bits::each(tables_.marks, bottom, region.top, [&](Address object) {
      const std::uint64_t header = load_word(object);
      const std::size_t size = model_.size(at<const void>(object), header);
      if (!full && size > buffer_.end - buffer_.top) {
        core_.retire_buffer(kTargetOld, buffer_);
        buffer_ = core_.take_buffer(kTargetOld, size, std::max(size, tables_.region_size / 4));
        full = buffer_.top == 0;
      }
      if (full) {
        // The rest of the region stays as it is.
        left += size;
        return;
      }
      const Address to = buffer_.top;
      buffer_.top += size;
      copy_body<false>(to, object, size);
      store_word(to, header);
      store_word(object, to | kForwardedBit);
      Bits::set(tables_.marks, to);
      Bits::clear(tables_.marks, object);
      Finder::note_extent(tables_, to, size);
      moved_ += size;
    });
    if (full) {
      region.keeps = 1;
      region.live = left;
    }
  }

  void fix_region(Address bottom) noexcept {
    const Region& region = tables_.region(bottom);
    if (region.kind == RegionKind::kLarge) {
      if (!Bits::get(tables_.marks, bottom)) return;
      if (!Finder::traces_ranges(model_)) {
        model_.trace(at<void>(bottom), load_word(bottom), Fixer{*this});
        return;
      }
    }
    if (region.kind == RegionKind::kLarge || region.kind == RegionKind::kLargeTail) {
      if (Finder::traces_ranges(model_)) {
        const Address object = Finder::large_start(tables_, bottom);
        const Address end =
            std::min(bottom + tables_.region_size, object + tables_.region(object).large_size);
        if (end > bottom) {
          Finder::trace_range(model_, object, load_word(object), bottom, end, Fixer{*this});
        }
      }
      return;
    }
    if (region.kind != RegionKind::kOld) return;
    Bits::each(tables_.marks, bottom, region.top, [&](Address object) {
      model_.trace(at<void>(object), load_word(object), Fixer{*this});
    });
  }

  void fix_pending() noexcept {
    for (Address& slot : pending_) {
      if (const Address last = std::exchange(slot, 0); last != 0) fix_slot(last);
    }
  }

  Core& core_;
  const Model& model_;
  const HeapTables tables_;
  CopyBuffer buffer_{};
  std::size_t moved_ = 0;
  std::array<Address, kPending> pending_{};
  std::size_t pending_at_ = 0;
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_COMPACTION_H_
