// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <touchstone/heap/residency.h>
#include <touchstone/heap/system_calls.h>

#include "../arch/fake_roots.h"
#include "fault_injection.h"
#include "fresh_memory.h"
#include "result_assertions.h"

namespace touchstone::heap {
namespace {

using arch::testing::FakeRoots;
using testing::Call;
using testing::FaultInjection;
using testing::FreshMemory;
using ::testing::HasSubstr;
using testing::kMiB;
using testing::page_size;
using touchstone::testing::fails_with;
using touchstone::testing::ok;

constexpr ResidencySource kSources[] = {ResidencySource::kPagemapScan, ResidencySource::kPagemap,
                                        ResidencySource::kMincore};

void touch(std::byte* page) {
  *static_cast<volatile std::byte*>(page) = std::byte{1};
}

/// A page in three, and the last.
class Spotted : public FreshMemory {
 public:
  static constexpr std::size_t kPages = 1000;
  Spotted() : FreshMemory(kPages * page_size(), page_size()) {
    ::madvise(begin(), size(), MADV_NOHUGEPAGE);
    for (std::size_t i = 0; i < kPages; i += 3) touch(begin() + i * page_size());
  }
  static constexpr std::size_t kTouched = (kPages + 2) / 3;
};

class EachSource : public ::testing::TestWithParam<ResidencySource> {
 protected:
  void SetUp() override {
    const FreshMemory memory(page_size(), page_size());
    const Result<Residency> probe = residency_by(GetParam(), memory.begin(), memory.size());
    if (!probe) GTEST_SKIP() << probe.error().message();
  }
};

TEST_P(EachSource, CountsEveryTouchedPage) {
  const Spotted memory;
  const Result<Residency> found = residency_by(GetParam(), memory.begin(), memory.size());
  ASSERT_TRUE(ok(found));
  EXPECT_EQ(found->source, GetParam());
  EXPECT_EQ(found->length, memory.size());
  EXPECT_EQ(found->present, Spotted::kTouched * page_size());
  EXPECT_EQ(found->populated(), Spotted::kTouched * page_size());
  EXPECT_EQ(found->swapped.value_or(0), 0U);
  EXPECT_EQ(found->huge.value_or(0), 0U);
}

TEST_P(EachSource, IsExactForPartOfAMapping) {
  const Spotted memory;
  const Result<Residency> found =
      residency_by(GetParam(), memory.begin() + page_size(), 6 * page_size());
  ASSERT_TRUE(ok(found));
  EXPECT_EQ(found->present, 2 * page_size());
}

TEST_P(EachSource, UntouchedIsAbsentAndGivenBackIsAbsentAgain) {
  const FreshMemory memory(kMiB, page_size());
  EXPECT_EQ(residency_by(GetParam(), memory.begin(), kMiB)->present, 0U);
  ::madvise(memory.begin(), kMiB, MADV_NOHUGEPAGE);
  std::memset(memory.begin(), 1, kMiB);
  EXPECT_EQ(residency_by(GetParam(), memory.begin(), kMiB)->present, kMiB);
  ASSERT_EQ(::madvise(memory.begin(), kMiB, MADV_DONTNEED), 0);
  EXPECT_EQ(residency_by(GetParam(), memory.begin(), kMiB)->present, 0U);
}

TEST_P(EachSource, RefusesRangesThatAreNone) {
  const FreshMemory memory(4 * page_size(), page_size());
  std::byte* const begin = memory.begin();
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, residency_by(GetParam(), begin, 0)));
  EXPECT_TRUE(fails_with(ErrorCode::kMisaligned, residency_by(GetParam(), begin + 1, page_size())));
  EXPECT_TRUE(fails_with(ErrorCode::kMisaligned, residency_by(GetParam(), begin, 100)));
  EXPECT_TRUE(fails_with(ErrorCode::kOverflow,
                         residency_by(GetParam(), begin, SIZE_MAX - page_size() + 1)));
}

