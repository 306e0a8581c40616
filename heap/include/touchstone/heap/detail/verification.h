// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_VERIFICATION_H_
#define TOUCHSTONE_HEAP_DETAIL_VERIFICATION_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include <touchstone/heap/detail/object_finder.h>
#include <touchstone/heap/detail/region.h>
#include <touchstone/heap/roots.h>

namespace touchstone::heap::detail {

/// Checks everything that is reachable, with structures of its own: that references lead to the
/// starts of allocated objects, that these have sane headers and sizes, that old objects have mark
/// bits, and that every reference from an old to a young object has its card marked.
template <typename Core, typename Model>
class Verification {
 public:
  using Finder = ObjectFinder<Model>;
  using Bits = typename Finder::Bits;

  Verification(Core& core, const Model& model)
      : core_(core),
        model_(model),
        tables_(core.tables()),
        end_(core.committed_end()),
        seen_((end_ - tables_.base) / Bits::kSpan),
        starts_(seen_.size()) {}

  /// Throws std::bad_alloc.
  void run() {
    note_young();
    Roots roots(*this);
    core_.visit_roots(roots);
    core_.each_weak_root([this](Address& value) { visit(0, &value); });
    while (!work_.empty()) {
      const Address object = work_.back();
      work_.pop_back();
      holder_ = object;
      model_.trace(at<void>(object), load_word(object), Fields{*this});
    }
  }

 private:
  struct Fields {
    Verification& self;
    void operator()(void* slot) const { self.visit(self.holder_, slot); }
    void weak(void* slot) const { self.visit(self.holder_, slot); }
    void ephemeron(void* key, void* value) const {
      self.visit(self.holder_, key);
      self.visit(self.holder_, value);
    }
  };
  class Roots final : public RootVisitor {
   public:
    explicit Roots(Verification& self) noexcept : self_(self) {}
    void visit(void* slot) noexcept override { self_.visit_root(slot); }
    void visit_ambiguous(const void*, const void*) noexcept override {}

   private:
    Verification& self_;
  };

  [[nodiscard]] std::uint64_t& word(std::vector<std::uint64_t>& bits, Address object) const {
    return bits[(object - tables_.base) / Bits::kSpan];
  }

  /// Where objects begin in the regions that are walked.
  void note_young() {
    for (Address bottom = tables_.base; bottom < end_; bottom += tables_.region_size) {
      const Region& region = tables_.region(bottom);
      if (region.kind == RegionKind::kFree || region.kind == RegionKind::kEden ||
          region.kind == RegionKind::kSurvivor) {
        Bits::each(tables_.marks, bottom, bottom + tables_.region_size, [&](Address object) {
          core_.report_violation("a mark bit in a region that has none", object, 0, 0);
        });
      }
      if (region.kind != RegionKind::kEden && region.kind != RegionKind::kSurvivor) continue;
      for (Address object = bottom; object < region.top;) {
        const std::size_t size = checked_size(object, region.top);
        if (size == 0) break;
        word(starts_, object) |= Bits::bit_of(object);
        object += size;
      }
    }
  }

  /// 0 after a report.
  std::size_t checked_size(Address object, Address limit) {
    const std::uint64_t header = load_word(object);
    const char* what = nullptr;
    std::size_t size = 0;
    if (header == 0) {
      what = "an object without a header";
    } else if ((header & kCollectorBits) != 0) {
      what = "a header with the collector's bits set";
    } else {
      size = model_.size(at<const void>(object), header);
      if (size == 0 || size % Model::kAlignment != 0) {
        what = "an object whose size is 0 or odd";
      } else if (size > limit - object) {
        what = "an object that is longer than its place";
      }
    }
    if (what == nullptr) return size;
    core_.report_violation(what, object, 0, header);
    return 0;
  }

  void visit_root(void* slot) noexcept {
    try {
      visit(0, slot);
    } catch (const std::bad_alloc&) {
      core_.report_violation("verification ran out of memory", 0, 0, 0);
    }
  }

  void visit(Address holder, void* slot) {
    const Address field = address_of(slot);
    const Address object = load_word(field);
    if (object == 0) return;
    const auto bad = [&](const char* what) { core_.report_violation(what, holder, field, object); };
    if (!tables_.in_heap(object)) return bad("a reference out of the heap");
    if (object % Model::kAlignment != 0) return bad("a misaligned reference");
    if (object >= end_) return bad("a reference to memory that is not committed");
    const Region& region = tables_.region(object);
    if (region.kind == RegionKind::kFree) return bad("a reference to free memory");
    if (region.kind == RegionKind::kLargeTail ||
        (region.kind == RegionKind::kLarge && object != tables_.bottom(object))) {
      return bad("a reference into the middle of an object");
    }
    if (object >= region.top && region.kind != RegionKind::kLarge) {
      return bad("a reference to memory that is not allocated");
    }
    const bool young = region.kind == RegionKind::kEden || region.kind == RegionKind::kSurvivor;
    if (young ? (word(starts_, object) & Bits::bit_of(object)) == 0
              : !Bits::get(tables_.marks, object)) {
      return bad("a reference to what is no object, or a dead one");
    }
    if (young && holder != 0 && tables_.target(holder) == kTargetStay &&
        tables_.card(field) != Mutator::kDirtyCard) {
      bad("a reference from an old object to a young one without a card mark");
    }
    std::uint64_t& seen = word(seen_, object);
    if ((seen & Bits::bit_of(object)) != 0) return;
    seen |= Bits::bit_of(object);
    const Address limit =
        region.kind == RegionKind::kLarge ? object + region.large_size : region.top;
    if (checked_size(object, limit) != 0) work_.push_back(object);
  }

  Core& core_;
  const Model& model_;
  const HeapTables tables_;
  const Address end_;
  std::vector<std::uint64_t> seen_;
  std::vector<std::uint64_t> starts_;
  std::vector<Address> work_;
  Address holder_ = 0;
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_VERIFICATION_H_
