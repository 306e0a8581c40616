// SPDX-License-Identifier: MIT
#include "words.h"

#include <bit>
#include <charconv>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace touchstone::arch::opcheck {

std::expected<std::uint32_t, std::string> parse_word(std::string_view token,
                                                     WordNotation notation) {
  std::string_view digits = token;
  const bool hex = notation != WordNotation::kDecimal;
  if (hex && (digits.starts_with("0x") || digits.starts_with("0X"))) digits.remove_prefix(2);
  if (digits.empty()) return std::unexpected(token.empty() ? "is empty" : "has no digits");
  if (digits.find_first_not_of(hex ? "0123456789abcdefABCDEF" : "0123456789") !=
      std::string_view::npos) {
    return std::unexpected(hex ? "is not hexadecimal" : "is not decimal");
  }
  if (notation == WordNotation::kBytes && digits.size() != 8) {
    return std::unexpected(fmt::format("has {} hexadecimal digits, 4 bytes have 8", digits.size()));
  }
  if (notation == WordNotation::kHex && digits.size() > 8) {
    return std::unexpected(fmt::format("has {} digits, a word has at most 8", digits.size()));
  }
  std::uint32_t word = 0;
  const char* const end = digits.data() + digits.size();
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): the end is given
  const auto [stop, status] = std::from_chars(digits.data(), end, word, hex ? 16 : 10);
  if (status == std::errc::result_out_of_range) return std::unexpected("exceeds 32 bits");
  if (status != std::errc{} || stop != end) return std::unexpected("is not a number");
  return notation == WordNotation::kBytes ? std::byteswap(word) : word;
}

std::string printable(std::string_view token) {
  constexpr std::size_t kLongest = 40;
  std::string text;
  for (const char c : token.substr(0, kLongest)) {
    if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (token.size() > kLongest) text += "...";
  return text;
}

}  // namespace touchstone::arch::opcheck
