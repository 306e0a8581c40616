// SPDX-License-Identifier: MIT
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <touchstone/heap/reservation.h>

#include "fault_injection.h"
#include "memory_probe.h"
#include "result_assertions.h"

namespace touchstone::heap {
namespace {

using testing::Call;
using testing::CallRecord;
using testing::FaultInjection;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using touchstone::testing::fails_with;
using touchstone::testing::ok;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kGiB = 1024 * kMiB;
constexpr std::size_t kTiB = 1024 * kGiB;
// TSan's layout of the address space has no room for more.
constexpr std::size_t kLargest = testing::kThreadSanitizer ? kTiB : 16 * kTiB;

constexpr std::array kErrors{ENOMEM, EFAULT, EINTR, EAGAIN, EINVAL, EPERM};

std::size_t machine_page() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

Reservation reserved(std::size_t pages, ReservationOptions options = {}) {
  options.size = pages * (options.page_size != 0 ? options.page_size : machine_page());
  Result<Reservation> made = Reservation::reserve(options);
  if (!made) {
    ADD_FAILURE() << made.error().message();
    return {};
  }
  return std::move(*made);
}

MemoryRange pages(const Reservation& from, std::size_t first, std::size_t count) {
  return {from.data() + first * from.page_size(), count * from.page_size()};
}

TEST(Reserve, TheLargestCostsNoMemory) {
  const std::size_t before = testing::resident_bytes();
  Result<Reservation> made = Reservation::reserve({.size = kLargest});
  const std::size_t after = testing::resident_bytes();
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->size(), kLargest);
  EXPECT_LE(after, before + 4 * kMiB);
  EXPECT_FALSE(testing::readable(made->data()));
  EXPECT_FALSE(testing::readable(made->data() + kLargest - 1));
  ASSERT_TRUE(ok(made->destroy()));
}

TEST(Reserve, AlignsForEveryGeometry) {
  for (const std::size_t page : {machine_page(), 16 * kKiB, 64 * kKiB}) {
    for (const std::size_t alignment : {page, 2 * kMiB, 32 * kMiB, 512 * kMiB, 4 * kGiB}) {
      Result<Reservation> made =
          Reservation::reserve({.size = 3 * page, .alignment = alignment, .page_size = page});
      ASSERT_TRUE(made) << made.error().message();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(made->data()) % alignment, 0U);
      EXPECT_EQ(made->size(), 3 * page);
      EXPECT_EQ(made->page_size(), page);
      // Nothing of the slack stays behind.
      const MemoryRange around(made->data(), made->size());
      for (const testing::Mapping& each : testing::mappings_of(around)) {
        EXPECT_LT(each.end - each.begin, alignment + 3 * page + 4 * kGiB);
      }
      ASSERT_TRUE(ok(made->destroy()));
    }
  }
}

TEST(Reserve, RefusesBadOptionsBeforeAnySystemCall) {
  const std::size_t page = machine_page();
  const std::string long_name(80, 'n');
  struct Case {
    ReservationOptions options;
    ErrorCode code;
  };
  const std::vector<Case> cases{
      {{.size = 0}, ErrorCode::kInvalidArgument},
      {{.size = page + 1}, ErrorCode::kMisaligned},
      {{.size = page / 2}, ErrorCode::kMisaligned},
      {{.size = page, .page_size = 4 * page}, ErrorCode::kMisaligned},
      {{.size = page, .alignment = page / 2}, ErrorCode::kInvalidArgument},
      {{.size = page, .alignment = 3 * page}, ErrorCode::kInvalidArgument},
      {{.size = page, .page_size = page / 2}, ErrorCode::kInvalidArgument},
      {{.size = page, .page_size = page + 1}, ErrorCode::kInvalidArgument},
      {{.size = SIZE_MAX - page + 1}, ErrorCode::kOverflow},
      {{.size = SIZE_MAX / 2 + 1, .alignment = SIZE_MAX / 2 + 1}, ErrorCode::kOverflow},
      {{.size = Reservation::kMaxSize + page}, ErrorCode::kLimitExceeded},
      {{.size = page, .alignment = 2 * Reservation::kMaxSize}, ErrorCode::kLimitExceeded},
      {{.size = page, .name = "a[b]"}, ErrorCode::kInvalidArgument},
      {{.size = page, .name = "new\nline"}, ErrorCode::kInvalidArgument},
      {{.size = page, .name = long_name.c_str()}, ErrorCode::kInvalidArgument},
      {{.size = 2 * kMiB, .hugetlb_page = 3 * kMiB}, ErrorCode::kInvalidArgument},
      {{.size = 2 * kMiB, .hugetlb_page = page}, ErrorCode::kInvalidArgument},
      {{.size = kMiB, .hugetlb_page = 2 * kMiB}, ErrorCode::kMisaligned},
      {{.size = 2 * kMiB, .page_size = page, .hugetlb_page = 2 * kMiB},
       ErrorCode::kInvalidArgument},
  };
  const FaultInjection kernel;
  for (const Case& each : cases) {
    const Result<Reservation> made = Reservation::reserve(each.options);
    ASSERT_FALSE(made) << "size " << each.options.size;
    EXPECT_EQ(made.error().code, each.code) << made.error().message();
    EXPECT_STRNE(made.error().detail, "");
  }
  EXPECT_EQ(kernel.total(), 0U);
}

