// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include <touchstone/heap/detail/ephemeron_table.h>

namespace touchstone::heap::detail {

bool EphemeronTable::grow() noexcept {
  constexpr std::uint32_t kFirst = 64;
  constexpr std::uint32_t kMost = std::uint32_t{1} << 31U;
  if (capacity_ >= kMost) return false;
  const std::uint32_t capacity = capacity_ == 0 ? kFirst : capacity_ * 2;
  std::unique_ptr<Entry[]> entries(new (std::nothrow) Entry[capacity]);
  std::unique_ptr<std::uint32_t[]> buckets(new (std::nothrow) std::uint32_t[capacity]());
  if (!entries || !buckets) return false;
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(capacity));
  std::uint32_t used = 0;
  for (std::uint32_t i = 0; i < used_; ++i) {
    if (entries_[i].key == 0) continue;
    Entry& entry = entries[used++];
    entry = entries_[i];
    std::uint32_t& head = buckets[bucket(entry.key)];
    entry.next = std::exchange(head, used);
  }
  entries_ = std::move(entries);
  buckets_ = std::move(buckets);
  capacity_ = capacity;
  used_ = used;
  return true;
}

bool EphemeronTable::insert(Address key, Address key_slot, Address value_slot) noexcept {
  if (used_ == capacity_ && !grow()) return false;
  Entry& entry = entries_[used_++];
  entry = {.key = key, .key_slot = key_slot, .value_slot = value_slot};
  entry.next = std::exchange(buckets_[bucket(key)], used_);
  ++count_;
  return true;
}

void EphemeronTable::clear() noexcept {
  entries_.reset();
  buckets_.reset();
  capacity_ = used_ = count_ = 0;
}

}  // namespace touchstone::heap::detail
