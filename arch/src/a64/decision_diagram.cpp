// SPDX-License-Identifier: MIT
#include "a64/decision_diagram.h"

#include <algorithm>
#include <cmath>

namespace touchstone::arch::a64 {

DecisionDiagram::DecisionDiagram(unsigned levels) : levels_(levels) {
  nodes_.push_back({levels, kFalse, kFalse});
  nodes_.push_back({levels, kTrue, kTrue});
}

DecisionDiagram::Node DecisionDiagram::make(unsigned level, Node low, Node high) {
  if (low == high) return low;
  const Entry entry{level, low, high};
  const auto [at, inserted] = unique_.try_emplace(entry, static_cast<Node>(nodes_.size()));
  if (inserted) nodes_.push_back(entry);
  return at->second;
}

DecisionDiagram::Node DecisionDiagram::conjunction(Node a, Node b) {
  if (a == kFalse || b == kFalse) return kFalse;
  if (a == kTrue || a == b) return b;
  if (b == kTrue) return a;
  const std::pair<Node, Node> key = std::minmax(a, b);
  if (const auto at = conjunctions_.find(key); at != conjunctions_.end()) return at->second;
  const unsigned top = std::min(level(a), level(b));
  const Node low = conjunction(cofactor(a, top, false), cofactor(b, top, false));
  const Node high = conjunction(cofactor(a, top, true), cofactor(b, top, true));
  const Node result = make(top, low, high);
  conjunctions_.emplace(key, result);
  return result;
}

DecisionDiagram::Node DecisionDiagram::complement(Node a) {
  if (a <= kTrue) return kTrue - a;
  if (const auto at = complements_.find(a); at != complements_.end()) return at->second;
  const Node result = make(level(a), complement(low(a)), complement(high(a)));
  complements_.emplace(a, result);
  return result;
}

DecisionDiagram::Node DecisionDiagram::disjunction(Node a, Node b) {
  return complement(conjunction(complement(a), complement(b)));
}

double DecisionDiagram::count(Node node) {
  if (node == kFalse) return 0;
  if (node == kTrue) return std::ldexp(1.0, static_cast<int>(levels_));
  if (const auto at = counts_.find(node); at != counts_.end()) return at->second;
  const double result = (count(low(node)) + count(high(node))) / 2;
  counts_.emplace(node, result);
  return result;
}

}  // namespace touchstone::arch::a64
