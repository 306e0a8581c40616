// SPDX-License-Identifier: MIT
#include "touch_loops.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "branch.h"
#include "function_flow.h"
#include "outline_atomics.h"

namespace touchstone::arch::opcheck {
namespace {

// How many calls deep an atomic may lie below the loop.
constexpr unsigned kMaxCallDepth = 4;

// Atomics that can leave memory as it was, and store-exclusives: LD<op>, CAS, CASP, STXR, LDCLRP,
// LDSETP, LDT<op>. A superset will do; the data flow decides.
constexpr bool may_touch(std::uint32_t word) noexcept {
  return (word & 0x3f208c00) == 0x38200000 || (word & 0x3fa07c00) == 0x08a07c00 ||
         (word & 0xbfa07c00) == 0x08207c00 || (word & 0x3fc00000) == 0x08000000 ||
         (word & 0xff20dc00) == 0x19201000 || (word & 0xbf208c00) == 0x19200400;
}

std::string_view operation_name(RmwKind kind) noexcept {
  switch (kind) {
    case RmwKind::kAdd:
      return "add 0";
    case RmwKind::kClear:
      return "and with all ones";
    case RmwKind::kSet:
      return "or 0";
    case RmwKind::kEor:
      return "exclusive or 0";
    case RmwKind::kSignedMax:
      return "signed maximum with the smallest";
    case RmwKind::kSignedMin:
      return "signed minimum with the largest";
    case RmwKind::kUnsignedMax:
      return "unsigned maximum with 0";
    case RmwKind::kUnsignedMin:
      return "unsigned minimum with all ones";
    case RmwKind::kCompareSwap:
      return "compare-and-swap with the expected value";
    case RmwKind::kExclusive:
      return "store back what was loaded";
  }
  return "";
}

struct Region {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
};

class Finder {
 public:
  Finder(const CodeImage& image, std::uint64_t min_stride)
      : image_(image), min_stride_(min_stride) {}

  TouchLoops run() {
    collect();
    for (const CodeSymbol& external : image_.externals) {
      if (auto summary = outline_helper_summary(external.name, external.address)) {
        summaries_.emplace(external.address, std::move(*summary));
        fresh_.insert(external.address);
      }
    }
    for (const auto& [start, sites] : group(atomics_)) {
      analyse(start, sites);
    }
    for (unsigned depth = 0; depth < kMaxCallDepth && !fresh_.empty(); ++depth) {
      const std::unordered_set<std::uint64_t> targets = std::exchange(fresh_, {});
      for (const AddressLink& pointer : image_.code_pointers) {
        if (targets.contains(pointer.to)) pointees_.push_back(&summaries_.at(pointer.to));
      }
      for (const auto& [start, sites] : group(callers_of(targets))) {
        analyse(start, sites);
      }
    }
    std::sort(result_.loops.begin(), result_.loops.end(),
              [](const TouchLoop& a, const TouchLoop& b) {
                return a.site != b.site ? a.site < b.site : a.loop < b.loop;
              });
    result_.functions_analysed = analysed_.size();
    result_.functions_too_large = too_large_.size();
    return std::move(result_);
  }

 private:
  // One pass over all words: where atomics are, and where functions start as calls tell.
  void collect() {
    for (const CodeSymbol& symbol : image_.functions) {
      if (!symbol.is_label) starts_.push_back(symbol.address);
    }
    for (const AddressLink& pointer : image_.code_pointers) starts_.push_back(pointer.to);
    starts_.insert(starts_.end(), image_.function_starts.begin(), image_.function_starts.end());
    for (const CodeRange& range : image_.ranges) {
      for (std::size_t at = 0; at + 4 <= range.bytes.size(); at += 4) {
        const std::uint32_t word = load_word(range.bytes, at);
        if ((word & 0x0a000000) == 0x08000000) {
          if (may_touch(word)) atomics_.push_back(range.address + at);
        } else if (word >> 26 == 0x25) {
          starts_.push_back(decode_branch(word, range.address + at).target);
        }
      }
    }
    for (const AddressLink& link : image_.branch_links) starts_.push_back(link.to);
    std::sort(starts_.begin(), starts_.end());
    starts_.erase(std::unique(starts_.begin(), starts_.end()), starts_.end());
  }

  // The function around an address: by its symbol if that has a size, else from one place that is
  // called to the next, within the section.
  [[nodiscard]] Region region_of(std::uint64_t pc) const {
    const CodeSymbol* const symbol = image_.find_function(pc);
    if (symbol != nullptr && symbol->size != 0) {
      return {symbol->address, symbol->address + symbol->size};
    }
    const CodeRange* range = image_.find_range(pc);
    const CodeRange* const first = image_.ranges.data();
    const CodeRange* const last = first + image_.ranges.size();
    const CodeRange* low = range;
    while (low != first && std::prev(low)->container == range->container) --low;
    const CodeRange* high = range;
    while (std::next(high) != last && std::next(high)->container == range->container) ++high;
    Region region{low->address, high->end()};
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), pc);
    if (after != starts_.end()) region.end = std::min(region.end, *after);
    if (after != starts_.begin()) region.start = std::max(region.start, *std::prev(after));
    return region;
  }

