// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <touchstone/heap/pretouch.h>

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

constexpr int kPopulateWriteAdvice = 23;
constexpr int kCollapseAdvice = 25;
constexpr std::size_t kHuge = 2 * kMiB;

class Choice : public ::testing::Test {
 protected:
  void SetUp() override { forget_pretouch_choices(); }
  void TearDown() override { forget_pretouch_choices(); }

  static const PretouchTrial* trial_of(const PretouchChoice& choice, PretouchStrategy strategy) {
    const auto found = std::ranges::find(choice.trials, strategy, &PretouchTrial::strategy);
    return found == choice.trials.end() ? nullptr : &*found;
  }
};

TEST_F(Choice, OfThisMachineIsSoundAndExplained) {
  for (const HugePageAdvice advice :
       {HugePageAdvice::kLeave, HugePageAdvice::kHuge, HugePageAdvice::kNoHuge}) {
    for (const bool in_use : {false, true}) {
      const Result<PretouchChoice> choice =
          choose_pretouch_strategy({.huge_pages = advice, .memory_in_use = in_use});
      ASSERT_TRUE(ok(choice));
      const PretouchTrial* const chosen = trial_of(*choice, choice->strategy);
      ASSERT_NE(chosen, nullptr);
      EXPECT_FALSE(chosen->error.has_value());
      EXPECT_EQ(chosen->populated, chosen->length);
      EXPECT_THAT(choice->reason, HasSubstr(to_string(choice->strategy)));
      for (const PretouchTrial& trial : choice->trials) {
        EXPECT_THAT(choice->reason, HasSubstr(to_string(trial.strategy)));
        EXPECT_TRUE(!in_use || safe_beside_mutators(trial.strategy));
        EXPECT_NE(trial.strategy, PretouchStrategy::kLoadThenStore);
        EXPECT_NE(trial.strategy, PretouchStrategy::kAutomatic);
        if (!trial.sound || testing::kSanitized) continue;
        EXPECT_LT(trial.minor_faults, 2 * trial.expected_faults);
        EXPECT_EQ(chosen->sound, true);
      }
    }
  }
}

TEST_F(Choice, GetsHugePagesWhereThereAreSome) {
  if (!testing::faults_bring_huge_pages()) GTEST_SKIP() << "no huge pages on this machine";
  const Result<PretouchChoice> choice =
      choose_pretouch_strategy({.huge_pages = HugePageAdvice::kHuge});
  ASSERT_TRUE(ok(choice));
  const PretouchTrial* const chosen = trial_of(*choice, choice->strategy);
  ASSERT_NE(chosen, nullptr);
  EXPECT_EQ(chosen->huge, chosen->length);
  if (testing::fault_counts_are_exact()) {
    EXPECT_EQ(chosen->minor_faults, chosen->length / arch::geometry().pmd);
  }
}

TEST_F(Choice, IsKeptUntilForgotten) {
  FaultInjection calls;
  ASSERT_TRUE(ok(choose_pretouch_strategy()));
  const std::size_t mappings = calls.count(Call::kMmap);
  EXPECT_GT(mappings, 0U);
  ASSERT_TRUE(ok(choose_pretouch_strategy()));
  EXPECT_EQ(calls.count(Call::kMmap), mappings);
  // Another question is tried for itself.
  ASSERT_TRUE(ok(choose_pretouch_strategy({.memory_in_use = true})));
  EXPECT_GT(calls.count(Call::kMmap), mappings);
  const std::size_t more = calls.count(Call::kMmap);
  forget_pretouch_choices();
  ASSERT_TRUE(ok(choose_pretouch_strategy()));
  EXPECT_GT(calls.count(Call::kMmap), more);
}

TEST_F(Choice, LeavesNoScratchBehind) {
  FaultInjection calls;
  ASSERT_TRUE(ok(choose_pretouch_strategy()));
  EXPECT_EQ(calls.count(Call::kMmap), calls.count(Call::kMunmap));
  EXPECT_EQ(calls.count(Call::kOpen), calls.count(Call::kClose));
}

