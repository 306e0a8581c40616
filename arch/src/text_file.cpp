// SPDX-License-Identifier: MIT
#include "text_file.h"

#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <unistd.h>

namespace touchstone::arch {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\r";
// No file read here comes near this; one that does is not what it claims to be.
constexpr std::size_t kMaxText = std::size_t{64} << 20;

}  // namespace

Result<std::string> read_text(const std::string& path, const char* operation) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return std::unexpected(
        Error{.code = ErrorCode::kUnavailable, .operation = operation, .system_errno = errno});
  }
  std::string text;
  char buffer[4096];
  int failure = 0;
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) failure = errno;
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > kMaxText) {
      failure = EFBIG;
      break;
    }
  }
  ::close(fd);
  if (failure != 0) {
    return std::unexpected(
        Error{.code = ErrorCode::kUnavailable, .operation = operation, .system_errno = failure});
  }
  return text;
}

Error malformed(const char* operation) noexcept {
  return {.code = ErrorCode::kUnavailable, .operation = operation, .detail = "malformed"};
}

std::string_view trimmed(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

std::optional<std::uint64_t> parse_number(std::string_view text) noexcept {
  text = trimmed(text);
  std::uint64_t value = 0;
  const char* const begin = text.begin();
  const char* const end = text.end();
  const auto [stopped, failure] = std::from_chars(begin, end, value);
  if (failure != std::errc{} || stopped != end || text.empty()) return std::nullopt;
  return value;
}

std::string_view take_until(std::string_view& text, char separator) noexcept {
  const std::size_t at = text.find(separator);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return part;
}

std::optional<std::uint64_t> number_of_key(std::string_view text, std::string_view key) noexcept {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.starts_with(':')) line.remove_prefix(1);
    // Else it is a longer key that starts alike.
    if (!line.starts_with(' ') && !line.starts_with('\t')) continue;
    line = trimmed(line);
    const bool kilobytes = line.ends_with(" kB");
    if (kilobytes) line.remove_suffix(3);
    const std::optional<std::uint64_t> value = parse_number(line);
    if (!value || (kilobytes && *value > (UINT64_MAX >> 10))) return std::nullopt;
    return kilobytes ? *value << 10 : *value;
  }
  return std::nullopt;
}

}  // namespace touchstone::arch
