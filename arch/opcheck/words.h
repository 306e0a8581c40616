// SPDX-License-Identifier: MIT
// Reads instruction words as a person types them.
#ifndef TOUCHSTONE_ARCH_OPCHECK_WORDS_H_
#define TOUCHSTONE_ARCH_OPCHECK_WORDS_H_

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace touchstone::arch::opcheck {

/// How a token spells an instruction word.
enum class WordNotation : std::uint8_t {
  kHex,      ///< 1 to 8 hexadecimal digits, with or without 0x: the value of the word.
  kDecimal,  ///< Decimal digits: the value of the word.
  kBytes,    ///< Exactly 8 hexadecimal digits in memory order, as a hex dump shows them.
};

/// The word that `token` spells, or why it spells none, as a clause without the token itself.
/// Thread-safe.
[[nodiscard]] std::expected<std::uint32_t, std::string> parse_word(std::string_view token,
                                                                   WordNotation notation);

/// A token fit for an error message: control and non-ASCII bytes become \xNN, and what is longer
/// than 40 characters is cut.
[[nodiscard]] std::string printable(std::string_view token);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_WORDS_H_
