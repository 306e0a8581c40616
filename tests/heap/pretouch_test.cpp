// SPDX-License-Identifier: MIT
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <ostream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <touchstone/heap/pretouch.h>
#include <touchstone/heap/system_calls.h>

#include "fault_injection.h"
#include "fresh_memory.h"
#include "memory_probe.h"
#include "result_assertions.h"

namespace touchstone::heap {
namespace {

using testing::Call;
using ::testing::ElementsAre;
using testing::FaultInjection;
using testing::FreshMemory;
using ::testing::HasSubstr;
using testing::in_child;
using ::testing::IsEmpty;
using testing::kMiB;
using testing::page_size;
using touchstone::testing::ok;

constexpr int kPopulateWriteAdvice = 23;
constexpr std::size_t kHuge = 2 * kMiB;

::testing::AssertionResult done(const PretouchOutcome& outcome) {
  if (outcome) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << outcome.error().error.message();
}

::testing::AssertionResult refused(ErrorCode code, const PretouchOutcome& outcome) {
  if (outcome) return ::testing::AssertionFailure() << "it succeeded";
  if (outcome.error().error.code == code) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << outcome.error().error.message();
}

/// What every test starts from: the memory limits of the machine that runs it left out.
PretouchOptions plain(PretouchStrategy strategy, unsigned threads = 1) {
  return {.strategy = strategy, .threads = threads, .limits = LimitPolicy::kIgnore};
}

/// Whether a failure's account of what is touched is what mincore sees.
void expect_exact(const PretouchFailure& failure, const FreshMemory& memory) {
  std::vector<bool> told(memory.size() / page_size(), false);
  const auto mark = [&](std::size_t offset, std::size_t length) {
    for (std::size_t i = offset / page_size(); i < (offset + length) / page_size(); ++i) {
      EXPECT_FALSE(told[i]) << "told twice";
      told[i] = true;
    }
  };
  mark(0, failure.error.progress);
  std::size_t last = failure.error.progress;
  for (const PretouchedPart& part : failure.beyond) {
    EXPECT_GT(part.offset, last) << "parts touch or are out of order";
    EXPECT_GT(part.length, 0U);
    mark(part.offset, part.length);
    last = part.offset + part.length;
  }
  EXPECT_EQ(told, memory.present());
}

// ---- Names ----

TEST(PretouchStrategies, NamesAreReadBack) {
  EXPECT_EQ(all_pretouch_strategies().size(), 8U);
  EXPECT_EQ(all_pretouch_strategies().back(), PretouchStrategy::kAutomatic);
  for (const PretouchStrategy strategy : all_pretouch_strategies()) {
    EXPECT_EQ(parse_pretouch_strategy(to_string(strategy)), strategy);
  }
  for (const char* name : {"", "Store", "stor", "stores", "unknown", "populate"}) {
    EXPECT_EQ(parse_pretouch_strategy(name), std::nullopt) << name;
  }
}

TEST(PretouchStrategies, OnlyThoseThatKeepValuesAreSafeBesideMutators) {
  using enum PretouchStrategy;
  for (const PretouchStrategy safe : {kNone, kAtomicRmw, kPopulateWrite, kCollapse, kAutomatic}) {
    EXPECT_TRUE(safe_beside_mutators(safe)) << to_string(safe);
  }
  for (const PretouchStrategy unsafe : {kStore, kPopulateReadThenStore, kLoadThenStore}) {
    EXPECT_FALSE(safe_beside_mutators(unsafe)) << to_string(unsafe);
  }
}

// ---- Bad input ----

class BadInput : public ::testing::TestWithParam<PretouchStrategy> {
 protected:
  /// Nothing may be touched or advised before the input is found good.
  void expect_refused(ErrorCode code, void* address, std::size_t length, PretouchOptions options,
                      const char* detail = "") {
    options.strategy = GetParam();
    FaultInjection calls;
    const PretouchOutcome outcome = pretouch(address, length, options);
    ASSERT_TRUE(refused(code, outcome));
    EXPECT_THAT(outcome.error().error.detail, HasSubstr(detail));
    EXPECT_EQ(outcome.error().error.progress, 0U);
    EXPECT_THAT(outcome.error().beyond, IsEmpty());
    EXPECT_EQ(calls.count(Call::kMadvise), 0U);
    const Result<PretouchTask> task = start_pretouch(address, length, options);
    ASSERT_FALSE(task.has_value());
    EXPECT_EQ(task.error(), outcome.error().error);
    EXPECT_EQ(memory_.present_bytes(), 0U);
  }

