// SPDX-License-Identifier: MIT
#include "reading.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace touchstone::arch::opcheck {
namespace {

constexpr std::size_t kLongestKey = 96;

// Collects a key without allocating; what does not fit is cut, which no arm64 mnemonic needs.
class Key {
 public:
  void add(char c) {
    if (size_ < kLongestKey) text_[size_++] = c;
  }
  void add(std::string_view text) {
    for (const char c : text) add(c);
  }
  [[nodiscard]] std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, kLongestKey> text_;
  std::size_t size_ = 0;
};

bool is_space(char c) {
  return c == ' ' || c == '\t';
}

// The kind letter of a register name, or '#'. "wzr" and "w12" are w, "sp" and "x3" are x; a vector
// register is what stands before its number.
char operand_kind(std::string_view operand) {
  if (operand == "sp") return 'x';
  if (operand == "wsp") return 'w';
  if (operand.size() < 2) return '#';
  const char kind = operand[0];
  if (std::string_view("wxbhsdqvzp").find(kind) == std::string_view::npos) return '#';
  const char next = operand[1];
  if (next >= '0' && next <= '9') return kind;
  return operand == "xzr" || operand == "wzr" ? kind : '#';
}

}  // namespace

const Reading* ReadingTable::intern(std::string_view mnemonic, std::string_view operands) {
  Key key;
  key.add(mnemonic);
  std::size_t position = 0;
  // The first operand of DC names the operation: it is part of the mnemonic.
  if (mnemonic == "dc") {
    position = std::min(operands.find_first_not_of(" \t"), operands.size());
    const std::size_t comma = std::min(operands.find(',', position), operands.size());
    key.add(' ');
    for (const char c : operands.substr(position, comma - position)) {
      key.add(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
    position = comma;
  }
  const std::size_t mnemonic_size = key.view().size();
  key.add('\t');
  while (position < operands.size()) {
    while (position < operands.size() &&
           (is_space(operands[position]) || operands[position] == ',')) {
      ++position;
    }
    if (position == operands.size() || operands[position] == '[') break;
    const std::size_t start = position;
    while (position < operands.size() && operands[position] != ',' &&
           !is_space(operands[position])) {
      ++position;
    }
    key.add(operand_kind(operands.substr(start, position - start)));
  }
  const std::size_t bracket = operands.rfind(']');
  if (bracket != std::string_view::npos && bracket + 1 < operands.size() &&
      (operands[bracket + 1] == '!' || operands[bracket + 1] == ',')) {
    key.add('!');
  }
  const std::string_view text = key.view();
  const auto known = readings_.find(text);
  if (known != readings_.end()) return &known->second;
  Reading reading{.mnemonic = std::string(text.substr(0, mnemonic_size)),
                  .operands = std::string(text.substr(mnemonic_size + 1))};
  reading.access = parse_access_name(reading.mnemonic, reading.operands);
  reading.plain = is_plain_access(reading.mnemonic);
  return &readings_.emplace(std::string(text), std::move(reading)).first->second;
}

}  // namespace touchstone::arch::opcheck
