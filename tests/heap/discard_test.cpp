// SPDX-License-Identifier: MIT
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/discard.h>
#include <touchstone/heap/reservation.h>
#include <touchstone/heap/residency.h>

#include "fault_injection.h"
#include "memory_probe.h"
#include "result_assertions.h"

namespace touchstone::heap {
namespace {

using std::chrono::nanoseconds;
using testing::Call;
using testing::CallRecord;
using testing::FaultInjection;
using touchstone::testing::fails_with;
using touchstone::testing::ok;
using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

constexpr std::array kErrors{ENOMEM, EFAULT, EINTR, EAGAIN, EINVAL, EPERM};
constexpr std::byte kFilled{7};
constexpr std::byte kZero{0};

/// Committed memory of some pages, filled so that what is given back can be told.
class FilledMemory {
 public:
  explicit FilledMemory(std::size_t page_count, std::size_t alignment = 0) {
    page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    Result<Reservation> made = Reservation::reserve(
        {.size = page_count * page_, .alignment = alignment, .huge_pages = HugePages::kAvoid});
    if (!made || !made->commit(made->range())) std::abort();
    memory_ = std::move(*made);
    fill();
  }

  void fill() { std::memset(memory_.data(), static_cast<int>(kFilled), memory_.size()); }
  [[nodiscard]] std::size_t page() const { return page_; }
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] MemoryRange range() const { return memory_.range(); }
  [[nodiscard]] MemoryRange pages(std::size_t first, std::size_t count = 1) const {
    return {memory_.data() + first * page_, count * page_};
  }
  /// Every page's first byte; all of a page is given back or none of it.
  [[nodiscard]] bool given_back(std::size_t index) const {
    return memory_.data()[index * page_] == kZero;
  }
  [[nodiscard]] std::vector<std::size_t> all_given_back() const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < memory_.size() / page_; ++i) {
      if (given_back(i)) found.push_back(i);
    }
    return found;
  }
  [[nodiscard]] std::size_t index_of(const std::byte* address) const {
    return static_cast<std::size_t>(address - memory_.data()) / page_;
  }
  [[nodiscard]] std::size_t index_of(std::uintptr_t address) const {
    return (address - reinterpret_cast<std::uintptr_t>(memory_.data())) / page_;
  }

 private:
  std::size_t page_ = 0;
  Reservation memory_;
};

/// Every second page, so that no two ranges touch.
std::vector<MemoryRange> every_second(const FilledMemory& memory, std::size_t count) {
  std::vector<MemoryRange> ranges;
  for (std::size_t i = 0; i < count; ++i) ranges.push_back(memory.pages(2 * i));
  return ranges;
}

std::vector<CallRecord> only(const FaultInjection& kernel, Call call) {
  std::vector<CallRecord> found;
  for (const CallRecord& each : kernel.records()) {
    if (each.call == call) found.push_back(each);
  }
  return found;
}

TEST(BatchedDiscard, GivesBackWhatIsListedAndNothingElse) {
  const FilledMemory memory(16);
  BatchedDiscard discard;
  const std::array ranges{memory.pages(1), memory.pages(9, 3), memory.pages(4, 2)};
  const Result<DiscardProgress> done = discard.discard(ranges);
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(memory.all_given_back(), (std::vector<std::size_t>{1, 4, 5, 9, 10, 11}));
  EXPECT_EQ(done->bytes, 6 * memory.page());
  EXPECT_EQ(done->kept_bytes, 0U);
  EXPECT_EQ(done->lazy_bytes, 0U);
  EXPECT_EQ(done->range, 3U);
}

TEST(BatchedDiscard, AnEmptyListIsDone) {
  BatchedDiscard discard;
  const FaultInjection kernel;
  ASSERT_TRUE(ok(discard.discard({})));
  EXPECT_EQ(kernel.total(), 0U);
}

TEST(BatchedDiscard, HandsOverNoMoreRangesThanTheKernelTakes) {
  const FilledMemory memory(5000);
  const std::vector<MemoryRange> ranges = every_second(memory, 2500);
  BatchedDiscard discard;
  FaultInjection kernel;
  kernel.emulate_process_madvise();
  const Result<DiscardProgress> done = discard.discard(ranges);
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(memory.all_given_back().size(), 2500U);
  const std::vector<CallRecord> calls = kernel.records();
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[0].ranges, 1024U);
  EXPECT_EQ(calls[1].ranges, 1024U);
  EXPECT_EQ(calls[2].ranges, 452U);
  EXPECT_EQ(done->calls, 3U);
  EXPECT_EQ(done->batches, 3U);
}