TEST(Verbs, RefuseBadRangesBeforeAnySystemCall) {
  Reservation memory = reserved(8);
  const std::size_t page = memory.page_size();
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  std::byte* const start = memory.data();
  struct Case {
    MemoryRange range;
    ErrorCode code;
  };
  const std::vector<Case> cases{
      {{start, std::size_t{0}}, ErrorCode::kInvalidArgument},
      {{start + 1, page}, ErrorCode::kMisaligned},
      {{start, page - 1}, ErrorCode::kMisaligned},
      {{start, SIZE_MAX - page + 1}, ErrorCode::kOverflow},
      {{start - page, page}, ErrorCode::kOutOfRange},
      {{start - page, 2 * page}, ErrorCode::kOutOfRange},
      {{start + 7 * page, 2 * page}, ErrorCode::kOutOfRange},
      {{start + 8 * page, page}, ErrorCode::kOutOfRange},
      {{start, 9 * page}, ErrorCode::kOutOfRange},
  };
  const FaultInjection kernel;
  for (const Case& each : cases) {
    EXPECT_TRUE(fails_with(each.code, memory.commit(each.range)));
    EXPECT_TRUE(fails_with(each.code, memory.uncommit(each.range)));
    EXPECT_TRUE(fails_with(each.code, memory.discard(each.range)));
    EXPECT_TRUE(fails_with(each.code, memory.protect(each.range, Protection::kRead)));
    EXPECT_TRUE(fails_with(each.code, memory.seal(each.range)));
    EXPECT_TRUE(fails_with(each.code, memory.rename(each.range, "x")));
    EXPECT_TRUE(fails_with(each.code, memory.advise_huge_pages(each.range, HugePages::kPrefer)));
  }
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument,
                         memory.advise_huge_pages(memory.range(), HugePages::kDefault)));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, memory.rename(memory.range(), "a$b")));
  EXPECT_EQ(kernel.total(), 0U);
}

TEST(Verbs, OnNothingReserved) {
  Reservation nothing;
  std::byte byte{};
  EXPECT_TRUE(fails_with(ErrorCode::kOutOfRange, nothing.commit({&byte, 1})));
  EXPECT_TRUE(nothing.range().empty());
  EXPECT_EQ(nothing.page_size(), 0U);
  EXPECT_EQ(nothing.committed_bytes(), 0U);
  EXPECT_FALSE(nothing.contains(&byte));
  EXPECT_FALSE(nothing.contains(nullptr));
  EXPECT_FALSE(nothing.named());
  EXPECT_THAT(nothing.sealed_ranges(), IsEmpty());
  ASSERT_TRUE(ok(nothing.destroy()));
}

TEST(Commit, GivesZeroedMemoryAndSaysSo) {
  Reservation memory = reserved(8);
  const Result<Commitment> first = memory.commit(pages(memory, 2, 3));
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->zeroed);
  EXPECT_EQ(memory.committed_bytes(), 3 * memory.page_size());
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(testing::writable(memory.data() + i * memory.page_size()), i >= 2 && i < 5) << i;
  }
  EXPECT_EQ(pages(memory, 2, 1)[0], std::byte{0});
  pages(memory, 2, 1)[0] = std::byte{7};

  // A range that was committed in part may hold anything, and keeps what it holds.
  const Result<Commitment> second = memory.commit(pages(memory, 0, 3));
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->zeroed);
  EXPECT_EQ(pages(memory, 2, 1)[0], std::byte{7});
  EXPECT_EQ(memory.committed_bytes(), 5 * memory.page_size());
}

TEST(Uncommit, ZeroesAndRevokes) {
  Reservation memory = reserved(4);
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  std::memset(memory.data(), 7, memory.size());
  ASSERT_TRUE(ok(memory.uncommit(pages(memory, 1, 2))));
  EXPECT_EQ(memory.committed_bytes(), 2 * memory.page_size());
  EXPECT_TRUE(testing::readable(&pages(memory, 0, 1)[0]));
  EXPECT_FALSE(testing::readable(&pages(memory, 1, 1)[0]));
  EXPECT_FALSE(testing::readable(&pages(memory, 2, 1)[0]));
  EXPECT_EQ(pages(memory, 3, 1)[0], std::byte{7});

  const Result<Commitment> again = memory.commit(pages(memory, 1, 2));
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->zeroed);
  for (const std::byte byte : pages(memory, 1, 2)) ASSERT_EQ(byte, std::byte{0});
}

