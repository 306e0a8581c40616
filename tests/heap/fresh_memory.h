// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_HEAP_FRESH_MEMORY_H_
#define TOUCHSTONE_TESTS_HEAP_FRESH_MEMORY_H_

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// Memory that nothing has touched, and what the kernel says of it, apart from the code under test.
namespace touchstone::heap::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

inline std::size_t page_size() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// An anonymous private mapping between two guards, so that it merges with no neighbour.
class FreshMemory {
 public:
  /// `offset` moves the start off the alignment.
  explicit FreshMemory(std::size_t length, std::size_t alignment = 2 * kMiB, std::size_t offset = 0)
      : length_(length), whole_(length + offset + alignment + 2 * page_size()) {
    void* const mapping =
        ::mmap(nullptr, whole_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) std::abort();
    mapping_ = static_cast<std::byte*>(mapping);
    const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(mapping) + page_size();
    const std::uintptr_t start = (first + alignment - 1) / alignment * alignment + offset;
    begin_ = mapping_ + (start - reinterpret_cast<std::uintptr_t>(mapping));
    if (::mprotect(begin_, length, PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;
  ~FreshMemory() { ::munmap(mapping_, whole_); }

  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] std::size_t size() const { return length_; }

  /// One entry a page: whether mincore calls it present.
  [[nodiscard]] std::vector<bool> present() const {
    std::vector<unsigned char> pages(length_ / page_size());
    if (::mincore(begin_, length_, pages.data()) != 0) std::abort();
    std::vector<bool> present(pages.size());
    for (std::size_t i = 0; i < pages.size(); ++i) present[i] = (pages[i] & 1) != 0;
    return present;
  }
  [[nodiscard]] std::size_t present_bytes() const {
    const std::vector<bool> pages = present();
    return static_cast<std::size_t>(std::count(pages.begin(), pages.end(), true)) * page_size();
  }

 private:
  std::byte* mapping_ = nullptr;
  std::byte* begin_ = nullptr;
  std::size_t length_;
  std::size_t whole_;
};

inline std::uint64_t minor_faults_of_thread() {
  rusage usage{};
  if (::getrusage(RUSAGE_THREAD, &usage) != 0) std::abort();
  return static_cast<std::uint64_t>(usage.ru_minflt);
}

/// Whether reading an untouched page maps a zero page, so that writing it faults again. Some
/// virtualised kernels have none.
inline bool read_faults_map_zero_page() {
  const FreshMemory memory(16 * page_size(), page_size());
  ::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE);
  for (std::size_t i = 0; i < memory.size(); i += page_size()) {
    static_cast<void>(*static_cast<volatile std::byte*>(memory.begin() + i));
  }
  const std::uint64_t before = minor_faults_of_thread();
  for (std::size_t i = 0; i < memory.size(); i += page_size()) {
    *static_cast<volatile std::byte*>(memory.begin() + i) = std::byte{1};
  }
  return minor_faults_of_thread() - before >= memory.size() / page_size();
}

/// Whether an atomic that changes nothing faults twice on an untouched page, as on arm64.
inline bool atomics_fault_twice() {
  const FreshMemory memory(16 * page_size(), page_size());
  ::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE);
  const std::uint64_t before = minor_faults_of_thread();
  std::uint64_t zero = 0;
  __asm__("" : "+r"(zero));  // a known 0 would be optimised away
  for (std::size_t i = 0; i < memory.size(); i += page_size()) {
    __atomic_fetch_add(reinterpret_cast<std::uint64_t*>(memory.begin() + i), zero,
                       __ATOMIC_RELAXED);
  }
  return minor_faults_of_thread() - before >= 2 * memory.size() / page_size();
}

/// Whether a store to huge-advised memory brings a huge page.
inline bool faults_bring_huge_pages() {
  const std::size_t huge = 2 * kMiB;
  const FreshMemory memory(huge, huge);
  if (::madvise(memory.begin(), huge, MADV_HUGEPAGE) != 0) return false;
  *static_cast<volatile std::byte*>(memory.begin()) = std::byte{1};
  return memory.present_bytes() == huge;
}

/// Whether MADV_POPULATE_WRITE populates. User-mode emulators report success and do nothing.
inline bool populate_write_works() {
  const FreshMemory memory(4 * page_size(), page_size());
  return ::madvise(memory.begin(), memory.size(), 23) == 0 &&
         memory.present_bytes() == memory.size();
}

/// Whether each page faults twice when MADV_POPULATE_READ comes before the store: emulators that
/// ignore it leave one fault.
inline bool populate_read_then_store_faults_twice() {
  const FreshMemory memory(16 * page_size(), page_size());
  ::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE);
  const std::uint64_t before = minor_faults_of_thread();
  if (::madvise(memory.begin(), memory.size(), 22) != 0) return false;
  for (std::size_t i = 0; i < memory.size(); i += page_size()) {
    *static_cast<volatile std::byte*>(memory.begin() + i) = std::byte{1};
  }
  return minor_faults_of_thread() - before >= 2 * memory.size() / page_size();
}

/// Whether MADV_COLLAPSE makes a huge page of one that was touched.
inline bool collapse_works() {
  const std::size_t huge = 2 * kMiB;
  const FreshMemory memory(huge, huge);
  *static_cast<volatile std::byte*>(memory.begin()) = std::byte{1};
  return ::madvise(memory.begin(), huge, 25) == 0 && memory.present_bytes() == huge;
}

/// Whether a fault count is exact: neither a sanitizer's shadow memory nor an emulator, known by
/// its MADV_POPULATE_WRITE, adds to it.
inline bool fault_counts_are_exact() {
  return !kSanitized && populate_write_works();
}

}  // namespace touchstone::heap::testing

#endif  // TOUCHSTONE_TESTS_HEAP_FRESH_MEMORY_H_
