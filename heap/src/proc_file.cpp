// SPDX-License-Identifier: MIT
#include "proc_file.h"

#include <cerrno>
#include <charconv>
#include <utility>

#include <fcntl.h>

#include <touchstone/heap/system_calls.h>

#include "retries.h"

namespace touchstone::heap {
namespace {

Error unreadable(const char* operation) noexcept {
  return {.code = ErrorCode::kUnavailable, .operation = operation, .system_errno = errno};
}

}  // namespace

Result<ProcFile> ProcFile::open(const std::string& path, const char* operation) {
  Retries retries;
  int fd = -1;
  do {
    fd = system_calls().open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (fd < 0 && retries.again());
  if (fd < 0) return std::unexpected(unreadable(operation));
  return ProcFile(fd, operation);
}

ProcFile::ProcFile(ProcFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      operation_(other.operation_),
      buffer_(std::move(other.buffer_)),
      taken_(other.taken_),
      ended_(other.ended_) {}

ProcFile& ProcFile::operator=(ProcFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(operation_, other.operation_);
  std::swap(buffer_, other.buffer_);
  std::swap(taken_, other.taken_);
  std::swap(ended_, other.ended_);
  return *this;
}

ProcFile::~ProcFile() {
  if (fd_ >= 0) system_calls().close(fd_);
}

Result<bool> ProcFile::next_line(std::string_view& line) {
  Retries retries;
  for (;;) {
    const std::size_t end = buffer_.find('\n', taken_);
    if (end != std::string::npos) {
      line = std::string_view(buffer_).substr(taken_, end - taken_);
      taken_ = end + 1;
      return true;
    }
    if (ended_) {
      if (taken_ == buffer_.size()) return false;
      line = std::string_view(buffer_).substr(taken_);
      taken_ = buffer_.size();
      return true;
    }
    buffer_.erase(0, taken_);
    taken_ = 0;
    char block[4096];
    const ssize_t got = system_calls().read(fd_, block, sizeof block);
    if (got < 0 && retries.again()) continue;
    if (got < 0) return std::unexpected(unreadable(operation_));
    if (got == 0) ended_ = true;
    buffer_.append(block, static_cast<std::size_t>(got));
  }
}

Error malformed(const char* operation) noexcept {
  return {.code = ErrorCode::kUnavailable, .operation = operation, .detail = "malformed"};
}

std::optional<std::uint64_t> whole_number(std::string_view text, int base) noexcept {
  std::uint64_t value = 0;
  const char* const begin = text.begin();
  const char* const end = text.end();
  const auto [stopped, failure] = std::from_chars(begin, end, value, base);
  if (failure != std::errc{} || stopped != end) return std::nullopt;
  return value;
}

std::string_view take_word(std::string_view& text) noexcept {
  constexpr std::string_view kBlanks = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return word;
}

}  // namespace touchstone::heap