TEST(BatchedDiscard, BatchesOnAKernelThatCan) {
  const FilledMemory memory(200);
  BatchedDiscard discard;
  const Result<DiscardProgress> done = discard.discard(every_second(memory, 100));
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(memory.all_given_back().size(), 100U);
  if (!discard.batching()) GTEST_SKIP() << "no process_madvise on oneself here; madvise did it";
  EXPECT_EQ(done->batches, 1U);
}

TEST(BatchedDiscard, RangesThatTouchAreOne) {
  const FilledMemory memory(16);
  BatchedDiscard discard;
  const FaultInjection kernel;
  const std::array ranges{memory.pages(2), memory.pages(3, 2), memory.pages(5)};
  ASSERT_TRUE(ok(discard.discard(ranges)));
  EXPECT_EQ(memory.all_given_back(), (std::vector<std::size_t>{2, 3, 4, 5}));
  const std::vector<CallRecord> calls = kernel.records();
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].length, 4 * memory.page());
}

TEST(BatchedDiscard, RefusesBadInputBeforeAnySystemCall) {
  const FilledMemory memory(4);
  const std::size_t page = memory.page();
  const FaultInjection kernel;
  struct Case {
    MemoryRange range;
    ErrorCode code;
  };
  const std::array cases{
      Case{{memory.data(), std::size_t{0}}, ErrorCode::kInvalidArgument},
      Case{{memory.data() + 1, page}, ErrorCode::kMisaligned},
      Case{{memory.data(), page + 1}, ErrorCode::kMisaligned},
      Case{{memory.data(), SIZE_MAX - page + 1}, ErrorCode::kOverflow},
  };
  for (const Case& each : cases) {
    BatchedDiscard discard;
    const std::array ranges{memory.pages(1), each.range};
    DiscardProgress progress;
    EXPECT_TRUE(fails_with(each.code, discard.discard(ranges, progress)));
    EXPECT_EQ(progress.range, 0U);
    EXPECT_EQ(progress.bytes, 0U);
    DelayedDiscard later(1s);
    EXPECT_TRUE(fails_with(each.code, later.schedule(each.range)));
    EXPECT_EQ(later.pending_bytes(), 0U);
  }
  const std::array fine{memory.pages(0)};
  for (const DiscardOptions& each :
       {DiscardOptions{.granule = 3 * page}, DiscardOptions{.granule = page / 2},
        DiscardOptions{.ranges_per_call = 0}, DiscardOptions{.ranges_per_call = 1025}}) {
    BatchedDiscard discard(each);
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, discard.discard(fine)));
    DelayedDiscard later(1s, each);
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, later.schedule(fine[0])));
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, later.run_due()));
  }
  BatchedDiscard discard;
  for (DiscardProgress stale :
       {DiscardProgress{.range = 2}, DiscardProgress{.range = 1, .offset = page},
        DiscardProgress{.offset = page}, DiscardProgress{.offset = 1}}) {
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, discard.discard(fine, stale)));
  }
  EXPECT_EQ(kernel.total(), 0U);
}

TEST(BatchedDiscard, ResumesAfterShortCountsExactlyWhereTheKernelStopped) {
  const FilledMemory memory(200);
  const std::vector<MemoryRange> ranges = every_second(memory, 100);
  BatchedDiscard discard;
  FaultInjection kernel;
  const std::array<std::size_t, 3> stops{1, 10, 33};
  for (std::size_t i = 0; i < stops.size(); ++i) {
    kernel.add({.call = Call::kProcessMadvise,
                .nth = i + 1,
                .times = 1,
                .bytes = stops[i] * memory.page()});
  }
  kernel.emulate_process_madvise();
  const Result<DiscardProgress> done = discard.discard(ranges);
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(memory.all_given_back().size(), 100U);
  EXPECT_EQ(done->bytes, 100 * memory.page());
  // Each page once: the next call begins where the one before ended.
  std::vector<std::size_t> starts;
  for (const CallRecord& each : kernel.records())
    starts.push_back(memory.index_of(each.address) / 2);
  EXPECT_EQ(starts, (std::vector<std::size_t>{0, 1, 11, 44}));
}

