// SPDX-License-Identifier: MIT
#include "file_bytes.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace touchstone::arch::opcheck {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

Error system_error(const char* operation) {
  return {.code = code_of_errno(errno), .operation = operation, .system_errno = errno};
}

Error refusal(const char* detail) {
  return {.code = ErrorCode::kInvalidArgument, .operation = "read", .detail = detail};
}

}  // namespace

Result<FileBytes> FileBytes::open(const std::string& path) {
  // O_NONBLOCK: a FIFO without a writer must not hang us before fstat tells what it is.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (file.get() < 0) return std::unexpected(system_error("open"));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return std::unexpected(system_error("fstat"));
  if (S_ISDIR(status.st_mode)) return std::unexpected(refusal("a directory"));
  if (!S_ISREG(status.st_mode)) return std::unexpected(refusal("not a regular file"));
  if (status.st_size <= 0) return std::unexpected(refusal("an empty file"));

  FileBytes result;
  result.size_ = static_cast<std::size_t>(status.st_size);
  if (result.size_ > kReadWhole) {
    void* const map = ::mmap(nullptr, result.size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (map == MAP_FAILED) return std::unexpected(system_error("mmap"));
    result.map_ = map;
    return result;
  }
  result.copy_.resize(result.size_);
  std::size_t have = 0;
  while (have < result.size_) {
    const ssize_t got = ::read(file.get(), result.copy_.data() + have, result.size_ - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(system_error("read"));
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  if (have == 0) return std::unexpected(refusal("an empty file"));
  result.size_ = have;
  return result;
}

FileBytes::~FileBytes() {
  if (map_ != nullptr) ::munmap(map_, size_);
}

}  // namespace touchstone::arch::opcheck