TEST_P(EachSource, FailuresOfTheKernelAreTyped) {
  const FreshMemory memory(4 * page_size(), page_size());
  FaultInjection calls;
  calls.fail(Call::kIoctl, ENOTTY);
  calls.fail(Call::kPread, EIO);
  calls.fail(Call::kMincore, ENOSYS);
  const Result<Residency> found = residency_by(GetParam(), memory.begin(), memory.size());
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code,
            GetParam() == ResidencySource::kPagemap ? ErrorCode::kSystem : ErrorCode::kUnsupported);
  EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, residency_of(memory.begin(), memory.size())));
}

TEST_P(EachSource, WithoutProcfsOnlyMincoreIsLeft) {
  const FreshMemory memory(4 * page_size(), page_size());
  touch(memory.begin());
  FaultInjection calls;
  calls.fail(Call::kOpen, ENOENT);
  const Result<Residency> found = residency_by(GetParam(), memory.begin(), memory.size());
  if (GetParam() == ResidencySource::kMincore) {
    EXPECT_EQ(found->present, page_size());
  } else {
    ASSERT_TRUE(fails_with(ErrorCode::kUnavailable, found));
    EXPECT_EQ(found.error().system_errno, ENOENT);
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, EachSource, ::testing::ValuesIn(kSources), [](const auto& each) {
  std::string name = to_string(each.param);
  std::erase(name, '_');
  return name;
});

TEST(Residency, TheBestSourceThatWorksIsUsed) {
  const Spotted memory;
  ResidencySource expected = ResidencySource::kMincore;
  for (const ResidencySource source : {ResidencySource::kPagemap, ResidencySource::kPagemapScan}) {
    if (residency_by(source, memory.begin(), memory.size())) expected = source;
  }
  const Result<Residency> found = residency_of(memory.begin(), memory.size());
  ASSERT_TRUE(ok(found));
  EXPECT_EQ(found->source, expected);
  EXPECT_EQ(found->present, Spotted::kTouched * page_size());
}

TEST(Residency, ASourceThatLiesIsNotUsed) {
  const FreshMemory memory(4 * page_size(), page_size());
  touch(memory.begin());
  FaultInjection calls;
  calls.fail(Call::kIoctl, ENOTTY);
  SystemCalls lying = system_calls();
  // A pagemap of zeros, as some emulators and sandboxes give.
  lying.pread = [](int, void* buffer, std::size_t size, off_t) -> ssize_t {
    std::memset(buffer, 0, size);
    return static_cast<ssize_t>(size);
  };
  const SystemCalls* const before = replace_system_calls(&lying);
  const Result<Residency> by = residency_by(ResidencySource::kPagemap, memory.begin(), page_size());
  const Result<Residency> best = residency_of(memory.begin(), memory.size());
  replace_system_calls(before);
  EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, by));
  ASSERT_TRUE(ok(best));
  EXPECT_EQ(best->source, ResidencySource::kMincore);
  EXPECT_EQ(best->present, page_size());
}

TEST(Residency, PagemapScanTellsHugePages) {
  if (!testing::faults_bring_huge_pages()) GTEST_SKIP() << "no huge pages on this machine";
  const std::size_t huge = arch::geometry().pmd;
  const FreshMemory memory(3 * huge, huge);
  ASSERT_EQ(::madvise(memory.begin(), 2 * huge, MADV_HUGEPAGE), 0);
  ASSERT_EQ(::madvise(memory.begin() + 2 * huge, huge, MADV_NOHUGEPAGE), 0);
  touch(memory.begin() + huge + 5 * page_size());
  touch(memory.begin() + 2 * huge);
  const Result<Residency> found =
      residency_by(ResidencySource::kPagemapScan, memory.begin(), memory.size());
  if (!found) GTEST_SKIP() << found.error().message();
  EXPECT_EQ(found->huge, huge);
  EXPECT_EQ(found->present, huge + page_size());
}

