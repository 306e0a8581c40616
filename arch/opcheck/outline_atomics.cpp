// SPDX-License-Identifier: MIT
#include "outline_atomics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <system_error>
#include <utility>

#include <touchstone/arch/a64/classify.h>

#include "branch.h"

namespace touchstone::arch::opcheck {

bool is_outline_helper(std::string_view name) noexcept {
  return outline_helper_summary(name, 0).has_value();
}

std::optional<FunctionSummary> outline_helper_summary(std::string_view name,
                                                      std::uint64_t address) {
  constexpr std::string_view kPrefix = "__aarch64_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  struct Family {
    std::string_view name;
    RmwKind kind;
    bool keeps;
  };
  constexpr std::array kFamilies = {
      Family{"ldadd", RmwKind::kAdd, true},       Family{"ldclr", RmwKind::kClear, true},
      Family{"ldeor", RmwKind::kEor, true},       Family{"ldset", RmwKind::kSet, true},
      Family{"cas", RmwKind::kCompareSwap, true}, Family{"swp", RmwKind::kAdd, false},
  };
  const auto family = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [name](const Family& f) { return name.starts_with(f.name); });
  if (family == kFamilies.end()) return std::nullopt;
  name.remove_prefix(family->name.size());
  unsigned width = 0;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), width);
  if (error != std::errc() || (width != 1 && width != 2 && width != 4 && width != 8 &&
                               !(width == 16 && family->kind == RmwKind::kCompareSwap))) {
    return std::nullopt;
  }
  name.remove_prefix(static_cast<std::size_t>(rest - name.data()));
  if (name != "_relax" && name != "_acq" && name != "_rel" && name != "_acq_rel" &&
      name != "_sync") {
    return std::nullopt;
  }
  FunctionSummary summary;
  summary.values = std::make_shared<ValueTable>();
  if (!family->keeps) return summary;
  ValueTable& values = *summary.values;
  AtomicEffect effect{.pc = address, .site = address, .kind = family->kind};
  const auto argument = [&values](unsigned index) { return values.entry_register(index); };
  if (family->kind != RmwKind::kCompareSwap) {
    effect.width = static_cast<std::uint8_t>(width);
    effect.first = {argument(0)};
    effect.address = argument(1);
  } else if (width != 16) {
    effect.width = static_cast<std::uint8_t>(width);
    effect.first = {argument(0)};
    effect.second = {argument(1)};
    effect.address = argument(2);
  } else {
    effect.width = 8;
    effect.elements = 2;
    effect.first = {argument(0), argument(1)};
    effect.second = {argument(2), argument(3)};
    effect.address = argument(4);
  }
  summary.effects.push_back(effect);
  return summary;
}

bool has_outline_helper_shape(const CodeImage& image, std::uint64_t start) noexcept {
  // [bti c]; adrp x16, flag; ldrb w16, [x16, …]; cbz w16, fallback; LSE atomic; ret
  std::uint64_t pc = start;
  const auto next = [&image, &pc] {
    const auto word = image.word_at(pc);
    pc += 4;
    return word.value_or(0);
  };
  std::uint32_t word = next();
  if ((word & 0xffffff1f) == 0xd503241f || word == 0xd503233f) word = next();  // BTI, PACIASP
  if ((word & 0x9f000000) != 0x90000000) return false;
  const std::uint32_t base = word & 31;
  word = next();
  if ((word & 0xffc00000) != 0x39400000 || (word >> 5 & 31) != base) return false;
  const std::uint32_t flag = word & 31;
  word = next();
  if ((word & 0xff000000) != 0x34000000 || (word & 31) != flag) return false;
  const auto access = a64::classify(next());
  if (!access || access.encoding->feature != a64::Feature::kLse) return false;
  return next() == 0xd65f03c0;
}

}  // namespace touchstone::arch::opcheck