TEST(Discard, AtOnceZeroesAndKeepsTheMemoryUsable) {
  Reservation memory = reserved(4);
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  std::memset(memory.data(), 7, memory.size());
  ASSERT_TRUE(ok(memory.discard(pages(memory, 1, 2))));
  EXPECT_EQ(pages(memory, 0, 1)[0], std::byte{7});
  for (const std::byte byte : pages(memory, 1, 2)) ASSERT_EQ(byte, std::byte{0});
  EXPECT_EQ(pages(memory, 3, 1)[0], std::byte{7});
  EXPECT_EQ(memory.committed_bytes(), memory.size());
}

TEST(Discard, LazilyUsesFreeAndAWriteEndsIt) {
  Reservation memory = reserved(4);
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  std::memset(memory.data(), 7, memory.size());
  {
    const FaultInjection kernel;
    ASSERT_TRUE(ok(memory.discard(memory.range(), DiscardPolicy::kLazily)));
    const std::vector<CallRecord> calls = kernel.records();
    ASSERT_THAT(calls, SizeIs(1));
    EXPECT_EQ(calls[0].argument, MADV_FREE);
  }
  for (const std::byte byte : memory.range()) {
    ASSERT_TRUE(byte == std::byte{7} || byte == std::byte{0});
  }
  memory.data()[0] = std::byte{9};
  EXPECT_EQ(memory.data()[0], std::byte{9});
}

TEST(Discard, LazilyFallsBackToAtOnce) {
  Reservation memory = reserved(4);
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  std::memset(memory.data(), 7, memory.size());
  FaultInjection kernel;
  kernel.add({.call = Call::kMadvise, .argument = MADV_FREE, .error = EINVAL});
  ASSERT_TRUE(ok(memory.discard(memory.range(), DiscardPolicy::kLazily)));
  for (const std::byte byte : memory.range()) ASSERT_EQ(byte, std::byte{0});
}

TEST(Protect, ChangesAccessAndKeepsContents) {
  Reservation memory = reserved(3);
  EXPECT_TRUE(
      fails_with(ErrorCode::kInvalidArgument, memory.protect(memory.range(), Protection::kRead)));
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  std::memset(memory.data(), 7, memory.size());
  std::byte* const middle = &pages(memory, 1, 1)[0];
  ASSERT_TRUE(ok(memory.protect(pages(memory, 1, 1), Protection::kNone)));
  EXPECT_FALSE(testing::readable(middle));
  EXPECT_TRUE(testing::writable(memory.data()));
  ASSERT_TRUE(ok(memory.protect(pages(memory, 1, 1), Protection::kRead)));
  EXPECT_TRUE(testing::readable(middle));
  EXPECT_FALSE(testing::writable(middle));
  ASSERT_TRUE(ok(memory.protect(pages(memory, 1, 1), Protection::kReadWrite)));
  EXPECT_TRUE(testing::writable(middle));
  EXPECT_EQ(*middle, std::byte{7});
}

TEST(HugePagesAdvice, IsWhatTheKernelIsAskedFor) {
  const FaultInjection kernel;
  Reservation memory = reserved(4, {.huge_pages = HugePages::kPrefer});
  ASSERT_TRUE(ok(memory.advise_huge_pages(pages(memory, 1, 1), HugePages::kAvoid)));
  std::vector<long> advice;
  for (const CallRecord& each : kernel.records()) {
    if (each.call == Call::kMadvise) advice.push_back(each.argument);
  }
  EXPECT_EQ(advice, (std::vector<long>{MADV_HUGEPAGE, MADV_NOHUGEPAGE}));
}

TEST(HugePagesAdvice, OnAKernelWithoutThem) {
  FaultInjection kernel;
  kernel.fail(Call::kMadvise, EINVAL);
  const Result<Reservation> wanted =
      Reservation::reserve({.size = machine_page(), .huge_pages = HugePages::kPrefer});
  EXPECT_TRUE(fails_with(ErrorCode::kUnsupported, wanted));
  // Not having them is what was asked for.
  ASSERT_TRUE(ok(Reservation::reserve({.size = machine_page(), .huge_pages = HugePages::kAvoid})));
}

TEST(Rename, ShowsInMapsWhereTheKernelCan) {
  Reservation memory = reserved(4, {.name = "touchstone test"});
  if (!memory.named()) GTEST_SKIP() << "this kernel names no anonymous memory";
  EXPECT_EQ(testing::mappings_of(memory.range())[0].name, "[anon:touchstone test]");
  ASSERT_TRUE(ok(memory.rename(pages(memory, 1, 1), "other")));
  EXPECT_EQ(testing::mappings_of(pages(memory, 1, 1))[0].name, "[anon:other]");
  ASSERT_TRUE(ok(memory.rename(pages(memory, 1, 1), nullptr)));
  EXPECT_EQ(testing::mappings_of(pages(memory, 1, 1))[0].name, "");
}