TEST(Residency, ZeroPagesHoldNoMemoryOfTheirOwn) {
  if (!testing::read_faults_map_zero_page()) GTEST_SKIP() << "this kernel has no zero page";
  const FreshMemory memory(8 * page_size(), page_size());
  ASSERT_EQ(::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE), 0);
  for (std::size_t i = 0; i < 8; ++i) {
    static_cast<void>(*static_cast<volatile std::byte*>(memory.begin() + i * page_size()));
  }
  touch(memory.begin());
  const Result<Residency> found =
      residency_by(ResidencySource::kPagemapScan, memory.begin(), memory.size());
  if (!found) GTEST_SKIP() << found.error().message();
  EXPECT_EQ(found->present, 8 * page_size());
  EXPECT_EQ(found->zero, 7 * page_size());
  EXPECT_EQ(found->populated(), page_size());
  EXPECT_EQ(populated_prefix(memory.begin(), memory.size()), page_size());
}

/// Answers PAGEMAP_SCAN as kernels of 6.7 to 6.9 do of a huge zero page: present, huge, and not
/// PFNZERO, while the pagemap entry says "file".
namespace old_kernel {

std::uintptr_t zero_begin = 0;
std::uintptr_t zero_end = 0;

struct Argument {
  std::uint64_t size, flags, start, end, walk_end, regions, region_count;
};
struct Region {
  std::uint64_t start, end, categories;
};

int scan(int fd, unsigned long request, void* argument) {
  auto& asked = *static_cast<Argument*>(argument);
  if (asked.start < zero_begin || asked.end > zero_end) {
    return kernel_calls().ioctl(fd, request, argument);
  }
  auto* const region = reinterpret_cast<Region*>(asked.regions);
  *region = {asked.start, asked.end, 1U << 3 | 1U << 6};
  asked.walk_end = asked.end;
  return 1;
}

ssize_t entry(int fd, void* buffer, std::size_t size, off_t offset) {
  const auto page = static_cast<std::uintptr_t>(offset) / 8 * page_size();
  if (page < zero_begin || page >= zero_end) {
    return kernel_calls().pread(fd, buffer, size, offset);
  }
  // Every second huge page has been written since.
  const std::uintptr_t which = (page - zero_begin) / arch::geometry().pmd;
  const std::uint64_t value = std::uint64_t{1} << 63 | std::uint64_t{which % 2 == 0} << 61;
  std::memcpy(buffer, &value, sizeof value);
  return sizeof value;
}

}  // namespace old_kernel

TEST(Residency, TheHugeZeroPageIsKnownOnKernelsThatDoNotTell) {
  const std::size_t huge = arch::geometry().pmd;
  const FreshMemory memory(4 * huge, huge);
  if (!residency_by(ResidencySource::kPagemapScan, memory.begin(), memory.size())) {
    GTEST_SKIP() << "no PAGEMAP_SCAN on this kernel";
  }
  old_kernel::zero_begin = reinterpret_cast<std::uintptr_t>(memory.begin());
  old_kernel::zero_end = old_kernel::zero_begin + memory.size();
  SystemCalls old = kernel_calls();
  old.ioctl = old_kernel::scan;
  old.pread = old_kernel::entry;
  replace_system_calls(&old);
  const Result<Residency> found =
      residency_by(ResidencySource::kPagemapScan, memory.begin(), memory.size());
  replace_system_calls(nullptr);
  ASSERT_TRUE(ok(found));
  EXPECT_EQ(found->present, 4 * huge);
  EXPECT_EQ(found->zero, 2 * huge);
  EXPECT_EQ(found->huge, 2 * huge);
}

TEST(Residency, AnImpossibleScanIsNotBelieved) {
  const FreshMemory memory(4 * page_size(), page_size());
  SystemCalls stuck = kernel_calls();
  stuck.ioctl = [](int, unsigned long, void*) { return 0; };  // walk_end stays 0
  replace_system_calls(&stuck);
  const Result<Residency> found =
      residency_by(ResidencySource::kPagemapScan, memory.begin(), memory.size());
  replace_system_calls(nullptr);
  EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, found));
}

