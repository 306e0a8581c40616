// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_WORDS_H_
#define TOUCHSTONE_HEAP_DETAIL_WORDS_H_

#include <cstddef>
#include <cstdint>

/// How the collector reads and writes heap memory, whatever types the embedder gave it.
namespace touchstone::heap::detail {

using Address = std::uintptr_t;
using AliasedWord __attribute__((may_alias)) = std::uint64_t;

/// The collector's two bits of an object's first word; see ObjectModel.
inline constexpr std::uint64_t kForwardedBit = 1;  ///< The rest of the word is the new address.
inline constexpr std::uint64_t kKeptBit = 2;       ///< The object stays where it is.
inline constexpr std::uint64_t kCollectorBits = kForwardedBit | kKeptBit;

template <typename T>
[[gnu::always_inline]] inline T* at(Address address) noexcept {
  // Addresses are numbers here throughout, as tables are indexed by them.
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

[[gnu::always_inline]] inline Address address_of(const void* pointer) noexcept {
  return reinterpret_cast<Address>(pointer);
}

[[gnu::always_inline]] inline std::uint64_t load_word(Address address) noexcept {
  return *at<const AliasedWord>(address);
}
[[gnu::always_inline]] inline void store_word(Address address, std::uint64_t value) noexcept {
  *at<AliasedWord>(address) = value;
}
/// For what several workers may read and write at once; plain instructions all the same.
[[gnu::always_inline]] inline std::uint64_t load_shared(Address address) noexcept {
  return __atomic_load_n(at<const AliasedWord>(address), __ATOMIC_RELAXED);
}
[[gnu::always_inline]] inline void store_shared(Address address, std::uint64_t value) noexcept {
  __atomic_store_n(at<AliasedWord>(address), value, __ATOMIC_RELAXED);
}
[[gnu::always_inline]] inline std::uint64_t load_acquire(Address address) noexcept {
  return __atomic_load_n(at<const AliasedWord>(address), __ATOMIC_ACQUIRE);
}
/// On failure `expected` is what was there.
[[gnu::always_inline]] inline bool exchange_word(Address address, std::uint64_t& expected,
                                                 std::uint64_t desired) noexcept {
  return __atomic_compare_exchange_n(at<AliasedWord>(address), &expected, desired, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/// Copies an object but for its first word. Small ones are most: no call, no dispatch on the size.
/// With kShared the source may be an object that another worker keeps in place and updates; the
/// copy is then thrown away.
template <bool kShared>
[[gnu::always_inline]] inline void copy_body(Address to, Address from, std::size_t size) noexcept {
  if constexpr (!kShared) {
    if (size > 256) {
      __builtin_memcpy(at<void>(to + 8), at<const void>(from + 8), size - 8);
      return;
    }
  }
  for (std::size_t i = 8; i < size; i += 8) {
    const std::uint64_t word = kShared ? load_shared(from + i) : load_word(from + i);
    store_word(to + i, word);
    // Keeps the compiler from calling memcpy for three words.
    asm volatile("");
  }
}

[[gnu::always_inline]] inline void prefetch_for_write(Address address) noexcept {
  __builtin_prefetch(at<const void>(address), 1, 3);
}
[[gnu::always_inline]] inline void prefetch_for_read(Address address) noexcept {
  __builtin_prefetch(at<const void>(address), 0, 3);
}

[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) & ~(unit - 1);
}
[[nodiscard]] constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) noexcept {
  return value & ~(unit - 1);
}

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_WORDS_H_
