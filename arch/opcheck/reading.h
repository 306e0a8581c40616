// SPDX-License-Identifier: MIT
// What an oracle said of a word, reduced to what can be compared.
#ifndef TOUCHSTONE_ARCH_OPCHECK_READING_H_
#define TOUCHSTONE_ARCH_OPCHECK_READING_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "access_name.h"

namespace touchstone::arch::opcheck {

/// A mnemonic with the kinds of its register operands: all words that an oracle prints alike but
/// for register numbers and immediates share one reading.
struct Reading {
  /// As the oracle spells it, such as "ldaddal"; of a system instruction with its operation: "dc
  /// zva".
  std::string mnemonic;
  /// One letter for each operand before the address: the register's kind (w, x, b, h, s, d, q, v,
  /// z, p), or '#' for anything else; then '!' where the address is written back. "ldadd w1, w2,
  /// [x0]" gives "ww".
  std::string operands;
  /// The access that these name, where they name one of those that the table is about.
  std::optional<AccessName> access = std::nullopt;
  /// A load, store or prefetch that the table is not about.
  bool plain = false;
};

/// Keeps each distinct reading of one oracle once. Not thread-safe.
class ReadingTable {
 public:
  /// The reading of an instruction that was printed as `mnemonic` and `operands` ("w1, w2, [x0]").
  /// Lives as long as the table.
  [[nodiscard]] const Reading* intern(std::string_view mnemonic, std::string_view operands);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  std::unordered_map<std::string, Reading, Hash, std::equal_to<>> readings_;
};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_READING_H_
