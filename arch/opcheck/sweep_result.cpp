// SPDX-License-Identifier: MIT
#include "sweep_result.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace touchstone::arch::opcheck {
namespace {

void merge_verdicts(std::array<OracleVerdicts, kMostOracles>& to,
                    const std::array<OracleVerdicts, kMostOracles>& from) {
  for (std::size_t i = 0; i < kMostOracles; ++i) {
    to[i].confirmed += from[i].confirmed;
    to[i].gap += from[i].gap;
    to[i].contradicted += from[i].contradicted;
  }
}

}  // namespace

void Bucket::add(std::uint32_t word) {
  ++count;
  smallest = std::min(smallest, word);
}

void Bucket::merge(const Bucket& other) {
  count += other.count;
  smallest = std::min(smallest, other.smallest);
}

void SweepResult::merge(const SweepResult& other) {
  words += other.words;
  for (std::size_t i = 0; i < families.size(); ++i) {
    families[i].words += other.families[i].words;
    families[i].unjudged += other.families[i].unjudged;
    families[i].unjudged_unpredictable += other.families[i].unjudged_unpredictable;
    merge_verdicts(families[i].oracles, other.families[i].oracles);
  }
  for (const auto& [key, bucket] : other.disagreements) disagreements[key].merge(bucket);
  gaps.resize(std::max(gaps.size(), other.gaps.size()));
  for (std::size_t i = 0; i < other.gaps.size(); ++i) gaps[i].merge(other.gaps[i]);
  for (const auto& [key, tally] : other.forced) {
    ForcedTally& mine = forced[key];
    mine.words.merge(tally.words);
    merge_verdicts(mine.oracles, tally.oracles);
  }
}

bool SweepResult::complete() const {
  return std::ranges::find(done, false) == done.end();
}

std::uint64_t SweepResult::unexplained() const {
  std::uint64_t total = 0;
  for (const auto& [key, bucket] : disagreements) total += bucket.count;
  return total;
}

}  // namespace touchstone::arch::opcheck
