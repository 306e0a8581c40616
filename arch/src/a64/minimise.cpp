// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <touchstone/arch/a64/minimise.h>

#include "a64/covering.h"
#include "a64/decision_diagram.h"

namespace touchstone::arch::a64 {
namespace {

using Node = DecisionDiagram::Node;

constexpr unsigned kWordBits = 32;

/// A condition that is a cube, and whether it is one.
struct Guard {
  Operands condition;
  Cube cube;
};
constexpr std::array<Guard, 4> kGuards{{
    {Operands::kRtIs31, {0x1f, 0x1f}},
    {Operands::kRsIs31, {0x1f0000, 0x1f0000}},
    {Operands::kRnIs31, {0x3e0, 0x3e0}},
    {Operands::kRtAbove23, {0x18, 0x18}},
}};

[[nodiscard]] constexpr Operands cube_conditions() {
  Operands all = Operands::kNone;
  for (const Guard& guard : kGuards) all = all | guard.condition;
  return all;
}

[[nodiscard]] constexpr bool only_cubes(Operands set) {
  return (static_cast<unsigned>(set) & ~static_cast<unsigned>(cube_conditions())) == 0;
}

/// The variables: the 32 bits of a word and, for each guard in use, one that says that its
/// condition does not hold. A term is then a cube of all of them, and the assignments in which a
/// guard and the bits contradict each other are don't-cares.
class Space {
 public:
  explicit Space(Operands guards) {
    for (const Guard& guard : kGuards) {
      if (contains(guards, guard.condition)) guards_.push_back(guard);
    }
    // High bits first, each guard just before the bits it is about: that keeps diagrams small.
    for (unsigned bit = kWordBits; bit-- > 0;) {
      for (std::size_t i = 0; i < guards_.size(); ++i) {
        if (static_cast<unsigned>(std::bit_width(guards_[i].cube.mask)) == bit + 1) {
          variable_at_.push_back(kWordBits + static_cast<unsigned>(i));
        }
      }
      variable_at_.push_back(bit);
    }
    level_of_.resize(variable_at_.size());
    for (unsigned level = 0; level < variable_at_.size(); ++level) {
      level_of_[variable_at_[level]] = level;
    }
  }

  [[nodiscard]] unsigned levels() const { return static_cast<unsigned>(variable_at_.size()); }
  [[nodiscard]] unsigned variable_at(unsigned level) const { return variable_at_[level]; }
  [[nodiscard]] const std::vector<Guard>& guards() const { return guards_; }

  [[nodiscard]] Node literal(DecisionDiagram& diagram, unsigned variable, bool set) const {
    return diagram.make(level_of_[variable], set ? DecisionDiagram::kFalse : DecisionDiagram::kTrue,
                        set ? DecisionDiagram::kTrue : DecisionDiagram::kFalse);
  }

  [[nodiscard]] Node cube(DecisionDiagram& diagram, Cube cube) const {
    Node node = DecisionDiagram::kTrue;
    for (unsigned level = levels(); level-- > 0;) {
      const unsigned variable = variable_at_[level];
      if (variable >= kWordBits || ((cube.mask >> variable) & 1U) == 0) continue;
      const bool set = ((cube.value >> variable) & 1U) != 0;
      node = diagram.make(level, set ? DecisionDiagram::kFalse : node,
                          set ? node : DecisionDiagram::kFalse);
    }
    return node;
  }

  /// The words of terms, whatever the guards' variables say.
  [[nodiscard]] Node words(DecisionDiagram& diagram, std::span<const Term> terms) const {
    Node all = DecisionDiagram::kFalse;
    for (const Term& term : terms) {
      Node node = cube(diagram, term.cube);
      for (const Guard& guard : kGuards) {
        if (!contains(term.except, guard.condition)) continue;
        node = diagram.difference(node, cube(diagram, guard.cube));
      }
      all = diagram.disjunction(all, node);
    }
    return all;
  }

  /// The assignments in which every guard's variable agrees with the bits.
  [[nodiscard]] Node consistent(DecisionDiagram& diagram) const {
    Node all = DecisionDiagram::kTrue;
    for (std::size_t i = 0; i < guards_.size(); ++i) {
      const auto variable = kWordBits + static_cast<unsigned>(i);
      const Node condition = cube(diagram, guards_[i].cube);
      const Node agrees =
          diagram.disjunction(diagram.conjunction(condition, literal(diagram, variable, false)),
                              diagram.difference(literal(diagram, variable, true), condition));
      all = diagram.conjunction(all, agrees);
    }
    return all;
  }