TEST_F(Choice, AnAdviceThatIsRefusedIsNotPicked) {
  for (const int reason : {EINVAL, EPERM, ENOSYS, ENOMEM}) {
    forget_pretouch_choices();
    FaultInjection calls;
    calls.add({.call = Call::kMadvise, .argument = kPopulateWriteAdvice, .error = reason});
    const Result<PretouchChoice> owned = choose_pretouch_strategy();
    ASSERT_TRUE(ok(owned));
    EXPECT_TRUE(owned->strategy == PretouchStrategy::kStore ||
                owned->strategy == PretouchStrategy::kAtomicRmw);
    const PretouchTrial* const trial = trial_of(*owned, PretouchStrategy::kPopulateWrite);
    ASSERT_NE(trial, nullptr);
    EXPECT_EQ(trial->error->system_errno, reason);
    EXPECT_FALSE(trial->sound);
    EXPECT_THAT(owned->reason, HasSubstr("populate_write fails"));
    const Result<PretouchChoice> in_use = choose_pretouch_strategy({.memory_in_use = true});
    ASSERT_TRUE(ok(in_use));
    EXPECT_EQ(in_use->strategy, PretouchStrategy::kAtomicRmw);
  }
}

TEST_F(Choice, AnAdviceThatDoesNothingIsNotPicked) {
  // With every source of residency that can be left.
  for (int missing = 0; missing < 3; ++missing) {
    forget_pretouch_choices();
    FaultInjection calls;
    if (missing >= 1) calls.fail(Call::kIoctl, ENOTTY);
    if (missing >= 2) calls.fail(Call::kOpen, ENOENT);
    calls.add({.call = Call::kMadvise, .argument = kPopulateWriteAdvice});
    const Result<PretouchChoice> choice = choose_pretouch_strategy();
    ASSERT_TRUE(ok(choice));
    EXPECT_NE(choice->strategy, PretouchStrategy::kPopulateWrite);
    const PretouchTrial* const trial = trial_of(*choice, PretouchStrategy::kPopulateWrite);
    ASSERT_NE(trial, nullptr);
    EXPECT_EQ(trial->error->code, ErrorCode::kIneffective);
    EXPECT_EQ(trial->populated, 0U);
  }
}

void touch_twice(void* begin, void* end, std::size_t stride) {
  // Two faults a page, as where a read maps the zero page first.
  for (auto* page = static_cast<std::byte*>(begin); page < end; page += stride) {
    *static_cast<volatile std::byte*>(page) = std::byte{0};
    ::madvise(page, stride, MADV_DONTNEED);
    *static_cast<volatile std::byte*>(page) = std::byte{0};
  }
}

void touch_every_second(void* begin, void* end, std::size_t stride) {
  for (auto* page = static_cast<std::byte*>(begin); page < end; page += 2 * stride) {
    *static_cast<volatile std::byte*>(page) = std::byte{0};
  }
}

TEST_F(Choice, DoubleFaultsAreSeen) {
  const TouchKernel kernel{.touch = touch_twice, .name = "twice", .value_preserving = true};
  const Result<PretouchChoice> choice =
      choose_pretouch_strategy({.huge_pages = HugePageAdvice::kNoHuge, .touch_kernel = &kernel});
  ASSERT_TRUE(ok(choice));
  EXPECT_NE(choice->strategy, PretouchStrategy::kAtomicRmw);
  const PretouchTrial* const trial = trial_of(*choice, PretouchStrategy::kAtomicRmw);
  ASSERT_NE(trial, nullptr);
  EXPECT_EQ(trial->populated, trial->length);
  EXPECT_GE(trial->minor_faults, 2 * trial->expected_faults);
  EXPECT_FALSE(trial->sound);
  EXPECT_THAT(choice->reason, HasSubstr("takes double faults"));
}

