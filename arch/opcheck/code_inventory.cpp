// SPDX-License-Identifier: MIT
#include "code_inventory.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include <touchstone/arch/a64/classify.h>

#include "branch.h"
#include "outline_atomics.h"

namespace touchstone::arch::opcheck {
namespace {

struct Span {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
};

constexpr std::uint32_t kRet = 0xd65f03c0;
// Words of a helper's LL/SC part, at most, behind its first return.
constexpr std::uint64_t kHelperTail = 12;

// Helpers without a symbol: found by the atomic in their midst.
Span unnamed_helper_around(const CodeImage& image, std::uint64_t atomic) {
  for (const std::uint64_t before : {std::uint64_t{16}, std::uint64_t{12}}) {  // with BTI, without
    if (!has_outline_helper_shape(image, atomic - before)) continue;
    std::uint64_t end = atomic + 8;
    for (std::uint64_t i = 0; i < kHelperTail; ++i) {
      const auto word = image.word_at(end + i * 4);
      if (!word) break;
      if (*word == kRet) {
        end += i * 4 + 4;
        break;
      }
    }
    return {atomic - before, end};
  }
  return {};
}

// Where the unwind table says that a function starts, or where the range does.
std::uint64_t start_without_symbol(const CodeImage& image, const CodeRange& range,
                                   std::uint64_t pc) noexcept {
  const auto after =
      std::upper_bound(image.function_starts.begin(), image.function_starts.end(), pc);
  if (after == image.function_starts.begin()) return range.address;
  return std::max(range.address, *std::prev(after));
}

}  // namespace

CodeInventory take_inventory(const CodeImage& image) {
  CodeInventory inventory;
  std::unordered_set<std::uint64_t> helpers;
  std::vector<Span> helper_spans;
  for (const CodeSymbol& symbol : image.functions) {
    if (!is_outline_helper(symbol.name)) continue;
    ++inventory.outline_helpers;
    helpers.insert(symbol.address);
  }
  for (const CodeSymbol& external : image.externals) {
    if (is_outline_helper(external.name)) helpers.insert(external.address);
  }
  std::vector<std::uint64_t> calls;
  std::uint64_t exclusives_in_unnamed = 0;
  FunctionInventory* current = nullptr;
  std::uint64_t current_end = 0;
  for (const CodeRange& range : image.ranges) {
    inventory.words += range.bytes.size() / 4;
    current = nullptr;
    for (std::size_t at = 0; at + 4 <= range.bytes.size(); at += 4) {
      const std::uint32_t word = load_word(range.bytes, at);
      const std::uint64_t pc = range.address + at;
      if (word >> 26 == 0x25) {
        calls.push_back(follow(image.branch_links, pc).value_or(decode_branch(word, pc).target));
        continue;
      }
      const a64::MemoryAccess access = a64::classify(word);
      if (!access) continue;
      if (current == nullptr || pc >= current_end) {
        const CodeSymbol* const symbol = image.find_function(pc);
        const std::uint64_t address =
            symbol != nullptr ? symbol->address : start_without_symbol(image, range, pc);
        if (current == nullptr || inventory.functions.back().symbol != symbol ||
            inventory.functions.back().address != address) {
          inventory.functions.push_back(
              {.symbol = symbol,
               .address = address,
               .is_outline_helper = symbol != nullptr && is_outline_helper(symbol->name)});
        }
        current = &inventory.functions.back();
        // A symbol with a size holds for all of it; otherwise each word asks again.
        current_end = symbol != nullptr && symbol->size != 0 ? symbol->address + symbol->size : pc;
      }
      const auto group = static_cast<std::size_t>(access.encoding->group);
      ++inventory.groups[group];
      ++current->groups[group];
      const bool in_unnamed = !helper_spans.empty() && pc < helper_spans.back().end;
      if (access.encoding->kind == a64::Kind::kReadModifyWrite) {
        ++current->atomics;
        if (access.encoding->feature == a64::Feature::kLse) ++inventory.lse_atomics;
        if (!current->is_outline_helper) {
          const Span helper = unnamed_helper_around(image, pc);
          if (helper.end == 0) {
            ++inventory.inline_atomics;
          } else {
            ++inventory.outline_helpers;
            helpers.insert(helper.start);
            helper_spans.push_back(helper);
          }
        }
      } else if (access.encoding->kind == a64::Kind::kStoreExclusive) {
        ++current->store_exclusives;
        if (in_unnamed) ++exclusives_in_unnamed;
        if (!current->is_outline_helper) ++inventory.inline_store_exclusives;
      }
    }
  }
  inventory.inline_store_exclusives -= exclusives_in_unnamed;
  inventory.outline_calls = static_cast<std::uint64_t>(
      std::count_if(calls.begin(), calls.end(),
                    [&helpers](std::uint64_t target) { return helpers.contains(target); }));
  return inventory;
}

}  // namespace touchstone::arch::opcheck
