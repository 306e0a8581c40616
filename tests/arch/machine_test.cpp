// SPDX-License-Identifier: MIT
#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <touchstone/arch/machine.h>

#include "fake_roots.h"

namespace touchstone::arch {
namespace {

using ::testing::ElementsAre;
using testing::FakeRoots;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

template <typename T>
void expect_unavailable(const Result<T>& result, std::string_view file, int system_errno) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(result.error().operation, HasSubstr(file));
  EXPECT_EQ(result.error().system_errno, system_errno);
}

// ---- Geometry ----

TEST(Geometry, TheThreeOfArm64AreValid) {
  for (const Geometry& each : {kGeometry4K, kGeometry16K, kGeometry64K}) {
    EXPECT_TRUE(each.valid());
    // Tables of one base page with entries of 8 bytes.
    EXPECT_EQ(each.pages_per_pmd(), each.base_page / 8);
  }
}

TEST(Geometry, OthersAreNot) {
  EXPECT_FALSE((Geometry{}).valid());
  EXPECT_FALSE((Geometry{4096, 4096}).valid());
  EXPECT_FALSE((Geometry{4096, 3 << 20}).valid());
  EXPECT_FALSE((Geometry{5000, 2 << 20}).valid());
  EXPECT_FALSE((Geometry{2 << 20, 4096}).valid());
}

TEST(Geometry, ComesFromHpagePmdSize) {
  const FakeRoots fake;
  fake.write_thp("hpage_pmd_size", "33554432\n");
  EXPECT_EQ(pmd_size(fake.roots()), std::size_t{32} << 20);
  EXPECT_EQ(geometry(fake.roots()), (Geometry{base_page_size(), std::size_t{32} << 20}));
}

TEST(Geometry, WithoutSysfsFollowsFromThePageTables) {
  const FakeRoots fake;
  expect_unavailable(pmd_size(fake.roots()), "hpage_pmd_size", ENOENT);
  const std::size_t base = base_page_size();
  EXPECT_EQ(geometry(fake.roots()), (Geometry{base, base * base / 8}));
}

TEST(Geometry, MalformedPmdSizesAreNotBelieved) {
  const FakeRoots fake;
  for (const char* text : {"", "\n", "two", "2097153\n", "0\n", "-2097152\n", "2097152 kB\n",
                           "99999999999999999999999\n"}) {
    fake.write_thp("hpage_pmd_size", text);
    expect_unavailable(pmd_size(fake.roots()), "hpage_pmd_size", 0);
  }
  fake.make_unreadable("sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  expect_unavailable(pmd_size(fake.roots()), "hpage_pmd_size", EISDIR);
  EXPECT_TRUE(geometry(fake.roots()).valid());
}

TEST(Geometry, BasePageIsTheKernels) {
  EXPECT_EQ(base_page_size(), static_cast<std::size_t>(::getpagesize()));
}

// ---- Transparent huge pages ----

TEST(Thp, EveryModeIsRead) {
  const FakeRoots fake;
  fake.write_thp("enabled", "[always] madvise never\n");
  EXPECT_EQ(thp_mode(fake.roots()), ThpMode::kAlways);
  fake.write_thp("enabled", "always [madvise] never\n");
  EXPECT_EQ(thp_mode(fake.roots()), ThpMode::kMadvise);
  fake.write_thp("enabled", "always madvise [never]\n");
  EXPECT_EQ(thp_mode(fake.roots()), ThpMode::kNever);

  const std::pair<const char*, ThpDefrag> defrags[] = {
      {"[always] defer defer+madvise madvise never", ThpDefrag::kAlways},
      {"always [defer] defer+madvise madvise never", ThpDefrag::kDefer},
      {"always defer [defer+madvise] madvise never", ThpDefrag::kDeferMadvise},
      {"always defer defer+madvise [madvise] never", ThpDefrag::kMadvise},
      {"always defer defer+madvise madvise [never]", ThpDefrag::kNever}};
  for (const auto& [text, mode] : defrags) {
    fake.write_thp("defrag", text);
    EXPECT_EQ(thp_defrag(fake.roots()), mode);
    EXPECT_THAT(text, HasSubstr("[" + std::string(to_string(mode)) + "]"));
  }
  fake.write_thp("use_zero_page", "1\n");
  EXPECT_EQ(thp_uses_zero_page(fake.roots()), true);
  fake.write_thp("use_zero_page", "0\n");
  EXPECT_EQ(thp_uses_zero_page(fake.roots()), false);
}

TEST(Thp, MissingUnreadableAndMalformedAreTold) {
  const FakeRoots fake;
  expect_unavailable(thp_mode(fake.roots()), "enabled", ENOENT);
  expect_unavailable(thp_defrag(fake.roots()), "defrag", ENOENT);
  expect_unavailable(thp_uses_zero_page(fake.roots()), "use_zero_page", ENOENT);
  for (const char* text :
       {"", "always madvise never", "[sometimes]", "]always[", "[always", "[]"}) {
    fake.write_thp("enabled", text);
    expect_unavailable(thp_mode(fake.roots()), "enabled", 0);
    fake.write_thp("defrag", text);
    if (std::string_view(text) != "[always") {
      expect_unavailable(thp_defrag(fake.roots()), "defrag", 0);
    }
  }
  fake.write_thp("use_zero_page", "2\n");
  expect_unavailable(thp_uses_zero_page(fake.roots()), "use_zero_page", 0);
  fake.make_unreadable("sys/kernel/mm/transparent_hugepage/enabled");
  expect_unavailable(thp_mode(fake.roots()), "enabled", EISDIR);
}

TEST(Thp, SizesOfMthpAreSortedAndThoseOfSharedMemoryLeftOut) {
  const FakeRoots fake;
  fake.write_thp("hugepages-2048kB/enabled", "always [inherit] madvise never\n");
  fake.write_thp("hugepages-64kB/enabled", "always inherit [madvise] never\n");
  fake.write_thp("hugepages-1024kB/enabled", "[always] inherit madvise never\n");
  fake.write_thp("hugepages-16kB/enabled", "always inherit madvise [never]\n");
  fake.write_thp("hugepages-8kB/shmem_enabled", "always inherit within_size advise [never]\n");
  const auto sizes = mthp_sizes(fake.roots());
  ASSERT_TRUE(sizes.has_value());
  EXPECT_THAT(
      *sizes,
      ElementsAre(MthpSize{16 << 10, MthpMode::kNever}, MthpSize{64 << 10, MthpMode::kMadvise},
                  MthpSize{1 << 20, MthpMode::kAlways}, MthpSize{2 << 20, MthpMode::kInherit}));
}

TEST(Thp, NoMthpIsEmptyAndNoThpIsAnError) {
  const FakeRoots fake;
  expect_unavailable(mthp_sizes(fake.roots()), "hugepages", ENOENT);
  fake.write_thp("enabled", "always [madvise] never\n");
  const auto none = mthp_sizes(fake.roots());
  ASSERT_TRUE(none.has_value());
  EXPECT_THAT(*none, IsEmpty());
  fake.write_thp("hugepages-64kB/enabled", "maybe\n");
  expect_unavailable(mthp_sizes(fake.roots()), "hugepages", 0);
  fake.remove("sys/kernel/mm/transparent_hugepage/hugepages-64kB");
  fake.write_thp("hugepages-largekB/enabled", "[always] inherit madvise never\n");
  expect_unavailable(mthp_sizes(fake.roots()), "hugepages", 0);
}

// ---- Kernel ----

TEST(Kernel, ReleasesAreParsed) {
  const auto debian = parse_kernel_version("6.12.57+deb13-amd64\n");
  ASSERT_TRUE(debian.has_value());
  EXPECT_EQ(debian->major, 6U);
  EXPECT_EQ(debian->minor, 12U);
  EXPECT_EQ(debian->patch, 57U);
  EXPECT_EQ(debian->release, "6.12.57+deb13-amd64");
  const auto candidate = parse_kernel_version("6.18-rc1");
  ASSERT_TRUE(candidate.has_value());
  EXPECT_EQ(candidate->minor, 18U);
  EXPECT_EQ(candidate->patch, 0U);
  EXPECT_TRUE(candidate->at_least(6, 18));
  EXPECT_TRUE(candidate->at_least(5, 99));
  EXPECT_FALSE(candidate->at_least(6, 19));
  EXPECT_FALSE(candidate->at_least(7, 0));
}

TEST(Kernel, OtherTextIsRefused) {
  for (const char* text : {"", "6", "6.", "six.one", ".6.1", "-6.1", "99999999999.1"}) {
    const auto version = parse_kernel_version(text);
    ASSERT_FALSE(version.has_value()) << text;
    EXPECT_EQ(version.error().code, ErrorCode::kInvalidArgument);
  }
  const FakeRoots fake;
  expect_unavailable(kernel_version(fake.roots()), "osrelease", ENOENT);
  fake.write("proc/sys/kernel/osrelease", "banana\n");
  expect_unavailable(kernel_version(fake.roots()), "osrelease", 0);
  fake.write("proc/sys/kernel/osrelease", "6.1.0-40-arm64\n");
  EXPECT_EQ(kernel_version(fake.roots())->minor, 1U);
}

TEST(Kernel, ThisOneHasAVersion) {
  ASSERT_TRUE(kernel_version().has_value());
  EXPECT_TRUE(kernel_version()->at_least(4, 0));
}

// ---- CPU ----

TEST(Cpu, EveryFeatureHasAName) {
  std::set<std::string> names;
  for (unsigned i = 0; i < kCpuFeatureCount; ++i) {
    names.insert(to_string(static_cast<CpuFeature>(i)));
  }
  EXPECT_EQ(names.size(), kCpuFeatureCount);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_STREQ(to_string(static_cast<CpuFeature>(kCpuFeatureCount)), "unknown");
}

TEST(Cpu, HwcapBitsMeanWhatTheKernelSays) {
  EXPECT_EQ(features_of_hwcaps(0, 0, 0), CpuFeatures{});
  EXPECT_EQ(features_of_hwcaps(1UL << 8, 0, 0).to_string(), "lse");
  EXPECT_EQ(features_of_hwcaps(1UL << 25, 0, 0).to_string(), "lse2");
  EXPECT_EQ(features_of_hwcaps(0, 1UL << 47, 0).to_string(), "lse128");
  EXPECT_EQ(features_of_hwcaps(0, 1UL << 43, 0).to_string(), "mops");
  EXPECT_EQ(features_of_hwcaps(0, 1UL << 17 | 1UL << 18, 0).to_string(), "mte bti");
  EXPECT_EQ(features_of_hwcaps(0, 0, 1UL << 2 | 1UL << 3).to_string(), "lsfe ls64");
  const CpuFeatures all = features_of_hwcaps(UINT64_MAX, UINT64_MAX, UINT64_MAX);
  EXPECT_TRUE(all.has(CpuFeature::kSve2));
  EXPECT_FALSE(all.has(CpuFeature::kCx16));
}

TEST(Cpu, CpuidBitsMeanWhatTheManualsSay) {
  EXPECT_EQ(features_of_cpuid({}), CpuFeatures{});
  EXPECT_EQ(features_of_cpuid({.leaf1_ecx = 1U << 13}).to_string(), "cx16");
  EXPECT_EQ(features_of_cpuid({.leaf7_ebx = 1U << 9}).to_string(), "erms");
  EXPECT_EQ(features_of_cpuid({.leaf7_ecx = 1U << 28}).to_string(), "movdir64b");
  EXPECT_EQ(features_of_cpuid({.leaf80000008_ebx = 1}).to_string(), "clzero");
  // Vector registers count only when the kernel saves them.
  const std::uint32_t vectors = 1U << 5 | 1U << 16;
  EXPECT_EQ(features_of_cpuid({.leaf7_ebx = vectors}), CpuFeatures{});
  EXPECT_EQ(features_of_cpuid({.leaf7_ebx = vectors, .xcr0 = 0x7}).to_string(), "avx2");
  EXPECT_EQ(features_of_cpuid({.leaf7_ebx = vectors, .xcr0 = 0xe7}).to_string(), "avx2 avx512f");
}

TEST(Cpu, AgreesWithProcCpuinfo) {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; std::getline(file, line) && flags.empty();) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) flags.insert(word);
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags";
  // Those that the kernel lists under a name of its own; it lists none that the CPU lacks.
  const std::pair<const char*, CpuFeature> known[] = {
      {"atomics", CpuFeature::kLse},   {"uscat", CpuFeature::kLse2},
      {"lrcpc", CpuFeature::kLrcpc},   {"sve", CpuFeature::kSve},
      {"sve2", CpuFeature::kSve2},     {"bti", CpuFeature::kBti},
      {"mte", CpuFeature::kMte},       {"mops", CpuFeature::kMops},
      {"lse128", CpuFeature::kLse128}, {"cx16", CpuFeature::kCx16},
      {"erms", CpuFeature::kErms},     {"fsrm", CpuFeature::kFsrm},
      {"clzero", CpuFeature::kClzero}, {"movdiri", CpuFeature::kMovdiri},
      {"avx2", CpuFeature::kAvx2},     {"avx512f", CpuFeature::kAvx512f},
      {"ospke", CpuFeature::kPku},     {"movdir64b", CpuFeature::kMovdir64b}};
  const CpuFeatures features = cpu_features();
  std::size_t seen = 0;
  for (const auto& [name, feature] : known) {
    if (!flags.contains(name)) continue;
    ++seen;
    EXPECT_TRUE(features.has(feature)) << name;
  }
  EXPECT_GT(seen, 0U);
}