  [[nodiscard]] std::map<std::uint64_t, std::vector<std::uint64_t>> group(
      const std::vector<std::uint64_t>& sites) {
    std::map<std::uint64_t, std::vector<std::uint64_t>> groups;
    Region region;
    for (const std::uint64_t site : sites) {
      if (site < region.start || site >= region.end) {
        region = region_of(site);
        ends_[region.start] = region.end;
      }
      groups[region.start].push_back(site);
    }
    return groups;
  }

  // Calls and jumps to the targets, and loads of pointers to them.
  [[nodiscard]] std::vector<std::uint64_t> callers_of(
      const std::unordered_set<std::uint64_t>& targets) {
    std::vector<std::uint64_t> sites;
    for (const AddressLink& link : image_.branch_links) {
      if (targets.contains(link.to)) sites.push_back(link.from);
    }
    std::unordered_set<std::uint64_t> slots;
    std::unordered_set<std::uint64_t> slot_pages;
    for (const AddressLink& pointer : image_.code_pointers) {
      if (!targets.contains(pointer.to)) continue;
      slots.insert(pointer.from);
    }
    // Code may find the pointer itself by way of the global offset table.
    for (const AddressLink& entry : image_.got) {
      if (slots.contains(entry.to)) slots.insert(entry.from);
    }
    for (const std::uint64_t slot : slots) slot_pages.insert(slot & ~0xfffULL);
    for (const CodeRange& range : image_.ranges) {
      for (std::size_t at = 0; at + 4 <= range.bytes.size(); at += 4) {
        const std::uint32_t word = load_word(range.bytes, at);
        const std::uint64_t pc = range.address + at;
        if ((word & 0x7c000000) == 0x14000000) {
          if (targets.contains(decode_branch(word, pc).target)) sites.push_back(pc);
        } else if (!slot_pages.empty() && (word & 0x9f000000) == 0x90000000) {
          const std::uint64_t field =
              static_cast<std::uint64_t>(word >> 5 & 0x7ffff) << 2 | (word >> 29 & 3);
          const std::uint64_t page = (pc & ~0xfffULL) + (((field ^ 0x100000) - 0x100000) << 12);
          if (slot_pages.contains(page) && reaches_slot(range, at, page, slots)) {
            sites.push_back(pc);
            pointer_sites_.insert(pc);
          }
        }
      }
    }
    std::sort(sites.begin(), sites.end());
    return sites;
  }

  // Does the ADRP at `at` begin the address of one of the slots?
  [[nodiscard]] static bool reaches_slot(const CodeRange& range, std::size_t at, std::uint64_t page,
                                         const std::unordered_set<std::uint64_t>& slots) {
    const std::uint32_t base = load_word(range.bytes, at) & 31;
    for (std::size_t i = 1; i <= kSlotWindow && at + 4 * i + 4 <= range.bytes.size(); ++i) {
      const std::uint32_t word = load_word(range.bytes, at + 4 * i);
      if ((word >> 5 & 31) != base) continue;
      const std::uint64_t immediate = word >> 10 & 0xfff;
      const bool is_load = (word & 0xffc00000) == 0xf9400000;  // LDR X, [base, #8 * n]
      const bool is_add = (word & 0xffc00000) == 0x91000000;   // ADD X, base, #n
      if (is_load && slots.contains(page + immediate * 8)) return true;
      if (is_add && slots.contains(page + immediate)) return true;
    }
    return false;
  }

  // `depth`: how many calls below the function small callees are followed for what they store.
  [[nodiscard]] SummaryLookup lookup(unsigned depth) {
    return [this, depth](std::uint64_t target) -> const FunctionSummary* {
      const auto known = summaries_.find(target);
      if (known != summaries_.end()) return &known->second;
      return depth == 0 ? nullptr : summarise_callee(target, depth - 1);
    };
  }

  const FunctionSummary* summarise_callee(std::uint64_t target, unsigned depth) {
    const auto known = callee_summaries_.find(target);
    if (known != callee_summaries_.end()) return known->second.get();
    callee_summaries_[target] = nullptr;  // until known: a recursive call stops here
    if (image_.find_range(target) == nullptr) return nullptr;
    const Region region = region_of(target);
    if (region.start != target || region.end - region.start > kMaxCalleeBytes) return nullptr;
    FunctionFlow flow(image_, lookup(depth), region.start, region.end);
    flow.solve();
    auto& place = callee_summaries_[target];
    place = std::make_unique<FunctionSummary>(flow.summary());
    return place.get();
  }

