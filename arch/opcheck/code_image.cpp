// SPDX-License-Identifier: MIT
#include "code_image.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

namespace touchstone::arch::opcheck {

static_assert(std::endian::native == std::endian::little, "both targets are little-endian");

std::uint32_t load_word(std::span<const std::byte> bytes, std::size_t offset) noexcept {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

const CodeRange* CodeImage::find_range(std::uint64_t address) const noexcept {
  auto after = std::upper_bound(
      ranges.begin(), ranges.end(), address,
      [](std::uint64_t value, const CodeRange& range) { return value < range.address; });
  if (after == ranges.begin()) return nullptr;
  const CodeRange& range = *std::prev(after);
  return address - range.address < range.bytes.size() ? &range : nullptr;
}

std::optional<std::uint32_t> CodeImage::word_at(std::uint64_t address) const noexcept {
  const CodeRange* const range = find_range(address);
  if (range == nullptr || address % 4 != 0) return std::nullopt;
  return load_word(range->bytes, static_cast<std::size_t>(address - range->address));
}

const CodeSymbol* CodeImage::find_function(std::uint64_t address) const noexcept {
  auto after = std::upper_bound(
      functions.begin(), functions.end(), address,
      [](std::uint64_t value, const CodeSymbol& symbol) { return value < symbol.address; });
  if (after == functions.begin()) return nullptr;
  const CodeSymbol& symbol = *std::prev(after);
  if (symbol.size != 0) return address - symbol.address < symbol.size ? &symbol : nullptr;
  // No size: it reaches to the next symbol, but not out of its own section.
  const CodeRange* const here = find_range(address);
  const CodeRange* const there = find_range(symbol.address);
  if (here == nullptr || there == nullptr) return nullptr;
  return here->container == there->container ? &symbol : nullptr;
}

std::uint64_t CodeImage::code_bytes() const noexcept {
  std::uint64_t total = 0;
  for (const CodeRange& range : ranges) total += range.bytes.size();
  return total;
}

std::optional<std::uint64_t> follow(const std::vector<AddressLink>& links,
                                    std::uint64_t from) noexcept {
  const auto found =
      std::lower_bound(links.begin(), links.end(), AddressLink{.from = from, .to = 0});
  if (found == links.end() || found->from != from) return std::nullopt;
  return found->to;
}

void sort_functions(std::vector<CodeSymbol>& functions) {
  std::sort(functions.begin(), functions.end(), [](const CodeSymbol& a, const CodeSymbol& b) {
    return std::tuple(a.address, a.size == 0, a.is_label, a.name.size(), a.name) <
           std::tuple(b.address, b.size == 0, b.is_label, b.name.size(), b.name);
  });
  const auto last =
      std::unique(functions.begin(), functions.end(),
                  [](const CodeSymbol& a, const CodeSymbol& b) { return a.address == b.address; });
  functions.erase(last, functions.end());
  std::uint64_t covered = 0;
  std::erase_if(functions, [&covered](const CodeSymbol& symbol) {
    if (symbol.is_label && symbol.address < covered) return true;
    covered = std::max(covered, symbol.address + symbol.size);
    return false;
  });
}

}  // namespace touchstone::arch::opcheck