  FreshMemory memory_{kMiB};
};

TEST_P(BadInput, RangesThatAreNone) {
  expect_refused(ErrorCode::kInvalidArgument, memory_.begin(), 0, {}, "length is 0");
  expect_refused(ErrorCode::kMisaligned, memory_.begin() + 8, page_size(), {}, "base page");
  expect_refused(ErrorCode::kMisaligned, memory_.begin(), page_size() + 1, {}, "base page");
  expect_refused(ErrorCode::kMisaligned, memory_.begin(), 1, {}, "base page");
  expect_refused(ErrorCode::kOverflow, memory_.begin(), SIZE_MAX, {}, "wraps");
  expect_refused(ErrorCode::kOverflow, memory_.begin(), SIZE_MAX - page_size() + 1, {}, "wraps");
}

TEST_P(BadInput, ThreadsAboveTheMost) {
  expect_refused(ErrorCode::kInvalidArgument, memory_.begin(), kMiB, {.threads = 10000},
                 "at most 1024 threads");
  expect_refused(ErrorCode::kInvalidArgument, memory_.begin(), kMiB, {.threads = 1025});
  expect_refused(ErrorCode::kInvalidArgument, memory_.begin(), kMiB, {.threads = UINT_MAX});
}

TEST_P(BadInput, SizesToWorkBy) {
  expect_refused(ErrorCode::kInvalidArgument, memory_.begin(), kMiB, {.geometry = {4096, 4096}});
  expect_refused(ErrorCode::kInvalidArgument, memory_.begin(), kMiB, {.geometry = {4096, 0}});
  expect_refused(ErrorCode::kInvalidArgument, memory_.begin(), kMiB, {.geometry = {512, kHuge}});
  expect_refused(ErrorCode::kInvalidArgument, memory_.begin(), kMiB,
                 {.geometry = {page_size(), kHuge}, .chunk = kMiB}, "chunk");
  // Aligned to this machine's page, not to the one given.
  expect_refused(ErrorCode::kMisaligned, memory_.begin() + page_size(), 16 * page_size(),
                 {.geometry = {16 * page_size(), 16 * kHuge}});
}

TEST_P(BadInput, ATouchKernelWithoutAFunction) {
  const TouchKernel empty{.name = "empty"};
  expect_refused(ErrorCode::kInvalidArgument, memory_.begin(), kMiB, {.touch_kernel = &empty},
                 "touch kernel");
}

TEST_P(BadInput, MemoryInUse) {
  PretouchOptions options = plain(GetParam());
  options.memory_in_use = true;
  if (!safe_beside_mutators(GetParam())) {
    expect_refused(ErrorCode::kBusy, memory_.begin(), kMiB, options, "not safe beside mutators");
    return;
  }
  const PretouchOutcome outcome = pretouch(memory_.begin(), kMiB, options);
  if (!outcome) {
    EXPECT_NE(outcome.error().error.code, ErrorCode::kBusy);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, BadInput, ::testing::ValuesIn(all_pretouch_strategies()),
                         [](const auto& each) { return to_string(each.param); });

TEST(BadInputs, AStrategyOutsideTheEnum) {
  const FreshMemory memory(kMiB);
  EXPECT_TRUE(refused(ErrorCode::kInvalidArgument,
                      pretouch(memory.begin(), kMiB, plain(static_cast<PretouchStrategy>(77)))));
  EXPECT_STREQ(to_string(static_cast<PretouchStrategy>(77)), "unknown");
}

TEST(BadInputs, ATouchKernelThatWritesBesideMutators) {
  const FreshMemory memory(kMiB);
  const TouchKernel writing{.touch = [](void*, void*, std::size_t) {}, .name = "swap"};
  PretouchOptions options = plain(PretouchStrategy::kAtomicRmw);
  options.touch_kernel = &writing;
  options.memory_in_use = true;
  EXPECT_TRUE(refused(ErrorCode::kBusy, pretouch(memory.begin(), kMiB, options)));
}

// ---- Faults and residency, counted ----

struct Counted {
  friend std::ostream& operator<<(std::ostream& out, const Counted& each) {
    return out << to_string(each.strategy) << " by " << each.threads;
  }

  PretouchStrategy strategy;
  unsigned threads;
};

/// The expected faults, and a few that a thread's own text, stack and data may take meanwhile: the
/// kernel reclaims and moves pages when it likes.
auto faults_about(std::uint64_t expected) {
  return ::testing::AllOf(::testing::Ge(expected), ::testing::Le(expected + 8));
}

class CountedPretouch : public ::testing::TestWithParam<Counted> {
 protected:
  static constexpr std::size_t kLength = 32 * kMiB;

  void SetUp() override {
    const PretouchStrategy strategy = GetParam().strategy;
    if (strategy == PretouchStrategy::kPopulateWrite && !testing::populate_write_works()) {
      GTEST_SKIP() << "MADV_POPULATE_WRITE does nothing here";
    }
    if (strategy == PretouchStrategy::kCollapse && !testing::collapse_works()) {
      GTEST_SKIP() << "MADV_COLLAPSE does nothing here";
    }
  }
  /// Whether each page faults twice here, for a raw loop as well.
  [[nodiscard]] static bool faults_twice() {
    switch (GetParam().strategy) {
      case PretouchStrategy::kLoadThenStore:
        return testing::read_faults_map_zero_page();
      case PretouchStrategy::kPopulateReadThenStore:
        return testing::populate_read_then_store_faults_twice();
      case PretouchStrategy::kAtomicRmw:
        return testing::atomics_fault_twice();
      default:
        return false;
    }
  }
  [[nodiscard]] static PretouchOptions options() {
    PretouchOptions options = plain(GetParam().strategy, GetParam().threads);
    options.chunk = kHuge;
    options.geometry = {page_size(), kHuge};
    return options;
  }
};

TEST_P(CountedPretouch, BasePages) {
  // Collapsing is refused then, which a test of its own shows.
  if (GetParam().strategy == PretouchStrategy::kCollapse) return;
  const FreshMemory memory(kLength);
  PretouchOptions options = CountedPretouch::options();
  options.huge_pages = HugePageAdvice::kNoHuge;
  const PretouchOutcome outcome = pretouch(memory.begin(), kLength, options);
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(outcome->bytes, kLength);
  EXPECT_EQ(outcome->clamped_bytes, 0U);
  EXPECT_EQ(outcome->threads, GetParam().threads);
  EXPECT_EQ(outcome->chunk, kHuge);
  EXPECT_GT(outcome->seconds, 0);
  EXPECT_EQ(memory.present_bytes(), kLength);
  ASSERT_TRUE(ok(outcome->residency));
  EXPECT_EQ(outcome->residency->populated(), kLength);
  if (outcome->huge_bytes) {
    EXPECT_EQ(*outcome->huge_bytes, 0U);
  }
  ASSERT_TRUE(ok(outcome->faults));
  const std::uint64_t pages = kLength / page_size();
  const std::uint64_t each = faults_twice() ? 2 : 1;
  if (testing::fault_counts_are_exact()) {
    EXPECT_THAT(outcome->faults->minor, faults_about(pages * each));
  } else {
    EXPECT_GE(outcome->faults->minor, pages * each);
  }
}

TEST_P(CountedPretouch, HugePages) {
  if (!testing::faults_bring_huge_pages()) GTEST_SKIP() << "no huge pages on this machine";
  const FreshMemory memory(kLength);
  PretouchOptions options = CountedPretouch::options();
  options.huge_pages = HugePageAdvice::kHuge;
  options.count_system_wide = true;
  const PretouchOutcome outcome = pretouch(memory.begin(), kLength, options);
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(memory.present_bytes(), kLength);
  ASSERT_TRUE(ok(outcome->faults));
  const std::uint64_t huge_pages = kLength / kHuge;
  if (faults_twice()) {
    // Two for each huge page, or one and one for each base page where the kernel shatters them.
    EXPECT_GE(outcome->faults->minor, 2 * huge_pages);
    return;
  }
  if (testing::fault_counts_are_exact()) {
    EXPECT_THAT(outcome->faults->minor, faults_about(huge_pages));
  }
  ASSERT_TRUE(ok(outcome->huge_bytes));
  EXPECT_EQ(*outcome->huge_bytes, kLength);
  ASSERT_TRUE(outcome->system_wide.has_value());
  if (*outcome->system_wide && GetParam().strategy != PretouchStrategy::kCollapse) {
    EXPECT_GE((*outcome->system_wide)->thp_fault_alloc.value_or(huge_pages), huge_pages);
  }
}

std::vector<Counted> counted_cases() {
  std::vector<Counted> cases;
  for (const PretouchStrategy strategy : all_pretouch_strategies()) {
    if (strategy == PretouchStrategy::kNone) continue;
    for (const unsigned threads : {1U, 2U, 8U}) cases.push_back({strategy, threads});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Strategies, CountedPretouch, ::testing::ValuesIn(counted_cases()),
                         [](const auto& each) {
                           return std::string(to_string(each.param.strategy)) + "_" +
                                  std::to_string(each.param.threads);
                         });

TEST(Pretouch, NoneTouchesNothing) {
  const FreshMemory memory(4 * kMiB);
  const PretouchOutcome outcome =
      pretouch(memory.begin(), memory.size(), plain(PretouchStrategy::kNone));
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(outcome->bytes, 0U);
  EXPECT_EQ(outcome->residency->present, 0U);
  EXPECT_EQ(memory.present_bytes(), 0U);
}

TEST(Pretouch, CollapseMakesHugePagesWhereFaultsDoNot) {
  if (!testing::collapse_works()) GTEST_SKIP() << "MADV_COLLAPSE does nothing here";
  const Result<arch::ThpMode> mode = arch::thp_mode();
  if (!mode || *mode == arch::ThpMode::kAlways) GTEST_SKIP() << "faults make huge pages anyway";
  // A part of a huge page at either end.
  const FreshMemory memory(8 * kHuge + 24 * page_size(), kHuge, 2 * kMiB - 8 * page_size());
  const PretouchOutcome outcome =
      pretouch(memory.begin(), memory.size(), plain(PretouchStrategy::kCollapse));
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(memory.present_bytes(), memory.size());
  ASSERT_TRUE(ok(outcome->huge_bytes));
  EXPECT_EQ(*outcome->huge_bytes, 8 * kHuge);
  EXPECT_STREQ(outcome->touch_kernel, "");
  if (testing::fault_counts_are_exact()) {
    EXPECT_THAT(outcome->faults->minor, faults_about(8 + 24));
  }
}

TEST(Pretouch, CollapseOfMemoryThatHugePagesMayNotBackIsTyped) {
  if (!testing::collapse_works()) GTEST_SKIP() << "MADV_COLLAPSE does nothing here";
  const FreshMemory memory(2 * kHuge);
  PretouchOptions options = plain(PretouchStrategy::kCollapse);
  options.huge_pages = HugePageAdvice::kNoHuge;
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(refused(ErrorCode::kInvalidArgument, outcome));
  EXPECT_EQ(outcome.error().error.system_errno, EINVAL);
  EXPECT_EQ(outcome.error().error.progress, page_size());
  expect_exact(outcome.error(), memory);
}

TEST(Pretouch, RangesThatStartAndEndInsideHugePagesAreTouchedWhole) {
  const std::size_t length = 3 * kHuge + 5 * page_size();
  for (const PretouchStrategy strategy :
       {PretouchStrategy::kStore, PretouchStrategy::kAtomicRmw, PretouchStrategy::kAutomatic}) {
    for (const unsigned threads : {1U, 3U}) {
      const FreshMemory memory(length, kHuge, 7 * page_size());
      PretouchOptions options = plain(strategy, threads);
      options.chunk = kHuge;
      options.geometry = {page_size(), kHuge};
      const PretouchOutcome outcome = pretouch(memory.begin(), length, options);
      ASSERT_TRUE(done(outcome));
      EXPECT_EQ(outcome->bytes, length);
      EXPECT_EQ(memory.present_bytes(), length);
    }
  }
}

TEST(Pretouch, OnePage) {
  const FreshMemory memory(3 * page_size(), page_size());
  ASSERT_EQ(::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE), 0);
  const PretouchOutcome outcome =
      pretouch(memory.begin() + page_size(), page_size(), plain(PretouchStrategy::kStore, 8));
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(outcome->threads, 1U);
  EXPECT_THAT(memory.present(), ElementsAre(false, true, false));
}

TEST(Pretouch, ThreadsOfZeroIsOneForEachUsableCpu) {
  const FreshMemory memory(64 * kMiB);
  PretouchOptions options = plain(PretouchStrategy::kStore, 0);
  options.chunk = kHuge;
  options.geometry = {page_size(), kHuge};
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(outcome->threads, std::min(arch::usable_cpus(), 32U));
}

// ---- Values ----

class KeepsValues : public ::testing::TestWithParam<PretouchStrategy> {};

TEST_P(KeepsValues, BesideMutators) {
  const FreshMemory memory(16 * kMiB);
  // One counter where a touch lands and one where none does, in every page, half of them untouched.
  const std::size_t pages = memory.size() / page_size();
  const auto counter = [&](std::size_t page, std::size_t which) -> std::atomic_ref<std::uint64_t> {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory.begin() + page * page_size() +
                                                             which * page_size() / 2));
  };
  for (std::size_t page = 0; page < pages; page += 2) counter(page, 0) = page;
  constexpr std::uint64_t kRounds = 20;
  std::thread mutator([&] {
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      for (std::size_t page = 0; page < pages; ++page) {
        counter(page, 0).fetch_add(1, std::memory_order_relaxed);
        counter(page, 1).fetch_add(1, std::memory_order_relaxed);
      }
    }
  });
  PretouchOptions options = plain(GetParam(), 2);
  options.memory_in_use = true;
  options.chunk = kHuge;
  options.geometry = {page_size(), kHuge};
  for (int again = 0; again < 4; ++again) {
    const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
    if (!outcome && outcome.error().error.code == ErrorCode::kIneffective) {
      mutator.join();
      GTEST_SKIP() << outcome.error().error.message();
    }
    EXPECT_TRUE(done(outcome));
    EXPECT_TRUE(safe_beside_mutators(outcome->strategy));
  }
  mutator.join();
  for (std::size_t page = 0; page < pages; ++page) {
    ASSERT_EQ(counter(page, 0), kRounds + (page % 2 == 0 ? page : 0)) << page;
    ASSERT_EQ(counter(page, 1), kRounds) << page;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, KeepsValues,
                         ::testing::Values(PretouchStrategy::kAtomicRmw,
                                           PretouchStrategy::kPopulateWrite,
                                           PretouchStrategy::kCollapse,
                                           PretouchStrategy::kAutomatic),
                         [](const auto& each) { return to_string(each.param); });

// ---- Touch kernels and geometry ----

/// What a touch kernel was asked to do. Plain functions cannot carry state, so it is global.
struct Asked {
  std::mutex mutex;
  std::map<std::uintptr_t, std::uintptr_t> ranges;
  std::size_t stride = 0;