TEST(Rename, SaysWhenTheKernelCannot) {
  FaultInjection kernel;
  kernel.fail(Call::kSetVmaName, EINVAL);
  Reservation memory = reserved(4);
  EXPECT_FALSE(memory.named());
  EXPECT_TRUE(fails_with(ErrorCode::kUnsupported, memory.rename(memory.range(), "other")));
  kernel.clear();
  kernel.pretend(Call::kSetVmaName);
  EXPECT_TRUE(reserved(1).named());
  EXPECT_FALSE(reserved(1, {.name = nullptr}).named());
  ASSERT_TRUE(ok(memory.rename(memory.range(), "other")));
}

TEST(Reserve, HugetlbPoolEmptyIsAnErrorOfItsOwn) {
  // No machine's pool has this many.
  const Result<Reservation> made =
      Reservation::reserve({.size = kLargest, .hugetlb_page = 2 * kMiB});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kPoolEmpty) << made.error().message();
  EXPECT_EQ(made.error().system_errno, ENOMEM);
}

TEST(Reserve, HugetlbSizeThatTheKernelLacks) {
  if (!testing::hugetlb_sizes_are_told_apart()) GTEST_SKIP() << "sizes are not told apart here";
  const Result<Reservation> made =
      Reservation::reserve({.size = 128 * kMiB, .hugetlb_page = 128 * kMiB});
  EXPECT_TRUE(fails_with(ErrorCode::kUnsupported, made));
}

TEST(Reserve, HugetlbPagesComeFromThePool) {
  std::size_t free_pages = 0;
  std::ifstream("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") >> free_pages;
  if (free_pages == 0) GTEST_SKIP() << "the pool of 2 MiB pages is empty";
  Result<Reservation> made = Reservation::reserve({.size = 2 * kMiB, .hugetlb_page = 2 * kMiB});
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(made->data()) % (2 * kMiB), 0U);
  EXPECT_FALSE(testing::readable(made->data()));
  ASSERT_TRUE(ok(made->commit(made->range())));
  std::memset(made->data(), 7, made->size());
  ASSERT_TRUE(ok(made->uncommit(made->range())));
  EXPECT_FALSE(testing::readable(made->data()));
}

TEST(Reserve, UnderAnAddressSpaceLimit) {
  constexpr int kNotLimited = 77;
  const int status = testing::in_child([] {
    const std::size_t limit = testing::virtual_bytes() + kGiB;
    const rlimit as{.rlim_cur = limit, .rlim_max = limit};
    if (::setrlimit(RLIMIT_AS, &as) != 0) return 1;
    // More than the limit by itself, and more than what is left of it.
    const std::size_t beyond = (limit / machine_page() + 1) * machine_page();
    void* const mapped =
        ::mmap(nullptr, beyond, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped != MAP_FAILED) return kNotLimited;
    const Result<Reservation> over = Reservation::reserve({.size = beyond});
    if (over || over.error().code != ErrorCode::kLimitExceeded) return 2;
    const Result<Reservation> left =
        Reservation::reserve({.size = 2 * kGiB < limit ? 2 * kGiB : beyond});
    if (left) return 3;
    if (left.error().code != ErrorCode::kOutOfMemory &&
        left.error().code != ErrorCode::kLimitExceeded) {
      return 4;
    }
    // What fits is still to be had, even aligned to more than there is room for slack.
    Result<Reservation> fits = Reservation::reserve({.size = 256 * kMiB});
    if (!fits || !fits->commit(fits->range().first(machine_page()))) return 5;
    fits->data()[0] = std::byte{1};
    return fits->destroy() ? 0 : 6;
  });
  if (status == kNotLimited) GTEST_SKIP() << "RLIMIT_AS has no effect here";
  EXPECT_EQ(status, 0);
}

TEST(Fork, InheritedMemoryIsACopy) {
  Reservation memory = reserved(2);
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  memory.data()[0] = std::byte{7};
  EXPECT_EQ(testing::in_child([&] {
              if (memory.data()[0] != std::byte{7}) return 1;
              memory.data()[0] = std::byte{8};
              if (!memory.uncommit(pages(memory, 1, 1))) return 2;
              if (!memory.destroy()) return 3;
              return testing::mappings_of(memory.range()).empty() ? 0 : 4;
            }),
            0);
  EXPECT_EQ(memory.data()[0], std::byte{7});
}

TEST(Fork, WipedMemoryReadsZeroInTheChild) {
  Reservation memory = reserved(2, {.fork = ForkBehaviour::kWipe});
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  memory.data()[0] = std::byte{7};
  EXPECT_EQ(testing::in_child([&] {
              if (memory.data()[0] != std::byte{0}) return 1;
              memory.data()[0] = std::byte{8};
              return memory.commit(memory.range()) ? 0 : 2;
            }),
            0);
  EXPECT_EQ(memory.data()[0], std::byte{7});
}

