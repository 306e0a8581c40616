// SPDX-License-Identifier: MIT
// The bytes of a file, however large.
#ifndef TOUCHSTONE_ARCH_OPCHECK_FILE_BYTES_H_
#define TOUCHSTONE_ARCH_OPCHECK_FILE_BYTES_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <touchstone/arch/error.h>

namespace touchstone::arch::opcheck {

/// A regular file, held until destruction. Files of up to kReadWhole bytes are read, so that one
/// that is cut while it is scanned does no harm; larger ones are mapped, and cutting those ends the
/// process with SIGBUS.
class FileBytes {
 public:
  static constexpr std::size_t kReadWhole = std::size_t{128} << 20U;

  /// Errors: what open, fstat, read and mmap report; kInvalidArgument for a directory, for what is
  /// no regular file (it would block or never end) and for an empty file.
  [[nodiscard]] static Result<FileBytes> open(const std::string& path);

  FileBytes(FileBytes&& other) noexcept
      : copy_(std::move(other.copy_)),
        map_(std::exchange(other.map_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  FileBytes& operator=(FileBytes&& other) noexcept {
    std::swap(copy_, other.copy_);
    std::swap(map_, other.map_);
    std::swap(size_, other.size_);
    return *this;
  }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {map_ != nullptr ? static_cast<const std::byte*>(map_) : copy_.data(), size_};
  }

 private:
  FileBytes() = default;
  std::vector<std::byte> copy_;
  void* map_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_FILE_BYTES_H_
