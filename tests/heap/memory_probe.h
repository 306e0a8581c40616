// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_HEAP_MEMORY_PROBE_H_
#define TOUCHSTONE_TESTS_HEAP_MEMORY_PROBE_H_

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <touchstone/heap/memory_range.h>

// What the tests ask the kernel about memory, apart from the code under test.
namespace touchstone::heap::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

/// A line of /proc/self/maps.
struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string permissions;
  std::string name;
};

/// The mappings that overlap a range, as the kernel lists them.
inline std::vector<Mapping> mappings_of(MemoryRange range) {
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
  std::vector<Mapping> found;
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    Mapping mapping;
    std::array<char, 8> permissions{};
    int name_at = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %7s %*s %*s %*s %n", &mapping.begin,
                    &mapping.end, permissions.data(), &name_at) < 3) {
      continue;
    }
    mapping.permissions = permissions.data();
    if (name_at > 0) mapping.name = line.substr(static_cast<std::size_t>(name_at));
    if (mapping.begin < begin + range.size() && mapping.end > begin) found.push_back(mapping);
  }
  return found;
}

/// Whether the kernel can read a byte for this process.
inline bool readable(const void* address) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) std::abort();
  const bool worked = ::write(ends[1], address, 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return worked;
}

/// Whether the kernel can write a byte for this process; the byte is the same afterwards if it was
/// readable.
inline bool writable(void* address) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) std::abort();
  if (::write(ends[1], address, 1) != 1) {
    const char zero = 0;
    if (::write(ends[1], &zero, 1) != 1) std::abort();
  }
  const bool worked = ::read(ends[0], address, 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return worked;
}

/// Resident bytes of this process.
inline std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Mapped bytes of this process.
inline std::size_t virtual_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0;
  statm >> size;
  return size * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Runs something in a child process and returns its exit status, or 128 plus the signal that ended
/// it. The child leaves by _exit: no test result but the status comes back.
inline int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  if (child < 0) std::abort();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Pages that belong to a probe of the kernel.
class ProbePages {
 public:
  explicit ProbePages(std::size_t count)
      : size_(count * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        start_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (start_ == MAP_FAILED) std::abort();
  }
  ~ProbePages() { ::munmap(start_, size_); }
  ProbePages(const ProbePages&) = delete;
  ProbePages& operator=(const ProbePages&) = delete;
  [[nodiscard]] MemoryRange range() const { return {static_cast<std::byte*>(start_), size_}; }

 private:
  std::size_t size_;
  void* start_;
};

// What qemu-user lacks of the kernel's behaviour, found by effect.

/// Whether mappings that have become alike are one again in /proc/self/maps, so that counting them
/// means something.
inline bool mappings_merge() {
  const ProbePages pages(5);
  const std::size_t page = pages.range().size() / 5;
  const std::size_t before = mappings_of(pages.range()).size();
  ::mprotect(pages.range().data() + 2 * page, page, PROT_NONE);
  const std::size_t split = mappings_of(pages.range()).size();
  ::mprotect(pages.range().data() + 2 * page, page, PROT_READ | PROT_WRITE);
  return split == before + 2 && mappings_of(pages.range()).size() == before;
}

/// Whether MADV_DONTFORK keeps memory out of a child.
inline bool dontfork_works() {
  const ProbePages pages(2);
  pages.range()[0] = std::byte{1};
  ::madvise(pages.range().data(), pages.range().size(), MADV_DONTFORK);
  return in_child([&] { return readable(pages.range().data()) ? 1 : 0; }) == 0;
}

/// Whether mmap refuses a size of hugetlb pages that no kernel has.
inline bool hugetlb_sizes_are_told_apart() {
  constexpr std::size_t kSize = std::size_t{128} << 20U;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | static_cast<int>(27U << 26U);
  void* const mapped = ::mmap(nullptr, kSize, PROT_NONE, flags, -1, 0);
  if (mapped != MAP_FAILED) ::munmap(mapped, kSize);
  return mapped == MAP_FAILED && errno == EINVAL;
}

}  // namespace touchstone::heap::testing

#endif  // TOUCHSTONE_TESTS_HEAP_MEMORY_PROBE_H_
