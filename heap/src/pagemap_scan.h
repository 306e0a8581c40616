// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_PAGEMAP_SCAN_H_
#define TOUCHSTONE_HEAP_SRC_PAGEMAP_SCAN_H_

#include <cstdint>

#include <sys/ioctl.h>

// ioctl(PAGEMAP_SCAN) on /proc/self/pagemap, from Linux include/uapi/linux/fs.h (6.7), for older
// headers; and the entries of that file, from Documentation/admin-guide/mm/pagemap.rst.
namespace touchstone::heap {

struct ScanArgument {
  std::uint64_t size;
  std::uint64_t flags;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t walk_end;
  std::uint64_t regions;
  std::uint64_t region_count;
  std::uint64_t max_pages;
  std::uint64_t category_inverted;
  std::uint64_t category_mask;
  std::uint64_t category_anyof_mask;
  std::uint64_t return_mask;
};
static_assert(sizeof(ScanArgument) == 96);
struct ScanRegion {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t categories;
};
inline constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanArgument);
inline constexpr std::uint64_t kPageIsWritten = 1 << 1;
inline constexpr std::uint64_t kPageIsFile = 1 << 2;
inline constexpr std::uint64_t kPageIsPresent = 1 << 3;
inline constexpr std::uint64_t kPageIsSwapped = 1 << 4;
inline constexpr std::uint64_t kPageIsZero = 1 << 5;
inline constexpr std::uint64_t kPageIsHuge = 1 << 6;
/// Flags: write-protect what matches, and only where WP_ASYNC is on.
inline constexpr std::uint64_t kScanProtect = 1 << 0;
inline constexpr std::uint64_t kScanCheckAsync = 1 << 1;

inline constexpr std::uint64_t kEntryPresent = std::uint64_t{1} << 63;
inline constexpr std::uint64_t kEntrySwapped = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kEntryFile = std::uint64_t{1} << 61;
inline constexpr std::uint64_t kEntrySoftDirty = std::uint64_t{1} << 55;

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_PAGEMAP_SCAN_H_
