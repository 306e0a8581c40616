// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_REGION_H_
#define TOUCHSTONE_HEAP_DETAIL_REGION_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include <touchstone/heap/detail/words.h>
#include <touchstone/heap/mutator.h>

namespace touchstone::heap::detail {

enum class RegionKind : std::uint8_t {
  kFree,       ///< Must be 0: the table is fresh memory.
  kEden,       ///< TLABs.
  kSurvivor,   ///< Objects that have survived Region::age young collections.
  kOld,        ///< Promoted objects.
  kLarge,      ///< The first region of a large object.
  kLargeTail,  ///< The others.
};

/// One line of the region table. In old and large regions a set mark bit is a live object's start;
/// in all others every mark bit is clear. Eden and survivor regions are walked object by object.
struct alignas(64) Region {
  Address top = 0;         ///< The end of what is allocated.
  Address scan_end = 0;    ///< Old: where the running collection's own allocation begins.
  std::uint64_t live = 0;  ///< Bytes; of an old region since the last marking, promoted included.
  std::uint64_t large_size = 0;     ///< kLarge: bytes of the object.
  std::uint32_t large_regions = 0;  ///< kLarge: how many; kLargeTail: how far back the first is.
  RegionKind kind = RegionKind::kFree;
  std::uint8_t age = 0;
  std::uint8_t keeps = 0;   ///< Objects stay here that were to be moved; set by any worker.
  std::uint8_t pinned = 0;  ///< Ambiguous roots hit it in this collection.
  std::uint8_t zeroed = 0;  ///< Free, and never used since it was committed.
  /// Number of the last young collection that found it old and scans its cards. The rest of a line
  /// that has another number may be changed by other workers at any time.
  std::uint64_t scanned_in = 0;
};
static_assert(sizeof(Region) == 64);

/// What evacuation_targets holds for a region.
enum Target : std::uint8_t {
  kTargetStay = 0,     ///< Not young.
  kTargetMaxAge = 4,   ///< 1 to this: moved, to survivors of that age.
  kTargetOld = 5,      ///< Moved, to an old region.
  kTargetMask = 7,     ///< Any of these bits: is moved.
  kTargetYoung = 0x40  ///< Young, and not moved: made by this collection.
};

/// Room that a worker copies into.
struct CopyBuffer {
  Address begin = 0;
  Address top = 0;
  Address end = 0;
};

/// Where the tables are. Biased by the heap's address, so that an address shifted is an index.
struct HeapTables {
  Address base = 0;
  Address end = 0;  ///< Of the reservation.
  std::size_t region_size = 0;
  unsigned region_shift = 0;
  unsigned mark_shift = 0;  ///< log2 of the object alignment.
  Address cards = 0;        ///< A byte a card.
  Address crossing = 0;  ///< A byte a card: how far back the object begins that covers its start.
  Address marks = 0;     ///< 8-byte words.
  Address targets = 0;   ///< A byte a region: Target.
  Address regions = 0;   ///< Region.

  [[gnu::always_inline]] std::uint8_t& card(Address address) const noexcept {
    return *at<std::uint8_t>(cards + (address >> Mutator::kCardShift));
  }
  [[gnu::always_inline]] std::uint8_t card_value(Address address) const noexcept {
    return __atomic_load_n(&card(address), __ATOMIC_RELAXED);
  }
  [[gnu::always_inline]] void set_card(Address address, std::uint8_t value) const noexcept {
    __atomic_store_n(&card(address), value, __ATOMIC_RELAXED);
  }
  [[gnu::always_inline]] void mark_card(Address address) const noexcept {
    set_card(address, Mutator::kDirtyCard);
  }
  [[gnu::always_inline]] std::uint8_t& crossing_of(Address address) const noexcept {
    return *at<std::uint8_t>(crossing + (address >> Mutator::kCardShift));
  }
  [[gnu::always_inline]] std::uint8_t& target(Address address) const noexcept {
    return *at<std::uint8_t>(targets + (address >> region_shift));
  }
  [[gnu::always_inline]] Region& region(Address address) const noexcept {
    return *at<Region>(regions + (address >> region_shift) * sizeof(Region));
  }
  [[gnu::always_inline]] Address bottom(Address address) const noexcept {
    return round_down(address, region_size);
  }
  [[nodiscard]] bool in_heap(Address address) const noexcept { return address - base < end - base; }
};

/// Mark bits for objects aligned to 1 << Shift bytes.
template <unsigned Shift>
struct MarkBits {
  /// Bytes for which there is one word of bits.
  static constexpr std::size_t kSpan = std::size_t{64} << Shift;

  [[gnu::always_inline]] static Address word_of(Address marks, Address object) noexcept {
    return marks + (object >> (Shift + 6)) * 8;
  }
  [[gnu::always_inline]] static std::uint64_t bit_of(Address object) noexcept {
    return std::uint64_t{1} << (object >> Shift & 63U);
  }
  [[gnu::always_inline]] static bool get(Address marks, Address object) noexcept {
    return (load_shared(word_of(marks, object)) & bit_of(object)) != 0;
  }
  /// For words that no other thread writes.
  [[gnu::always_inline]] static void set(Address marks, Address object) noexcept {
    const Address word = word_of(marks, object);
    store_word(word, load_word(word) | bit_of(object));
  }
  [[gnu::always_inline]] static void clear(Address marks, Address object) noexcept {
    const Address word = word_of(marks, object);
    store_word(word, load_word(word) & ~bit_of(object));
  }
  /// True for the one that set it.
  template <bool kParallel>
  [[gnu::always_inline]] static bool test_and_set(Address marks, Address object) noexcept {
    const Address word = word_of(marks, object);
    const std::uint64_t bit = bit_of(object);
    if constexpr (kParallel) {
      if ((load_shared(word) & bit) != 0) return false;
      return (__atomic_fetch_or(at<AliasedWord>(word), bit, __ATOMIC_RELAXED) & bit) == 0;
    } else {
      const std::uint64_t old = load_word(word);
      if ((old & bit) != 0) return false;
      store_word(word, old | bit);
      return true;
    }
  }

  /// Calls use(object) for each set bit of [begin, end), which are multiples of kSpan or, with
  /// begin inside a word, of the alignment.
  template <typename Use>
  static void each(Address marks, Address begin, Address end, Use&& use) {
    for (Address at_word = round_down(begin, kSpan); at_word < end; at_word += kSpan) {
      std::uint64_t bits = load_word(word_of(marks, at_word));
      if (at_word < begin) bits &= ~std::uint64_t{0} << (begin >> Shift & 63U);
      if (end - at_word < kSpan) bits &= (std::uint64_t{1} << (end >> Shift & 63U)) - 1;
      while (bits != 0) {
        const auto index = static_cast<unsigned>(std::countr_zero(bits));
        bits &= bits - 1;
        use(at_word + (std::size_t{index} << Shift));
      }
    }
  }
  /// The last set bit before `end` in the word that ends there or that holds it; 0 if none.
  static Address last_before(Address marks, Address begin, Address end) noexcept {
    const Address at_word = round_down(end - 1, kSpan);
    std::uint64_t bits = load_word(word_of(marks, at_word));
    if (end - at_word < kSpan) bits &= (std::uint64_t{1} << (end >> Shift & 63U)) - 1;
    if (at_word < begin) bits &= ~std::uint64_t{0} << (begin >> Shift & 63U);
    if (bits == 0) return 0;
    return at_word + (static_cast<std::size_t>(63 - std::countl_zero(bits)) << Shift);
  }
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_REGION_H_
