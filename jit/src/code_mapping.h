// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_SRC_CODE_MAPPING_H_
#define TOUCHSTONE_JIT_SRC_CODE_MAPPING_H_

#include <cstddef>

#include <touchstone/arch/error.h>

namespace touchstone::jit {

/// One memfd mapped twice: writable, and executable. Owns both views.
class CodeMapping {
 public:
  struct Options {
    std::size_t capacity = 0;
    bool execute_only = false;
    bool seal = false;
    bool huge_pages = true;
  };

  [[nodiscard]] static Result<CodeMapping> create(const Options& options) noexcept;
  CodeMapping(CodeMapping&& other) noexcept;
  CodeMapping& operator=(CodeMapping&&) = delete;
  CodeMapping(const CodeMapping&) = delete;
  CodeMapping& operator=(const CodeMapping&) = delete;
  ~CodeMapping();

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Not mapped in a forked child.
  [[nodiscard]] std::byte* writable(std::size_t offset) const noexcept {
    return writable_ + offset;
  }
  [[nodiscard]] std::byte* executable(std::size_t offset) const noexcept {
    return executable_ + offset;
  }
  /// Whether this is a process forked from the one that made it.
  [[nodiscard]] bool is_forked() const noexcept;

  /// Has memory put behind the code space up to `end` bytes, so that writing there cannot fail.
  [[nodiscard]] Result<> populate(std::size_t end) noexcept;
  /// Bytes so far that the kernel said it made huge pages of.
  [[nodiscard]] std::size_t huge() const noexcept { return huge_; }

  /// Lets [offset, offset + size) be read, by pages, or forbids it again.
  [[nodiscard]] Result<> set_readable(std::size_t offset, std::size_t size, bool readable) noexcept;

 private:
  CodeMapping() = default;
  [[nodiscard]] Result<> map_views(int fd) noexcept;

  std::byte* writable_ = nullptr;
  std::byte* executable_ = nullptr;
  /// A page that the kernel zeroes in a forked child.
  std::byte* fork_mark_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t page_ = 0;
  /// The size of a huge page, or 0 where none are wanted.
  std::size_t pmd_ = 0;
  std::size_t populated_ = 0;
  std::size_t huge_ = 0;
  int execute_protection_ = 0;
  bool sealed_ = false;
};

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_SRC_CODE_MAPPING_H_