TEST(Cpu, ZvaBlockIsAPowerOfTwoOrNone) {
  const std::size_t block = zva_block_size();
#if defined(__x86_64__)
  EXPECT_EQ(block, 0U);
#else
  EXPECT_TRUE(block == 0 || (std::has_single_bit(block) && block >= 4 && block <= 2048)) << block;
#endif
}

TEST(Cpu, AtLeastOneIsUsable) {
  EXPECT_GE(usable_cpus(), 1U);
  EXPECT_LE(usable_cpus(), static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_CONF)));
}

// ---- cgroups ----

TEST(CgroupV2, TheLevelWithTheLeastRoomBinds) {
  const FakeRoots fake;
  fake.write_v2_membership("/a/b");
  fake.write_v2_level("/a/b", "max", 10 * kMiB);
  fake.write_v2_level("/a", std::to_string(100 * kMiB), 60 * kMiB, 30 * kMiB, 2 * kMiB);
  const auto memory = cgroup_memory(fake.roots());
  ASSERT_TRUE(memory.has_value());
  ASSERT_TRUE(memory->has_value());
  EXPECT_EQ((*memory)->version, 2);
  EXPECT_THAT((*memory)->directory, ::testing::EndsWith("/cg/a"));
  EXPECT_EQ((*memory)->limit, 100 * kMiB);
  EXPECT_EQ((*memory)->usage, 60 * kMiB);
  EXPECT_EQ((*memory)->reclaimable, 32 * kMiB);
  EXPECT_EQ((*memory)->headroom(), 72 * kMiB);

  // A lower limit further down that is nearly empty leaves more room than the parent.
  fake.write_v2_level("/a/b", std::to_string(90 * kMiB), 10 * kMiB);
  EXPECT_THAT((*cgroup_memory(fake.roots()))->directory, ::testing::EndsWith("/cg/a"));
  fake.write_v2_level("/a/b", std::to_string(80 * kMiB), 10 * kMiB);
  EXPECT_THAT((*cgroup_memory(fake.roots()))->directory, ::testing::EndsWith("/cg/a/b"));
}