  void clear() {
    ranges.clear();
    stride = 0;
  }
};

Asked& asked() {
  static Asked record;
  return record;
}

void record_only(void* begin, void* end, std::size_t stride) {
  if (begin == end) return;
  const std::lock_guard lock(asked().mutex);
  asked().ranges[reinterpret_cast<std::uintptr_t>(begin)] = reinterpret_cast<std::uintptr_t>(end);
  asked().stride = stride;
}

constexpr TouchKernel kRecorder{.touch = record_only, .name = "recorder", .value_preserving = true};

/// The lengths of the ranges asked for, which must follow one another without gap.
std::vector<std::size_t> asked_lengths(const std::byte* begin) {
  std::vector<std::size_t> lengths;
  std::uintptr_t next = reinterpret_cast<std::uintptr_t>(begin);
  for (const auto& [from, to] : asked().ranges) {
    EXPECT_EQ(from, next);
    lengths.push_back(to - from);
    next = to;
  }
  return lengths;
}

TEST(TouchKernels, TheOneOfTheOptionsIsUsed) {
  asked().clear();
  const FreshMemory memory(8 * kMiB);
  PretouchOptions options = plain(PretouchStrategy::kAtomicRmw, 2);
  options.touch_kernel = &kRecorder;
  options.chunk = kHuge;
  options.geometry = {page_size(), kHuge};
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(done(outcome));
  EXPECT_STREQ(outcome->touch_kernel, "recorder");
  EXPECT_EQ(asked().stride, page_size());
  EXPECT_THAT(asked_lengths(memory.begin()), ElementsAre(kHuge, kHuge, kHuge, kHuge));
  EXPECT_EQ(memory.present_bytes(), 0U) << "only the kernel may touch";
}

TEST(TouchKernels, TheRegisteredOneIsTheDefault) {
  asked().clear();
  EXPECT_EQ(&default_touch_kernel(), &compiler_touch_kernel());
  EXPECT_EQ(register_touch_kernel(&kRecorder), &compiler_touch_kernel());
  EXPECT_EQ(&default_touch_kernel(), &kRecorder);
  const TouchKernel empty{.name = "empty"};
  EXPECT_EQ(register_touch_kernel(&empty), &kRecorder);
  EXPECT_EQ(&default_touch_kernel(), &kRecorder) << "one without a function is ignored";

  const FreshMemory memory(kHuge);
  const PretouchOutcome outcome =
      pretouch(memory.begin(), kHuge, plain(PretouchStrategy::kAtomicRmw));
  ASSERT_TRUE(done(outcome));
  EXPECT_STREQ(outcome->touch_kernel, "recorder");
  EXPECT_THAT(asked_lengths(memory.begin()), ElementsAre(kHuge));

  EXPECT_EQ(register_touch_kernel(nullptr), &kRecorder);
  EXPECT_EQ(&default_touch_kernel(), &compiler_touch_kernel());
}

TEST(TouchKernels, OnlyStrategiesThatRunOneNameOne) {
  const FreshMemory memory(kMiB);
  const PretouchOutcome outcome = pretouch(memory.begin(), kMiB, plain(PretouchStrategy::kStore));
  ASSERT_TRUE(done(outcome));
  EXPECT_STREQ(outcome->touch_kernel, "");
}

class InjectedGeometry : public ::testing::TestWithParam<arch::Geometry> {};

TEST_P(InjectedGeometry, ChunksHoldWholeHugePages) {
  const arch::Geometry geometry = GetParam();
  if (geometry.base_page < page_size()) GTEST_SKIP() << "this machine's pages are larger";
  asked().clear();
  // Half a huge page, three whole ones, and one base page.
  const std::size_t half = geometry.pmd / 2;
  const std::size_t length = half + 3 * geometry.pmd + geometry.base_page;
  const FreshMemory memory(length, geometry.pmd, half);
  PretouchOptions options = plain(PretouchStrategy::kAtomicRmw, 2);
  options.touch_kernel = &kRecorder;
  options.geometry = geometry;
  options.chunk = geometry.pmd;
  const PretouchOutcome outcome = pretouch(memory.begin(), length, options);
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(asked().stride, geometry.base_page);
  EXPECT_THAT(asked_lengths(memory.begin()),
              ElementsAre(half, geometry.pmd, geometry.pmd, geometry.pmd, geometry.base_page));
}

TEST_P(InjectedGeometry, TheDefaultChunkIsAtLeastAHugePage) {
  const arch::Geometry geometry = GetParam();
  if (geometry.base_page < page_size()) GTEST_SKIP() << "this machine's pages are larger";
  const FreshMemory memory(geometry.pmd, geometry.pmd);
  PretouchOptions options = plain(PretouchStrategy::kAtomicRmw);
  options.touch_kernel = &kRecorder;
  options.geometry = geometry;
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(outcome->chunk, std::max(16 * kMiB, geometry.pmd));
}

TEST_P(InjectedGeometry, EveryBasePageOfItIsTouchedOnce) {
  const arch::Geometry geometry = GetParam();
  if (geometry.base_page < page_size()) GTEST_SKIP() << "this machine's pages are larger";
  const std::size_t length = 64 * geometry.base_page;
  for (const PretouchStrategy strategy :
       {PretouchStrategy::kStore, PretouchStrategy::kAtomicRmw, PretouchStrategy::kLoadThenStore}) {
    const FreshMemory memory(length, geometry.base_page);
    PretouchOptions options = plain(strategy);
    options.geometry = geometry;
    options.huge_pages = HugePageAdvice::kNoHuge;
    ASSERT_TRUE(done(pretouch(memory.begin(), length, options)));
    EXPECT_EQ(memory.present_bytes(), 64 * page_size());
  }
}

INSTANTIATE_TEST_SUITE_P(Geometries, InjectedGeometry,
                         ::testing::Values(arch::kGeometry4K, arch::kGeometry16K,
                                           arch::kGeometry64K),
                         [](const auto& each) {
                           return std::to_string(each.param.base_page >> 10) + "K";
                         });

// ---- Progress and cancellation ----

TEST(PretouchProgress, GrowsToTheWhole) {
  const FreshMemory memory(32 * kMiB);
  for (const unsigned threads : {1U, 4U}) {
    std::vector<PretouchProgress> seen;
    PretouchOptions options = plain(PretouchStrategy::kStore, threads);
    options.chunk = kHuge;
    options.geometry = {page_size(), kHuge};
    const std::thread::id caller = std::this_thread::get_id();
    options.on_progress = [&](const PretouchProgress& progress) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      seen.push_back(progress);
    };
    ASSERT_TRUE(done(pretouch(memory.begin(), memory.size(), options)));
    ASSERT_GE(seen.size(), 1U);
    std::size_t done_before = 0;
    std::size_t prefix_before = 0;
    for (const PretouchProgress& progress : seen) {
      EXPECT_EQ(progress.total, memory.size());
      EXPECT_GE(progress.done, done_before);
      EXPECT_GE(progress.prefix, prefix_before);
      EXPECT_LE(progress.prefix, progress.done);
      done_before = progress.done;
      prefix_before = progress.prefix;
    }
    EXPECT_EQ(seen.back().done, memory.size());
    EXPECT_EQ(seen.back().prefix, memory.size());
    if (threads == 1) {
      EXPECT_EQ(seen.size(), 17U) << "one a chunk and one at the end";
    }
  }
}

