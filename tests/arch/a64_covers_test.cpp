// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <touchstone/arch/a64/classify.h>
#include <touchstone/arch/a64/covers.h>
#include <touchstone/arch/a64/minimise.h>

namespace touchstone::arch::a64 {
namespace {

constexpr Operands kRegister31 = Operands::kRtIs31 | Operands::kRsIs31;

std::vector<Term> rows_of(Kind kind) {
  std::vector<Term> terms;
  for (const Encoding& row : kEncodings) {
    if (row.kind == kind) terms.push_back({row.cube, row.excluded});
  }
  return terms;
}

/// Calls visit for each word of the load/store space with Rn at 0, and for each of the other words
/// with Rn and Rt at 0: neither the table nor a cover looks at Rn, which the tests check of each.
/// The slow tests visit every word.
template <typename Visit>
void for_each_word_but_rn(Visit visit) {
  for (std::uint32_t high = 0; high < 1U << 22U; ++high) {
    const std::uint32_t registers = detail::in_load_store_space(high << 10U) ? 32 : 1;
    for (std::uint32_t low = 0; low < registers; ++low) visit(high << 10U | low);
  }
}

void expect_no_rn(const Cover& cover) {
  for (const Term& term : cover.terms) EXPECT_EQ(term.cube.mask & 0x3e0U, 0U);
}

/// True where one term, with any mask and any exclusion of `guards`, can match both words and no
/// word outside the set: then the smallest such term does, which fixes all bits in which the words
/// agree, and excludes all that neither of them meets.
bool share_a_term(std::uint32_t a, std::uint32_t b, std::span<const Term> set, Operands guards) {
  Term smallest{.cube = {~(a ^ b), a & ~(a ^ b)}};
  for (const Operands guard : {Operands::kRtIs31, Operands::kRsIs31}) {
    if (contains(guards, guard) && !holds(guard, a) && !holds(guard, b)) {
      smallest.except = smallest.except | guard;
    }
  }
  const std::uint32_t free = a ^ b;
  std::uint32_t part = 0;
  do {
    const std::uint32_t word = smallest.cube.value | part;
    const bool outside =
        std::ranges::none_of(set, [&](const Term& term) { return term.matches(word); });
    if (outside && smallest.matches(word)) return false;
    part = (part - free) & free;
  } while (part != 0);
  return true;
}

/// The independent proof that a cover is smallest: as many words as terms, no two of which fit one
/// term.
void expect_witnesses_prove(const Cover& cover, std::span<const Term> on, Operands guards) {
  ASSERT_EQ(cover.witnesses.size(), cover.terms.size());
  for (std::size_t a = 0; a < cover.witnesses.size(); ++a) {
    const bool in_set =
        std::ranges::any_of(on, [&](const Term& term) { return term.matches(cover.witnesses[a]); });
    EXPECT_TRUE(in_set) << std::hex << cover.witnesses[a];
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_FALSE(share_a_term(cover.witnesses[a], cover.witnesses[b], on, guards))
          << std::hex << cover.witnesses[a] << " " << cover.witnesses[b];
    }
  }
}

TEST(ExactCover, MatchesExactlyTheForcedWrites) {
  const Result<Cover> cover = exact_cover();
  ASSERT_TRUE(cover);
  expect_no_rn(*cover);
  const DecisionTree tree = decision_tree(*cover);
  std::uint64_t forced = 0;
  std::uint64_t wrong = 0;
  for_each_word_but_rn([&](std::uint32_t word) {
    const bool want = is_forced_write(word);
    forced += want ? 1U : 0U;
    wrong += tree.decide(word).matches != want ? 1U : 0U;
    // The terms one by one take long; outside the load/store space they all fail the same bits.
    if (detail::in_load_store_space(word)) wrong += cover->matches(word) != want ? 1U : 0U;
  });
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(forced * 32, count_words(cover->terms));
  for (const Term& term : cover->terms) EXPECT_EQ(term.cube.mask & 0x0a000000U, 0x0a000000U);
}

TEST(ExactCover, IsProvenSmallest) {
  const Result<Cover> cover = exact_cover();
  ASSERT_TRUE(cover);
  EXPECT_EQ(cover->terms.size(), 19U);
  expect_witnesses_prove(*cover, rows_of(Kind::kReadModifyWrite), kRegister31);
}

TEST(PlainCover, IsExactAndProvenSmallest) {
  const Result<Cover> cover = plain_cover();
  ASSERT_TRUE(cover);
  EXPECT_EQ(cover->terms.size(), 115U);
  const std::vector<Term> on = rows_of(Kind::kReadModifyWrite);
  expect_witnesses_prove(*cover, on, Operands::kNone);
  // Equal sets: as many words each, and no more together.
  std::vector<Term> both = on;
  for (const Term& term : cover->terms) {
    EXPECT_EQ(term.except, Operands::kNone);
    both.push_back(term);
  }
  EXPECT_EQ(count_words(both), count_words(on));
  EXPECT_EQ(count_words(cover->terms), count_words(on));
}

TEST(NeverAbortsCover, NeedsAsManyCompares) {
  const Result<Cover> cover = never_aborts_cover();
  ASSERT_TRUE(cover);
  EXPECT_EQ(cover->terms.size(), exact_cover()->terms.size());
}

TEST(RelaxedCover, CoversTheForcedWritesAndOnlyUnallocatedWordsBesides) {
  const Result<Cover> cover = relaxed_cover();
  ASSERT_TRUE(cover);
  expect_no_rn(*cover);
  EXPECT_EQ(cover->terms.size(), 8U);
  std::uint64_t wrong = 0;
  for_each_word_but_rn([&](std::uint32_t word) {
    const bool matches = cover->matches(word);
    if (matches == is_forced_write(word)) return;
    const bool in_class = std::ranges::any_of(
        kReadModifyWriteClasses,
        [&](const DecodeClass& decode_class) { return decode_class.cube.matches(word); });
    if (!matches || classify(word) || !in_class) ++wrong;
  });
  EXPECT_EQ(wrong, 0U);
}

TEST(LoadExclusiveCover, IsExactAndSmallest) {
  const Result<Cover> cover = load_exclusive_cover();
  ASSERT_TRUE(cover);
  const std::vector<Term> on = rows_of(Kind::kLoadExclusive);
  EXPECT_EQ(cover->terms.size(), 3U);
  expect_witnesses_prove(*cover, on, Operands::kNone);
  std::uint64_t wrong = 0;
  for_each_word_but_rn([&](std::uint32_t word) {
    wrong += cover->matches(word) != is_load_exclusive(word) ? 1U : 0U;
  });
  EXPECT_EQ(wrong, 0U);
}

TEST(DecisionTree, TurnsPlainLoadsAndStoresAwayEarly) {
  const Result<Cover> cover = exact_cover();
  ASSERT_TRUE(cover);
  const DecisionTree tree = decision_tree(*cover);
  const auto compares = [&](std::uint32_t word) {
    EXPECT_FALSE(tree.decide(word).matches) << std::hex << word;
    return tree.decide(word).compares;
  };
  // One bit and another.
  EXPECT_EQ(compares(0xf9400020), 2U);  // ldr x0, [x1]
  EXPECT_EQ(compares(0x39400020), 2U);  // ldrb w0, [x1]
  EXPECT_EQ(compares(0xa9400820), 2U);  // ldp x0, x2, [x1]
  EXPECT_EQ(compares(0x3dc00020), 2U);  // ldr q0, [x1]
  // The gate besides.
  EXPECT_EQ(compares(0xf8408420), 3U);  // ldr x0, [x1], #8
  EXPECT_EQ(compares(0xf8626820), 3U);  // ldr x0, [x1, x2]
  EXPECT_EQ(compares(0xc8dffc20), 3U);  // ldar x0, [x1]
  EXPECT_EQ(compares(0xc85ffc20), 3U);  // ldaxr x0, [x1]
  // An LSE atomic: two bits, the gate, and the first compare.
  EXPECT_TRUE(tree.decide(0xb8210002).matches);
  EXPECT_LE(tree.decide(0xb8210002).compares, 5U);
}

TEST(DecisionTree, SplitsOffTheClassOfMostLoads) {
  const DecisionTree tree = decision_tree(exact_cover().value());
  EXPECT_EQ(tree.split, 0x20000000U);
  EXPECT_EQ(tree.early, 0x01000000U);
}

// ---- The minimiser itself ----------------------------------------------------------------------

TEST(Minimise, RefusesContradictionsAndConditionsThatAreNoCubes) {
  const std::vector<Term> all{{.cube = {0, 0}}};
  const std::vector<Term> one{{.cube = {~0U, 7}}};
  EXPECT_EQ(minimise({.on = all, .off = one}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(minimise({.on = one, .guards = Operands::kRtIsRs}).error().code,
            ErrorCode::kInvalidArgument);
  const std::vector<Term> stray{{.cube = {1, 2}}};
  EXPECT_EQ(minimise({.on = stray}).error().code, ErrorCode::kInvalidArgument);
  const std::vector<Term> overlap{{.cube = {1, 1}, .except = Operands::kRtIsRs}};
  EXPECT_EQ(minimise({.on = overlap}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(count_words(overlap).error().code, ErrorCode::kInvalidArgument);
}

TEST(Minimise, OfNothingIsNothingAndOfAllIsOneTerm) {
  EXPECT_TRUE(minimise({})->terms.empty());
  const std::vector<Term> halves{{.cube = {1, 0}}, {.cube = {1, 1}}};
  const Result<Cover> cover = minimise({.on = halves});
  ASSERT_TRUE(cover);
  EXPECT_EQ(cover->terms, (std::vector<Term>{{.cube = {0, 0}}}));
  EXPECT_EQ(count_words(halves), 1ULL << 32U);
}

TEST(Minimise, UsesAGuardWhereItSavesTerms) {
  // All registers but 31: five cubes, or one with a guard.
  const std::vector<Term> on{{.cube = {0xff000000, 0x19000000}, .except = Operands::kRtIs31}};
  EXPECT_EQ(minimise({.on = on})->terms.size(), 5U);
  const Result<Cover> cover = minimise({.on = on, .guards = Operands::kRtIs31});
  ASSERT_TRUE(cover);
  EXPECT_EQ(cover->terms, on);
  // A don't-care makes the guard needless.
  const std::vector<Term> free{{.cube = {0xff00001f, 0x1900001f}}};
  const Result<Cover> relaxed =
      minimise({.on = on, .dont_care = free, .guards = Operands::kRtIs31});
  ASSERT_TRUE(relaxed);
  EXPECT_EQ(relaxed->terms, (std::vector<Term>{{.cube = {0xff000000, 0x19000000}}}));
}

/// The fewest cubes of `bits` variables that cover `on` and stay within `on` and `free`, found by
/// trying every set of cubes of growing size.
std::size_t smallest_by_trial(std::uint32_t on, std::uint32_t free, unsigned bits) {
  std::vector<std::uint32_t> implicants;
  const std::uint32_t points = 1U << bits;
  for (std::uint32_t mask = 0; mask < points; ++mask) {
    for (std::uint32_t value = 0; value < points; ++value) {
      if ((value & ~mask) != 0) continue;
      std::uint32_t covered = 0;
      for (std::uint32_t point = 0; point < points; ++point) {
        if ((point & mask) == value) covered |= 1U << point;
      }
      if ((covered & ~(on | free)) == 0 && (covered & on) != 0) implicants.push_back(covered);
    }
  }
  std::vector<std::uint32_t> reachable{0};
  for (std::size_t size = 0;; ++size) {
    if (std::ranges::any_of(reachable, [&](std::uint32_t set) { return (on & ~set) == 0; })) {
      return size;
    }
    std::vector<std::uint32_t> next;
    for (const std::uint32_t set : reachable) {
      for (const std::uint32_t implicant : implicants) next.push_back(set | implicant);
    }
    std::ranges::sort(next);
    next.erase(std::ranges::unique(next).begin(), next.end());
    reachable = std::move(next);
  }
}

TEST(Minimise, EqualsTrialOfAllCoversOnRandomFunctions) {
  // Bits far apart in the word, so that the order of variables matters.
  constexpr std::array<unsigned, 4> kPlaces{0, 9, 21, 30};
  std::mt19937 random(20260101);  // NOLINT(bugprone-random-generator-seed): the same every time
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t on = random() & 0xffffU;
    const std::uint32_t free = round % 3 == 0 ? 0 : random() & (random() >> 7U) & 0xffffU & ~on;
    const auto terms_of = [&](std::uint32_t set) {
      std::vector<Term> terms;
      for (std::uint32_t point = 0; point < 16; ++point) {
        if (((set >> point) & 1U) == 0) continue;
        Term term;
        for (unsigned i = 0; i < 4; ++i) {
          term.cube.mask |= 1U << kPlaces[i];
          term.cube.value |= ((point >> i) & 1U) << kPlaces[i];
        }
        terms.push_back(term);
      }
      return terms;
    };
    const std::vector<Term> on_terms = terms_of(on);
    const std::vector<Term> free_terms = terms_of(free);
    const Result<Cover> cover = minimise({.on = on_terms, .dont_care = free_terms});
    ASSERT_TRUE(cover);
    EXPECT_EQ(cover->terms.size(), smallest_by_trial(on, free, 4)) << std::hex << on << " " << free;
    for (std::uint32_t point = 0; point < 16; ++point) {
      std::uint32_t word = 0;
      for (unsigned i = 0; i < 4; ++i) word |= ((point >> i) & 1U) << kPlaces[i];
      const bool wanted = ((on >> point) & 1U) != 0;
      const bool allowed = wanted || ((free >> point) & 1U) != 0;
      EXPECT_TRUE(cover->matches(word) ? allowed : !wanted);
    }
  }
}

TEST(Minimise, SolvesACyclicCore) {
  // Six points around a cube of three variables: every prime covers two, none is essential, three
  // are needed and no three points are independent of each other.
  std::vector<Term> on;
  for (const std::uint32_t point : {0b001U, 0b011U, 0b010U, 0b110U, 0b100U, 0b101U}) {
    on.push_back({.cube = {7, point}});
  }
  const Result<Cover> cover = minimise({.on = on});
  ASSERT_TRUE(cover);
  EXPECT_EQ(cover->primes, 6U);
  EXPECT_EQ(cover->terms.size(), 3U);
}

}  // namespace
}  // namespace touchstone::arch::a64
