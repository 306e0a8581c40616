// SPDX-License-Identifier: MIT
#include "word_space.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace touchstone::arch::opcheck {
namespace {

constexpr unsigned kChunkBits = 18;

// Registers: zero, low ones of both parities, those about the bound of ST64B, the highest even one,
// and 31. That makes them equal, apart, even, odd, and both register 31's meanings.
constexpr std::uint32_t kTransfer[] = {0, 1, 2, 3, 21, 22, 23, 24, 30, 31};
constexpr std::uint32_t kBase[] = {0, 1, 2, 30, 31};
constexpr std::uint32_t kSource[] = {0, 1, 2, 3, 30, 31};
constexpr std::uint32_t kEnds[] = {0, 31};

// The values that a chunk, which is a value of bits 31:24, gives its register fields.
struct Fields {
  std::span<const std::uint32_t> rt;
  std::span<const std::uint32_t> rn;
  std::span<const std::uint32_t> rs;
};

Fields fields_of(std::size_t chunk) {
  // Bit 27 set and bit 25 clear are the loads and stores.
  if ((chunk & 0x0aU) == 0x08U) return {kTransfer, kBase, kSource};
  return {kEnds, kEnds, kEnds};
}

bool is_system(std::size_t chunk) {
  return chunk == 0xd5;
}

}  // namespace

std::uint64_t WordSpace::size() const {
  std::uint64_t total = 0;
  for (std::size_t chunk = 0; chunk < chunk_count(); ++chunk) total += chunk_size(chunk);
  return total;
}

std::size_t AllWords::chunk_count() const {
  return std::size_t{1} << (32 - kChunkBits);
}

std::uint64_t AllWords::chunk_size(std::size_t /*chunk*/) const {
  return std::uint64_t{1} << kChunkBits;
}

void AllWords::fill(std::size_t chunk, std::vector<std::uint32_t>& words) const {
  words.resize(std::size_t{1} << kChunkBits);
  auto word = static_cast<std::uint32_t>(chunk << kChunkBits);
  for (std::uint32_t& entry : words) entry = word++;
}

std::uint64_t SampleWords::chunk_size(std::size_t chunk) const {
  if (is_system(chunk)) return (std::uint64_t{1} << 19) * std::size(kEnds);
  const Fields fields = fields_of(chunk);
  return std::uint64_t{512} * fields.rt.size() * fields.rn.size() * fields.rs.size();
}

void SampleWords::fill(std::size_t chunk, std::vector<std::uint32_t>& words) const {
  words.clear();
  words.reserve(chunk_size(chunk));
  const auto top = static_cast<std::uint32_t>(chunk << 24);
  if (is_system(chunk)) {
    for (std::uint32_t middle = 0; middle < (1U << 19); ++middle) {
      for (const std::uint32_t rt : kEnds) words.push_back(top | middle << 5 | rt);
    }
    return;
  }
  const Fields fields = fields_of(chunk);
  for (std::uint32_t high = 0; high < 8; ++high) {
    for (std::uint32_t low = 0; low < 64; ++low) {
      const std::uint32_t fixed = top | high << 21 | low << 10;
      for (const std::uint32_t rs : fields.rs) {
        for (const std::uint32_t rn : fields.rn) {
          for (const std::uint32_t rt : fields.rt) {
            words.push_back(fixed | rs << 16 | rn << 5 | rt);
          }
        }
      }
    }
  }
}

}  // namespace touchstone::arch::opcheck
