// SPDX-License-Identifier: MIT
// What a sweep counts.
#ifndef TOUCHSTONE_ARCH_OPCHECK_SWEEP_RESULT_H_
#define TOUCHSTONE_ARCH_OPCHECK_SWEEP_RESULT_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <touchstone/arch/a64/encodings.h>

namespace touchstone::arch::opcheck {

/// As many oracles as a sweep can ask.
inline constexpr std::size_t kMostOracles = 3;

/// Words that are alike in some way.
struct Bucket {
  std::uint64_t count = 0;
  /// The smallest of them; meaningless while count is 0.
  std::uint32_t smallest = ~0U;

  void add(std::uint32_t word);
  void merge(const Bucket& other);
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

/// What one oracle made of the words in question.
struct OracleVerdicts {
  /// It names the access that the rules name.
  std::uint64_t confirmed = 0;
  /// It is known to be unable to judge them.
  std::uint64_t gap = 0;
  /// It says something else, and that is no known gap.
  std::uint64_t contradicted = 0;

  friend bool operator==(const OracleVerdicts&, const OracleVerdicts&) = default;
};

/// One family of the table.
struct FamilyTally {
  std::uint64_t words = 0;
  /// Words that none of the oracles asked can judge.
  std::uint64_t unjudged = 0;
  /// Those of them whose operands are CONSTRAINED UNPREDICTABLE.
  std::uint64_t unjudged_unpredictable = 0;
  std::array<OracleVerdicts, kMostOracles> oracles{};

  friend bool operator==(const FamilyTally&, const FamilyTally&) = default;
};

/// What tells one kind of disagreement from another.
struct Disagreement {
  /// The mnemonic of the rules without its suffixes, or "" where they name no access.
  std::string rule;
  /// Its family, or that of the oracle's access, or "" where neither names one.
  std::string family;
  /// The index of the oracle among those asked.
  std::size_t oracle = 0;
  /// The oracle's mnemonic, or "" where it decodes nothing.
  std::string reading;

  friend auto operator<=>(const Disagreement&, const Disagreement&) = default;
};

/// A way in which masks that force write faults differ from the table.
struct ForcedDifference {
  /// True where the masks leave out a read-modify-write; false where they take a word that is none.
  bool missed = false;
  /// The family of the words, or "unallocated" where the table has none.
  std::string family;

  friend auto operator<=>(const ForcedDifference&, const ForcedDifference&) = default;
};

/// The words of a ForcedDifference. An oracle confirms it by naming a read-modify-write where the
/// masks missed one, and none where they took the word.
struct ForcedTally {
  Bucket words;
  std::array<OracleVerdicts, kMostOracles> oracles{};

  friend bool operator==(const ForcedTally&, const ForcedTally&) = default;
};

/// Everything that a sweep counts, over the chunks that are done.
struct SweepResult {
  /// Which chunks of the word space are counted here.
  std::vector<bool> done;
  std::uint64_t words = 0;
  std::array<FamilyTally, a64::kGroupCount> families{};
  std::map<Disagreement, Bucket> disagreements;
  /// The words that each known gap explained, in the order of the plan's gaps.
  std::vector<Bucket> gaps;
  std::map<ForcedDifference, ForcedTally> forced;

  /// Adds what was counted elsewhere, but for `done`.
  void merge(const SweepResult& other);
  [[nodiscard]] bool complete() const;
  /// Disagreements that no known gap explains, in (word, oracle) pairs.
  [[nodiscard]] std::uint64_t unexplained() const;
  friend bool operator==(const SweepResult&, const SweepResult&) = default;
};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_SWEEP_RESULT_H_