TEST_F(Choice, ShatteredHugePagesAreSeen) {
  if (!testing::faults_bring_huge_pages()) GTEST_SKIP() << "no huge pages on this machine";
  const TouchKernel kernel{.touch = touch_twice, .name = "twice", .value_preserving = true};
  const Result<PretouchChoice> choice =
      choose_pretouch_strategy({.huge_pages = HugePageAdvice::kHuge, .touch_kernel = &kernel});
  ASSERT_TRUE(ok(choice));
  EXPECT_NE(choice->strategy, PretouchStrategy::kAtomicRmw);
  const PretouchTrial* const trial = trial_of(*choice, PretouchStrategy::kAtomicRmw);
  ASSERT_NE(trial, nullptr);
  EXPECT_FALSE(trial->sound);
}

TEST_F(Choice, MissedPagesAreSeen) {
  const TouchKernel kernel{
      .touch = touch_every_second, .name = "every second", .value_preserving = true};
  const Result<PretouchChoice> choice =
      choose_pretouch_strategy({.huge_pages = HugePageAdvice::kNoHuge, .touch_kernel = &kernel});
  ASSERT_TRUE(ok(choice));
  EXPECT_NE(choice->strategy, PretouchStrategy::kAtomicRmw);
  const PretouchTrial* const trial = trial_of(*choice, PretouchStrategy::kAtomicRmw);
  ASSERT_NE(trial, nullptr);
  EXPECT_EQ(trial->populated, trial->length / 2);
  EXPECT_FALSE(trial->sound);
  EXPECT_THAT(choice->reason, HasSubstr("leaves memory untouched"));
}

TEST_F(Choice, AKernelThatWritesIsNotTriedForMemoryInUse) {
  const TouchKernel kernel{.touch = touch_twice, .name = "twice"};
  const Result<PretouchChoice> choice =
      choose_pretouch_strategy({.memory_in_use = true, .touch_kernel = &kernel});
  ASSERT_TRUE(ok(choice));
  EXPECT_EQ(trial_of(*choice, PretouchStrategy::kAtomicRmw), nullptr);
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [] {
    const TouchKernel none{};
    return choose_pretouch_strategy({.touch_kernel = &none});
  }()));
}

TEST_F(Choice, WithoutScratchFallsBackToWhatWorksEverywhere) {
  for (const Call call : {Call::kMmap, Call::kMprotect}) {
    forget_pretouch_choices();
    FaultInjection calls;
    calls.fail(call, ENOMEM);
    const Result<PretouchChoice> owned = choose_pretouch_strategy();
    ASSERT_TRUE(ok(owned));
    EXPECT_EQ(owned->strategy, PretouchStrategy::kStore);
    EXPECT_THAT(owned->reason, HasSubstr("nothing could be tried"));
    const Result<PretouchChoice> in_use = choose_pretouch_strategy({.memory_in_use = true});
    ASSERT_TRUE(ok(in_use));
    EXPECT_EQ(in_use->strategy, PretouchStrategy::kAtomicRmw);
  }
}

TEST_F(Choice, AnyCallThatFailsOnceLeavesAChoice) {
  std::size_t total = 1;
  // Some of them: the trials repeat the same calls many times.
  for (std::size_t nth = 1; nth <= total; nth += 31) {
    forget_pretouch_choices();
    FaultInjection calls;
    calls.fail_nth(nth, EPERM);
    const Result<PretouchChoice> choice =
        choose_pretouch_strategy({.huge_pages = HugePageAdvice::kNoHuge});
    total = std::max(total, calls.total());
    ASSERT_TRUE(ok(choice)) << nth;
    EXPECT_NE(choice->reason, "");
    const PretouchTrial* const trial = trial_of(*choice, choice->strategy);
    EXPECT_TRUE(trial == nullptr || trial->populated == trial->length) << nth;
  }
  EXPECT_GT(total, 50U);
}

