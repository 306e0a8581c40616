// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_SRC_A64_DECISION_DIAGRAM_H_
#define TOUCHSTONE_ARCH_SRC_A64_DECISION_DIAGRAM_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace touchstone::arch::a64 {

/// Boolean functions of up to 64 variables as reduced ordered binary decision diagrams, so that
/// equal functions have equal numbers. Level 0 is decided first. Not thread-safe; nodes live as
/// long as the diagram.
class DecisionDiagram {
 public:
  using Node = std::uint32_t;
  static constexpr Node kFalse = 0;
  static constexpr Node kTrue = 1;

  explicit DecisionDiagram(unsigned levels);

  [[nodiscard]] unsigned levels() const noexcept { return levels_; }
  [[nodiscard]] unsigned level(Node node) const noexcept { return nodes_[node].level; }
  [[nodiscard]] Node low(Node node) const noexcept { return nodes_[node].low; }
  [[nodiscard]] Node high(Node node) const noexcept { return nodes_[node].high; }
  /// The function with the variable of a level set; the function itself where it does not depend
  /// on it.
  [[nodiscard]] Node cofactor(Node node, unsigned level, bool set) const noexcept {
    if (nodes_[node].level != level) return node;
    return set ? nodes_[node].high : nodes_[node].low;
  }

  /// A function that decides on `level`, both branches depending on later levels only.
  [[nodiscard]] Node make(unsigned level, Node low, Node high);
  [[nodiscard]] Node conjunction(Node a, Node b);
  [[nodiscard]] Node disjunction(Node a, Node b);
  [[nodiscard]] Node complement(Node a);
  [[nodiscard]] Node difference(Node a, Node b) { return conjunction(a, complement(b)); }
  /// The number of assignments of all variables that make the function true.
  [[nodiscard]] double count(Node node);

 private:
  struct Entry {
    unsigned level;
    Node low;
    Node high;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  struct EntryHash {
    std::size_t operator()(const Entry& entry) const noexcept {
      std::uint64_t h = entry.low;
      h = h * 0x9e3779b97f4a7c15ULL + entry.high;
      h = h * 0x9e3779b97f4a7c15ULL + entry.level;
      return static_cast<std::size_t>(h ^ (h >> 29U));
    }
  };
  struct PairHash {
    std::size_t operator()(const std::pair<Node, Node>& pair) const noexcept {
      const std::uint64_t h =
          (static_cast<std::uint64_t>(pair.first) << 32U | pair.second) * 0x9e3779b97f4a7c15ULL;
      return static_cast<std::size_t>(h ^ (h >> 29U));
    }
  };

  unsigned levels_;
  std::vector<Entry> nodes_;
  std::unordered_map<Entry, Node, EntryHash> unique_;
  std::unordered_map<std::pair<Node, Node>, Node, PairHash> conjunctions_;
  std::unordered_map<Node, Node> complements_;
  std::unordered_map<Node, double> counts_;
};

}  // namespace touchstone::arch::a64

#endif  // TOUCHSTONE_ARCH_SRC_A64_DECISION_DIAGRAM_H_