TEST(Fork, OmittedMemoryIsNotInTheChild) {
  if (!testing::dontfork_works()) GTEST_SKIP() << "MADV_DONTFORK has no effect here";
  Reservation memory = reserved(2, {.fork = ForkBehaviour::kOmit});
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  memory.data()[0] = std::byte{7};
  EXPECT_EQ(testing::in_child([&] {
              const MemoryRange range = memory.range();
              if (testing::readable(range.data())) return 1;
              // Something of the child's own at these addresses is not the reservation's to change.
              void* const own = ::mmap(range.data(), range.size(), PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
              if (own != range.data()) return 2;
              range[0] = std::byte{9};
              const Result<> verb = memory.discard(range);
              if (verb || verb.error().code != ErrorCode::kFrozen) return 3;
              if (!memory.destroy()) return 4;
              return range[0] == std::byte{9} ? 0 : 5;
            }),
            0);
  EXPECT_EQ(memory.data()[0], std::byte{7});
}

TEST(Fork, BehaviourThatTheKernelLacksIsAnErrorAndLeavesNothing) {
  for (const ForkBehaviour fork : {ForkBehaviour::kWipe, ForkBehaviour::kOmit}) {
    FaultInjection kernel;
    kernel.fail(Call::kMadvise, EINVAL);
    EXPECT_TRUE(fails_with(ErrorCode::kUnsupported,
                           Reservation::reserve({.size = machine_page(), .fork = fork})));
    EXPECT_EQ(kernel.count(Call::kMmap), kernel.count(Call::kMunmap));
  }
}

TEST(Moving, TheHolderChanges) {
  Reservation first = reserved(2);
  std::byte* const address = first.data();
  Reservation second = std::move(first);
  EXPECT_EQ(second.data(), address);
  EXPECT_TRUE(
      first.range().empty());  // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move):
                               // it holds nothing.
  EXPECT_TRUE(second.contains(address));
  EXPECT_FALSE(second.contains(address + second.size()));
  Reservation third = reserved(2);
  const MemoryRange replaced = third.range();
  third = std::move(second);
  EXPECT_EQ(third.data(), address);
  EXPECT_THAT(testing::mappings_of(replaced), IsEmpty());
  ASSERT_TRUE(ok(third.destroy()));
  EXPECT_TRUE(third.range().empty());
  EXPECT_TRUE(fails_with(ErrorCode::kOutOfRange, third.commit({address, machine_page()})));
  ASSERT_TRUE(ok(third.destroy()));
}

// Sealing.

bool kernel_seals() {
  Reservation memory = reserved(1, {.on_abandoned = [](const Error&) noexcept {}});
  return memory.seal(memory.range()).has_value();
}

const Error* abandoned = nullptr;

TEST(Seal, ForbidsChangesAndDestroySaysWhatStays) {
  if (!kernel_seals()) GTEST_SKIP() << "this kernel has no mseal";
  Reservation memory = reserved(8);
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  std::memset(memory.data(), 7, memory.size());
  const MemoryRange first = pages(memory, 1, 2);
  const MemoryRange second = pages(memory, 5, 1);
  ASSERT_TRUE(ok(memory.seal(first)));
  ASSERT_TRUE(ok(memory.seal(second)));
  EXPECT_TRUE(fails_with(ErrorCode::kNotPermitted, memory.protect(first, Protection::kRead)));
  EXPECT_EQ(first[0], std::byte{7});
  EXPECT_TRUE(testing::writable(first.data()));
  // Writable memory may be discarded all the same.
  ASSERT_TRUE(ok(memory.discard(second)));

  const MemoryRange whole = memory.range();
  const Result<> gone = memory.destroy();
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kNotPermitted);
  EXPECT_EQ(gone.error().address, reinterpret_cast<std::uintptr_t>(first.data()));
  EXPECT_EQ(gone.error().length, first.size());
  EXPECT_THAT(gone.error().message(), HasSubstr("stays mapped"));
  const std::vector<MemoryRange> left = memory.sealed_ranges();
  ASSERT_THAT(left, SizeIs(2));
  EXPECT_EQ(left[0].data(), first.data());
  EXPECT_EQ(left[0].size(), first.size());
  EXPECT_EQ(left[1].data(), second.data());
  std::size_t mapped = 0;
  for (const testing::Mapping& each : testing::mappings_of(whole)) mapped += each.end - each.begin;
  EXPECT_EQ(mapped, first.size() + second.size());
  EXPECT_TRUE(memory.range().empty());
  ASSERT_TRUE(ok(memory.destroy()));
}

TEST(Seal, UncommitFailsExactlyAtTheSeal) {
  if (!kernel_seals()) GTEST_SKIP() << "this kernel has no mseal";
  Reservation memory = reserved(8, {.on_abandoned = [](const Error&) noexcept {}});
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  std::memset(memory.data(), 7, memory.size());
  ASSERT_TRUE(ok(memory.seal(pages(memory, 5, 1))));
  const Result<> gone = memory.uncommit(memory.range());
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kNotPermitted);
  EXPECT_EQ(gone.error().progress, 5 * memory.page_size());
  EXPECT_EQ(memory.committed_bytes(), 3 * memory.page_size());
  EXPECT_FALSE(testing::readable(&pages(memory, 4, 1)[0]));
  EXPECT_TRUE(testing::readable(&pages(memory, 5, 1)[0]));
}

