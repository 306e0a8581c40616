// SPDX-License-Identifier: MIT
// Any bytes, as a token in each notation: a word that is accepted is the one that its spelling has.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "words.h"

namespace {

namespace opcheck = touchstone::arch::opcheck;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

std::string hex(std::uint32_t word) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", word);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view token(size == 0 ? "" : reinterpret_cast<const char*>(data), size);
  using opcheck::WordNotation;
  for (const auto notation : {WordNotation::kHex, WordNotation::kDecimal, WordNotation::kBytes}) {
    const auto word = opcheck::parse_word(token, notation);
    if (!word) {
      require(!word.error().empty(), "a refusal has a reason");
      require(word.error().find('\n') == std::string::npos, "a reason is one line");
      continue;
    }
    const bool decimal = notation == WordNotation::kDecimal;
    const std::string again = decimal ? std::to_string(*word) : hex(*word);
    const std::uint32_t value = notation == WordNotation::kBytes ? std::byteswap(*word) : *word;
    require(opcheck::parse_word(again, decimal ? notation : WordNotation::kHex) == *word,
            "a word reads back");
    require(notation != WordNotation::kBytes || opcheck::parse_word(hex(value), notation) == *word,
            "bytes read back");
  }
  const std::string text = opcheck::printable(token);
  require(text.size() <= 40 * 4 + 3, "a token in a message is short");
  for (const char c : text) require(c >= ' ' && c <= '~', "a token in a message is printable");
  return 0;
}
