// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <tuple>
#include <vector>

#include <touchstone/arch/a64/covers.h>

namespace touchstone::arch::a64 {
namespace {

constexpr Operands kRegister31 = Operands::kRtIs31 | Operands::kRsIs31;

[[nodiscard]] std::vector<Term> rows_of(Kind kind) {
  std::vector<Term> terms;
  for (const Encoding& row : kEncodings) {
    if (row.kind == kind) terms.push_back({row.cube, row.excluded});
  }
  return terms;
}

}  // namespace

Result<Cover> exact_cover() {
  const std::vector<Term> on = rows_of(Kind::kReadModifyWrite);
  return minimise({.on = on, .guards = kRegister31});
}

Result<Cover> plain_cover() {
  const std::vector<Term> on = rows_of(Kind::kReadModifyWrite);
  return minimise({.on = on});
}

Result<Cover> never_aborts_cover() {
  const std::vector<Term> on = rows_of(Kind::kReadModifyWrite);
  std::vector<Term> free;
  free.reserve(kNeverAborts.size());
  for (const NeverAborts& words : kNeverAborts) free.push_back({words.cube});
  return minimise({.on = on, .dont_care = free, .guards = kRegister31});
}

Result<Cover> relaxed_cover() {
  const std::vector<Term> on = rows_of(Kind::kReadModifyWrite);
  std::vector<Term> free;
  free.reserve(kReadModifyWriteClasses.size());
  for (const DecodeClass& decode_class : kReadModifyWriteClasses) {
    free.push_back({decode_class.cube});
  }
  // Allocated there and no forced write: these stay off.
  std::vector<Term> off;
  for (const Encoding& row : kEncodings) {
    if (row.kind != Kind::kReadModifyWrite) off.push_back({row.cube});
  }
  return minimise({.on = on, .dont_care = free, .off = off});
}

Result<Cover> load_exclusive_cover() {
  const std::vector<Term> on = rows_of(Kind::kLoadExclusive);
  return minimise({.on = on});
}

DecisionTree decision_tree(const Cover& cover) {
  DecisionTree tree;
  // The fixed bits of the top byte that every term looks at.
  tree.selector = 0xff000000;
  for (const Term& term : cover.terms) tree.selector &= term.cube.mask;
  for (const Term& term : cover.terms) {
    const std::uint32_t key = term.cube.value & tree.selector;
    const auto at = std::ranges::find(tree.branches, key, &DecisionTree::Branch::key);
    if (at == tree.branches.end()) {
      tree.branches.push_back({.key = key, .gate = term.cube, .terms = {term}});
      continue;
    }
    at->gate.mask &= term.cube.mask & ~(at->gate.value ^ term.cube.value);
    at->gate.value &= at->gate.mask;
    at->terms.push_back(term);
  }
  for (DecisionTree::Branch& branch : tree.branches) {
    // Terms that exclude nothing first, as they are cheaper, and those with most words first.
    std::ranges::sort(branch.terms, {}, [](const Term& term) {
      return std::tuple(term.except, std::popcount(term.cube.mask), term.cube.value);
    });
  }
  std::ranges::sort(tree.branches, {}, &DecisionTree::Branch::key);
  for (std::uint32_t bit = 1U << 31U; bit != 0 && tree.split == 0; bit >>= 1U) {
    const auto has = [bit](const DecisionTree::Branch& branch) { return (branch.key & bit) != 0; };
    if (std::ranges::count_if(tree.branches, has) != 1) continue;
    const DecisionTree::Branch& alone = *std::ranges::find_if(tree.branches, has);
    tree.split = bit;
    for (const DecisionTree::Branch& other : tree.branches) tree.early |= other.key & ~alone.key;
  }
  return tree;
}

DecisionTree::Decision DecisionTree::decide(std::uint32_t word) const noexcept {
  Decision decision{.compares = split != 0 ? 2U : 1U};
  if ((word & split) != 0 && (word & early) != 0) return decision;
  for (const Branch& branch : branches) {
    if ((word & selector) != branch.key) continue;
    ++decision.compares;
    if (!branch.gate.matches(word)) return decision;
    Operands checked = Operands::kNone;
    for (const Term& term : branch.terms) {
      if (term.except != checked) {
        checked = term.except;
        decision.compares += static_cast<unsigned>(std::popcount(static_cast<unsigned>(checked)));
        if (holds(checked, word)) return decision;
      }
      ++decision.compares;
      if (term.cube.matches(word)) {
        decision.matches = true;
        return decision;
      }
    }
    return decision;
  }
  return decision;
}

}  // namespace touchstone::arch::a64
