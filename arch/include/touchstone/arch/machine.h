// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_MACHINE_H_
#define TOUCHSTONE_ARCH_MACHINE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>

/// What this machine and its kernel are, as far as heap memory is concerned.
///
/// Every value that comes from a file is a Result: a file that is missing, unreadable or malformed
/// is ErrorCode::kUnavailable with the file named in `operation`, never a guess. All functions are
/// thread-safe and read the files anew at every call.
namespace touchstone::arch {

/// Where the kernel's files are. Tests point both at folders of their own.
struct SystemRoots {
  /// Put before every mount point that mountinfo names (for the cgroup trees); "" on a real system.
  std::string prefix{};
  std::string proc = "/proc";
  std::string sys = "/sys";
};

/// Sizes that memory is mapped in, in bytes; both are powers of two.
///
/// A plain value so that 4K/2M, 16K/32M and 64K/512M can all be tested on one machine: whatever
/// works in chunks takes a Geometry and asks the machine for one only when given none.
struct Geometry {
  /// The smallest page: 4 KiB, or on arm64 also 16 KiB or 64 KiB.
  std::size_t base_page = 0;
  /// What one PMD entry maps, which is the size of a transparent huge page: 2 MiB, 32 MiB, 512 MiB.
  std::size_t pmd = 0;

  /// Base pages in a huge page.
  [[nodiscard]] constexpr std::size_t pages_per_pmd() const noexcept { return pmd / base_page; }

  /// Powers of two, with pmd a larger multiple of base_page.
  [[nodiscard]] constexpr bool valid() const noexcept {
    return std::has_single_bit(base_page) && std::has_single_bit(pmd) && pmd > base_page;
  }

  friend bool operator==(const Geometry&, const Geometry&) = default;
};

inline constexpr Geometry kGeometry4K{std::size_t{4} << 10, std::size_t{2} << 20};
inline constexpr Geometry kGeometry16K{std::size_t{16} << 10, std::size_t{32} << 20};
inline constexpr Geometry kGeometry64K{std::size_t{64} << 10, std::size_t{512} << 20};

/// The base page of this process (AT_PAGESZ), in bytes. Never fails.
[[nodiscard]] TOUCHSTONE_API std::size_t base_page_size() noexcept;

/// The size of a PMD-mapped huge page, from `<sys>/kernel/mm/transparent_hugepage/hpage_pmd_size`
/// (never from Hugepagesize, which is the default of hugetlb). kUnavailable where the kernel has no
/// THP.
[[nodiscard]] TOUCHSTONE_API Result<std::size_t> pmd_size(const SystemRoots& roots = {});

/// base_page_size() and pmd_size(). Where the kernel does not tell the PMD size, it follows from
/// the format of the page tables, which has 8-byte entries and tables of one page on both
/// architectures: base_page * base_page / 8.
[[nodiscard]] TOUCHSTONE_API Geometry geometry(const SystemRoots& roots = {});

// ---- Transparent huge pages ----

/// `<sys>/kernel/mm/transparent_hugepage/enabled`.
enum class ThpMode : std::uint8_t { kAlways, kMadvise, kNever };

/// `<sys>/kernel/mm/transparent_hugepage/defrag`: what a fault does when no huge page is at hand.
enum class ThpDefrag : std::uint8_t { kAlways, kDefer, kDeferMadvise, kMadvise, kNever };

/// `<sys>/kernel/mm/transparent_hugepage/hugepages-<N>kB/enabled` (Linux 6.8 on).
enum class MthpMode : std::uint8_t { kAlways, kInherit, kMadvise, kNever };

/// One size of multi-size THP.
struct MthpSize {
  std::size_t bytes = 0;
  MthpMode mode = MthpMode::kNever;

  friend bool operator==(const MthpSize&, const MthpSize&) = default;
};

/// The words that sysfs uses, such as "madvise" and "defer+madvise". Never null.
[[nodiscard]] TOUCHSTONE_API const char* to_string(ThpMode mode) noexcept;
[[nodiscard]] TOUCHSTONE_API const char* to_string(ThpDefrag defrag) noexcept;
[[nodiscard]] TOUCHSTONE_API const char* to_string(MthpMode mode) noexcept;

[[nodiscard]] TOUCHSTONE_API Result<ThpMode> thp_mode(const SystemRoots& roots = {});
[[nodiscard]] TOUCHSTONE_API Result<ThpDefrag> thp_defrag(const SystemRoots& roots = {});
/// Whether a read fault maps the huge zero page (use_zero_page), as it does by default.
[[nodiscard]] TOUCHSTONE_API Result<bool> thp_uses_zero_page(const SystemRoots& roots = {});
/// The anonymous sizes, smallest first; empty before Linux 6.8.
[[nodiscard]] TOUCHSTONE_API Result<std::vector<MthpSize>> mthp_sizes(
    const SystemRoots& roots = {});

// ---- Kernel ----

/// Say the version beside a result; decide nothing by it: distributions move features both ways.
struct KernelVersion {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  /// All of it, such as "6.12.57+deb13-amd64".
  std::string release{};

