// SPDX-License-Identifier: MIT
#include "reader.h"

#include <charconv>
#include <system_error>
#include <utility>

#include "values.h"

namespace touchstone::lisp {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_atom(char c) {
  return c > ' ' && c < 127 && c != '(' && c != ')' && c != '\'' && c != ';';
}

}  // namespace

void Reader::skip_space() {
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == ';') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      if (at_ == text_.size()) return;
    }
    if (!is_space(text_[at_])) return;
    if (text_[at_] == '\n') ++line_;
  }
}

Checked<std::optional<Node>> Reader::next() {
  skip_space();
  if (at_ == text_.size()) return std::nullopt;
  Checked<Node> node = read(0);
  if (!node) return std::unexpected(std::move(node.error()));
  return std::move(*node);
}

Checked<Node> Reader::read(unsigned nesting) {
  if (nesting > kMostNesting) return complain("nested too deep");
  skip_space();
  if (at_ == text_.size()) return complain("the text ends within a list");
  Node node{.line = line_};
  const char c = text_[at_];
  if (c == ')') return complain("a ) too many");
  if (c == '\'') {
    ++at_;
    Checked<Node> quoted = read(nesting + 1);
    if (!quoted) return quoted;
    node.items.push_back({.kind = Node::Kind::kSymbol, .line = node.line, .symbol = "quote"});
    node.items.push_back(std::move(*quoted));
    return node;
  }
  if (c == '(') {
    for (++at_;;) {
      skip_space();
      if (at_ < text_.size() && text_[at_] == ')') break;
      Checked<Node> item = read(nesting + 1);
      if (!item) return item;
      node.items.push_back(std::move(*item));
    }
    ++at_;
    return node;
  }
  const std::size_t start = at_;
  while (at_ < text_.size() && is_atom(text_[at_])) ++at_;
  const std::string_view atom = text_.substr(start, at_ - start);
  if (atom.empty()) return complain("a character that no program has");
  const auto [end, error] = std::from_chars(atom.data(), atom.data() + atom.size(), node.number);
  if (end == atom.data() + atom.size()) {
    if (error != std::errc() || node.number > kMostNumber || node.number < -kMostNumber - 1) {
      return complain("a number that is too large");
    }
    node.kind = Node::Kind::kNumber;
    return node;
  }
  node.kind = Node::Kind::kSymbol;
  node.symbol = atom;
  return node;
}

}  // namespace touchstone::lisp