TEST(Seal, ADestructorTellsWhatStays) {
  if (!kernel_seals()) GTEST_SKIP() << "this kernel has no mseal";
  static Error told;
  abandoned = nullptr;
  MemoryRange sealed;
  {
    Reservation memory = reserved(2, {.on_abandoned = [](const Error& error) noexcept {
                                    told = error;
                                    abandoned = &told;
                                  }});
    sealed = memory.range();
    ASSERT_TRUE(ok(memory.seal(sealed)));
  }
  ASSERT_NE(abandoned, nullptr);
  EXPECT_EQ(told.code, ErrorCode::kNotPermitted);
  EXPECT_EQ(told.address, reinterpret_cast<std::uintptr_t>(sealed.data()));
  EXPECT_EQ(told.length, sealed.size());
}

TEST(Seal, WithoutAListenerADestructorWritesALine) {
  ::testing::internal::CaptureStderr();
  {
    FaultInjection kernel;
    kernel.pretend(Call::kMseal);
    Reservation memory = reserved(2);
    ASSERT_TRUE(ok(memory.seal(memory.range())));
  }
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(line, HasSubstr("touchstone: munmap at 0x"));
  EXPECT_THAT(line, HasSubstr("stays mapped"));
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
}

TEST(Seal, OnAKernelWithoutIt) {
  FaultInjection kernel;
  kernel.fail(Call::kMseal, ENOSYS);
  Reservation memory = reserved(2);
  EXPECT_TRUE(fails_with(ErrorCode::kUnsupported, memory.seal(memory.range())));
  EXPECT_THAT(memory.sealed_ranges(), IsEmpty());
  ASSERT_TRUE(ok(memory.destroy()));
}

// Faults.

TEST(Faults, CommitIsExactWhereverMprotectFails) {
  for (const int error : kErrors) {
    for (std::size_t page = 0; page < 16; ++page) {
      Reservation memory = reserved(16);
      {
        FaultInjection kernel;
        kernel.fail_at(Call::kMprotect, pages(memory, page, 1).data(), error);
        const Result<Commitment> result = memory.commit(memory.range());
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().system_errno, error);
        EXPECT_EQ(result.error().code, code_of_errno(error));
        EXPECT_EQ(result.error().address, reinterpret_cast<std::uintptr_t>(memory.data()));
        EXPECT_EQ(result.error().length, memory.size());
        EXPECT_EQ(result.error().progress, page * memory.page_size());
      }
      EXPECT_EQ(memory.committed_bytes(), page * memory.page_size());
      for (std::size_t i = 0; i < 16; ++i) {
        EXPECT_EQ(testing::writable(pages(memory, i, 1).data()), i < page);
      }
      // The rest can be had later.
      ASSERT_TRUE(ok(memory.commit(memory.range())));
      std::memset(memory.data(), 1, memory.size());
    }
  }
}

TEST(Faults, DiscardIsExactWhereverMadviseFails) {
  for (const int error : kErrors) {
    for (std::size_t page = 0; page < 16; ++page) {
      Reservation memory = reserved(16);
      ASSERT_TRUE(ok(memory.commit(memory.range())));
      std::memset(memory.data(), 7, memory.size());
      FaultInjection kernel;
      kernel.fail_at(Call::kMadvise, pages(memory, page, 1).data(), error);
      const Result<> result = memory.discard(memory.range());
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().system_errno, error);
      EXPECT_EQ(result.error().progress, page * memory.page_size());
      for (std::size_t i = 0; i < 16; ++i) {
        EXPECT_EQ(pages(memory, i, 1)[0], i < page ? std::byte{0} : std::byte{7});
      }
    }
  }
}

TEST(Faults, UncommitIsExactWhicheverCallFails) {
  for (const Call call : {Call::kMadvise, Call::kMprotect}) {
    for (const int error : kErrors) {
      for (std::size_t page = 0; page < 16; ++page) {
        Reservation memory = reserved(16);
        ASSERT_TRUE(ok(memory.commit(memory.range())));
        std::memset(memory.data(), 7, memory.size());
        {
          FaultInjection kernel;
          kernel.fail_at(call, pages(memory, page, 1).data(), error);
          const Result<> result = memory.uncommit(memory.range());
          ASSERT_FALSE(result);
          EXPECT_EQ(result.error().system_errno, error);
          EXPECT_EQ(result.error().progress, page * memory.page_size());
        }
        EXPECT_EQ(memory.committed_bytes(), (16 - page) * memory.page_size());
        for (std::size_t i = 0; i < 16; ++i) {
          ASSERT_EQ(testing::readable(pages(memory, i, 1).data()), i >= page);
          // Where only access could not be revoked, the memory is given back all the same.
          if (i >= page) {
            EXPECT_EQ(pages(memory, i, 1)[0],
                      call == Call::kMprotect ? std::byte{0} : std::byte{7});
          }
        }
        ASSERT_TRUE(ok(memory.uncommit(memory.range())));
        const Result<Commitment> again = memory.commit(memory.range());
        ASSERT_TRUE(again);
        EXPECT_TRUE(again->zeroed);
      }
    }
  }
}