TEST(Residency, HolesAreAbsent) {
  const FreshMemory memory(100 * page_size(), page_size());
  ::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE);
  touch(memory.begin() + 36 * page_size());
  touch(memory.begin() + 40 * page_size());
  ASSERT_EQ(::munmap(memory.begin() + 37 * page_size(), 3 * page_size()), 0);
  for (const ResidencySource source : kSources) {
    const Result<Residency> found = residency_by(source, memory.begin(), memory.size());
    if (!found) continue;
    EXPECT_EQ(found->present, 2 * page_size()) << to_string(source);
  }
}

TEST(Residency, ACallThatAlwaysSaysNotNowFailsInsteadOfHanging) {
  const FreshMemory memory(4 * page_size(), page_size());
  for (const int reason : {EINTR, EAGAIN}) {
    for (const Call call : {Call::kIoctl, Call::kPread, Call::kMincore, Call::kOpen}) {
      for (const ResidencySource source : kSources) {
        FaultInjection calls;
        calls.fail(call, reason);
        static_cast<void>(residency_by(source, memory.begin(), memory.size()));
        EXPECT_LT(calls.total(), 5000U);
      }
    }
    FaultInjection calls;
    calls.fail(Call::kRead, reason);
    EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, smaps(memory.begin(), memory.size())));
    EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, vmstat()));
  }
}

TEST(Residency, PrefixStopsAtTheFirstGap) {
  const FreshMemory memory(64 * page_size(), page_size());
  ::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE);
  EXPECT_EQ(populated_prefix(memory.begin(), memory.size()), 0U);
  for (std::size_t i = 0; i < 64; ++i) {
    if (i != 17 && i != 40) touch(memory.begin() + i * page_size());
  }
  EXPECT_EQ(populated_prefix(memory.begin(), memory.size()), 17 * page_size());
  touch(memory.begin() + 17 * page_size());
  EXPECT_EQ(populated_prefix(memory.begin(), memory.size()), 40 * page_size());
  touch(memory.begin() + 40 * page_size());
  EXPECT_EQ(populated_prefix(memory.begin(), memory.size()), memory.size());
  EXPECT_TRUE(fails_with(ErrorCode::kMisaligned, populated_prefix(memory.begin() + 1, 4096)));
}

// ---- smaps ----

class RealSmaps : public ::testing::Test {
 protected:
  void SetUp() override {
    const FreshMemory memory(page_size(), page_size());
    const Result<Smaps> map = smaps(memory.begin(), memory.size());
    if (!map) GTEST_SKIP() << map.error().message();
  }
};

TEST_F(RealSmaps, TellsOfAWholeMapping) {
  const Spotted memory;
  const Result<Smaps> map = smaps(memory.begin(), memory.size());
  ASSERT_TRUE(ok(map));
  EXPECT_TRUE(map->exact);
  EXPECT_EQ(map->mappings, 1U);
  EXPECT_EQ(map->mapped, memory.size());
  EXPECT_EQ(map->size, memory.size());
  EXPECT_EQ(map->rss, Spotted::kTouched * page_size());
  EXPECT_EQ(map->anonymous, Spotted::kTouched * page_size());
  EXPECT_EQ(map->private_dirty, Spotted::kTouched * page_size());
  EXPECT_EQ(map->anon_huge_pages, 0U);
  EXPECT_TRUE(map->advised_no_huge);
  EXPECT_FALSE(map->advised_huge);
}

TEST_F(RealSmaps, SaysWhenItCountsMoreThanTheRange) {
  const Spotted memory;
  const Result<Smaps> map = smaps(memory.begin() + page_size(), page_size());
  ASSERT_TRUE(ok(map));
  EXPECT_FALSE(map->exact);
  EXPECT_EQ(map->mapped, page_size());
  EXPECT_EQ(map->size, memory.size());
}