TEST(PretouchCancel, MidwayByOneThreadLeavesAnExactPrefix) {
  const FreshMemory memory(32 * kMiB);
  std::stop_source stop;
  PretouchOptions options = plain(PretouchStrategy::kStore);
  options.chunk = kHuge;
  options.geometry = {page_size(), kHuge};
  options.stop = stop.get_token();
  options.on_progress = [&](const PretouchProgress& progress) {
    if (progress.done >= 10 * kMiB) stop.request_stop();
  };
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(refused(ErrorCode::kCancelled, outcome));
  EXPECT_EQ(outcome.error().error.progress, 10 * kMiB);
  EXPECT_EQ(outcome.error().error.length, memory.size());
  EXPECT_THAT(outcome.error().beyond, IsEmpty());
  EXPECT_EQ(outcome.error().strategy, PretouchStrategy::kStore);
  expect_exact(outcome.error(), memory);
}

TEST(PretouchCancel, MidwayBySeveralThreadsTellsEveryTouchedPart) {
  for (const unsigned threads : {2U, 8U}) {
    const FreshMemory memory(64 * kMiB);
    std::stop_source stop;
    PretouchOptions options = plain(PretouchStrategy::kStore, threads);
    options.chunk = kHuge;
    options.geometry = {page_size(), kHuge};
    options.stop = stop.get_token();
    options.on_progress = [&](const PretouchProgress&) { stop.request_stop(); };
    const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
    if (outcome) continue;  // the others were through before the caller's first chunk ended
    ASSERT_TRUE(refused(ErrorCode::kCancelled, outcome));
    expect_exact(outcome.error(), memory);
  }
}