TEST(BatchedDiscard, ResumesInTheMiddleOfARange) {
  const FilledMemory memory(64);
  const std::array ranges{memory.pages(0, 8), memory.pages(10, 8), memory.pages(20, 8)};
  BatchedDiscard discard;
  FaultInjection kernel;
  kernel.add({.call = Call::kProcessMadvise,
              .times = 1,
              .bytes = 11 * memory.page(),
              .count_parts = true});
  kernel.emulate_process_madvise();
  const Result<DiscardProgress> done = discard.discard(ranges);
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(done->bytes, 24 * memory.page());
  EXPECT_EQ(memory.all_given_back().size(), 24U);
  const std::vector<CallRecord> calls = kernel.records();
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(memory.index_of(calls[1].address), 13U);
}

TEST(BatchedDiscard, MoreThanTheKernelCountsInOneCall) {
  // One process_madvise call stops silently at 2 GiB less a page.
  constexpr std::size_t kSize = std::size_t{3} << 29U;
  Result<Reservation> memory = Reservation::reserve({.size = 3 * kSize});
  ASSERT_TRUE(ok(memory));
  ASSERT_TRUE(ok(memory->commit(memory->range())));
  std::byte* const last = memory->data() + 3 * kSize - 1;
  *last = kFilled;
  const std::array ranges{memory->range().first(kSize), memory->range().last(kSize)};
  BatchedDiscard discard;
  const Result<DiscardProgress> done = discard.discard(ranges);
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(done->bytes, 2 * kSize);
  EXPECT_EQ(*last, kZero);
}

TEST(BatchedDiscard, InterruptionsAreRetriedAndBounded) {
  for (const int error : {EINTR, EAGAIN}) {
    const FilledMemory memory(20);
    const std::vector<MemoryRange> ranges = every_second(memory, 10);
    BatchedDiscard discard;
    FaultInjection kernel;
    kernel.add({.call = Call::kProcessMadvise, .times = 5, .error = error});
    kernel.emulate_process_madvise();
    ASSERT_TRUE(ok(discard.discard(ranges)));
    EXPECT_EQ(kernel.total(), 6U);
    EXPECT_EQ(memory.all_given_back().size(), 10U);
    kernel.clear();
    kernel.fail(Call::kProcessMadvise, error);
    kernel.fail(Call::kMadvise, error);
    DiscardProgress progress;
    const Result<> result = discard.discard(ranges, progress);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().system_errno, error);
    EXPECT_EQ(progress.range, 0U);
  }
}

/// A list whose ranges are of one to four pages, a page apart.
std::vector<MemoryRange> mixed_ranges(const FilledMemory& memory) {
  std::vector<MemoryRange> ranges;
  for (std::size_t first = 0, size = 1; first + size < 40; first += size + 1, size = size % 4 + 1) {
    ranges.push_back(memory.pages(first, size));
  }
  return ranges;
}

