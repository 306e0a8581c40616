// SPDX-License-Identifier: GPL-2.0-only
// What the guest reads from its own kernel: page sizes, counters, memory maps.
#ifndef TOUCHSTONE_LAB_MACHINE_H
#define TOUCHSTONE_LAB_MACHINE_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lab {

size_t page_size();
size_t pmd_size();  // of a PMD-mapped transparent huge page; 0 without THP

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view text);

// Events of /proc/vmstat that tell what THP did.
struct ThpEvents {
  int64_t fault_alloc = 0;
  int64_t fault_fallback = 0;
  int64_t split_pmd = 0;
  int64_t zero_page_alloc = 0;
};
ThpEvents thp_events();

// kB of anonymous huge pages mapped in [begin, end).
int64_t anon_huge_kb(const void* begin, const void* end);

// kB resident in [begin, end), all kinds.
int64_t resident_kb(const void* begin, const void* end);

// kB in [begin, end) whose page table entries or pages are dirty.
int64_t dirty_kb(const void* begin, const void* end);

int64_t minor_faults_of_thread();
int64_t major_faults_of_thread();
int64_t minor_faults_of_process();

// CLOCK_MONOTONIC in ns. With QEMU's -icount shift=0 this is the number of guest instructions.
int64_t now();

enum class ThpMode { kMadvise, kAlways };

// Sets a THP-friendly, quiet environment: THP by madvise only unless told otherwise, no khugepaged.
void settle(ThpMode mode = ThpMode::kMadvise);

// A mapping that may be aligned to more than a page, with inaccessible pages around it; unmapped at
// the end.
class Mapping {
 public:
  Mapping(size_t bytes, size_t alignment, int protection, int flags, int file = -1);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] std::byte* end() const { return begin_ + bytes_; }
  [[nodiscard]] size_t size() const { return bytes_; }

 private:
  void* reserved_ = nullptr;
  size_t reserved_bytes_ = 0;
  std::byte* begin_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lab

#endif  // TOUCHSTONE_LAB_MACHINE_H
