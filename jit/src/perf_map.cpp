// SPDX-License-Identifier: MIT
#include "perf_map.h"

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace touchstone::jit {
namespace {

Error error_of(const char* operation, int system_errno) noexcept {
  return {.code = code_of_errno(system_errno),
          .operation = operation,
          .system_errno = system_errno,
          .detail = "the perf map in /tmp"};
}

/// The file of the process that opened it; a forked child opens its own.
struct PerfMap {
  std::mutex mutex;
  int fd = -1;
  pid_t owner = 0;
};
PerfMap& perf_map() noexcept {
  static PerfMap map;
  return map;
}

}  // namespace

Result<> append_to_perf_map(const void* address, std::size_t size, std::string_view name) noexcept {
  PerfMap& map = perf_map();
  const std::scoped_lock lock(map.mutex);
  if (map.fd < 0 || map.owner != getpid()) {
    std::array<char, 64> path{};
    std::snprintf(path.data(), path.size(), "/tmp/perf-%d.map", static_cast<int>(getpid()));
    // O_NOFOLLOW: /tmp is everybody's.
    const int fd = open(path.data(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return std::unexpected(error_of("open(perf map)", errno));
    if (map.fd >= 0) close(map.fd);
    map.fd = fd;
    map.owner = getpid();
  }
  std::array<char, 512> line{};
  const int limit = 400;  // a longer name is cut
  const int written =
      std::snprintf(line.data(), line.size(), "%" PRIxPTR " %zx %.*s\n",
                    reinterpret_cast<std::uintptr_t>(address), size,
                    name.size() < limit ? static_cast<int>(name.size()) : limit, name.data());
  for (char& c : line) {
    if (c == '\n' && &c != &line[static_cast<std::size_t>(written) - 1]) c = ' ';
  }
  // One write of a whole line: readers and other threads never see half of one.
  const ssize_t done = write(map.fd, line.data(), static_cast<std::size_t>(written));
  if (done != written)
    return std::unexpected(error_of("write(perf map)", done < 0 ? errno : ENOSPC));
  return {};
}

}  // namespace touchstone::jit