TEST(Faults, InterruptionsAreRetriedAndBounded) {
  Reservation memory = reserved(4);
  ASSERT_TRUE(ok(memory.commit(memory.range())));
  for (const int error : {EINTR, EAGAIN}) {
    FaultInjection kernel;
    kernel.add({.call = Call::kMadvise, .nth = 1, .times = 5, .error = error});
    ASSERT_TRUE(ok(memory.discard(memory.range())));
    EXPECT_EQ(kernel.count(Call::kMadvise), 6U);
    // One that never ends is an error and not a hang.
    kernel.fail(Call::kMadvise, error);
    const Result<> result = memory.discard(memory.range());
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().system_errno, error);
    EXPECT_EQ(result.error().progress, 0U);
  }
}

TEST(Faults, AFailureThatPassesIsNotOne) {
  Reservation memory = reserved(4);
  for (std::size_t nth = 1; nth <= 3; ++nth) {
    FaultInjection kernel;
    kernel.fail_nth(nth, ENOMEM);
    ASSERT_TRUE(ok(memory.commit(memory.range())));
    EXPECT_EQ(memory.committed_bytes(), memory.size());
  }
}

/// Uses every verb once. Any may fail; the addresses must all be gone at the end.
void use_everything(bool& reserved_at_all) {
  Result<Reservation> made = Reservation::reserve({.size = 16 * machine_page(),
                                                   .alignment = 64 * kMiB,
                                                   .huge_pages = HugePages::kPrefer,
                                                   .fork = ForkBehaviour::kWipe});
  reserved_at_all = made.has_value();
  if (!made) {
    EXPECT_NE(made.error().system_errno, 0) << made.error().message();
    return;
  }
  Reservation& memory = *made;
  const auto check = [&](const auto& result) {
    if (result) return;
    EXPECT_NE(result.error().system_errno, 0) << result.error().message();
    EXPECT_LT(result.error().progress, result.error().length) << result.error().message();
  };
  check(memory.commit(memory.range()));
  check(memory.protect(memory.range(), Protection::kReadWrite));
  check(memory.rename(pages(memory, 1, 2), "verbs"));
  check(memory.advise_huge_pages(memory.range(), HugePages::kAvoid));
  check(memory.discard(memory.range(), DiscardPolicy::kLazily));
  check(memory.discard(memory.range(), DiscardPolicy::kAtOnce));
  check(memory.uncommit(pages(memory, 4, 4)));
  const Result<> gone = memory.destroy();
  if (!gone) {
    EXPECT_EQ(gone.error().progress, 0U);
    ASSERT_TRUE(ok(memory.destroy()));
  }
}

/// What the recorded calls left mapped.
std::set<std::uintptr_t> left_mapped(const std::vector<CallRecord>& records) {
  std::set<std::uintptr_t> mapped;
  const std::size_t page = machine_page();
  for (const CallRecord& each : records) {
    if (each.error != 0) continue;
    if (each.call == Call::kMmap) {
      for (std::size_t i = 0; i < each.length; i += page) {
        mapped.insert(static_cast<std::uintptr_t>(each.result) + i);
      }
    } else if (each.call == Call::kMunmap) {
      mapped.erase(mapped.lower_bound(each.address),
                   mapped.lower_bound(each.address + each.length));
    }
  }
  return mapped;
}

TEST(Faults, EverySystemCallMayFailWithEveryError) {
  std::size_t calls = 0;
  {
    const FaultInjection kernel;
    bool made = false;
    use_everything(made);
    ASSERT_TRUE(made);
    calls = kernel.total();
    // Works the same without procfs and sysfs: none of it is read.
    EXPECT_EQ(kernel.count(Call::kOpen), 0U);
  }
  ASSERT_GE(calls, 10U);
  std::size_t refused = 0;
  for (std::size_t nth = 1; nth <= calls; ++nth) {
    for (const int error : kErrors) {
      FaultInjection kernel;
      kernel.fail_nth(nth, error);
      bool made = false;
      use_everything(made);
      if (!made) ++refused;
      EXPECT_EQ(kernel.faked(), 1U) << "call " << nth;
      EXPECT_THAT(left_mapped(kernel.records()), IsEmpty()) << "call " << nth << " errno " << error;
    }
  }
  EXPECT_GT(refused, 0U);
}