TEST(PretouchCancel, BeforeTheStartTouchesNothing) {
  const FreshMemory memory(4 * kMiB);
  std::stop_source stop;
  stop.request_stop();
  PretouchOptions options = plain(PretouchStrategy::kStore, 2);
  options.stop = stop.get_token();
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(refused(ErrorCode::kCancelled, outcome));
  EXPECT_EQ(outcome.error().error.progress, 0U);
  EXPECT_EQ(memory.present_bytes(), 0U);
}

// ---- In the background ----

TEST(PretouchTasks, RunToTheEnd) {
  const FreshMemory memory(32 * kMiB);
  Result<PretouchTask> task =
      start_pretouch(memory.begin(), memory.size(), plain(PretouchStrategy::kStore, 2));
  ASSERT_TRUE(ok(task));
  EXPECT_TRUE(task->valid());
  EXPECT_EQ(task->progress().total, memory.size());
  const PretouchOutcome outcome = task->wait();
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(outcome->bytes, memory.size());
  EXPECT_EQ(memory.present_bytes(), memory.size());
  EXPECT_FALSE(task->valid());
  EXPECT_FALSE(task->finished());
}

/// Holds a background pre-touch after its first chunk until told to go on.
struct Gate {
  std::atomic<bool> reached{false};
  std::atomic<bool> open{false};

  std::function<void(const PretouchProgress&)> hook() {
    return [this](const PretouchProgress&) {
      reached = true;
      reached.notify_all();
      open.wait(false);
    };
  }
  void wait_until_reached() { reached.wait(false); }
  void let_go() {
    open = true;
    open.notify_all();
  }
};

PretouchOptions gated(Gate& gate) {
  PretouchOptions options = plain(PretouchStrategy::kStore);
  options.chunk = kHuge;
  options.geometry = {page_size(), kHuge};
  options.on_progress = gate.hook();
  return options;
}

TEST(PretouchTasks, TellTheirProgressAndAreCancelled) {
  const FreshMemory memory(32 * kMiB);
  Gate gate;
  Result<PretouchTask> task = start_pretouch(memory.begin(), memory.size(), gated(gate));
  ASSERT_TRUE(ok(task));
  gate.wait_until_reached();
  EXPECT_EQ(task->progress().done, kHuge);
  EXPECT_EQ(task->progress().prefix, kHuge);
  EXPECT_FALSE(task->finished());
  task->cancel();
  gate.let_go();
  const PretouchOutcome outcome = task->wait();
  ASSERT_TRUE(refused(ErrorCode::kCancelled, outcome));
  EXPECT_EQ(outcome.error().error.progress, kHuge);
  expect_exact(outcome.error(), memory);
}

TEST(PretouchTasks, TheCallersOwnTokenStopsThemToo) {
  const FreshMemory memory(32 * kMiB);
  Gate gate;
  std::stop_source stop;
  PretouchOptions options = gated(gate);
  options.stop = stop.get_token();
  Result<PretouchTask> task = start_pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(ok(task));
  gate.wait_until_reached();
  stop.request_stop();
  gate.let_go();
  EXPECT_TRUE(refused(ErrorCode::kCancelled, task->wait()));
}