TEST_F(Choice, BadGeometryIsRefused) {
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument,
                         choose_pretouch_strategy({.geometry = {4096, 4096}})));
}

TEST_F(Choice, OtherGeometriesAreTriedToo) {
  for (const arch::Geometry& geometry : {arch::kGeometry16K, arch::kGeometry64K}) {
    if (geometry.base_page < page_size()) continue;
    // Without huge pages, so that a scratch of 512 MiB is not asked of the machine.
    const Result<PretouchChoice> choice =
        choose_pretouch_strategy({.huge_pages = HugePageAdvice::kNoHuge, .geometry = geometry});
    ASSERT_TRUE(ok(choice));
    EXPECT_FALSE(choice->trials.empty());
  }
}

TEST_F(Choice, WhenThpIsNeverNobodyCollapses) {
  const FakeRoots fake;
  fake.write_thp("enabled", "always madvise [never]\n");
  fake.write_thp("hpage_pmd_size", "2097152\n");
  FaultInjection calls;
  const Result<PretouchChoice> choice =
      choose_pretouch_strategy({.huge_pages = HugePageAdvice::kHuge, .roots = fake.roots()});
  ASSERT_TRUE(ok(choice));
  EXPECT_NE(choice->strategy, PretouchStrategy::kCollapse);
  for (const auto& record : calls.records()) {
    EXPECT_FALSE(record.call == Call::kMadvise && record.argument == kCollapseAdvice);
  }
}

TEST_F(Choice, UnreadableSysfsIsNoHindrance) {
  const FakeRoots fake;
  fake.make_unreadable("sys/kernel/mm/transparent_hugepage/enabled");
  for (const HugePageAdvice advice : {HugePageAdvice::kLeave, HugePageAdvice::kHuge}) {
    const Result<PretouchChoice> choice =
        choose_pretouch_strategy({.huge_pages = advice, .roots = fake.roots()});
    ASSERT_TRUE(ok(choice));
    EXPECT_FALSE(choice->trials.empty());
  }
}

TEST_F(Choice, CollapsesOnlyWhereNothingElseGivesHugePages) {
  if (!testing::collapse_works()) GTEST_SKIP() << "MADV_COLLAPSE does nothing here";
  const Result<arch::ThpMode> mode = arch::thp_mode();
  if (!mode || *mode != arch::ThpMode::kMadvise) GTEST_SKIP() << "THP is not at madvise";
  // Advice that does nothing leaves base pages, although huge ones were asked for.
  FaultInjection calls;
  calls.add({.call = Call::kMadvise, .argument = MADV_HUGEPAGE});
  const Result<PretouchChoice> choice =
      choose_pretouch_strategy({.huge_pages = HugePageAdvice::kHuge});
  ASSERT_TRUE(ok(choice));
  EXPECT_EQ(choice->strategy, PretouchStrategy::kCollapse);
  if (!testing::kSanitized) {  // whose shadow memory faults as well
    EXPECT_TRUE(trial_of(*choice, PretouchStrategy::kCollapse)->sound) << choice->reason;
  }
  EXPECT_FALSE(trial_of(*choice, PretouchStrategy::kPopulateWrite)->sound);
}

// ---- Automatic at work ----

/// Never sound, so that of the strategies for memory in use only populate_write is left to choose.
constexpr TouchKernel kTouchTwice{.touch = touch_twice, .name = "twice", .value_preserving = true};

PretouchOptions automatic() {
  return {.strategy = PretouchStrategy::kAutomatic,
          .threads = 1,
          .limits = LimitPolicy::kIgnore,
          .geometry = {page_size(), kHuge},
          .chunk = kHuge};
}

TEST_F(Choice, AutomaticSaysWhatItUsedAndWhy) {
  const FreshMemory memory(8 * kMiB);
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), automatic());
  ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
  EXPECT_NE(outcome->strategy, PretouchStrategy::kAutomatic);
  ASSERT_TRUE(outcome->choice.has_value());
  EXPECT_EQ(outcome->choice->strategy, outcome->strategy);
  EXPECT_EQ(memory.present_bytes(), memory.size());
}

