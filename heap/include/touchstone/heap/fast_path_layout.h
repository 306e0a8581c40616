// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_FAST_PATH_LAYOUT_H_
#define TOUCHSTONE_HEAP_FAST_PATH_LAYOUT_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include <touchstone/arch/error.h>

namespace touchstone::heap {

/// Where the data lies that a mutator's fast paths work on: all that a code generator has to know
/// of the heap. A plain value; the heap publishes it, touchstone::jit and a runtime's own generator
/// emit code for it.
///
/// Offsets are bytes from the start of the mutator block, which every mutator thread has one of and
/// passes in a register. They are multiples of the size of what lies there, and at most
/// kMaxOffset.
///
/// What emitted code has to keep to:
///
/// - *Visibility.* A fresh object is the collector's from the mutator's next safepoint on: until
///   then its header is written, and what is not written yet is zero. Another thread sees it from
///   the store that publishes it on, which on arm64 has to have release order.
/// - *Initialising stores* need no barrier in an object of at most max_young_object bytes, until
///   the next safepoint. Larger objects are old at once, and so may be any object after a
///   safepoint: their stores are stores like others.
/// - *Stores* of a reference are followed by the barrier on the slot, whatever object it lies in.
///   It is precise: it is the card of the slot that counts, not that of the object's start. A swap
///   or a copy of a run of slots is a store; a compare-and-swap is one when it succeeds.
/// - *Safepoints* come neither between a store and its barrier, nor between an allocation and the
///   object's header.
struct FastPathLayout {
  /// The largest offset: what a single arm64 load pair reaches.
  static constexpr std::uint32_t kMaxOffset = 504;

  // ---- Allocation: a bump pointer in the thread-local allocation buffer (TLAB).

  /// Address of the next free byte (8 bytes). The address of the TLAB's end follows at once, so
  /// that one instruction loads both; at most kMaxOffset. The end is never below the next free
  /// byte.
  std::uint32_t tlab_top_offset = 0;
  /// Objects start at and are sized in multiples of this many bytes: a power of two from 8 on.
  std::uint32_t object_alignment = 16;
  /// Larger objects never go into a TLAB: bytes, below 16 MiB.
  std::uint32_t max_tlab_object = 1U << 15U;
  /// Larger objects are old from the start: bytes, at least max_tlab_object and below 2 GiB.
  std::uint32_t max_young_object = 1U << 15U;

  // ---- The write barrier: one byte for each card.

  /// Address of the card table, biased: the card of an address is the byte at
  /// that + (address >> card_shift).
  std::uint32_t card_table_offset = 0;
  /// log2 of the bytes of a card: 6 to 16.
  std::uint8_t card_shift = 9;
  /// What a card that has been written to holds, and what one that has not.
  std::uint8_t dirty_card = 0;
  std::uint8_t clean_card = 0xff;

  // ---- Marking: one bit for each possible object start.

  /// Address of the bitmap, biased: the bit of an address is bit (address >> mark_shift) % 64 of
  /// the 8-byte word at that + 8 * (address >> (mark_shift + 6)).
  std::uint32_t mark_bitmap_offset = 0;
  /// log2 of the bytes for which there is one bit: 3 to 12.
  std::uint8_t mark_shift = 4;

  // ---- Safepoints.

  /// 4 bytes that are not 0 while the mutator is asked to stop.
  std::uint32_t safepoint_flag_offset = 0;

  /// Whether initialising stores into an object of so many bytes need the barrier.
  [[nodiscard]] constexpr bool is_old_at_once(std::size_t size) const noexcept {
    return size > max_young_object;
  }

  /// Checks the ranges above. Errors: kMisaligned for an offset that is no multiple of what lies
  /// there; kOutOfRange for anything else, with the member named.
  [[nodiscard]] constexpr Result<> check() const noexcept {
    const auto error = [](ErrorCode code, const char* detail) {
      return std::unexpected(
          Error{.code = code, .operation = "FastPathLayout::check", .detail = detail});
    };
    if (tlab_top_offset % 8 != 0 || card_table_offset % 8 != 0 || mark_bitmap_offset % 8 != 0 ||
        safepoint_flag_offset % 4 != 0) {
      return error(ErrorCode::kMisaligned, "an offset is no multiple of what lies there");
    }
    if (tlab_top_offset > kMaxOffset || card_table_offset > kMaxOffset ||
        mark_bitmap_offset > kMaxOffset || safepoint_flag_offset > kMaxOffset) {
      return error(ErrorCode::kOutOfRange, "an offset is above kMaxOffset");
    }
    if (!std::has_single_bit(object_alignment) || object_alignment < 8) {
      return error(ErrorCode::kOutOfRange, "object_alignment");
    }
    if (max_tlab_object < object_alignment || max_tlab_object >= (1U << 24U)) {
      return error(ErrorCode::kOutOfRange, "max_tlab_object");
    }
    if (max_young_object < max_tlab_object || max_young_object >= (1U << 31U)) {
      return error(ErrorCode::kOutOfRange, "max_young_object");
    }
    if (card_shift < 6 || card_shift > 16) return error(ErrorCode::kOutOfRange, "card_shift");
    if (dirty_card == clean_card) return error(ErrorCode::kOutOfRange, "dirty_card");
    if (mark_shift < 3 || mark_shift > 12) return error(ErrorCode::kOutOfRange, "mark_shift");
    return {};
  }

  friend bool operator==(const FastPathLayout&, const FastPathLayout&) = default;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_FAST_PATH_LAYOUT_H_