  [[nodiscard]] bool at_least(unsigned wanted_major, unsigned wanted_minor) const noexcept {
    return major > wanted_major || (major == wanted_major && minor >= wanted_minor);
  }
};

/// From `<proc>/sys/kernel/osrelease`, or uname(2) where `roots.proc` is "/proc" and that is
/// missing.
[[nodiscard]] TOUCHSTONE_API Result<KernelVersion> kernel_version(const SystemRoots& roots = {});

/// Parses a release string: "6.1", "6.12.57+deb13-amd64", "6.18-rc1". kInvalidArgument else.
[[nodiscard]] TOUCHSTONE_API Result<KernelVersion> parse_kernel_version(std::string_view release);

// ---- CPU ----

/// What the CPU has that matters to atomics, copying, zeroing and code pages. The arm64 ones are
/// those that the kernel passes in AT_HWCAP, AT_HWCAP2 and AT_HWCAP3; the x86 ones are CPUID's.
enum class CpuFeature : std::uint8_t {
  kLse,        ///< FEAT_LSE: LDADD, SWP, CAS, CASP … (HWCAP_ATOMICS).
  kLse2,       ///< FEAT_LSE2: single-copy atomic unaligned accesses within 16 bytes (HWCAP_USCAT).
  kLse128,     ///< FEAT_LSE128: LDCLRP, LDSETP, SWPP.
  kLsfe,       ///< FEAT_LSFE: atomic floating point in memory.
  kLs64,       ///< FEAT_LS64: LD64B, ST64B.
  kLrcpc,      ///< FEAT_LRCPC: LDAPR.
  kLrcpc2,     ///< FEAT_LRCPC2: LDAPUR, STLUR.
  kLrcpc3,     ///< FEAT_LRCPC3: LDIAPP, STILP.
  kMops,       ///< FEAT_MOPS: CPY*, SET*.
  kMte,        ///< FEAT_MTE2: allocation tags.
  kMte3,       ///< FEAT_MTE3: asymmetric tag checks.
  kBti,        ///< FEAT_BTI: branch targets.
  kPauth,      ///< FEAT_PAuth: address authentication (HWCAP_PACA).
  kGcs,        ///< FEAT_GCS: guarded control stacks.
  kPoe,        ///< FEAT_S1POE: permission overlays (protection keys).
  kSve,        ///< FEAT_SVE.
  kSve2,       ///< FEAT_SVE2.
  kCx16,       ///< cmpxchg16b.
  kErms,       ///< Fast rep movsb and rep stosb.
  kFsrm,       ///< Fast short rep movsb.
  kFzrm,       ///< Fast zero-length rep movsb.
  kFsrs,       ///< Fast short rep stosb.
  kClzero,     ///< clzero (AMD).
  kMovdiri,    ///< movdiri: direct store.
  kMovdir64b,  ///< movdir64b: 64-byte direct store.
  kAvx2,       ///< AVX2, and the kernel saves its state.
  kAvx512f,    ///< AVX-512 Foundation, and the kernel saves its state.
  kPku,        ///< Protection keys, enabled by the kernel (OSPKE).
  kShstk,      ///< Shadow stacks.
  kIbt,        ///< Indirect branch tracking.
};

inline constexpr unsigned kCpuFeatureCount = static_cast<unsigned>(CpuFeature::kIbt) + 1;

/// "lse128", "cx16" and so on. Never null.
[[nodiscard]] TOUCHSTONE_API const char* to_string(CpuFeature feature) noexcept;

/// A set of features; a plain value.
class CpuFeatures {
 public:
  constexpr void add(CpuFeature feature) noexcept { bits_ |= bit(feature); }
  [[nodiscard]] constexpr bool has(CpuFeature feature) const noexcept {
    return (bits_ & bit(feature)) != 0;
  }
  /// Names in the order of the enum, parted by single blanks.
  [[nodiscard]] TOUCHSTONE_API std::string to_string() const;

  friend bool operator==(const CpuFeatures&, const CpuFeatures&) = default;