TEST(CgroupV2, NoLimitAnywhereIsNoLimit) {
  const FakeRoots fake;
  fake.write_v2_membership("/a");
  fake.write_v2_level("/a", "max", 10 * kMiB);
  const auto memory = cgroup_memory(fake.roots());
  ASSERT_TRUE(memory.has_value());
  EXPECT_FALSE(memory->has_value());
}

TEST(CgroupV2, OverItsLimitHasNoRoom) {
  const FakeRoots fake;
  fake.write_v2_membership("/a");
  fake.write_v2_level("/a", std::to_string(10 * kMiB), 12 * kMiB);
  EXPECT_EQ((*cgroup_memory(fake.roots()))->headroom(), 0U);
  // A limit of 0 is a limit.
  fake.write_v2_level("/a", "0", 0);
  EXPECT_EQ((*cgroup_memory(fake.roots()))->headroom(), 0U);
}

TEST(CgroupV2, PathsAreSeenFromTheRootOfTheMount) {
  const FakeRoots fake;
  fake.write_v2_membership("/pod/box", "/pod");
  fake.write_v2_level("/box", std::to_string(50 * kMiB), 0);
  EXPECT_EQ((*cgroup_memory(fake.roots()))->limit, 50 * kMiB);
  // "/podium" is not below "/pod", and what is outside the namespace cannot be seen.
  for (const char* path : {"/podium/box", "/../other"}) {
    fake.write_v2_membership(path, "/pod");
    expect_unavailable(cgroup_memory(fake.roots()), "memory cgroup", 0);
  }
}