TEST(BatchedDiscard, IsExactWhereverTheKernelFailsAndGoesOnFromThere) {
  for (const int error : kErrors) {
    for (std::size_t bad = 0; bad < 40; ++bad) {
      const FilledMemory memory(40);
      const std::vector<MemoryRange> ranges = mixed_ranges(memory);
      BatchedDiscard discard({.ranges_per_call = 5});
      FaultInjection kernel;
      kernel.fail_at(Call::kProcessMadvise, memory.pages(bad).data(), error);
      kernel.fail_at(Call::kMadvise, memory.pages(bad).data(), error);
      kernel.emulate_process_madvise();

      std::size_t holder = ranges.size();
      std::size_t listed = 0;
      std::size_t listed_before = 0;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const std::size_t first = memory.index_of(ranges[i].data());
        const std::size_t count = ranges[i].size() / memory.page();
        if (bad >= first && bad < first + count) {
          holder = i;
          listed_before = listed + (bad - first);
        }
        listed += count;
      }
      DiscardProgress progress;
      const Result<> result = discard.discard(ranges, progress);
      if (holder == ranges.size()) {
        ASSERT_TRUE(ok(result)) << "page " << bad << " is not listed";
        EXPECT_EQ(memory.all_given_back().size(), listed);
        continue;
      }
      ASSERT_FALSE(result) << "page " << bad << " errno " << error;
      EXPECT_EQ(result.error().system_errno, error);
      EXPECT_EQ(result.error().address, reinterpret_cast<std::uintptr_t>(ranges[holder].data()));
      EXPECT_EQ(result.error().length, ranges[holder].size());
      EXPECT_EQ(result.error().progress, progress.offset);
      EXPECT_EQ(progress.range, holder);
      EXPECT_EQ(memory.index_of(ranges[holder].data() + progress.offset), bad);
      EXPECT_EQ(progress.bytes, listed_before * memory.page());
      EXPECT_EQ(memory.all_given_back().size(), listed_before);

      // Again from there fails there again; behind the range the rest can be had; and when the
      // cause is gone, so can this.
      EXPECT_FALSE(discard.discard(ranges, progress));
      EXPECT_EQ(memory.index_of(ranges[holder].data() + progress.offset), bad);
      DiscardProgress skipping = progress;
      ++skipping.range;
      skipping.offset = 0;
      ASSERT_TRUE(ok(discard.discard(ranges, skipping)));
      kernel.clear();
      kernel.emulate_process_madvise();
      ASSERT_TRUE(ok(discard.discard(ranges, progress)));
      EXPECT_EQ(progress.bytes, listed * memory.page());
      EXPECT_EQ(memory.all_given_back().size(), listed);
    }
  }
}

TEST(BatchedDiscard, NamesTheGapInMemoryThatIsNotMapped) {
  FilledMemory memory(16);
  ASSERT_EQ(::munmap(memory.pages(6).data(), memory.page()), 0);
  if (::madvise(memory.pages(5).data(), 3 * memory.page(), MADV_NORMAL) == 0) {
    GTEST_SKIP() << "this kernel (or emulator) does not tell of gaps";
  }
  const std::array ranges{memory.pages(0), memory.pages(4, 4), memory.pages(10), memory.pages(12)};
  BatchedDiscard discard;
  DiscardProgress progress;
  const Result<> result = discard.discard(ranges, progress);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(result.error().system_errno, ENOMEM);
  EXPECT_EQ(progress.range, 1U);
  EXPECT_EQ(progress.offset, 2 * memory.page());
  EXPECT_EQ(progress.bytes, 3 * memory.page());
  EXPECT_TRUE(memory.given_back(0));
  EXPECT_TRUE(memory.given_back(4));
  EXPECT_TRUE(memory.given_back(5));
  EXPECT_FALSE(memory.given_back(10));
  ++progress.range;
  progress.offset = 0;
  ASSERT_TRUE(ok(discard.discard(ranges, progress)));
  EXPECT_TRUE(memory.given_back(10));
  EXPECT_TRUE(memory.given_back(12));
}

TEST(BatchedDiscard, FallsBackWhenProcessMadviseIsRefused) {
  for (const int error : {EPERM, ENOSYS, EINVAL, ESRCH}) {
    const FilledMemory memory(20);
    const std::vector<MemoryRange> ranges = every_second(memory, 10);
    BatchedDiscard discard;
    FaultInjection kernel;
    kernel.fail(Call::kProcessMadvise, error);
    const Result<DiscardProgress> done = discard.discard(ranges);
    ASSERT_TRUE(ok(done));
    EXPECT_EQ(memory.all_given_back().size(), 10U);
    EXPECT_EQ(done->batches, 0U);
    EXPECT_FALSE(discard.batching());
    EXPECT_EQ(kernel.count(Call::kProcessMadvise), 1U);
    // And it is remembered.
    ASSERT_TRUE(ok(discard.discard(ranges)));
    EXPECT_EQ(kernel.count(Call::kProcessMadvise), 1U);
    EXPECT_EQ(kernel.count(Call::kMadvise), 20U);
  }
}

