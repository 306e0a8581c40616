// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_RESIDENCY_H_
#define TOUCHSTONE_HEAP_RESIDENCY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>
#include <touchstone/arch/machine.h>

/// What is really behind a range of addresses, and what it cost.
///
/// A source that cannot be read is an error (kUnavailable without procfs, kUnsupported where this
/// kernel lacks the call), never zeros. All functions are thread-safe; what they tell may be out of
/// date by the time it is read if other threads touch the same memory.
namespace touchstone::heap {

// ---- One range
// -------------------------------------------------------------------------------------

/// Which of the kernel's answers a Residency rests on.
enum class ResidencySource : std::uint8_t {
  kPagemapScan,  ///< ioctl(PAGEMAP_SCAN), Linux 6.7 on: knows all there is to know.
  kPagemap,      ///< /proc/self/pagemap: knows presence and swap, not huge pages.
  kMincore,      ///< mincore(2): knows presence alone, and needs no procfs.
};

/// "PAGEMAP_SCAN", "pagemap", "mincore". Never null.
[[nodiscard]] TOUCHSTONE_API const char* to_string(ResidencySource source) noexcept;

/// How much of a range is in memory. Exact for the range, whatever mappings it lies in. All in
/// bytes.
struct Residency {
  ResidencySource source = ResidencySource::kMincore;
  std::size_t length = 0;
  /// Mapped by a page table entry, the zero page included.
  std::size_t present = 0;
  /// Mapped to the zero page or the huge zero page: read before it was ever written. Unknown to
  /// pagemap and mincore.
  std::optional<std::size_t> zero{};
  /// In swap (or in migration). Unknown to mincore.
  std::optional<std::size_t> swapped{};
  /// Real memory mapped by a PMD (THP or hugetlb), without the huge zero page. Known to
  /// PAGEMAP_SCAN alone; of a range that is made of whole mappings, smaps() tells it too.
  std::optional<std::size_t> huge{};

  /// Bytes that hold memory of their own: present or swapped, the zero page left out where known.
  [[nodiscard]] std::size_t populated() const noexcept {
    return present + swapped.value_or(0) - zero.value_or(0);
  }
};

/// The residency of [address, address + length) by the best source that works here. A source is
/// used only after it told the truth about one page that was touched and one that was not.
///
/// Addresses that are not mapped are absent.
///
/// Errors: kMisaligned unless both are multiples of the base page; kInvalidArgument for a length of
/// 0; kOverflow; kUnavailable when no source works.
[[nodiscard]] TOUCHSTONE_API Result<Residency> residency_of(const void* address,
                                                            std::size_t length);

/// The same by one source only. kUnsupported where this kernel lacks it, kUnavailable where it
/// cannot be opened or does not tell the truth.
[[nodiscard]] TOUCHSTONE_API Result<Residency> residency_by(ResidencySource source,
                                                            const void* address,
                                                            std::size_t length);

/// Bytes from `address` on, up to `length`, that hold memory of their own without a gap, by the
/// best source: the exact progress of a call that stopped part-way. Errors as residency_of().
[[nodiscard]] TOUCHSTONE_API Result<std::size_t> populated_prefix(const void* address,
                                                                  std::size_t length);

/// What /proc/self/smaps says of the mappings that a range lies in. All in bytes.
struct Smaps {
  /// Mappings that overlap the range.
  std::size_t mappings = 0;
  /// Whether those mappings lie wholly within the range. If not, every figure counts parts outside
  /// it too: smaps tells of whole mappings only.
  bool exact = false;
  /// Bytes of the range that are mapped at all.
  std::size_t mapped = 0;
  std::size_t size = 0;
  std::size_t rss = 0;
  std::size_t pss = 0;
  std::size_t anonymous = 0;
  std::size_t anon_huge_pages = 0;
  std::size_t lazy_free = 0;
  std::size_t private_dirty = 0;
  std::size_t shared_hugetlb = 0;
  std::size_t private_hugetlb = 0;
  std::size_t swap = 0;
  std::size_t locked = 0;
  /// Whether every overlapping mapping may have PMD-mapped huge pages (THPeligible); unknown before
  /// Linux 5.0.
  std::optional<bool> thp_eligible{};
  /// All overlapping mappings carry the flag: "hg" (MADV_HUGEPAGE), "nh" (MADV_NOHUGEPAGE).
  bool advised_huge = false;
  bool advised_no_huge = false;
};

/// Reads `<proc>/self/smaps` up to the end of the range. Errors: kUnavailable without procfs or
/// when the file is malformed; kOutOfRange where nothing of the range is mapped.
[[nodiscard]] TOUCHSTONE_API Result<Smaps> smaps(const void* address, std::size_t length,
                                                 const arch::SystemRoots& roots = {});

/// The same from the text of a smaps file.
[[nodiscard]] TOUCHSTONE_API Result<Smaps> parse_smaps(std::string_view text, const void* address,
                                                       std::size_t length);

// ---- The whole system
// --------------------------------------------------------------------------------

/// Counters of `<proc>/vmstat`. They count for the whole system, other processes included: they
/// hint, and a verdict rests on smaps and getrusage. A counter that this kernel does not have is
/// nullopt.
struct Vmstat {
  std::optional<std::uint64_t> thp_fault_alloc{};
  std::optional<std::uint64_t> thp_fault_fallback{};
  std::optional<std::uint64_t> thp_collapse_alloc{};
  std::optional<std::uint64_t> thp_zero_page_alloc{};
  std::optional<std::uint64_t> thp_split_page{};
  std::optional<std::uint64_t> thp_split_pmd{};
  std::optional<std::uint64_t> pgfault{};
  std::optional<std::uint64_t> pgmajfault{};

  /// What happened between `before` and this: each counter that both have, subtracted.
  [[nodiscard]] TOUCHSTONE_API Vmstat since(const Vmstat& before) const noexcept;
};

/// Reads `<proc>/vmstat`; kUnavailable without it.
[[nodiscard]] TOUCHSTONE_API Result<Vmstat> vmstat(const arch::SystemRoots& roots = {});

// ---- Faults
// ------------------------------------------------------------------------------------------

/// Page faults as getrusage(2) counts them. Faults that MADV_POPULATE_* handles are counted as
/// well.
struct Faults {
  std::uint64_t minor = 0;
  std::uint64_t major = 0;

  [[nodiscard]] constexpr Faults since(const Faults& before) const noexcept {
    return {minor - before.minor, major - before.major};
  }
};

/// Those of the calling thread (RUSAGE_THREAD).
[[nodiscard]] TOUCHSTONE_API Result<Faults> thread_faults() noexcept;
/// Those of the whole process, ended threads included (RUSAGE_SELF).
[[nodiscard]] TOUCHSTONE_API Result<Faults> process_faults() noexcept;

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_RESIDENCY_H_
