// SPDX-License-Identifier: GPL-2.0-only
#include "machine.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

namespace lab {
namespace {

constexpr const char* kThp = "/sys/kernel/mm/transparent_hugepage/";

[[noreturn]] void die(const char* what) {
  perror(what);
  exit(1);
}

rusage usage(int who) {
  rusage u = {};
  getrusage(who, &u);
  return u;
}

// The sum of one field of /proc/self/smaps over the mappings that lie in [begin, end).
int64_t smaps_kb(const void* begin, const void* end, std::string_view field) {
  std::istringstream maps(read_file("/proc/self/smaps"));
  std::string line;
  bool inside = false;
  int64_t sum = 0;
  while (std::getline(maps, line)) {
    uintptr_t from = 0, to = 0;
    if (sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
      inside = from < reinterpret_cast<uintptr_t>(end) && to > reinterpret_cast<uintptr_t>(begin);
    } else if (inside && line.starts_with(field) && line[field.size()] == ':') {
      sum += strtoll(line.c_str() + field.size() + 1, nullptr, 10);
    }
  }
  return sum;
}

}  // namespace

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t pmd_size() {
  static const size_t size =
      strtoull(read_file(std::string(kThp) + "hpage_pmd_size").c_str(), nullptr, 10);
  return size;
}

std::string read_file(const std::string& path) {
  std::string out;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return out;
  char buffer[16384];
  for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;)
    out.append(buffer, static_cast<size_t>(got));
  close(fd);
  return out;
}

void write_file(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    die(path.c_str());
  close(fd);
}

ThpEvents thp_events() {
  ThpEvents events;
  std::istringstream vmstat(read_file("/proc/vmstat"));
  std::string name;
  for (int64_t value; vmstat >> name >> value;) {
    if (name == "thp_fault_alloc") events.fault_alloc = value;
    if (name == "thp_fault_fallback") events.fault_fallback = value;
    if (name == "thp_split_pmd") events.split_pmd = value;
    if (name == "thp_zero_page_alloc") events.zero_page_alloc = value;
  }
  return events;
}

int64_t anon_huge_kb(const void* begin, const void* end) {
  return smaps_kb(begin, end, "AnonHugePages");
}

int64_t resident_kb(const void* begin, const void* end) {
  return smaps_kb(begin, end, "Rss");
}

int64_t dirty_kb(const void* begin, const void* end) {
  return smaps_kb(begin, end, "Shared_Dirty") + smaps_kb(begin, end, "Private_Dirty");
}

int64_t minor_faults_of_thread() {
  return usage(RUSAGE_THREAD).ru_minflt;
}
int64_t major_faults_of_thread() {
  return usage(RUSAGE_THREAD).ru_majflt;
}
int64_t minor_faults_of_process() {
  return usage(RUSAGE_SELF).ru_minflt;
}

int64_t now() {
  timespec t = {};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void settle(ThpMode mode) {
  if (pmd_size() == 0) return;
  const std::string thp = kThp;
  write_file(thp + "enabled", mode == ThpMode::kAlways ? "always" : "madvise");
  write_file(thp + "defrag", mode == ThpMode::kAlways ? "always" : "madvise");
  write_file(thp + "use_zero_page", "1");
  write_file(thp + "khugepaged/scan_sleep_millisecs", "4000000000");
  write_file(thp + "khugepaged/alloc_sleep_millisecs", "4000000000");
  write_file(thp + "khugepaged/defrag", "0");
}

Mapping::Mapping(size_t bytes, size_t alignment, int protection, int flags, int file)
    : bytes_(bytes) {
  // Reserve more than is wanted and keep what is around the region, so that it never merges with a
  // neighbour whose pages would then be counted.
  if (alignment < page_size()) alignment = page_size();
  reserved_bytes_ = bytes + 2 * alignment;
  reserved_ =
      mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved_ == MAP_FAILED) die("mmap of a reservation");
  const auto address = reinterpret_cast<uintptr_t>(reserved_) + page_size();
  begin_ = static_cast<std::byte*>(reserved_) + page_size() +
           (alignment - address % alignment) % alignment;
  if (mmap(begin_, bytes, protection, flags | MAP_FIXED, file, 0) == MAP_FAILED)
    die("mmap of a region");
}

Mapping::~Mapping() {
  munmap(reserved_, reserved_bytes_);
}

}  // namespace lab
