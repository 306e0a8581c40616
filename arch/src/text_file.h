// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_SRC_TEXT_FILE_H_
#define TOUCHSTONE_ARCH_SRC_TEXT_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <touchstone/arch/error.h>

namespace touchstone::arch {

/// Reads the whole of a file. `operation` names it in the error (kUnavailable) and lives for ever.
[[nodiscard]] Result<std::string> read_text(const std::string& path, const char* operation);

/// The error for a file whose text is not what it should be.
[[nodiscard]] Error malformed(const char* operation) noexcept;

/// A decimal number and nothing else, surrounding white space aside.
[[nodiscard]] std::optional<std::uint64_t> parse_number(std::string_view text) noexcept;

/// Cuts white space from both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;

/// Cuts the part of `text` before the first `separator` off it and returns that part; all that is
/// left when there is none.
std::string_view take_until(std::string_view& text, char separator) noexcept;

/// The number after `key` in lines of "key number" or "key: number kB" (then in bytes).
[[nodiscard]] std::optional<std::uint64_t> number_of_key(std::string_view text,
                                                         std::string_view key) noexcept;

}  // namespace touchstone::arch

#endif  // TOUCHSTONE_ARCH_SRC_TEXT_FILE_H_
