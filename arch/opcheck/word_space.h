// SPDX-License-Identifier: MIT
// The instruction words that a sweep goes through, in chunks that can be done in any order.
#ifndef TOUCHSTONE_ARCH_OPCHECK_WORD_SPACE_H_
#define TOUCHSTONE_ARCH_OPCHECK_WORD_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace touchstone::arch::opcheck {

/// A set of words, each in exactly one chunk. Immutable, so that all threads may read it.
class WordSpace {
 public:
  WordSpace() = default;
  WordSpace(const WordSpace&) = delete;
  WordSpace& operator=(const WordSpace&) = delete;
  virtual ~WordSpace() = default;

  /// A name under which a saved state is found to belong to it.
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::size_t chunk_count() const = 0;
  /// How many words a chunk holds.
  [[nodiscard]] virtual std::uint64_t chunk_size(std::size_t chunk) const = 0;
  /// Replaces `words` by those of the chunk.
  virtual void fill(std::size_t chunk, std::vector<std::uint32_t>& words) const = 0;

  /// How many words it holds in all.
  [[nodiscard]] std::uint64_t size() const;
};

/// All 2^32 words.
class AllWords final : public WordSpace {
 public:
  std::string_view name() const override { return "all"; }
  std::size_t chunk_count() const override;
  std::uint64_t chunk_size(std::size_t chunk) const override;
  void fill(std::size_t chunk, std::vector<std::uint32_t>& words) const override;
};

/// Every value of the bits that are no register number, with several values for each register
/// field. In the load/store space 31:21 and 15:10 are taken in full, which includes the second
/// register of a pair; so is all but Rt of the system instructions. Elsewhere, where no word of the
/// table lies, the registers take two values each.
class SampleWords final : public WordSpace {
 public:
  std::string_view name() const override { return "sample"; }
  std::size_t chunk_count() const override { return 256; }
  std::uint64_t chunk_size(std::size_t chunk) const override;
  void fill(std::size_t chunk, std::vector<std::uint32_t>& words) const override;
};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_WORD_SPACE_H_