TEST(Faults, FromAnyCallOnEverythingFails) {
  std::size_t calls = 0;
  {
    const FaultInjection kernel;
    bool made = false;
    use_everything(made);
    calls = kernel.total();
  }
  for (std::size_t nth = 1; nth < calls; ++nth) {
    for (const int error : kErrors) {
      FaultInjection kernel;
      // munmap is spared: without it nothing can be undone.
      for (const Call call :
           {Call::kMmap, Call::kMprotect, Call::kMadvise, Call::kSetVmaName, Call::kGetrlimit}) {
        kernel.add({.call = call, .nth = nth, .error = error});
      }
      bool made = false;
      use_everything(made);
      EXPECT_THAT(left_mapped(kernel.records()), IsEmpty()) << "call " << nth << " errno " << error;
    }
  }
}

TEST(Faults, DestroyThatFailsCanBeRepeated) {
  Reservation memory = reserved(4);
  const MemoryRange range = memory.range();
  {
    FaultInjection kernel;
    kernel.fail(Call::kMunmap, ENOMEM);
    EXPECT_TRUE(fails_with(ErrorCode::kOutOfMemory, memory.destroy()));
  }
  EXPECT_EQ(memory.range().data(), range.data());
  ASSERT_TRUE(ok(memory.commit(range)));
  ASSERT_TRUE(ok(memory.destroy()));
  EXPECT_THAT(testing::mappings_of(range), IsEmpty());
}

TEST(Faults, DestroyOfSealedMemoryThatFailsPartWayIsExact) {
  Reservation memory = reserved(8);
  const MemoryRange range = memory.range();
  FaultInjection kernel;
  kernel.pretend(Call::kMseal);
  ASSERT_TRUE(ok(memory.seal(pages(memory, 2, 1))));
  ASSERT_TRUE(ok(memory.seal(pages(memory, 5, 1))));
  kernel.add({.call = Call::kMunmap, .nth = 2, .times = 1, .error = ENOMEM});
  const Result<> first = memory.destroy();
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(first.error().progress, 3 * memory.page_size());
  // What is gone is out of reach, what is left is usable.
  EXPECT_TRUE(fails_with(ErrorCode::kOutOfRange, memory.commit(pages(memory, 0, 1))));
  ASSERT_TRUE(ok(memory.commit(pages(memory, 3, 1))));
  // Only the rest is unmapped: the child's or another's mapping in the gap must survive.
  const std::size_t before = kernel.count(Call::kMunmap);
  EXPECT_TRUE(fails_with(ErrorCode::kNotPermitted, memory.destroy()));
  EXPECT_EQ(kernel.count(Call::kMunmap) - before, 2U);
  kernel.clear();
  ASSERT_EQ(::munmap(range.data(), range.size()), 0);
}

TEST(Faults, AfterMeetingMaxMapCountTheRestStillWorks) {
  std::size_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit == 0 || limit > 300000) GTEST_SKIP() << "vm.max_map_count is " << limit;
  const int status = testing::in_child([limit]() -> int {
    Reservation memory = reserved(limit + 64);
    const std::size_t page = memory.page_size();
    // A checkerboard: every page committed by itself needs two more mappings.
    std::size_t committed = 0;
    Result<Commitment> result;
    for (; committed < limit; ++committed) {
      result = memory.commit(pages(memory, 2 * committed + 1, 1));
      if (!result) break;
      *(memory.data() + (2 * committed + 1) * page) = std::byte{7};
    }
    if (result) return 1;
    if (result.error().code != ErrorCode::kOutOfMemory) return 2;
    if (result.error().progress != 0) return 3;
    if (committed < limit / 4) return 4;
    // Discarding needs no mapping; uncommitting gives two back; committing in between merges.
    if (!memory.discard(pages(memory, 1, 1))) return 5;
    if (memory.data()[page] != std::byte{0}) return 6;
    if (memory.data()[3 * page] != std::byte{7}) return 7;
    if (!memory.commit(pages(memory, 4, 1))) return 8;
    if (!memory.uncommit(pages(memory, 9, 1))) return 9;
    if (!memory.commit(pages(memory, 2 * committed + 1, 1))) return 10;
    *(memory.data() + (2 * committed + 1) * page) = std::byte{7};
    if (!memory.destroy()) return 11;
    return testing::mappings_of(memory.range()).empty() ? 0 : 12;
  });
  EXPECT_EQ(status, 0);
}

TEST(Threads, VerbsOnDifferentRangesRunTogether) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kEach = 8;
  Reservation memory = reserved(kThreads * kEach);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::array<int, kThreads> failures{};
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        for (std::size_t i = 0; i < kEach; ++i) {
          const MemoryRange range = pages(memory, t * kEach + i, 1);
          const Result<Commitment> made = memory.commit(range);
          if (!made || !made->zeroed || range[0] != std::byte{0}) ++failures[t];
          range[0] = std::byte{1};
          if (memory.committed_bytes() == 0) ++failures[t];
        }
        if (!memory.uncommit(pages(memory, t * kEach, kEach))) ++failures[t];
      }
    });
  }
  for (std::thread& each : threads) each.join();
  for (const int each : failures) EXPECT_EQ(each, 0);
  EXPECT_EQ(memory.committed_bytes(), 0U);
}

}  // namespace
}  // namespace touchstone::heap