TEST(CgroupV2, MountPointsWithBlanksAreFound) {
  const FakeRoots fake;
  fake.write_v2_membership("/");
  fake.write("proc/self/mountinfo", "30 22 0:26 / /c\\040g rw - cgroup2 none rw\n");
  fake.write("c g/memory.max", "1048576\n");
  fake.write("c g/memory.current", "4096\n");
  fake.write("c g/memory.stat", "active_file 0\ninactive_file 0\nslab_reclaimable 0\n");
  EXPECT_EQ((*cgroup_memory(fake.roots()))->limit, kMiB);
}

TEST(CgroupV2, MalformedFilesAreToldNotGuessed) {
  const FakeRoots fake;
  fake.write_v2_membership("/a");
  fake.write_v2_level("/a", "plenty", 0);
  expect_unavailable(cgroup_memory(fake.roots()), "memory cgroup", 0);
  fake.write_v2_level("/a", std::to_string(kMiB), 0);
  fake.write("cg/a/memory.current", "\n");
  expect_unavailable(cgroup_memory(fake.roots()), "memory cgroup", 0);
  fake.write("cg/a/memory.current", "0\n");
  fake.write("cg/a/memory.stat", "active_file 1\n");
  expect_unavailable(cgroup_memory(fake.roots()), "memory cgroup", 0);
  fake.remove("cg/a/memory.stat");
  expect_unavailable(cgroup_memory(fake.roots()), "memory cgroup", ENOENT);
  fake.make_unreadable("cg/a/memory.max");
  expect_unavailable(cgroup_memory(fake.roots()), "memory cgroup", EISDIR);
  fake.remove("cg/a");
  expect_unavailable(cgroup_memory(fake.roots()), "memory cgroup", 0);
}