TEST(BatchedDiscard, OpensAPidfdWhereTheKernelHasNoNameForOneself) {
  const FilledMemory memory(20);
  const std::vector<MemoryRange> ranges = every_second(memory, 10);
  BatchedDiscard discard;
  FaultInjection kernel;
  kernel.add({.call = Call::kProcessMadvise, .times = 1, .error = EBADF});
  kernel.emulate_process_madvise();
  ASSERT_TRUE(ok(discard.discard(ranges)));
  if (kernel.count(Call::kClose) == 0) GTEST_SKIP() << "no pidfd here";
  EXPECT_TRUE(discard.batching());
  EXPECT_EQ(kernel.count(Call::kPidfdOpen), 1U);
  EXPECT_EQ(kernel.count(Call::kClose), 1U);
  EXPECT_EQ(kernel.count(Call::kMadvise), 0U);
  EXPECT_EQ(memory.all_given_back().size(), 10U);

  // Without a descriptor to spare, this once by madvise.
  kernel.clear();
  kernel.fail(Call::kPidfdOpen, EMFILE);
  ASSERT_TRUE(ok(discard.discard(ranges)));
  EXPECT_EQ(kernel.count(Call::kMadvise), 10U);
  EXPECT_TRUE(discard.batching());

  // A descriptor refused as well: for good.
  kernel.clear();
  kernel.fail(Call::kProcessMadvise, EBADF);
  ASSERT_TRUE(ok(discard.discard(ranges)));
  EXPECT_FALSE(discard.batching());
}

TEST(BatchedDiscard, InAForkedChildItWorksOnTheChild) {
  const FilledMemory memory(20);
  const std::vector<MemoryRange> ranges = every_second(memory, 10);
  BatchedDiscard discard;
  {
    // Learns to use a descriptor, which must not be the parent's in the child.
    FaultInjection kernel;
    kernel.add({.call = Call::kProcessMadvise, .times = 1, .error = EBADF});
    kernel.emulate_process_madvise();
    ASSERT_TRUE(ok(discard.discard(std::span(ranges).first(2))));
  }
  EXPECT_EQ(testing::in_child([&] {
              if (!discard.discard(ranges)) return 1;
              return memory.all_given_back().size() == 10 ? 0 : 2;
            }),
            0);
  EXPECT_EQ(memory.all_given_back().size(), 2U);
}

TEST(BatchedDiscard, WholeGranulesOnly) {
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const FilledMemory memory(64, 16 * page);
  BatchedDiscard discard({.granule = 8 * page});
  const std::array ranges{
      memory.pages(3, 10),                        // Holds none of 8..15 whole: ends at 13.
      memory.pages(17, 7),                        // Ends on a granule and does not begin on one.
      memory.pages(26, 2), memory.pages(28, 15),  // Touch: 32..39 are whole.
      memory.pages(48, 8),                        // Exactly one.
      memory.pages(60),
  };
  const Result<DiscardProgress> done = discard.discard(ranges);
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(memory.all_given_back(), (std::vector<std::size_t>{32, 33, 34, 35, 36, 37, 38, 39, 48,
                                                               49, 50, 51, 52, 53, 54, 55}));
  EXPECT_EQ(done->bytes, 16 * page);
  EXPECT_EQ(done->kept_bytes, (10 + 7 + 2 + 15 + 8 + 1 - 16) * page);
  EXPECT_EQ(done->range, ranges.size());
}

TEST(BatchedDiscard, WholeHugePagesOnlySplitsNone) {
  const std::size_t pmd = arch::geometry().pmd;
  Result<Reservation> memory =
      Reservation::reserve({.size = 2 * pmd, .alignment = pmd, .huge_pages = HugePages::kPrefer});
  if (!memory || !memory->commit(memory->range())) GTEST_SKIP() << "no huge pages here";
  const auto huge_bytes = [&] {
    const Result<Smaps> now = smaps(memory->data(), memory->size());
    return now ? now->anon_huge_pages : 0;
  };
  const std::array most{memory->range().first(pmd + pmd / 2)};
  std::memset(memory->data(), 7, memory->size());
  if (huge_bytes() != 2 * pmd) GTEST_SKIP() << "the kernel gave no huge pages";
  BatchedDiscard whole({.granule = pmd});
  const Result<DiscardProgress> done = whole.discard(most);
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(done->bytes, pmd);
  EXPECT_EQ(done->kept_bytes, pmd / 2);
  EXPECT_EQ(huge_bytes(), pmd) << "the second is whole";
  // Against which, without a granule, the second is split.
  BatchedDiscard every_page;
  ASSERT_TRUE(ok(every_page.discard(most)));
  EXPECT_EQ(huge_bytes(), 0U);
}