TEST(PretouchTasks, DestructionCancelsAndWaits) {
  const FreshMemory memory(32 * kMiB);
  Gate gate;
  {
    Result<PretouchTask> task = start_pretouch(memory.begin(), memory.size(), gated(gate));
    ASSERT_TRUE(ok(task));
    gate.wait_until_reached();
    task->cancel();
    gate.let_go();
  }
  EXPECT_EQ(memory.present_bytes(), kHuge);
}

TEST(PretouchTasks, AreMoved) {
  const FreshMemory memory(4 * kMiB);
  Result<PretouchTask> task =
      start_pretouch(memory.begin(), memory.size(), plain(PretouchStrategy::kStore));
  ASSERT_TRUE(ok(task));
  PretouchTask moved;
  EXPECT_FALSE(moved.valid());
  moved = std::move(*task);
  EXPECT_TRUE(moved.valid());
  PretouchTask again(std::move(moved));
  EXPECT_TRUE(done(again.wait()));
  const PretouchOutcome outcome = again.wait();
  EXPECT_TRUE(refused(ErrorCode::kInvalidArgument, outcome));
  EXPECT_EQ(again.progress().total, 0U);
  again.cancel();
}

TEST(PretouchTasks, AForkedChildDoesNotWaitForAThreadItDoesNotHave) {
  const FreshMemory memory(8 * kMiB);
  Gate gate;
  Result<PretouchTask> task = start_pretouch(memory.begin(), memory.size(), gated(gate));
  ASSERT_TRUE(ok(task));
  gate.wait_until_reached();
  const int status = in_child([&] {
    const PretouchOutcome outcome = task->wait();
    return !outcome && outcome.error().error.code == ErrorCode::kFrozen && !task->valid() ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  gate.let_go();
  EXPECT_TRUE(done(task->wait()));
}

// ---- Injected failures ----

/// populate_write by one thread in two chunks.
class FailingMadvise : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::populate_write_works()) GTEST_SKIP() << "MADV_POPULATE_WRITE does nothing here";
  }
  [[nodiscard]] static PretouchOptions options() {
    PretouchOptions options = plain(PretouchStrategy::kPopulateWrite);
    options.huge_pages = HugePageAdvice::kNoHuge;
    options.chunk = kHuge;
    options.geometry = {page_size(), kHuge};
    return options;
  }
  /// The first page, the last of a chunk, the first of the next, one in the middle, the last.
  [[nodiscard]] static std::vector<std::size_t> points() {
    return {0, 3 * page_size(), kHuge - page_size(), kHuge, kHuge + kMiB, kLength - page_size()};
  }
  static constexpr std::size_t kLength = 2 * kHuge;
};

TEST_F(FailingMadvise, ForGoodIsTypedAndExactAtAnyPoint) {
  const std::pair<int, ErrorCode> reasons[] = {{ENOMEM, ErrorCode::kOutOfMemory},
                                               {EFAULT, ErrorCode::kSystem},
                                               {EINVAL, ErrorCode::kInvalidArgument},
                                               {EPERM, ErrorCode::kNotPermitted},
                                               {ENOSYS, ErrorCode::kUnsupported}};
  for (const auto& [reason, code] : reasons) {
    for (const std::size_t point : points()) {
      const FreshMemory memory(kLength);
      FaultInjection calls;
      calls.add({.call = Call::kMadvise,
                 .argument = kPopulateWriteAdvice,
                 .address = reinterpret_cast<std::uintptr_t>(memory.begin() + point),
                 .error = reason});
      const PretouchOutcome outcome = pretouch(memory.begin(), kLength, options());
      ASSERT_TRUE(refused(code, outcome)) << reason << " at " << point;
      const Error& error = outcome.error().error;
      EXPECT_EQ(error.system_errno, reason);
      EXPECT_EQ(error.progress, point);
      EXPECT_EQ(error.address, reinterpret_cast<std::uintptr_t>(memory.begin()));
      EXPECT_EQ(error.length, kLength);
      EXPECT_THAT(error.operation, HasSubstr("MADV_POPULATE_WRITE"));
      EXPECT_EQ(outcome.error().strategy, PretouchStrategy::kPopulateWrite);
      expect_exact(outcome.error(), memory);
    }
  }
}

TEST_F(FailingMadvise, ForAWhileIsRetriedFromTheExactPage) {
  for (const int reason : {EINTR, EAGAIN}) {
    for (const std::size_t point : points()) {
      const FreshMemory memory(kLength);
      FaultInjection calls;
      calls.add({.call = Call::kMadvise,
                 .argument = kPopulateWriteAdvice,
                 .address = reinterpret_cast<std::uintptr_t>(memory.begin() + point),
                 .times = 3,
                 .error = reason});
      const PretouchOutcome outcome = pretouch(memory.begin(), kLength, options());
      ASSERT_TRUE(done(outcome)) << reason << " at " << point;
      EXPECT_EQ(outcome->retries, 3U);
      EXPECT_EQ(memory.present_bytes(), kLength);
      if (testing::fault_counts_are_exact()) {
        EXPECT_THAT(outcome->faults->minor, faults_about(kLength / page_size())) << "no page twice";
      }
      // The call after a failed one starts where that one stopped.
      const auto records = calls.records();
      const auto wanted = reinterpret_cast<std::uintptr_t>(memory.begin() + point);
      std::size_t resumed = 0;
      for (std::size_t i = 0; i < records.size(); ++i) {
        if (!records[i].faked) continue;
        const auto next =
            std::find_if(records.begin() + static_cast<std::ptrdiff_t>(i) + 1, records.end(),
                         [](const auto& each) { return each.argument == kPopulateWriteAdvice; });
        ASSERT_NE(next, records.end());
        EXPECT_EQ(next->address, wanted);
        ++resumed;
      }
      EXPECT_EQ(resumed, 3U);
    }
  }
}

TEST_F(FailingMadvise, WithoutEndIsGivenUp) {
  for (const int reason : {EINTR, EAGAIN}) {
    const FreshMemory memory(kLength);
    FaultInjection calls;
    calls.add({.call = Call::kMadvise,
               .argument = kPopulateWriteAdvice,
               .address = reinterpret_cast<std::uintptr_t>(memory.begin() + kMiB),
               .error = reason});
    const PretouchOutcome outcome = pretouch(memory.begin(), kLength, options());
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().error.system_errno, reason);
    EXPECT_EQ(outcome.error().error.progress, kMiB);
    EXPECT_LT(calls.count(Call::kMadvise), 1000U);
    expect_exact(outcome.error(), memory);
  }
}