 private:
  [[nodiscard]] static constexpr std::uint64_t bit(CpuFeature feature) noexcept {
    return std::uint64_t{1} << static_cast<unsigned>(feature);
  }
  std::uint64_t bits_ = 0;
};

/// What the arm64 kernel's auxiliary vector says. Bit numbers: Linux
/// arch/arm64/include/uapi/asm/hwcap.h (HWCAP3: as of 6.18). Works on either host.
[[nodiscard]] TOUCHSTONE_API CpuFeatures features_of_hwcaps(std::uint64_t hwcap,
                                                            std::uint64_t hwcap2,
                                                            std::uint64_t hwcap3) noexcept;

/// The CPUID registers that features_of_cpuid() reads.
struct CpuidLeaves {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint32_t leaf80000008_ebx = 0;
  /// XGETBV(0), or 0 without OSXSAVE.
  std::uint64_t xcr0 = 0;
};

/// What CPUID says. Works on either host.
[[nodiscard]] TOUCHSTONE_API CpuFeatures features_of_cpuid(const CpuidLeaves& leaves) noexcept;

/// The features of the CPU that runs this.
[[nodiscard]] TOUCHSTONE_API CpuFeatures cpu_features() noexcept;

/// Bytes that DC ZVA zeroes (DCZID_EL0), or 0 where it is prohibited and on x86-64.
[[nodiscard]] TOUCHSTONE_API std::size_t zva_block_size() noexcept;

/// CPUs this process may run on (sched_getaffinity); at least 1.
[[nodiscard]] TOUCHSTONE_API unsigned usable_cpus() noexcept;

// ---- Limits ----

/// The memory cgroup that leaves this process the least room, among its own and all ancestors.
struct CgroupMemory {
  /// 1 or 2.
  int version = 0;
  /// The folder of the cgroup that binds.
  std::string directory{};
  /// memory.limit_in_bytes or memory.max.
  std::uint64_t limit = 0;
  /// memory.usage_in_bytes or memory.current.
  std::uint64_t usage = 0;
  /// The part of usage that the kernel can drop at need: page cache (and, in v2, reclaimable slab),
  /// from memory.stat. Anonymous memory is not counted, whether or not there is swap: a heap that
  /// is pre-touched into swap is no gain.
  std::uint64_t reclaimable = 0;

  /// What can still be charged before the limit: limit - (usage - reclaimable), not below 0.
  [[nodiscard]] constexpr std::uint64_t headroom() const noexcept {
    const std::uint64_t kept = usage > reclaimable ? usage - reclaimable : 0;
    return limit > kept ? limit - kept : 0;
  }
};

/// The binding memory limit of this process's cgroups, v1 and v2 together; nullopt where none of
/// them has a limit. The folders come from `<proc>/self/cgroup` and `<proc>/self/mountinfo`. A
/// level without the file has no limit of its own; a file that cannot be read or parsed is
/// kUnavailable.
[[nodiscard]] TOUCHSTONE_API Result<std::optional<CgroupMemory>> cgroup_memory(
    const SystemRoots& roots = {});

/// MemAvailable + SwapFree of `<proc>/meminfo`, in bytes: what can be touched before the kernel has
/// to kill something.
[[nodiscard]] TOUCHSTONE_API Result<std::uint64_t> available_memory(const SystemRoots& roots = {});

/// The most mappings a process may have (`<proc>/sys/vm/max_map_count`).
[[nodiscard]] TOUCHSTONE_API Result<std::size_t> max_map_count(const SystemRoots& roots = {});

/// `<proc>/sys/vm/overcommit_memory`: 0 heuristic, 1 always, 2 never.
[[nodiscard]] TOUCHSTONE_API Result<int> overcommit_mode(const SystemRoots& roots = {});

/// Soft RLIMIT_AS in bytes; nullopt is no limit.
[[nodiscard]] TOUCHSTONE_API Result<std::optional<std::uint64_t>> address_space_limit();

/// Everything above at one moment, for reports.
struct Machine {
  /// "x86_64" or "aarch64".
  const char* architecture = "";
  Geometry geometry{};
  /// Whether geometry.pmd was read rather than derived from the base page.
  Result<std::size_t> pmd_size{};
  Result<ThpMode> thp_mode{};
  Result<ThpDefrag> thp_defrag{};
  Result<bool> thp_uses_zero_page{};
  Result<std::vector<MthpSize>> mthp_sizes{};
  Result<KernelVersion> kernel{};
  CpuFeatures cpu{};
  std::size_t zva_block = 0;
  unsigned cpus = 1;
  Result<std::optional<CgroupMemory>> cgroup_memory{};
  Result<std::uint64_t> available_memory{};
  Result<std::size_t> max_map_count{};
  Result<int> overcommit_mode{};
  Result<std::optional<std::uint64_t>> address_space_limit{};
};

[[nodiscard]] TOUCHSTONE_API Machine read_machine(const SystemRoots& roots = {});

}  // namespace touchstone::arch

#endif  // TOUCHSTONE_ARCH_MACHINE_H_
