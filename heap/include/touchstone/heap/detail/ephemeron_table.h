// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_EPHEMERON_TABLE_H_
#define TOUCHSTONE_HEAP_DETAIL_EPHEMERON_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include <touchstone/arch/export.h>
#include <touchstone/heap/detail/words.h>

namespace touchstone::heap::detail {

/// Ephemerons whose key has not been found alive, by key: each is looked at once when it is put in
/// and once when its key turns out alive, however long the chains are.
class TOUCHSTONE_API EphemeronTable {
 public:
  /// False if there was no memory.
  [[nodiscard]] bool insert(Address key, Address key_slot, Address value_slot) noexcept;
  /// Takes out all of a key, and calls use(key_slot, value_slot) for each.
  template <typename Use>
  void take(Address key, Use&& use) {
    if (count_ == 0) return;
    std::uint32_t* link = &buckets_[bucket(key)];
    // Gathered first: what `use` does may insert.
    std::uint32_t taken = 0;
    while (*link != 0) {
      Entry& entry = entries_[*link - 1];
      if (entry.key != key) {
        link = &entry.next;
        continue;
      }
      const std::uint32_t index = *link;
      *link = entry.next;
      entry.next = taken;
      taken = index;
    }
    while (taken != 0) {
      const Entry entry = entries_[taken - 1];
      entries_[taken - 1].key = 0;
      taken = entry.next;
      --count_;
      use(entry.key_slot, entry.value_slot);
    }
  }
  /// Those whose keys are dead.
  template <typename Use>
  void each(Use&& use) const {
    for (std::uint32_t i = 0; i < used_; ++i) {
      if (entries_[i].key != 0) use(entries_[i].key_slot, entries_[i].value_slot);
    }
  }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  void clear() noexcept;

 private:
  struct Entry {
    Address key = 0;  // 0: taken out.
    Address key_slot = 0;
    Address value_slot = 0;
    std::uint32_t next = 0;
  };
  [[nodiscard]] std::size_t bucket(Address key) const noexcept {
    return (key >> 3U) * 0x9e3779b97f4a7c15ULL >> shift_;
  }
  bool grow() noexcept;

  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<std::uint32_t[]> buckets_;
  std::uint32_t capacity_ = 0;
  std::uint32_t used_ = 0;
  std::uint32_t count_ = 0;
  unsigned shift_ = 63;
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_EPHEMERON_TABLE_H_