TEST_F(Choice, AutomaticTakesTheAdviceTheMemoryAlreadyHas) {
  if (!testing::faults_bring_huge_pages()) GTEST_SKIP() << "no huge pages on this machine";
  const Result<arch::ThpMode> mode = arch::thp_mode();
  if (!mode || *mode != arch::ThpMode::kMadvise) GTEST_SKIP() << "THP is not at madvise";
  const FreshMemory memory(8 * kMiB);
  ASSERT_EQ(::madvise(memory.begin(), memory.size(), MADV_HUGEPAGE), 0);
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), automatic());
  ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
  const PretouchTrial* const trial = trial_of(*outcome->choice, outcome->strategy);
  ASSERT_NE(trial, nullptr);
  EXPECT_EQ(trial->huge, trial->length);
  EXPECT_EQ(*outcome->huge_bytes, memory.size());
}

TEST_F(Choice, AutomaticGoesOnWithTheNextBestWhereOneStopsWorking) {
  if (!testing::populate_write_works()) GTEST_SKIP() << "MADV_POPULATE_WRITE does nothing here";
  for (const int reason : {0, EPERM, ENOSYS}) {
    for (const bool in_use : {false, true}) {
      forget_pretouch_choices();
      const FreshMemory memory(8 * kMiB);
      FaultInjection calls;
      // Good in the trials, and not any more from the second chunk on.
      calls.add({.call = Call::kMadvise,
                 .argument = kPopulateWriteAdvice,
                 .address = reinterpret_cast<std::uintptr_t>(memory.begin() + kHuge),
                 .error = reason});
      PretouchOptions options = automatic();
      options.memory_in_use = in_use;
      options.touch_kernel = &kTouchTwice;
      const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
      ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
      EXPECT_EQ(memory.present_bytes(), memory.size());
      if (!in_use && outcome->choice->strategy == PretouchStrategy::kStore)
        continue;  // faster here
      EXPECT_EQ(outcome->choice->strategy, PretouchStrategy::kPopulateWrite);
      EXPECT_NE(outcome->strategy, PretouchStrategy::kPopulateWrite);
      EXPECT_TRUE(!in_use || safe_beside_mutators(outcome->strategy));
      EXPECT_EQ(memory.present_bytes(), memory.size());
      EXPECT_THAT(outcome->choice->reason, HasSubstr("stopped on the way"));
      if (testing::fault_counts_are_exact()) {
        const std::uint64_t each = in_use ? 2 : 1;
        // A few faults of the thread itself may come on top.
        EXPECT_LE(outcome->faults->minor, each * memory.size() / page_size() + 8)
            << "no page twice";
      }
    }
  }
}

TEST_F(Choice, AutomaticDoesNotStoreWhereTheMemoryIsAtFault) {
  if (!testing::populate_write_works()) GTEST_SKIP() << "MADV_POPULATE_WRITE does nothing here";
  for (const int reason : {EINVAL, EFAULT, ENOMEM}) {
    forget_pretouch_choices();
    const FreshMemory memory(8 * kMiB);
    FaultInjection calls;
    calls.add({.call = Call::kMadvise,
               .argument = kPopulateWriteAdvice,
               .address = reinterpret_cast<std::uintptr_t>(memory.begin() + kHuge + kMiB),
               .error = reason});
    PretouchOptions options = automatic();
    options.memory_in_use = true;
    options.touch_kernel = &kTouchTwice;
    const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().error.system_errno, reason);
    EXPECT_EQ(outcome.error().error.progress, kHuge + kMiB);
    EXPECT_EQ(outcome.error().strategy, PretouchStrategy::kPopulateWrite);
  }
}

}  // namespace
}  // namespace touchstone::heap