TEST_F(RealSmaps, CountsHugePages) {
  if (!testing::faults_bring_huge_pages()) GTEST_SKIP() << "no huge pages on this machine";
  const std::size_t huge = arch::geometry().pmd;
  const FreshMemory memory(4 * huge, huge);
  ASSERT_EQ(::madvise(memory.begin(), memory.size(), MADV_HUGEPAGE), 0);
  for (std::size_t i = 0; i < 3; ++i) touch(memory.begin() + i * huge);
  const Result<Smaps> map = smaps(memory.begin(), memory.size());
  ASSERT_TRUE(ok(map));
  EXPECT_EQ(map->anon_huge_pages, 3 * huge);
  EXPECT_TRUE(map->advised_huge);
  EXPECT_EQ(map->thp_eligible, true);
}

TEST_F(RealSmaps, NothingMappedIsAnError) {
  const FreshMemory memory(4 * page_size(), page_size());
  ASSERT_EQ(::munmap(memory.begin(), memory.size()), 0);
  EXPECT_TRUE(fails_with(ErrorCode::kOutOfRange, smaps(memory.begin(), memory.size())));
}

TEST(Smaps, WithoutProcfsIsAnErrorNotZeros) {
  const FakeRoots fake;
  const FreshMemory memory(page_size(), page_size());
  touch(memory.begin());
  const Result<Smaps> map = smaps(memory.begin(), memory.size(), fake.roots());
  ASSERT_TRUE(fails_with(ErrorCode::kUnavailable, map));
  EXPECT_EQ(map.error().system_errno, ENOENT);
  fake.make_unreadable("proc/self/smaps");
  EXPECT_TRUE(
      fails_with(ErrorCode::kUnavailable, smaps(memory.begin(), memory.size(), fake.roots())));
  FaultInjection calls;
  calls.fail(Call::kOpen, EACCES);
  EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, smaps(memory.begin(), memory.size())));
}

constexpr const char* kSmapsText =
    "10000-20000 rw-p 00000000 00:00 0 \n"
    "Size:                 64 kB\nRss:                  12 kB\nPss:                  12 kB\n"
    "Anonymous:            12 kB\nAnonHugePages:         0 kB\nSwap:                  4 kB\n"
    "THPeligible:           1\nVmFlags: rd wr mr mw me ac hg \n"
    "20000-30000 rw-p 00000000 00:00 0     [anon: heap]\n"
    "Size:                 64 kB\nRss:                  64 kB\nAnonHugePages:        64 kB\n"
    "THPeligible:           0\nVmFlags: rd wr mr mw me ac \n"
    "90000-a0000 r-xp 00000000 08:01 77 /usr/lib/Rss: odd name\n"
    "Rss: 8 kB\n";

void* at(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

TEST(ParseSmaps, AddsUpTheMappingsOfTheRange) {
  const Result<Smaps> both = parse_smaps(kSmapsText, at(0x10000), 0x20000);
  ASSERT_TRUE(ok(both));
  EXPECT_TRUE(both->exact);
  EXPECT_EQ(both->mappings, 2U);
  EXPECT_EQ(both->rss, 76U << 10);
  EXPECT_EQ(both->anon_huge_pages, 64U << 10);
  EXPECT_EQ(both->swap, 4U << 10);
  EXPECT_EQ(both->thp_eligible, false);
  EXPECT_FALSE(both->advised_huge);

  const Result<Smaps> first = parse_smaps(kSmapsText, at(0x10000), 0x10000);
  EXPECT_EQ(first->mappings, 1U);
  EXPECT_EQ(first->thp_eligible, true);
  EXPECT_TRUE(first->advised_huge);

  const Result<Smaps> wide = parse_smaps(kSmapsText, at(0x8000), 0x98000);
  EXPECT_EQ(wide->mappings, 3U);
  EXPECT_EQ(wide->mapped, 0x30000U);
  EXPECT_TRUE(wide->exact);

  const Result<Smaps> cut = parse_smaps(kSmapsText, at(0x18000), 0x18000);
  EXPECT_FALSE(cut->exact);
  EXPECT_EQ(cut->mapped, 0x18000U);
}

TEST(ParseSmaps, MalformedTextIsAnError) {
  for (const char* text :
       {"rubbish\n", "10000-20000 rw-p\nRss: many kB\n", "10000-20000 rw-p\nRss: 4\n",
        "10000-20000 rw-p\n", "20000-10000 rw-p\nRss: 4 kB\n", "10000 rw-p\nRss: 4 kB\n",
        "10000-20000 rw-p\nRss: 4 kB\nTHPeligible: yes\n"}) {
    EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, parse_smaps(text, at(0x10000), 0x10000)))
        << text;
  }
  EXPECT_TRUE(fails_with(ErrorCode::kOutOfRange, parse_smaps("", at(0x10000), 0x10000)));
  EXPECT_TRUE(fails_with(ErrorCode::kOutOfRange, parse_smaps(kSmapsText, at(0x40000), 0x10000)));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, parse_smaps(kSmapsText, at(0x10000), 0)));
  EXPECT_TRUE(fails_with(ErrorCode::kOverflow, parse_smaps(kSmapsText, at(0x10000), SIZE_MAX)));
}

