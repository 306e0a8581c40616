// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_OBJECT_FINDER_H_
#define TOUCHSTONE_HEAP_DETAIL_OBJECT_FINDER_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <touchstone/heap/detail/region.h>
#include <touchstone/heap/object_model.h>

namespace touchstone::heap::detail {

/// Objects by address: sizes, and which object an address lies in.
template <typename Model>
struct ObjectFinder {
  static constexpr unsigned kShift = static_cast<unsigned>(std::countr_zero(Model::kAlignment));
  using Bits = MarkBits<kShift>;
  static constexpr std::size_t kCard = std::size_t{1} << Mutator::kCardShift;
  /// What a byte of the crossing map can tell: so many cards back, and look again there.
  static constexpr std::size_t kMaxCrossing = 255;

  static std::uint64_t header_of(Address object) noexcept {
    return load_word(object) & ~kCollectorBits;
  }
  static std::size_t size_of(const Model& model, Address object) noexcept {
    return model.size(at<const void>(object), header_of(object));
  }

  /// Takes note of an object in an old region. Only what covers the starts of two cards or more
  /// goes into the crossing map; the rest is found by its mark bit.
  [[gnu::always_inline]] static void note_extent(const HeapTables& tables, Address object,
                                                 std::size_t size) noexcept {
    if (size > kCard) [[unlikely]]
      note_cards(tables, object, size);
  }
  [[gnu::noinline]] static void note_cards(const HeapTables& tables, Address object,
                                           std::size_t size) noexcept {
    const Address first = object >> Mutator::kCardShift;
    const Address last = (object + size - 1) >> Mutator::kCardShift;
    for (Address card = first + 1; card <= last; ++card) {
      *at<std::uint8_t>(tables.crossing + card) =
          static_cast<std::uint8_t>(std::min<Address>(card - first, kMaxCrossing));
    }
  }

  /// The live object of an old region that begins before `address` and reaches beyond it; 0 if
  /// there is none. A stale byte of the crossing map does no harm: what it leads to is not marked,
  /// or is too short.
  static Address object_over(const Model& model, const HeapTables& tables,
                             Address address) noexcept {
    const Address bottom = tables.bottom(address);
    if (address == bottom) return 0;
    Address found =
        Bits::last_before(tables.marks, std::max(bottom, round_down(address, kCard)), address);
    if (found == 0) {
      // It begins before this card.
      Address card = round_down(address, kCard);
      while (card > bottom) {
        const std::uint8_t back = tables.crossing_of(card);
        const Address from =
            back != 0 ? card - std::min<Address>(back * kCard, card - bottom) : card - kCard;
        found = Bits::last_before(tables.marks, from, std::min(from + kCard, address));
        // Only a byte that could not tell the whole way leads to a card without a start.
        if (found != 0 || back != kMaxCrossing) break;
        card = from;
      }
    }
    if (found == 0) return 0;
    return address - found < size_of(model, found) ? found : 0;
  }

  /// The live object of an old or large region that an address lies in; 0 if none.
  static Address object_at(const Model& model, const HeapTables& tables, Address address) noexcept {
    const Region& region = tables.region(address);
    if (region.kind == RegionKind::kLarge || region.kind == RegionKind::kLargeTail) {
      const Address start = large_start(tables, address);
      return Bits::get(tables.marks, start) && address - start < tables.region(start).large_size
                 ? start
                 : 0;
    }
    if (region.kind != RegionKind::kOld || address >= region.top) return 0;
    const Address start = round_down(address, Model::kAlignment);
    if (Bits::get(tables.marks, start)) return start;
    return object_over(model, tables, start);
  }

  static Address large_start(const HeapTables& tables, Address address) noexcept {
    const Address bottom = tables.bottom(address);
    const Region& region = tables.region(address);
    if (region.kind == RegionKind::kLarge) return bottom;
    return bottom - std::uint64_t{region.large_regions} * tables.region_size;
  }

  /// Whether parts of an object can be traced without the rest.
  [[gnu::always_inline]] static bool traces_ranges(const Model& model) noexcept {
    if constexpr (RangeTelling<Model>) {
      return model.traces_ranges();
    } else {
      return RangeTracing<Model>;
    }
  }

  /// Calls trace for the slots in [begin, end) alone.
  template <typename Visitor>
  static void trace_range(const Model& model, Address object, std::uint64_t header, Address begin,
                          Address end, Visitor&& visit) noexcept {
    if constexpr (RangeTracing<Model>) {
      if (traces_ranges(model)) {
        model.trace_range(at<void>(object), header, at<void>(begin), at<void>(end), visit);
        return;
      }
    }
    model.trace(at<void>(object), header, RangeFilter<Visitor>{visit, begin, end});
  }

 private:
  template <typename Visitor>
  struct RangeFilter {
    Visitor& visit;
    Address begin;
    Address end;
    [[nodiscard]] bool holds(const void* slot) const noexcept {
      return address_of(slot) - begin < end - begin;
    }
    void operator()(void* slot) const noexcept {
      if (holds(slot)) visit(slot);
    }
    void weak(void* slot) const noexcept {
      if (holds(slot)) visit.weak(slot);
    }
    void ephemeron(void* key, void* value) const noexcept {
      if (holds(key) || holds(value)) visit.ephemeron(key, value);
    }
  };
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_OBJECT_FINDER_H_