  void analyse(std::uint64_t start, const std::vector<std::uint64_t>& sites) {
    const std::uint64_t end = ends_.at(start);
    auto flow = std::make_unique<FunctionFlow>(image_, lookup(0), start, end);
    if (flow->instruction_count() > FunctionFlow::kMaxInstructions) {
      too_large_.insert(start);
      return;
    }
    std::vector<const FunctionSummary*> pointees;
    std::vector<std::uint64_t> candidates;
    for (const std::uint64_t site : sites) {
      if (pointer_sites_.contains(site)) {
        pointees = pointees_;
      } else if (flow->may_touch_at(site)) {
        candidates.push_back(site);
      }
    }
    const bool direct = !candidates.empty();
    const bool may_touch = !candidates.empty() || !pointees.empty();
    if (!pointees.empty()) {
      const auto calls = flow->indirect_calls_in_loops();
      candidates.insert(candidates.end(), calls.begin(), calls.end());
    }
    const bool in_loop = flow->may_step(candidates, min_stride_, pointees);
    // What only calls through pointers gets no summary: in some programs that is every function.
    const bool is_small =
        direct && flow->instruction_count() <= FunctionFlow::kMaxSummaryInstructions;
    if (!may_touch || (!in_loop && !is_small)) return;
    analysed_.insert(start);
    flow->solve();
    if (flow->depends_on_callees()) {
      flow = std::make_unique<FunctionFlow>(image_, lookup(kMaxCallDepth), start, end);
      flow->solve();
    }
    if (in_loop) {
      for (const SteppingEffect& step : flow->stepping_effects(min_stride_)) add(step);
    }
    if (is_small && !summaries_.contains(start)) {
      FunctionSummary summary = flow->summary();
      if (!summary.effects.empty()) {
        summaries_.emplace(start, std::move(summary));
        fresh_.insert(start);
      }
    }
  }

  void add(const SteppingEffect& step) {
    const AtomicEffect& effect = step.effect;
    TouchLoop loop;
    loop.loop = step.loop;
    loop.site = effect.site;
    loop.atomic = effect.pc;
    loop.callee = effect.callee;
    loop.indirect = effect.indirect;
    loop.style = effect.kind == RmwKind::kExclusive ? AtomicStyle::kLlSc : AtomicStyle::kLse;
    if (effect.callee != 0 && is_helper(effect.pc)) loop.style = AtomicStyle::kOutline;
    loop.operation = operation_name(effect.kind);
    loop.width = static_cast<std::uint32_t>(effect.width) * effect.elements;
    loop.stride = step.stride;
    loop.confidence = step.stride ? Confidence::kHigh : Confidence::kMedium;
    if (effect.indirect) {
      loop.confidence = step.stride ? Confidence::kMedium : Confidence::kLow;
    }
    const auto same = std::find_if(
        result_.loops.begin(), result_.loops.end(),
        [&](const TouchLoop& other) { return other.site == loop.site && other.loop == loop.loop; });
    if (same == result_.loops.end()) result_.loops.push_back(loop);
  }

  // An outline helper by its name or, in a stripped file, by its shape.
  [[nodiscard]] bool is_helper(std::uint64_t atomic) const {
    for (const CodeSymbol& external : image_.externals) {
      if (external.address == atomic) return true;
    }
    const CodeSymbol* const symbol = image_.find_function(atomic);
    if (symbol != nullptr && is_outline_helper(symbol->name)) return true;
    return has_outline_helper_shape(image_, region_of(atomic).start);
  }

  static constexpr std::uint64_t kMaxCalleeBytes = 192;
  // Instructions between the two halves of an address, at most, for calls through pointers.
  static constexpr std::size_t kSlotWindow = 32;

  const CodeImage& image_;
  std::uint64_t min_stride_;
  std::vector<std::uint64_t> atomics_;
  std::vector<std::uint64_t> starts_;
  std::unordered_map<std::uint64_t, std::uint64_t> ends_;
  std::unordered_map<std::uint64_t, FunctionSummary> summaries_;
  std::unordered_map<std::uint64_t, std::unique_ptr<FunctionSummary>> callee_summaries_;
  std::unordered_set<std::uint64_t> fresh_;  // summarised, their callers not yet looked at
  // Where code forms the address of a pointer to a summarised function, and those functions.
  std::unordered_set<std::uint64_t> pointer_sites_;
  std::vector<const FunctionSummary*> pointees_;
  std::set<std::uint64_t> analysed_;
  std::set<std::uint64_t> too_large_;
  TouchLoops result_;
};

}  // namespace

TouchLoops find_touch_loops(const CodeImage& image, std::uint64_t min_stride) {
  return Finder(image, min_stride).run();
}

std::string_view to_string(AtomicStyle style) noexcept {
  switch (style) {
    case AtomicStyle::kLse:
      return "LSE";
    case AtomicStyle::kOutline:
      return "outline atomics";
    case AtomicStyle::kLlSc:
      return "LL/SC";
  }
  return "unknown";
}

std::string_view to_string(Confidence confidence) noexcept {
  switch (confidence) {
    case Confidence::kHigh:
      return "high";
    case Confidence::kMedium:
      return "medium";
    case Confidence::kLow:
      return "low";
  }
  return "unknown";
}

}  // namespace touchstone::arch::opcheck