TEST_F(FailingMadvise, AKernelThatDoesNotKnowTheAdviceIsToldApart) {
  const FreshMemory memory(kLength);
  FaultInjection calls;
  calls.add({.call = Call::kMadvise, .argument = kPopulateWriteAdvice, .error = EINVAL});
  const PretouchOutcome outcome = pretouch(memory.begin(), kLength, options());
  ASSERT_TRUE(refused(ErrorCode::kUnsupported, outcome));
  EXPECT_THAT(outcome.error().error.detail, HasSubstr("does not know"));
}

TEST_F(FailingMadvise, SuccessWithoutEffectIsFoundOut) {
  for (const std::size_t point : points()) {
    const FreshMemory memory(kLength);
    FaultInjection calls;
    // The chunk of that page: what lies before the page is populated, the rest is not.
    calls.add({.call = Call::kMadvise,
               .argument = kPopulateWriteAdvice,
               .address = reinterpret_cast<std::uintptr_t>(memory.begin() + point),
               .error = 0});
    const PretouchOutcome outcome = pretouch(memory.begin(), kLength, options());
    ASSERT_TRUE(refused(ErrorCode::kIneffective, outcome)) << point;
    EXPECT_EQ(outcome.error().error.progress, point);
    EXPECT_EQ(outcome.error().error.system_errno, 0);
    expect_exact(outcome.error(), memory);
  }
}

TEST_F(FailingMadvise, SuccessWithoutEffectIsFoundOutByEverySource) {
  for (int missing = 0; missing < 3; ++missing) {
    const FreshMemory memory(kLength);
    FaultInjection calls;
    if (missing >= 1) calls.fail(Call::kIoctl, ENOTTY);
    if (missing >= 2) calls.fail(Call::kOpen, ENOENT);
    calls.add({.call = Call::kMadvise, .argument = kPopulateWriteAdvice});
    EXPECT_TRUE(refused(ErrorCode::kIneffective, pretouch(memory.begin(), kLength, options())));
  }
}

TEST_F(FailingMadvise, WithNoSourceAtAllResidencyIsAnErrorNotZero) {
  const FreshMemory memory(kLength);
  FaultInjection calls;
  calls.fail(Call::kOpen, ENOENT);
  calls.fail(Call::kMincore, ENOSYS);
  const PretouchOutcome outcome = pretouch(memory.begin(), kLength, options());
  ASSERT_TRUE(done(outcome));
  EXPECT_FALSE(outcome->residency.has_value());
  EXPECT_EQ(outcome->residency.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(outcome->huge_bytes.has_value());
  EXPECT_EQ(memory.present_bytes(), kLength);
}

TEST_F(FailingMadvise, WithoutVerifyNobodyLooks) {
  const FreshMemory memory(kLength);
  FaultInjection calls;
  calls.add({.call = Call::kMadvise, .argument = kPopulateWriteAdvice});
  PretouchOptions unchecked = options();
  unchecked.verify = false;
  const PretouchOutcome outcome = pretouch(memory.begin(), kLength, unchecked);
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(outcome->residency->present, 0U) << "and the result tells";
}

TEST_F(FailingMadvise, InOneOfSeveralThreadsTellsEveryTouchedPart) {
  for (const unsigned threads : {2U, 8U}) {
    const FreshMemory memory(32 * kMiB);
    FaultInjection calls;
    const std::size_t point = 10 * kMiB + 5 * page_size();
    calls.add({.call = Call::kMadvise,
               .argument = kPopulateWriteAdvice,
               .address = reinterpret_cast<std::uintptr_t>(memory.begin() + point),
               .error = ENOMEM});
    PretouchOptions parallel = options();
    parallel.threads = threads;
    const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), parallel);
    ASSERT_TRUE(refused(ErrorCode::kOutOfMemory, outcome));
    EXPECT_LE(outcome.error().error.progress, point);
    expect_exact(outcome.error(), memory);
  }
}

TEST_F(FailingMadvise, AHoleInTheRangeIsRealAndExact) {
  const std::size_t hole = kMiB + 9 * page_size();
  const FreshMemory memory(kLength);
  ASSERT_EQ(::munmap(memory.begin() + hole, page_size()), 0);
  PretouchOptions wanted = options();
  for (int missing = 0; missing < 3; ++missing) {
    ASSERT_EQ(::madvise(memory.begin(), hole, MADV_DONTNEED), 0);
    FaultInjection calls;
    if (missing >= 1) calls.fail(Call::kIoctl, ENOTTY);
    if (missing >= 2) calls.fail(Call::kOpen, ENOENT);
    wanted.huge_pages = HugePageAdvice::kLeave;
    const PretouchOutcome outcome = pretouch(memory.begin(), kLength, wanted);
    ASSERT_TRUE(refused(ErrorCode::kOutOfMemory, outcome));
    EXPECT_EQ(outcome.error().error.system_errno, ENOMEM);
    EXPECT_EQ(outcome.error().error.progress, hole);
    EXPECT_THAT(outcome.error().error.operation, HasSubstr("MADV_POPULATE_WRITE"));
  }
  // The advice meets it first.
  wanted.huge_pages = HugePageAdvice::kHuge;
  const PretouchOutcome outcome = pretouch(memory.begin(), kLength, wanted);
  ASSERT_TRUE(refused(ErrorCode::kOutOfMemory, outcome));
  EXPECT_EQ(outcome.error().error.progress, 0U);
  EXPECT_THAT(outcome.error().error.operation, HasSubstr("MADV_HUGEPAGE"));
}

TEST_F(FailingMadvise, MemoryThatCannotBeWrittenIsRealAndExact) {
  const std::size_t wall = kMiB + 9 * page_size();
  for (const PretouchStrategy strategy :
       {PretouchStrategy::kPopulateWrite, PretouchStrategy::kAutomatic}) {
    const FreshMemory memory(kLength);
    ASSERT_EQ(::mprotect(memory.begin() + wall, page_size(), PROT_READ), 0);
    PretouchOptions wanted = options();
    wanted.strategy = strategy;
    const PretouchOutcome outcome = pretouch(memory.begin(), kLength, wanted);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_NE(outcome.error().error.system_errno, 0);
    EXPECT_EQ(outcome.error().error.progress, wall);
    expect_exact(outcome.error(), memory);
  }
}