// ---- vmstat and faults ----

TEST(Vmstat, ReadsWhatIsThereAndKnowsWhatIsNot) {
  const FakeRoots fake;
  EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, vmstat(fake.roots())));
  fake.write("proc/vmstat", "nr_free_pages 1\nthp_fault_alloc 7\npgfault 100\n");
  const Result<Vmstat> counters = vmstat(fake.roots());
  ASSERT_TRUE(ok(counters));
  EXPECT_EQ(counters->thp_fault_alloc, 7U);
  EXPECT_EQ(counters->pgfault, 100U);
  EXPECT_FALSE(counters->thp_split_pmd.has_value());
  for (const char* text : {"", "thp_fault_alloc\n", "thp_fault_alloc many\n"}) {
    fake.write("proc/vmstat", text);
    EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, vmstat(fake.roots()))) << text;
  }
}

TEST(Vmstat, DeltasNeedBoth) {
  const Vmstat before{.thp_fault_alloc = 5, .thp_split_pmd = 1};
  const Vmstat after{.thp_fault_alloc = 9, .pgfault = 3};
  const Vmstat delta = after.since(before);
  EXPECT_EQ(delta.thp_fault_alloc, 4U);
  EXPECT_FALSE(delta.thp_split_pmd.has_value());
  EXPECT_FALSE(delta.pgfault.has_value());
}

TEST(Vmstat, OfThisSystemCountsFaults) {
  const Result<Vmstat> before = vmstat();
  if (!before) GTEST_SKIP() << before.error().message();
  const FreshMemory memory(256 * page_size(), page_size());
  ::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE);
  for (std::size_t i = 0; i < 256; ++i) touch(memory.begin() + i * page_size());
  const Result<Vmstat> after = vmstat();
  ASSERT_TRUE(ok(after));
  EXPECT_GE(after->since(*before).pgfault.value_or(0), 256U);
}

TEST(Faults, OfThreadAndProcessAreCounted) {
  const FreshMemory memory(100 * page_size(), page_size());
  ::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE);
  // Around the thread's, so that the process cannot have fewer.
  const Result<Faults> process = process_faults();
  const Result<Faults> thread = thread_faults();
  ASSERT_TRUE(ok(thread));
  ASSERT_TRUE(ok(process));
  for (std::size_t i = 0; i < 100; ++i) touch(memory.begin() + i * page_size());
  const std::uint64_t counted = thread_faults()->since(*thread).minor;
  EXPECT_GE(counted, 100U);
  EXPECT_GE(process_faults()->since(*process).minor, counted);
  if (testing::fault_counts_are_exact()) {
    EXPECT_LE(counted, 102U);
  }
}

TEST(Faults, RefusedGetrusageIsAnErrorNotZeros) {
  FaultInjection calls;
  calls.fail(Call::kGetrusage, EPERM);
  EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, thread_faults()));
  EXPECT_TRUE(fails_with(ErrorCode::kUnavailable, process_faults()));
}

}  // namespace
}  // namespace touchstone::heap