TEST(CgroupV1, TheSmallestRoomOfTheAncestorsBinds) {
  const FakeRoots fake;
  fake.write_v1_membership("/x/y");
  fake.write_v1_level("/x/y", 9223372036854771712U, 5 * kMiB);
  fake.write_v1_level("/x", 64 * kMiB, 20 * kMiB, 8 * kMiB);
  const auto memory = cgroup_memory(fake.roots());
  ASSERT_TRUE(memory.has_value());
  ASSERT_TRUE(memory->has_value());
  EXPECT_EQ((*memory)->version, 1);
  EXPECT_EQ((*memory)->limit, 64 * kMiB);
  EXPECT_EQ((*memory)->reclaimable, 8 * kMiB);
  EXPECT_EQ((*memory)->headroom(), 52 * kMiB);
}

TEST(CgroupV1, ParentsThatAreNotChargedDoNotCount) {
  const FakeRoots fake;
  fake.write_v1_membership("/x/y");
  fake.write_v1_level("/x/y", 128 * kMiB, 0);
  fake.write_v1_level("/x", 64 * kMiB, 0);
  EXPECT_EQ((*cgroup_memory(fake.roots()))->limit, 64 * kMiB);
  fake.write("cg/x/memory.use_hierarchy", "0\n");
  EXPECT_EQ((*cgroup_memory(fake.roots()))->limit, 128 * kMiB);
}

