// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_A64_MINIMISE_H_
#define TOUCHSTONE_ARCH_A64_MINIMISE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <touchstone/arch/a64/encodings.h>
#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>

namespace touchstone::arch::a64 {

/// One compare of a decoder: the words of a cube, less those whose operands meet a condition.
struct Term {
  Cube cube;
  /// Conditions of which each is itself a cube: kRtIs31, kRsIs31, kRnIs31, kRtAbove23.
  Operands except = Operands::kNone;

  [[nodiscard]] constexpr bool matches(std::uint32_t word) const noexcept {
    return cube.matches(word) && !holds(except, word);
  }
  friend constexpr bool operator==(const Term&, const Term&) = default;
};

/// A smallest set of terms for a set of words, and what proves that it is one.
struct Cover {
  /// Sorted by mask and value.
  std::vector<Term> terms;
  /// Prime implicants of the function: every term worth considering.
  std::size_t primes = 0;
  /// Classes of words that differ in the primes that cover them, less those that others imply.
  std::size_t classes = 0;
  /// Words of the set no two of which any allowed term covers together. Where there are as many as
  /// terms, they alone prove that no cover is smaller; where there are fewer, the exhaustive search
  /// of the cyclic core does.
  std::vector<std::uint32_t> witnesses;

  /// True where a term matches. Thread-safe.
  [[nodiscard]] bool matches(std::uint32_t word) const noexcept {
    for (const Term& term : terms) {
      if (term.matches(word)) return true;
    }
    return false;
  }
};

/// What to minimise: which words must match, and which may.
struct Specification {
  std::span<const Term> on;
  /// Words that may match, unless `off` has them.
  std::span<const Term> dont_care = {};
  std::span<const Term> off = {};
  /// Conditions that a term may exclude; with kNone, terms are plain mask/value compares.
  Operands guards = Operands::kNone;
};

/// Exact two-level minimisation over the 32 bits of a word: the fewest terms that match every word
/// of `on` and none that is neither in `on` nor a don't-care.
///
/// All prime implicants are derived symbolically (a binary decision diagram of the function, then
/// the recursion of Coudert and Madre), the words are reduced to the classes that primes tell
/// apart, and the covering problem is solved by reduction and branch and bound to the optimum.
///
/// Fails with kInvalidArgument where a word is both on and off or a condition is no cube, and with
/// kLimitExceeded where the search would take more than about 10^7 nodes. Thread-safe;
/// takes milliseconds to seconds and up to some hundred MiB for the sets of this project.
[[nodiscard]] TOUCHSTONE_API Result<Cover> minimise(const Specification& specification);

/// The number of words that the terms match together: at most 2^32. Thread-safe.
[[nodiscard]] TOUCHSTONE_API Result<std::uint64_t> count_words(std::span<const Term> terms);

}  // namespace touchstone::arch::a64

#endif  // TOUCHSTONE_ARCH_A64_MINIMISE_H_
