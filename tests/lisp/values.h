// SPDX-License-Identifier: MIT
// Step 1 of embedding the collector: what a value is, and the object model, which tells the
// collector how long an object is and where its references are.
#ifndef TOUCHSTONE_TESTS_LISP_VALUES_H_
#define TOUCHSTONE_TESTS_LISP_VALUES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <touchstone/heap/heap.h>

namespace touchstone::lisp {

/// | low bits | value |
/// |---|---|
/// | 1 | a number of 63 bits |
/// | 010 | a symbol |
/// | 110 | something that no program sees |
/// | 000 | nil, which is 0, or the address of an object |
using Value = std::uint64_t;

inline constexpr Value kNil = 0;
inline constexpr Value kTrue = 2;      // The symbol t, which is the first.
inline constexpr Value kFailed = 6;    // A primitive has met a fault.
inline constexpr Value kUnbound = 14;  // A global that has no value yet.
inline constexpr std::int64_t kMostNumber = (std::int64_t{1} << 62U) - 1;

[[nodiscard]] constexpr bool is_number(Value value) {
  return (value & 1U) != 0;
}
[[nodiscard]] constexpr bool is_symbol(Value value) {
  return (value & 7U) == 2;
}
[[nodiscard]] constexpr bool is_reference(Value value) {
  return value != 0 && (value & 7U) == 0;
}
[[nodiscard]] constexpr Value make_number(std::int64_t number) {
  return static_cast<Value>(number) << 1U | 1U;
}
[[nodiscard]] constexpr std::int64_t number_of(Value value) {
  return static_cast<std::int64_t>(value) >> 1U;
}
[[nodiscard]] constexpr Value make_symbol(std::uint64_t index) {
  return index << 3U | 2U;
}
[[nodiscard]] constexpr std::uint64_t symbol_of(Value value) {
  return value >> 3U;
}

enum class Kind : std::uint8_t {
  kPair = 1,  // Head, tail.
  kVector,    // The elements.
  kFunction,  // The address of its code as a number, then what it captured.
  kBox,       // A variable that is both captured and assigned.
  kFiller,    // The collector's.
};

/// Every object is a header and then values. Header: size in words from bit 8 on, header included;
/// kind from bit 2; the collector's bits.
struct Object {
  std::uint64_t header;

  [[nodiscard]] Value& operator[](std::size_t i) { return (&header)[1 + i]; }
  [[nodiscard]] std::size_t values() const { return (header >> 8U) - 1; }
};
[[nodiscard]] constexpr std::uint64_t header_of(Kind kind, std::size_t values) {
  return (values + 1) << 8U | std::uint64_t{static_cast<std::uint8_t>(kind)} << 2U;
}
[[nodiscard]] inline Object& object_of(Value value) {
  return *reinterpret_cast<Object*>(value);  // NOLINT(performance-no-int-to-ptr)
}
[[nodiscard]] inline bool is_kind(Value value, Kind kind) {
  return is_reference(value) && (object_of(value).header & 0xffU) == (header_of(kind, 0) & 0xffU);
}

/// The collector's view of it. A slot that holds no reference at present is not shown.
struct Model {
  static constexpr std::size_t kAlignment = 8;

  [[nodiscard]] std::size_t size(const void* /*object*/, std::uint64_t header) const noexcept {
    return (header >> 8U) * 8;
  }
  template <typename Visitor>
  void trace(void* object, std::uint64_t header, Visitor&& visit) const noexcept {
    trace_range(object, header, object, static_cast<std::byte*>(object) + size(object, header),
                visit);
  }
  /// A card in the middle of a long vector is scanned without the rest.
  template <typename Visitor>
  void trace_range(void* object, std::uint64_t header, void* begin, void* end,
                   Visitor&& visit) const noexcept {
    if (is_filler(object, header)) return;
    auto* const words = static_cast<Value*>(object);
    Value* const last = std::min(words + (header >> 8U), static_cast<Value*>(end));
    for (Value* slot = std::max(words + 1, static_cast<Value*>(begin)); slot < last; ++slot) {
      if (is_reference(__atomic_load_n(slot, __ATOMIC_RELAXED))) visit(slot);
    }
  }
  void write_filler(void* at, std::size_t size) const noexcept {
    static_cast<Object*>(at)->header = header_of(Kind::kFiller, size / 8 - 1);
  }
  [[nodiscard]] bool is_filler(const void* /*object*/, std::uint64_t header) const noexcept {
    return (header & 0xfcU) == (header_of(Kind::kFiller, 0) & 0xffU);
  }
};
static_assert(heap::ObjectModel<Model>);
using LispHeap = heap::Heap<Model>;

}  // namespace touchstone::lisp

#endif  // TOUCHSTONE_TESTS_LISP_VALUES_H_
