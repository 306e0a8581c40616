// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_OBJECT_HEADER_H_
#define TOUCHSTONE_HEAP_OBJECT_HEADER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <touchstone/heap/detail/words.h>

namespace touchstone::heap {

/// A ready-made header of one word, for runtimes that have none of their own.
///
/// An object is this header, then `references` references, then bytes without references. The
/// header tells all the collector needs, so that nothing else of an object is read:
///
/// | bits | |
/// |---|---|
/// | 0-1 | the collector's |
/// | 2-3 | Kind |
/// | 4-39 | size in words of 8 bytes, header included: up to 512 GiB |
/// | 40-62 | references, up to 2^23 - 1; with kArray the embedder's |
/// | 63 | a filler |
class ObjectHeader {
 public:
  enum class Kind : std::uint8_t {
    kRecord = 1,     ///< References first, then bytes.
    kArray = 2,      ///< References alone, as many as there is room for.
    kEphemeron = 3,  ///< Key, value, then references and bytes as in a record.
    kWeak = 0,       ///< A weak reference, then references and bytes as in a record.
  };
  static constexpr std::uint64_t kMaxSize = std::uint64_t{8} << 36U;
  static constexpr std::uint64_t kMaxReferences = (std::uint64_t{1} << 23U) - 1;
  static constexpr std::uint64_t kFillerBit = std::uint64_t{1} << 63U;

  constexpr explicit ObjectHeader(std::uint64_t word) noexcept : word_(word) {}

  /// `size` in bytes, a multiple of 8 and less than kMaxSize. For kEphemeron and kWeak the special
  /// references are not counted.
  [[nodiscard]] static constexpr ObjectHeader make(Kind kind, std::size_t size,
                                                   std::size_t references = 0) noexcept {
    return ObjectHeader(std::uint64_t{static_cast<std::uint8_t>(kind)} << 2U |
                        std::uint64_t{size / 8} << 4U | std::uint64_t{references} << 40U);
  }
  [[nodiscard]] static constexpr ObjectHeader record(std::size_t size,
                                                     std::size_t references) noexcept {
    return make(Kind::kRecord, size, references);
  }
  /// An array of so many references.
  [[nodiscard]] static constexpr ObjectHeader array(std::size_t references) noexcept {
    return make(Kind::kArray, 8 + references * 8);
  }

  [[nodiscard]] constexpr std::uint64_t word() const noexcept { return word_; }
  [[nodiscard]] constexpr Kind kind() const noexcept { return static_cast<Kind>(word_ >> 2U & 3U); }
  /// Bytes, header included.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    return (word_ >> 4U & 0xf'ffff'ffffU) * 8;
  }
  /// Plain references, which for kEphemeron and kWeak follow the special ones.
  [[nodiscard]] constexpr std::size_t references() const noexcept {
    return kind() == Kind::kArray ? size() / 8 - 1 : word_ >> 40U & kMaxReferences;
  }
  /// Words between the header and the plain references.
  [[nodiscard]] constexpr std::size_t special_words() const noexcept {
    constexpr std::size_t words[4] = {1, 0, 0, 2};
    return words[word_ >> 2U & 3U];
  }

 private:
  std::uint64_t word_;
};

/// The ObjectModel of ObjectHeader. Objects are aligned to `Alignment` bytes; with 16, sizes are
/// rounded up to that.
template <std::size_t Alignment = 8>
struct HeaderModel {
  static constexpr std::size_t kAlignment = Alignment;

  [[nodiscard]] std::size_t size(const void* /*object*/, std::uint64_t header) const noexcept {
    return detail::round_up(ObjectHeader(header).size(), Alignment);
  }

  template <typename Visitor>
  [[gnu::always_inline]] void trace(void* object, std::uint64_t header,
                                    Visitor&& visit) const noexcept {
    const ObjectHeader head(header);
    auto* const words = static_cast<std::byte*>(object) + 8;
    std::size_t begin = 0;
    if (head.kind() == ObjectHeader::Kind::kEphemeron) {
      visit.ephemeron(words, words + 8);
      begin = 2;
    } else if (head.kind() == ObjectHeader::Kind::kWeak) {
      visit.weak(words);
      begin = 1;
    }
    const std::size_t end = begin + head.references();
    for (std::size_t i = begin; i < end; ++i) visit(words + i * 8);
  }

  template <typename Visitor>
  void trace_range(void* object, std::uint64_t header, void* begin, void* end,
                   Visitor&& visit) const noexcept {
    const ObjectHeader head(header);
    auto* const words = static_cast<std::byte*>(object) + 8;
    auto* const first = static_cast<std::byte*>(begin);
    auto* const last = static_cast<std::byte*>(end);
    const auto holds = [&](const std::byte* slot) { return slot >= first && slot < last; };
    if (head.kind() == ObjectHeader::Kind::kEphemeron) {
      // A pair counts for both of its cards.
      if (holds(words) || holds(words + 8)) visit.ephemeron(words, words + 8);
    } else if (head.kind() == ObjectHeader::Kind::kWeak) {
      if (holds(words)) visit.weak(words);
    }
    auto* const plain = words + head.special_words() * 8;
    auto* const plain_end = plain + head.references() * 8;
    std::byte* const stop = std::min(plain_end, last);
    for (std::byte* slot = std::max(plain, first); slot < stop; slot += 8) visit(slot);
  }

  void write_filler(void* at, std::size_t size) const noexcept {
    detail::store_word(detail::address_of(at),
                       ObjectHeader::record(size, 0).word() | ObjectHeader::kFillerBit);
  }
  [[nodiscard]] bool is_filler(const void* /*object*/, std::uint64_t header) const noexcept {
    return (header & ObjectHeader::kFillerBit) != 0;
  }
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_OBJECT_HEADER_H_