TEST_F(FailingMadvise, PopulateReadIsTypedToo) {
  const FreshMemory memory(kLength);
  FaultInjection calls;
  calls.add({.call = Call::kMadvise, .argument = 22, .error = EPERM});
  PretouchOptions wanted = options();
  wanted.strategy = PretouchStrategy::kPopulateReadThenStore;
  const PretouchOutcome outcome = pretouch(memory.begin(), kLength, wanted);
  ASSERT_TRUE(refused(ErrorCode::kNotPermitted, outcome));
  EXPECT_THAT(outcome.error().error.operation, HasSubstr("MADV_POPULATE_READ"));
}

TEST(HugePageAdvices, AreGivenForTheRange) {
  const FreshMemory memory(4 * kMiB);
  for (const auto& [advice, value] : {std::pair{HugePageAdvice::kHuge, MADV_HUGEPAGE},
                                      std::pair{HugePageAdvice::kNoHuge, MADV_NOHUGEPAGE}}) {
    FaultInjection calls;
    PretouchOptions options = plain(PretouchStrategy::kStore);
    options.huge_pages = advice;
    ASSERT_TRUE(done(pretouch(memory.begin(), memory.size(), options)));
    std::size_t given = 0;
    for (const auto& record : calls.records()) {
      if (record.call != Call::kMadvise || record.argument != value) continue;
      ++given;
      EXPECT_EQ(record.address, reinterpret_cast<std::uintptr_t>(memory.begin()));
      EXPECT_EQ(record.length, memory.size());
    }
    EXPECT_EQ(given, 1U);
  }
}

TEST(HugePageAdvices, AKernelWithoutThpIsNoFailureAndOthersAre) {
  const FreshMemory memory(4 * kMiB);
  PretouchOptions options = plain(PretouchStrategy::kStore);
  options.huge_pages = HugePageAdvice::kHuge;
  {
    FaultInjection calls;
    calls.add({.call = Call::kMadvise, .argument = MADV_HUGEPAGE, .error = EINVAL});
    EXPECT_TRUE(done(pretouch(memory.begin(), memory.size(), options)));
  }
  ASSERT_EQ(::madvise(memory.begin(), memory.size(), MADV_DONTNEED), 0);
  for (const auto& [reason, code] :
       {std::pair{EPERM, ErrorCode::kNotPermitted}, std::pair{ENOMEM, ErrorCode::kOutOfMemory},
        std::pair{EAGAIN, ErrorCode::kSystem}}) {
    FaultInjection calls;
    calls.add({.call = Call::kMadvise, .argument = MADV_HUGEPAGE, .error = reason});
    const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
    ASSERT_TRUE(refused(code, outcome));
    EXPECT_THAT(outcome.error().error.operation, HasSubstr("MADV_HUGEPAGE"));
    EXPECT_EQ(memory.present_bytes(), 0U);
  }
}

TEST(FailingThreads, TheCallerDoesTheWorkAlone) {
  const FreshMemory memory(16 * kMiB);
  FaultInjection calls;
  calls.fail(Call::kCreateThread, EAGAIN);
  PretouchOptions options = plain(PretouchStrategy::kStore, 8);
  options.chunk = kHuge;
  options.geometry = {page_size(), kHuge};
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(outcome->threads, 1U);
  EXPECT_EQ(memory.present_bytes(), memory.size());

  const Result<PretouchTask> task = start_pretouch(memory.begin(), memory.size(), options);
  ASSERT_FALSE(task.has_value());
  EXPECT_EQ(task.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(task.error().system_errno, EAGAIN);
}

TEST(FailingThreads, SomeOfThemAreEnough) {
  const FreshMemory memory(16 * kMiB);
  FaultInjection calls;
  calls.add({.call = Call::kCreateThread, .nth = 3, .error = EAGAIN});
  PretouchOptions options = plain(PretouchStrategy::kStore, 8);
  options.chunk = kHuge;
  options.geometry = {page_size(), kHuge};
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(done(outcome));
  EXPECT_EQ(outcome->threads, 3U);
  EXPECT_EQ(memory.present_bytes(), memory.size());
}

/// Every system call of a pre-touch in two chunks fails once in turn: it ends well, or with a typed
/// error and an account that mincore confirms.
void fail_each_call(PretouchStrategy strategy, int reason, arch::Geometry geometry) {
  std::size_t total = 1;
  for (std::size_t nth = 1; nth <= total; ++nth) {
    const FreshMemory memory(2 * geometry.pmd, geometry.pmd);
    PretouchOutcome outcome;
    {
      FaultInjection calls;
      calls.fail_nth(nth, reason);
      PretouchOptions options = plain(strategy, 2);
      options.huge_pages = HugePageAdvice::kHuge;
      options.chunk = geometry.pmd;
      options.geometry = geometry;
      outcome = pretouch(memory.begin(), memory.size(), options);
      total = std::max(total, calls.total());
    }
    if (outcome) {
      EXPECT_EQ(memory.present_bytes(), memory.size())
          << to_string(strategy) << " call " << nth << " errno " << reason;
    } else {
      EXPECT_STRNE(outcome.error().error.operation, "");
      expect_exact(outcome.error(), memory);
    }
  }
  EXPECT_GT(total, 5U);
}

TEST(FailingCalls, EachOneOnceLeavesATrueAccount) {
  // Small chunks, as it is the calls that matter; collapsing needs real huge pages.
  const arch::Geometry small{page_size(), 16 * page_size()};
  for (const int reason : {EPERM, EINTR}) {
    fail_each_call(PretouchStrategy::kStore, reason, small);
    fail_each_call(PretouchStrategy::kPopulateReadThenStore, reason, small);
    if (!testing::populate_write_works()) continue;
    fail_each_call(PretouchStrategy::kPopulateWrite, reason, small);
    fail_each_call(PretouchStrategy::kAutomatic, reason, small);
  }
  if (testing::collapse_works()) {
    fail_each_call(PretouchStrategy::kCollapse, EPERM, {page_size(), kHuge});
  }
}

}  // namespace
}  // namespace touchstone::heap
