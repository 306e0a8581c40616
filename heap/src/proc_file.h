// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_PROC_FILE_H_
#define TOUCHSTONE_HEAP_SRC_PROC_FILE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <touchstone/arch/error.h>

namespace touchstone::heap {

/// A file of procfs, read in order, through the table of system calls.
class ProcFile {
 public:
  /// `operation` names the file in errors (kUnavailable) and lives for ever.
  [[nodiscard]] static Result<ProcFile> open(const std::string& path, const char* operation);
  ProcFile(ProcFile&& other) noexcept;
  ProcFile& operator=(ProcFile&& other) noexcept;
  ProcFile(const ProcFile&) = delete;
  ProcFile& operator=(const ProcFile&) = delete;
  ~ProcFile();

  [[nodiscard]] int descriptor() const noexcept { return fd_; }

  /// Gives the next line without its end, valid until the next call; false at the end of the file.
  [[nodiscard]] Result<bool> next_line(std::string_view& line);

 private:
  ProcFile(int fd, const char* operation) noexcept : fd_(fd), operation_(operation) {}

  int fd_ = -1;
  const char* operation_ = "";
  std::string buffer_;
  std::size_t taken_ = 0;
  bool ended_ = false;
};

/// The error for a file whose text is not what it should be.
[[nodiscard]] Error malformed(const char* operation) noexcept;

/// The number that `text` is, in the base given; nullopt if it is anything else.
[[nodiscard]] std::optional<std::uint64_t> whole_number(std::string_view text,
                                                        int base = 10) noexcept;

/// Cuts the first word off `text`, and the blanks around it.
std::string_view take_word(std::string_view& text) noexcept;

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_PROC_FILE_H_