 private:
  std::vector<Guard> guards_;
  std::vector<unsigned> variable_at_;
  std::vector<unsigned> level_of_;
};

/// A cube over all variables.
struct Implicant {
  std::uint64_t mask = 0;
  std::uint64_t value = 0;
  friend auto operator<=>(const Implicant&, const Implicant&) = default;
};

/// All prime implicants of a function. With x its top variable, an implicant that does not mention
/// x is one of both cofactors; a prime that mentions x is a prime of one cofactor and no implicant
/// of the other.
class Primes {
 public:
  Primes(DecisionDiagram& diagram, const Space& space) : diagram_(diagram), space_(space) {}

  [[nodiscard]] const std::vector<Implicant>& of(Node node) {
    if (const auto at = memo_.find(node); at != memo_.end()) return at->second;
    std::vector<Implicant> result;
    if (node == DecisionDiagram::kTrue) {
      result.push_back({});
    } else if (node != DecisionDiagram::kFalse) {
      const std::uint64_t bit = 1ULL << space_.variable_at(diagram_.level(node));
      const Node low = diagram_.low(node);
      const Node high = diagram_.high(node);
      const Node both = diagram_.conjunction(low, high);
      const std::vector<Implicant> shared = of(both);
      append_with(of(low), shared, {bit, 0}, result);
      append_with(of(high), shared, {bit, bit}, result);
      result.insert(result.end(), shared.begin(), shared.end());
      std::ranges::sort(result);
    }
    return memo_.emplace(node, std::move(result)).first->second;
  }

 private:
  static void append_with(const std::vector<Implicant>& primes,
                          const std::vector<Implicant>& shared, Implicant literal,
                          std::vector<Implicant>& to) {
    std::vector<Implicant> own;
    std::ranges::set_difference(primes, shared, std::back_inserter(own));
    for (const Implicant& prime : own) {
      to.push_back({prime.mask | literal.mask, prime.value | literal.value});
    }
  }

  DecisionDiagram& diagram_;
  const Space& space_;
  std::unordered_map<Node, std::vector<Implicant>> memo_;
};

/// Finds which sets of primes cover some word of a function, with an example of each.
class Classes {
 public:
  Classes(DecisionDiagram& diagram, const Space& space, const std::vector<Implicant>& primes)
      : diagram_(diagram), space_(space), primes_(primes) {}

  [[nodiscard]] std::vector<CoveringRow> of(Node on) {
    std::vector<std::uint32_t> all(primes_.size());
    for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    descend(on, 0, std::move(all), 0);
    std::vector<CoveringRow> rows;
    rows.reserve(rows_.size());
    for (auto& [columns, word] : rows_) rows.push_back({columns, word});
    return rows;
  }

 private:
  void descend(Node on, unsigned level, std::vector<std::uint32_t> alive, std::uint64_t word) {
    for (;; ++level) {
      if (on == DecisionDiagram::kFalse) return;
      if (level == space_.levels()) {
        rows_.emplace(std::move(alive), static_cast<std::uint32_t>(word));
        return;
      }
      const std::uint64_t bit = 1ULL << space_.variable_at(level);
      const bool mentioned = std::ranges::any_of(
          alive, [&](std::uint32_t prime) { return (primes_[prime].mask & bit) != 0; });
      const Node low = diagram_.cofactor(on, level, false);
      const Node high = diagram_.cofactor(on, level, true);
      if (!mentioned) {
        // No prime tells the two halves apart: a word of either stands for both.
        if (low == DecisionDiagram::kFalse) {
          word |= bit;
          on = high;
        } else if (low == high || high == DecisionDiagram::kFalse) {
          on = low;
        } else {
          descend(low, level + 1, alive, word);
          word |= bit;
          on = high;
        }
        continue;
      }
      if (!visited_.emplace(on, level, alive).second) return;
      for (const bool set : {false, true}) {
        std::vector<std::uint32_t> still;
        still.reserve(alive.size());
        for (const std::uint32_t prime : alive) {
          const Implicant& implicant = primes_[prime];
          if ((implicant.mask & bit) == 0 || ((implicant.value & bit) != 0) == set) {
            still.push_back(prime);
          }
        }
        descend(set ? high : low, level + 1, std::move(still), set ? word | bit : word);
      }
      return;
    }
  }