TEST(BatchedDiscard, AFailureWithinAGranuleResumesWithinIt) {
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const FilledMemory memory(32, 16 * page);
  BatchedDiscard discard({.granule = 8 * page});
  const std::array ranges{memory.pages(6, 4), memory.pages(10, 4), memory.pages(14, 4)};
  DiscardProgress progress;
  {
    FaultInjection kernel;
    kernel.fail_at(Call::kMadvise, memory.pages(12).data(), EIO);
    const Result<> result = discard.discard(ranges, progress);
    ASSERT_FALSE(result);
    EXPECT_EQ(progress.range, 1U);
    EXPECT_EQ(progress.offset, 2 * page);
    EXPECT_EQ(progress.bytes, 4 * page);
    EXPECT_EQ(progress.kept_bytes, 2 * page);
  }
  ASSERT_TRUE(ok(discard.discard(ranges, progress)));
  EXPECT_EQ(memory.all_given_back(), (std::vector<std::size_t>{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(progress.bytes, 8 * page);
  EXPECT_EQ(progress.kept_bytes, 4 * page);
}

TEST(BatchedDiscard, LazilyOffersAndFallsBack) {
  const FilledMemory memory(20);
  const std::vector<MemoryRange> ranges = every_second(memory, 10);
  BatchedDiscard discard({.policy = DiscardPolicy::kLazily});
  {
    FaultInjection kernel;
    kernel.emulate_process_madvise();
    const Result<DiscardProgress> done = discard.discard(ranges);
    ASSERT_TRUE(ok(done));
    EXPECT_EQ(only(kernel, Call::kProcessMadvise).at(0).argument, MADV_FREE);
    EXPECT_EQ(done->bytes, 10 * memory.page());
    EXPECT_EQ(done->lazy_bytes, done->bytes);
  }
  FaultInjection kernel;
  kernel.add({.call = Call::kMadvise, .argument = MADV_FREE, .error = EINVAL});
  kernel.add({.call = Call::kProcessMadvise, .argument = MADV_FREE, .error = EINVAL});
  const Result<DiscardProgress> done = discard.discard(ranges);
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(done->bytes, 10 * memory.page());
  EXPECT_EQ(done->lazy_bytes, 0U);
  EXPECT_EQ(memory.all_given_back().size(), 10U);
  // Memory that cannot be freed lazily says nothing about batches.
  EXPECT_TRUE(discard.batching());
}

TEST(BatchedDiscard, EverySystemCallMayFailWithEveryError) {
  // The longest way: no name for oneself, then descriptors, then some batches.
  const auto scenario = [](FaultInjection& kernel) {
    kernel.add({.call = Call::kProcessMadvise, .times = 1, .error = EBADF});
    kernel.emulate_process_madvise();
  };
  std::size_t calls = 0;
  {
    const FilledMemory memory(40);
    FaultInjection kernel;
    scenario(kernel);
    BatchedDiscard discard({.ranges_per_call = 5});
    ASSERT_TRUE(ok(discard.discard(mixed_ranges(memory))));
    calls = kernel.total();
  }
  ASSERT_GE(calls, 5U);
  for (const std::size_t times : {std::size_t{1}, SIZE_MAX}) {
    for (std::size_t nth = 1; nth <= calls; ++nth) {
      for (const int error : {ENOMEM, EFAULT, EINTR, EAGAIN, EINVAL, EPERM, ENOSYS, EBADF}) {
        const FilledMemory memory(40);
        const std::vector<MemoryRange> ranges = mixed_ranges(memory);
        BatchedDiscard discard({.ranges_per_call = 5});
        FaultInjection kernel;
        kernel.add({.nth = nth, .times = times, .error = error});
        scenario(kernel);
        DiscardProgress progress;
        const Result<> result = discard.discard(ranges, progress);
        EXPECT_GE(kernel.faked(), 1U);
        std::size_t before = 0;
        for (std::size_t i = 0; i < progress.range; ++i) before += ranges[i].size();
        before += progress.offset;
        EXPECT_EQ(progress.bytes, before);
        EXPECT_EQ(memory.all_given_back().size(), before / memory.page());
        if (result) {
          EXPECT_EQ(progress.range, ranges.size());
        } else {
          EXPECT_EQ(result.error().system_errno, error);
          EXPECT_EQ(result.error().progress, progress.offset);
        }
        // No descriptor stays open.
        std::size_t opened = 0;
        for (const CallRecord& each : only(kernel, Call::kPidfdOpen)) opened += each.error == 0;
        EXPECT_EQ(kernel.count(Call::kClose), opened);
      }
    }
  }
}

/// A clock that stands still until it is moved.
struct FakeTime {
  nanoseconds now{1000};

  [[nodiscard]] DelayedDiscard::Clock clock() {
    return [this] { return now; };
  }
};

TEST(DelayedDiscard, GivesBackAfterTheDelayAndNotBefore) {
  const FilledMemory memory(8);
  FakeTime time;
  DelayedDiscard later(10s, {}, time.clock());
  EXPECT_FALSE(later.next_due());
  ASSERT_TRUE(ok(later.schedule(memory.pages(1))));
  time.now += 4s;
  ASSERT_TRUE(ok(later.schedule(memory.pages(5, 2))));
  EXPECT_EQ(later.pending_bytes(), 3 * memory.page());
  EXPECT_EQ(later.next_due(), nanoseconds(1000) + 10s);
  time.now += 6s - 1ns;
  EXPECT_EQ(later.run_due()->bytes, 0U);
  EXPECT_TRUE(memory.all_given_back().empty());
  time.now += 1ns;
  EXPECT_EQ(later.run_due()->bytes, memory.page());
  EXPECT_EQ(memory.all_given_back(), (std::vector<std::size_t>{1}));
  EXPECT_EQ(later.next_due(), nanoseconds(1000) + 14s);
  time.now += 4s;
  EXPECT_EQ(later.run_due()->bytes, 2 * memory.page());
  EXPECT_EQ(memory.all_given_back(), (std::vector<std::size_t>{1, 5, 6}));
  EXPECT_EQ(later.pending_bytes(), 0U);
  EXPECT_FALSE(later.next_due());
  EXPECT_EQ(later.totals().bytes, 3 * memory.page());
}

TEST(DelayedDiscard, ReuseCancelsExactlyWhatIsReused) {
  const FilledMemory memory(16);
  FakeTime time;
  DelayedDiscard later(10s, {}, time.clock());
  ASSERT_TRUE(ok(later.schedule(memory.pages(0, 8))));
  ASSERT_TRUE(ok(later.schedule(memory.pages(8, 4))));
  EXPECT_EQ(later.cancel(memory.pages(2, 3)), 3 * memory.page());
  EXPECT_EQ(later.cancel(memory.pages(2, 3)), 0U);
  EXPECT_EQ(later.cancel(memory.pages(7, 2)), 2 * memory.page());
  EXPECT_EQ(later.cancel(memory.pages(11, 5)), memory.page());
  EXPECT_EQ(later.cancel({}), 0U);
  EXPECT_EQ(later.pending_bytes(), 6 * memory.page());
  time.now += 10s;
  EXPECT_EQ(later.run_due()->bytes, 6 * memory.page());
  EXPECT_EQ(memory.all_given_back(), (std::vector<std::size_t>{0, 1, 5, 6, 9, 10}));
}

TEST(DelayedDiscard, SchedulingAgainStartsAnew) {
  const FilledMemory memory(8);
  FakeTime time;
  DelayedDiscard later(10s, {}, time.clock());
  ASSERT_TRUE(ok(later.schedule(memory.pages(0, 4))));
  time.now += 9s;
  ASSERT_TRUE(ok(later.schedule(memory.pages(2, 4))));
  EXPECT_EQ(later.pending_bytes(), 6 * memory.page());
  time.now += 1s;
  EXPECT_EQ(later.run_due()->bytes, 2 * memory.page());
  EXPECT_EQ(memory.all_given_back(), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(later.flush()->bytes, 4 * memory.page());
  EXPECT_EQ(memory.all_given_back().size(), 6U);
}

TEST(DelayedDiscard, PartsOfAGranuleWaitForTheirNeighbours) {
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const FilledMemory memory(32, 16 * page);
  FakeTime time;
  DelayedDiscard later(10s, {.granule = 8 * page}, time.clock());
  ASSERT_TRUE(ok(later.schedule(memory.pages(6, 5))));
  time.now += 10s;
  EXPECT_EQ(later.run_due()->bytes, 0U);
  EXPECT_FALSE(later.next_due()) << "looking again would not help";
  EXPECT_EQ(later.pending_bytes(), 5 * page);
  ASSERT_TRUE(ok(later.schedule(memory.pages(11, 6))));
  EXPECT_EQ(later.run_due()->bytes, 0U);
  time.now += 10s;
  EXPECT_EQ(later.run_due()->bytes, 8 * page);
  EXPECT_EQ(memory.all_given_back(), (std::vector<std::size_t>{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(later.pending_bytes(), 3 * page);
}

TEST(DelayedDiscard, ManyPiecesAllGo) {
  const FilledMemory memory(1000);
  FakeTime time;
  DelayedDiscard later(10s, {}, time.clock());
  for (const MemoryRange& each : every_second(memory, 500)) ASSERT_TRUE(ok(later.schedule(each)));
  time.now += 10s;
  EXPECT_EQ(later.run_due()->bytes, 500 * memory.page());
  EXPECT_EQ(memory.all_given_back().size(), 500U);
}

TEST(DelayedDiscard, AFailureStopsNothingElse) {
  const FilledMemory memory(16);
  FakeTime time;
  DelayedDiscard later(10s, {}, time.clock());
  ASSERT_TRUE(ok(later.schedule(memory.pages(0, 2))));
  ASSERT_TRUE(ok(later.schedule(memory.pages(4, 4))));
  ASSERT_TRUE(ok(later.schedule(memory.pages(10, 2))));
  time.now += 10s;
  FaultInjection kernel;
  kernel.fail_at(Call::kProcessMadvise, memory.pages(5).data(), EFAULT);
  kernel.fail_at(Call::kMadvise, memory.pages(5).data(), EFAULT);
  const Result<DiscardProgress> result = later.run_due();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().address, reinterpret_cast<std::uintptr_t>(memory.pages(4).data()));
  EXPECT_EQ(result.error().progress, memory.page());
  EXPECT_EQ(memory.all_given_back(), (std::vector<std::size_t>{0, 1, 4, 10, 11}));
  EXPECT_EQ(later.totals().bytes, 5 * memory.page());
  EXPECT_EQ(later.pending_bytes(), 0U);
}

TEST(DelayedDiscard, UsesARealClockByDefault) {
  const FilledMemory memory(2);
  DelayedDiscard at_once(0ns);
  ASSERT_TRUE(ok(at_once.schedule(memory.pages(0))));
  EXPECT_EQ(at_once.run_due()->bytes, memory.page());
  DelayedDiscard never(1000h);
  ASSERT_TRUE(ok(never.schedule(memory.pages(1))));
  EXPECT_EQ(never.run_due()->bytes, 0U);
}

TEST(DelayedDiscard, MemoryReusedAfterCancelIsNeverTaken) {
  constexpr std::size_t kPages = 64;
  const FilledMemory memory(kPages);
  DelayedDiscard later(0ns);
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  std::thread collector([&] {
    while (!stop.load()) {
      if (!later.run_due()) ++failures;
    }
  });
  std::size_t lost = 0;
  for (std::size_t round = 1; round <= 300; ++round) {
    for (std::size_t i = 0; i < kPages; ++i) {
      if (!later.schedule(memory.pages(i))) ++lost;
    }
    for (std::size_t i = 0; i < kPages; ++i) {
      later.cancel(memory.pages(i));
      memory.pages(i)[0] = static_cast<std::byte>(round % 255 + 1);
    }
    for (std::size_t i = 0; i < kPages; ++i) {
      if (memory.pages(i)[0] != static_cast<std::byte>(round % 255 + 1)) ++lost;
    }
  }
  stop = true;
  collector.join();
  EXPECT_EQ(lost, 0U);
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace touchstone::heap
