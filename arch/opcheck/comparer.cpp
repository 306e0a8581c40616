// SPDX-License-Identifier: MIT
#include "comparer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <touchstone/arch/a64/classify.h>

namespace touchstone::arch::opcheck {
namespace {

constexpr std::size_t kMemorySize = 4096;

// A row's pattern without the letters that stand for suffixes: "ldaddOZ" is "ldadd".
std::string rule_name(const a64::Encoding& row) {
  std::string name;
  for (const char c : row.pattern) {
    if (c < 'A' || c > 'Z') name += c;
  }
  return name;
}

// Where loads and stores are encoded: bit 27 set, bit 25 clear.
bool in_load_store_space(std::uint32_t word) {
  return (word & 0x0a000000U) == 0x08000000U;
}

// The fields of a word that the mnemonic of its row depends on, apart from registers.
std::uint32_t details_of(const a64::MemoryAccess& access, std::uint32_t word) {
  std::uint32_t details = access.width | static_cast<std::uint32_t>(access.order) << 8 |
                          static_cast<std::uint32_t>(access.discards) << 12;
  const a64::Kind kind = access.encoding->kind;
  if (kind == a64::Kind::kCopy || kind == a64::Kind::kSet) details |= (word & 0xf000U) << 4;
  return details;
}

}  // namespace

bool agrees(const Rules& rules, const a64::MemoryAccess& access, std::uint32_t word,
            const Reading& reading) {
  if (!reading.access) return false;
  const AccessName& name = *reading.access;
  if (name.group != access.encoding->group || name.kind != access.encoding->kind ||
      name.order != access.order) {
    return false;
  }
  if (name.width != 0 && name.width != access.width) return false;
  const a64::Mnemonic mnemonic = rules.mnemonic(word);
  const std::string_view preferred = mnemonic.view();
  if (reading.mnemonic == preferred) return true;
  // Some disassemblers print the load form of what discards its result.
  return access.discards && preferred.starts_with("st") && reading.mnemonic.starts_with("ld") &&
         preferred.substr(2) == std::string_view(reading.mnemonic).substr(2);
}

Comparer::Comparer(const SweepPlan& plan) : plan_(plan), memory_(kMemorySize) {
  for (std::size_t oracle = 0; oracle < plan.oracles.size(); ++oracle) {
    for (std::size_t gap = 0; gap < plan.gaps.size(); ++gap) {
      if (plan.gaps[gap].covers(plan.oracles[oracle]->kind(), plan.oracles[oracle]->version())) {
        gaps_[oracle].push_back(gap);
      }
    }
  }
  tally_.gaps.resize(plan.gaps.size());
}

bool Comparer::agrees_remembered(const a64::MemoryAccess& access, std::uint32_t word,
                                 const Reading& reading) {
  const std::uint32_t details = details_of(access, word);
  const std::size_t hash = (reinterpret_cast<std::uintptr_t>(access.encoding) >> 4) * 31 +
                           (reinterpret_cast<std::uintptr_t>(&reading) >> 4) * 7 +
                           std::uintptr_t{details} * 13;
  Remembered& slot = memory_[(hash ^ hash >> 12) % kMemorySize];
  if (slot.row != access.encoding || slot.reading != &reading || slot.details != details) {
    slot = {access.encoding, &reading, details, agrees(*plan_.rules, access, word, reading)};
  }
  return slot.agrees;
}

std::ptrdiff_t Comparer::find_gap(std::size_t oracle, const a64::MemoryAccess& access,
                                  std::uint32_t word, const Reading* reading) const {
  GapKind kind = GapKind::kNamesOther;
  if (access.encoding == nullptr) {
    kind = GapKind::kAccepts;
  } else if (reading == nullptr) {
    kind = GapKind::kDecodesNothing;
  }
  for (const std::size_t gap : gaps_[oracle]) {
    const KnownGap& known = plan_.gaps[gap];
    if (known.kind == kind && known.words.matches(word) &&
        holds(known.condition, word, access.constrained)) {
      return static_cast<std::ptrdiff_t>(gap);
    }
  }
  return -1;
}

Comparer::Verdict Comparer::judge(const a64::MemoryAccess& access, std::uint32_t word,
                                  const Reading* reading, std::size_t oracle) {
  if (access.encoding != nullptr) {
    if (reading != nullptr && agrees_remembered(access, word, *reading)) {
      return Verdict::kConfirmed;
    }
  } else {
    // A name that neither the table nor the plain accesses account for is as much a finding as an
    // access that the table lacks.
    const bool quiet =
        reading == nullptr || (!reading->access && (reading->plain || !in_load_store_space(word)));
    if (quiet) return Verdict::kSilent;
  }
  const std::ptrdiff_t gap = find_gap(oracle, access, word, reading);
  if (gap >= 0) {
    tally_.gaps[static_cast<std::size_t>(gap)].add(word);
    return Verdict::kGap;
  }
  raw_[{access.encoding, reading, oracle}].add(word);
  return Verdict::kContradicted;
}

void Comparer::compare_forced(const a64::MemoryAccess& access, std::uint32_t word,
                              std::span<const Reading* const> readings,
                              std::span<const Verdict> verdicts) {
  const bool writes =
      access.encoding != nullptr && access.encoding->kind == a64::Kind::kReadModifyWrite;
  if (plan_.rules->forced_write(word) == writes) return;
  ForcedTally& tally = tally_.forced[{
      .missed = writes,
      .family = access.encoding != nullptr ? std::string(a64::to_string(access.encoding->group))
                                           : "unallocated"}];
  tally.words.add(word);
  for (std::size_t oracle = 0; oracle < readings.size(); ++oracle) {
    const Reading* const reading = readings[oracle];
    const bool named = reading != nullptr && reading->access &&
                       reading->access->kind == a64::Kind::kReadModifyWrite;
    OracleVerdicts& counts = tally.oracles[oracle];
    if (named == writes) {
      ++counts.confirmed;
    } else if (verdicts[oracle] == Verdict::kGap) {
      ++counts.gap;
    } else {
      ++counts.contradicted;
    }
  }
}

void Comparer::compare(std::span<const std::uint32_t> words,
                       std::span<const std::vector<const Reading*>> readings) {
  const std::size_t oracles = readings.size();
  std::array<Verdict, kMostOracles> verdicts{};
  std::array<const Reading*, kMostOracles> said{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint32_t word = words[i];
    const a64::MemoryAccess access = plan_.rules->classify(word);
    bool judged = false;
    for (std::size_t oracle = 0; oracle < oracles; ++oracle) {
      said[oracle] = readings[oracle][i];
      verdicts[oracle] = judge(access, word, said[oracle], oracle);
      if (verdicts[oracle] == Verdict::kConfirmed || verdicts[oracle] == Verdict::kContradicted) {
        judged = true;
      }
    }
    if (access.encoding != nullptr) {
      FamilyTally& family = tally_.families[static_cast<std::size_t>(access.encoding->group)];
      ++family.words;
      if (!judged) {
        ++family.unjudged;
        if (access.constrained) ++family.unjudged_unpredictable;
      }
      for (std::size_t oracle = 0; oracle < oracles; ++oracle) {
        OracleVerdicts& counts = family.oracles[oracle];
        counts.confirmed += verdicts[oracle] == Verdict::kConfirmed ? 1U : 0U;
        counts.gap += verdicts[oracle] == Verdict::kGap ? 1U : 0U;
        counts.contradicted += verdicts[oracle] == Verdict::kContradicted ? 1U : 0U;
      }
    }
    if (plan_.rules->forced_write != nullptr) {
      compare_forced(access, word, std::span(said).first(oracles),
                     std::span(verdicts).first(oracles));
    }
  }
  tally_.words += words.size();
}

SweepResult Comparer::take() {
  for (const auto& [raw, bucket] : raw_) {
    Disagreement key;
    key.oracle = raw.oracle;
    if (raw.row != nullptr) {
      key.rule = rule_name(*raw.row);
      key.family = a64::to_string(raw.row->group);
    } else if (raw.reading != nullptr && raw.reading->access) {
      key.family = a64::to_string(raw.reading->access->group);
    }
    if (raw.reading != nullptr) key.reading = raw.reading->mnemonic;
    tally_.disagreements[key].merge(bucket);
  }
  raw_.clear();
  SweepResult result = std::exchange(tally_, {});
  tally_.gaps.resize(plan_.gaps.size());
  return result;
}

}  // namespace touchstone::arch::opcheck