  DecisionDiagram& diagram_;
  const Space& space_;
  const std::vector<Implicant>& primes_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> rows_;
  std::set<std::tuple<Node, unsigned, std::vector<std::uint32_t>>> visited_;
};

/// The term an implicant stands for.
[[nodiscard]] Term term_of(const Implicant& implicant, const Space& space) {
  Term term{.cube = {static_cast<std::uint32_t>(implicant.mask),
                     static_cast<std::uint32_t>(implicant.value)}};
  for (std::size_t i = 0; i < space.guards().size(); ++i) {
    const std::uint64_t bit = 1ULL << (kWordBits + i);
    if ((implicant.mask & bit) == 0) continue;
    const Guard& guard = space.guards()[i];
    if ((implicant.value & bit) != 0) {
      term.except = term.except | guard.condition;
    } else {
      term.cube.mask |= guard.cube.mask;
      term.cube.value |= guard.cube.value;
    }
  }
  return term;
}

[[nodiscard]] Error invalid(const char* detail) {
  return {.code = ErrorCode::kInvalidArgument, .operation = "minimise", .detail = detail};
}

}  // namespace

Result<Cover> minimise(const Specification& specification) {
  if (!only_cubes(specification.guards))
    return std::unexpected(invalid("a guard that is not a cube"));
  for (const std::span<const Term> terms :
       {specification.on, specification.dont_care, specification.off}) {
    for (const Term& term : terms) {
      if (!only_cubes(term.except)) {
        return std::unexpected(invalid("an excluded condition that is not a cube"));
      }
      if ((term.cube.value & ~term.cube.mask) != 0) {
        return std::unexpected(invalid("a value outside its mask"));
      }
    }
  }
  const Space space(specification.guards);
  DecisionDiagram diagram(space.levels());
  const Node on_words = space.words(diagram, specification.on);
  const Node off_words = space.words(diagram, specification.off);
  if (diagram.conjunction(on_words, off_words) != DecisionDiagram::kFalse) {
    return std::unexpected(invalid("a word that is both on and off"));
  }
  const Node free_words =
      diagram.difference(space.words(diagram, specification.dont_care), off_words);
  const Node consistent = space.consistent(diagram);
  const Node allowed = diagram.disjunction(diagram.disjunction(on_words, free_words),
                                           diagram.complement(consistent));
  // Primes that lie among the don't-cares alone are of no use.
  std::vector<Implicant> primes = Primes(diagram, space).of(allowed);
  const Node wanted = diagram.conjunction(on_words, consistent);
  std::erase_if(primes, [&](const Implicant& prime) {
    Node node = wanted;
    for (unsigned level = 0; level < space.levels(); ++level) {
      const unsigned variable = space.variable_at(level);
      if (((prime.mask >> variable) & 1U) == 0) continue;
      node = diagram.conjunction(
          node, space.literal(diagram, variable, ((prime.value >> variable) & 1U) != 0));
    }
    return node == DecisionDiagram::kFalse;
  });
  // Fewer literals first, so that ties fall to the term that is simplest to read.
  std::ranges::sort(primes, [](const Implicant& a, const Implicant& b) {
    return std::tuple(std::popcount(a.mask), a.mask, a.value) <
           std::tuple(std::popcount(b.mask), b.mask, b.value);
  });

  Covering covering(primes.size(), Classes(diagram, space, primes).of(wanted));
  const std::optional<std::vector<std::uint32_t>> chosen = covering.solve();
  if (!chosen) {
    return std::unexpected(Error{.code = ErrorCode::kLimitExceeded,
                                 .operation = "minimise",
                                 .detail = "the covering problem is too large"});
  }
  Cover cover;
  cover.primes = primes.size();
  cover.classes = covering.rows().size();
  cover.witnesses = covering.independent_words();
  for (const std::uint32_t prime : *chosen) cover.terms.push_back(term_of(primes[prime], space));
  std::ranges::sort(cover.terms, {},
                    [](const Term& term) { return std::pair(term.cube.value, term.cube.mask); });
  return cover;
}

Result<std::uint64_t> count_words(std::span<const Term> terms) {
  for (const Term& term : terms) {
    if (!only_cubes(term.except)) {
      return std::unexpected(invalid("an excluded condition that is not a cube"));
    }
  }
  const Space space(Operands::kNone);
  DecisionDiagram diagram(space.levels());
  return static_cast<std::uint64_t>(diagram.count(space.words(diagram, terms)));
}

}  // namespace touchstone::arch::a64