TEST(Cgroup, WithoutProcfsOrMountIsUnavailable) {
  const FakeRoots fake;
  expect_unavailable(cgroup_memory(fake.roots()), "self/cgroup", ENOENT);
  fake.write("proc/self/cgroup", "0::/a\n");
  expect_unavailable(cgroup_memory(fake.roots()), "mountinfo", ENOENT);
  fake.write("proc/self/mountinfo", "22 1 0:20 / /proc rw shared:1 - proc proc rw\n");
  expect_unavailable(cgroup_memory(fake.roots()), "memory cgroup", 0);
  fake.write("proc/self/mountinfo", "rubbish\n");
  expect_unavailable(cgroup_memory(fake.roots()), "mountinfo", 0);
  fake.write("proc/self/cgroup", "rubbish\n");
  expect_unavailable(cgroup_memory(fake.roots()), "self/cgroup", 0);
}

TEST(Cgroup, AKernelWithoutCgroupsHasNoLimit) {
  const FakeRoots fake;
  fake.write("proc/self/cgroup", "");
  const auto memory = cgroup_memory(fake.roots());
  ASSERT_TRUE(memory.has_value());
  EXPECT_FALSE(memory->has_value());
}

// ---- Other limits ----

TEST(Limits, AvailableMemoryIsThatAndFreeSwap) {
  const FakeRoots fake;
  expect_unavailable(available_memory(fake.roots()), "meminfo", ENOENT);
  fake.write("proc/meminfo",
             "MemTotal:       100000 kB\nMemFree:  1 kB\nMemAvailable:    3000 kB\nSwapTotal: 9 "
             "kB\nSwapFree:           24 kB\n");
  EXPECT_EQ(available_memory(fake.roots()), 3024U << 10);
  fake.write("proc/meminfo", "MemTotal: 100 kB\nMemFree: 50 kB\nSwapFree: 0 kB\n");
  expect_unavailable(available_memory(fake.roots()), "meminfo", 0);
  fake.write("proc/meminfo", "MemAvailable: many kB\nSwapFree: 0 kB\n");
  expect_unavailable(available_memory(fake.roots()), "meminfo", 0);
}

TEST(Limits, SysctlsAreRead) {
  const FakeRoots fake;
  expect_unavailable(max_map_count(fake.roots()), "max_map_count", ENOENT);
  expect_unavailable(overcommit_mode(fake.roots()), "overcommit", ENOENT);
  fake.write("proc/sys/vm/max_map_count", "65530\n");
  fake.write("proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(max_map_count(fake.roots()), 65530U);
  EXPECT_EQ(overcommit_mode(fake.roots()), 2);
  fake.write("proc/sys/vm/overcommit_memory", "3\n");
  expect_unavailable(overcommit_mode(fake.roots()), "overcommit", 0);
  fake.write("proc/sys/vm/max_map_count", "lots\n");
  expect_unavailable(max_map_count(fake.roots()), "max_map_count", 0);
}

TEST(Limits, AddressSpaceLimitIsTheSoftOne) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit lowered{std::uint64_t{1} << 50, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &lowered), 0);
  rlimit told{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &told), 0);
  const auto limit = address_space_limit();
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  if (told.rlim_cur != lowered.rlim_cur) GTEST_SKIP() << "this emulator ignores RLIMIT_AS";
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(*limit, std::uint64_t{1} << 50);
  if (before.rlim_cur == RLIM_INFINITY) {
    EXPECT_FALSE(address_space_limit()->has_value());
  }
}

TEST(Machine, ThisOneIsReadWhole) {
  const Machine machine = read_machine();
  EXPECT_TRUE(machine.geometry.valid());
  EXPECT_TRUE(machine.kernel.has_value());
  EXPECT_GE(machine.cpus, 1U);
  EXPECT_STRNE(machine.architecture, "");
}

TEST(Machine, WithoutProcfsAndSysfsEveryUnknownSaysSo) {
  const FakeRoots fake;
  const Machine machine = read_machine(fake.roots());
  EXPECT_TRUE(machine.geometry.valid());
  expect_unavailable(machine.pmd_size, "hpage_pmd_size", ENOENT);
  expect_unavailable(machine.thp_mode, "enabled", ENOENT);
  expect_unavailable(machine.kernel, "osrelease", ENOENT);
  expect_unavailable(machine.cgroup_memory, "cgroup", ENOENT);
  expect_unavailable(machine.available_memory, "meminfo", ENOENT);
}

}  // namespace
}  // namespace touchstone::arch
