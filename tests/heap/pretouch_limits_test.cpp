// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <touchstone/heap/pretouch.h>

#include "../arch/fake_roots.h"
#include "fault_injection.h"
#include "fresh_memory.h"
#include "memory_probe.h"

namespace touchstone::heap {
namespace {

using arch::testing::FakeRoots;
using testing::Call;
using testing::FaultInjection;
using testing::FreshMemory;
using ::testing::HasSubstr;
using testing::in_child;
using testing::kMiB;
using testing::page_size;

constexpr std::size_t kHuge = 2 * kMiB;

PretouchOptions options_with(LimitPolicy limits, const arch::SystemRoots& roots = {}) {
  return {.strategy = PretouchStrategy::kStore,
          .threads = 1,
          .limits = limits,
          .geometry = {page_size(), kHuge},
          .chunk = kHuge,
          .roots = roots};
}

/// A machine with plenty of memory and no cgroup limit.
void write_roomy(const FakeRoots& fake) {
  fake.write("proc/meminfo", "MemAvailable: 1000000000 kB\nSwapFree: 0 kB\n");
  fake.write_v2_membership("/a");
  fake.write_v2_level("/a", "max", 0);
}

// ---- Fake limits ----

struct Limited {
  const char* name;
  /// Leaves that much room.
  void (*limit)(const FakeRoots& fake, std::uint64_t room);
  const char* detail;
};

constexpr Limited kLimited[] = {
    {"cgroup_v2",
     [](const FakeRoots& fake, std::uint64_t room) {
       fake.write_v2_membership("/a/b");
       fake.write_v2_level("/a/b", "max", 30 * kMiB);
       // 30 MiB used, of which 12 can be dropped.
       fake.write_v2_level("/a", std::to_string(room + 18 * kMiB), 30 * kMiB, 10 * kMiB, 2 * kMiB);
     },
     "memory cgroup"},
    {"cgroup_v1",
     [](const FakeRoots& fake, std::uint64_t room) {
       fake.write_v1_membership("/a/b");
       fake.write_v1_level("/a/b", room + 20 * kMiB, 30 * kMiB, 10 * kMiB);
       fake.write_v1_level("/a", room + 500 * kMiB, 30 * kMiB);
     },
     "memory cgroup"},
    {"available",
     [](const FakeRoots& fake, std::uint64_t room) {
       fake.write("proc/meminfo",
                  "MemAvailable: " + std::to_string(room >> 10) + " kB\nSwapFree: 0 kB\n");
     },
     "less memory available"}};

class FakeLimit : public ::testing::TestWithParam<Limited> {
 protected:
  FakeLimit() { write_roomy(fake_); }
  void leave(std::uint64_t room) { GetParam().limit(fake_, room); }

  FakeRoots fake_;
};

TEST_P(FakeLimit, IsRefusedBeforeTheFirstTouch) {
  const FreshMemory memory(64 * kMiB);
  leave(64 * kMiB);  // page tables and threads need some of it
  for (const PretouchStrategy strategy : all_pretouch_strategies()) {
    if (strategy == PretouchStrategy::kNone) continue;
    FaultInjection calls;
    PretouchOptions options = options_with(LimitPolicy::kRefuse, fake_.roots());
    options.strategy = strategy;
    options.huge_pages = HugePageAdvice::kHuge;
    const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().error.code, ErrorCode::kLimitExceeded);
    EXPECT_THAT(outcome.error().error.detail, HasSubstr(GetParam().detail));
    EXPECT_EQ(outcome.error().error.progress, 0U);
    EXPECT_EQ(calls.count(Call::kMadvise), 0U);
    EXPECT_EQ(memory.present_bytes(), 0U);
    EXPECT_TRUE(outcome.error().limits.has_value());
  }
}

TEST_P(FakeLimit, WithRoomIsNoHindrance) {
  const FreshMemory memory(64 * kMiB);
  leave(80 * kMiB);
  const PretouchOutcome outcome =
      pretouch(memory.begin(), memory.size(), options_with(LimitPolicy::kRefuse, fake_.roots()));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
  EXPECT_EQ(outcome->bytes, memory.size());
  EXPECT_EQ(outcome->clamped_bytes, 0U);
}

TEST_P(FakeLimit, ClampsInWholeHugePagesAndTellsTheRest) {
  const FreshMemory memory(64 * kMiB);
  leave(40 * kMiB);
  std::size_t total = 0;
  PretouchOptions options = options_with(LimitPolicy::kClamp, fake_.roots());
  options.on_progress = [&](const PretouchProgress& progress) { total = progress.total; };
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
  EXPECT_LT(outcome->bytes, 40 * kMiB);
  EXPECT_GE(outcome->bytes, 36 * kMiB);
  EXPECT_EQ(outcome->bytes % kHuge, 0U);
  EXPECT_EQ(outcome->bytes + outcome->clamped_bytes, memory.size());
  EXPECT_EQ(total, outcome->bytes);
  EXPECT_EQ(memory.present_bytes(), outcome->bytes);
}

TEST_P(FakeLimit, ClampsToNothingWithoutRoom) {
  const FreshMemory memory(8 * kMiB);
  leave(0);
  const PretouchOutcome outcome =
      pretouch(memory.begin(), memory.size(), options_with(LimitPolicy::kClamp, fake_.roots()));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
  EXPECT_EQ(outcome->bytes, 0U);
  EXPECT_EQ(outcome->clamped_bytes, memory.size());
  EXPECT_EQ(outcome->strategy, PretouchStrategy::kNone);
  EXPECT_EQ(memory.present_bytes(), 0U);
}

TEST_P(FakeLimit, IsNotLookedAtWhenIgnored) {
  const FreshMemory memory(8 * kMiB);
  leave(0);
  const PretouchOutcome outcome =
      pretouch(memory.begin(), memory.size(), options_with(LimitPolicy::kIgnore, fake_.roots()));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
  EXPECT_FALSE(outcome->limits.has_value());
  EXPECT_EQ(memory.present_bytes(), memory.size());
}

TEST_P(FakeLimit, DoesNotCountWhatIsResident) {
  const FreshMemory memory(64 * kMiB);
  std::memset(memory.begin(), 1, 48 * kMiB);
  leave(20 * kMiB);
  const PretouchOutcome outcome =
      pretouch(memory.begin(), memory.size(), options_with(LimitPolicy::kRefuse, fake_.roots()));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
  EXPECT_EQ(memory.present_bytes(), memory.size());
}

TEST_P(FakeLimit, IsToldByTheBackgroundTaskToo) {
  const FreshMemory memory(64 * kMiB);
  leave(10 * kMiB);
  Result<PretouchTask> task = start_pretouch(memory.begin(), memory.size(),
                                             options_with(LimitPolicy::kRefuse, fake_.roots()));
  ASSERT_TRUE(task.has_value());
  const PretouchOutcome outcome = task->wait();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().error.code, ErrorCode::kLimitExceeded);
  EXPECT_EQ(memory.present_bytes(), 0U);
}

TEST_P(FakeLimit, LeavesAutomaticNoRoomToTry) {
  forget_pretouch_choices();
  leave(6 * kMiB);
  PretouchOptions options = options_with(LimitPolicy::kRefuse, fake_.roots());
  options.strategy = PretouchStrategy::kAutomatic;
  const FreshMemory memory(kHuge);
  FaultInjection calls;
  const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
  ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
  EXPECT_EQ(outcome->strategy, PretouchStrategy::kStore);
  EXPECT_THAT(outcome->choice->reason, HasSubstr("no room"));
  EXPECT_TRUE(outcome->choice->trials.empty());
  forget_pretouch_choices();
}

INSTANTIATE_TEST_SUITE_P(Limits, FakeLimit, ::testing::ValuesIn(kLimited),
                         [](const auto& each) { return each.param.name; });

TEST(PretouchLimits, WhatCannotBeReadIsNoLimitAndIsTold) {
  const FakeRoots fake;  // an empty proc
  const FreshMemory memory(4 * kMiB);
  const PretouchOutcome outcome =
      pretouch(memory.begin(), memory.size(), options_with(LimitPolicy::kRefuse, fake.roots()));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
  ASSERT_TRUE(outcome->limits.has_value());
  EXPECT_EQ(outcome->limits->cgroup.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(outcome->limits->available.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(memory.present_bytes(), memory.size());
}

TEST(PretouchLimits, ARangeLargerThanRlimitAsIsRefused) {
  const FakeRoots fake;
  write_roomy(fake);
  const FreshMemory memory(8 * kMiB);
  FaultInjection calls;
  SystemCalls limited = system_calls();
  limited.getrlimit = [](int, rlimit* limit) {
    *limit = {4 * kMiB, RLIM_INFINITY};
    return 0;
  };
  const SystemCalls* const before = replace_system_calls(&limited);
  const PretouchOutcome refused =
      pretouch(memory.begin(), memory.size(), options_with(LimitPolicy::kRefuse, fake.roots()));
  const PretouchOutcome clamped =
      pretouch(memory.begin(), memory.size(), options_with(LimitPolicy::kClamp, fake.roots()));
  replace_system_calls(before);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().error.code, ErrorCode::kLimitExceeded);
  EXPECT_THAT(refused.error().error.detail, HasSubstr("RLIMIT_AS"));
  ASSERT_TRUE(clamped.has_value());
  EXPECT_EQ(clamped->bytes, 4 * kMiB);
}

TEST(PretouchLimits, ARefusedGetrlimitIsToldAndNoLimit) {
  const FreshMemory memory(4 * kMiB);
  FaultInjection calls;
  calls.fail(Call::kGetrlimit, EPERM);
  const PretouchOutcome outcome =
      pretouch(memory.begin(), memory.size(), options_with(LimitPolicy::kRefuse));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().error.message();
  EXPECT_FALSE(outcome->limits->address_space.has_value());
}

// ---- Real limits, in a child that must live ----

constexpr int kFine = 0;
constexpr int kSetupFailed = 77;

/// Ends the child with a number of its own for each thing that may be wrong.
#define CHILD_EXPECT(condition, status) \
  do {                                  \
    if (!(condition)) return status;    \
  } while (false)

/// The virtual size of this process, which RLIMIT_AS bounds.
std::size_t virtual_size() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  statm >> pages;
  return pages * page_size();
}

TEST(RealRlimitAs, PretouchWithoutRoomForThreadsOrScratchStillWorks) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers reserve more than any limit";
  const int status = in_child([] {
    const FreshMemory memory(32 * kMiB);
    const rlimit limit{virtual_size() + kMiB, RLIM_INFINITY};
    CHILD_EXPECT(::setrlimit(RLIMIT_AS, &limit) == 0, kSetupFailed);
    // The limit holds: 16 MiB more are refused.
    void* const more = ::mmap(nullptr, 16 * kMiB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHILD_EXPECT(more == MAP_FAILED, kSetupFailed);
    PretouchOptions options = options_with(LimitPolicy::kRefuse);
    options.threads = 8;
    options.strategy = PretouchStrategy::kAutomatic;
    const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
    CHILD_EXPECT(outcome.has_value(), 1);
    CHILD_EXPECT(memory.present_bytes() == memory.size(), 2);
    CHILD_EXPECT(outcome->threads >= 1 && outcome->threads < 8, 3);
    CHILD_EXPECT(outcome->choice->trials.empty(), 4);
    return kFine;
  });
  if (status == kSetupFailed) GTEST_SKIP() << "RLIMIT_AS does not hold here";
  EXPECT_EQ(status, kFine);
}

/// A memory cgroup of its own below this process's.
class MemoryCgroup {
 public:
  static constexpr std::uint64_t kLimit = 96 * kMiB;

  explicit MemoryCgroup(int version) : version_(version) {
    const std::string parent = own_folder();
    if (parent.empty()) {
      why_ = "no memory cgroup of this version is mounted";
      return;
    }
    folder_ = parent + "/touchstone-test-" + std::to_string(::getpid());
    std::error_code failure;
    if (!std::filesystem::create_directory(folder_, failure)) {
      why_ = "cannot make a cgroup: " + failure.message();
      folder_.clear();
      return;
    }
    const char* file = version == 1 ? "/memory.limit_in_bytes" : "/memory.max";
    if (!write(file, std::to_string(kLimit))) why_ = "cannot limit a cgroup";
  }
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;
  ~MemoryCgroup() {
    if (!folder_.empty()) ::rmdir(folder_.c_str());
  }

  /// Why it cannot be used, or "".
  [[nodiscard]] const std::string& why() const { return why_; }
  [[nodiscard]] bool enter() const { return write("/cgroup.procs", std::to_string(::getpid())); }

 private:
  [[nodiscard]] bool write(const char* file, const std::string& text) const {
    std::ofstream stream(folder_ + file);
    stream << text;
    stream.flush();
    return stream.good();
  }

  [[nodiscard]] std::string own_folder() const {
    std::string path;
    std::ifstream cgroup("/proc/self/cgroup");
    for (std::string line; std::getline(cgroup, line);) {
      const std::string prefix = version_ == 1 ? ":memory:" : "0::";
      const std::size_t at = line.find(prefix);
      if (at != std::string::npos) path = line.substr(at + prefix.size());
    }
    if (path.empty()) return {};
    std::ifstream mounts("/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
      const bool wanted = version_ == 1 ? line.find(" - cgroup ") != std::string::npos &&
                                              line.find("memory") != std::string::npos
                                        : line.find(" - cgroup2 ") != std::string::npos;
      if (!wanted) continue;
      std::istringstream words(line);
      std::string skipped;
      std::string root;
      std::string point;
      words >> skipped >> skipped >> skipped >> root >> point;
      const std::string rest = path.starts_with(root) && root != "/" ? path.substr(root.size())
                                                                     : (path == "/" ? "" : path);
      std::string folder = point + rest;
      if (version_ == 1) return folder;
      std::ifstream controllers(folder + "/cgroup.subtree_control");
      for (std::string word; controllers >> word;) {
        if (word == "memory") return folder;
      }
    }
    return {};
  }

  int version_;
  std::string folder_;
  std::string why_;
};

class RealCgroup : public ::testing::TestWithParam<int> {};

TEST_P(RealCgroup, BeyondItsLimitIsRefusedAndTheChildLives) {
  const MemoryCgroup cgroup(GetParam());
  if (!cgroup.why().empty()) GTEST_SKIP() << cgroup.why();
  const int status = in_child([&] {
    CHILD_EXPECT(cgroup.enter(), kSetupFailed);
    const FreshMemory memory(4 * MemoryCgroup::kLimit);
    const PretouchOutcome outcome =
        pretouch(memory.begin(), memory.size(), options_with(LimitPolicy::kRefuse));
    CHILD_EXPECT(!outcome.has_value(), 1);
    CHILD_EXPECT(outcome.error().error.code == ErrorCode::kLimitExceeded, 2);
    CHILD_EXPECT(memory.present_bytes() == 0, 3);
    CHILD_EXPECT(outcome.error().limits && outcome.error().limits->cgroup, 4);
    const std::optional<arch::CgroupMemory>& found = *outcome.error().limits->cgroup;
    CHILD_EXPECT(found && found->limit == MemoryCgroup::kLimit, 5);
    CHILD_EXPECT(found->version == GetParam(), 6);
    return kFine;
  });
  if (status == kSetupFailed) GTEST_SKIP() << "cannot enter the cgroup";
  EXPECT_EQ(status, kFine);
}

TEST_P(RealCgroup, ClampedToItsLimitTheChildLives) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "TSan's shadow of what is touched counts as well";
  const MemoryCgroup cgroup(GetParam());
  if (!cgroup.why().empty()) GTEST_SKIP() << cgroup.why();
  for (const HugePageAdvice advice : {HugePageAdvice::kNoHuge, HugePageAdvice::kHuge}) {
    for (const PretouchStrategy strategy :
         {PretouchStrategy::kStore, PretouchStrategy::kAutomatic}) {
      const int status = in_child([&] {
        CHILD_EXPECT(cgroup.enter(), kSetupFailed);
        const FreshMemory memory(4 * MemoryCgroup::kLimit);
        PretouchOptions options = options_with(LimitPolicy::kClamp);
        options.strategy = strategy;
        options.huge_pages = advice;
        options.threads = 2;
        const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
        CHILD_EXPECT(outcome.has_value(), 1);
        CHILD_EXPECT(outcome->bytes + outcome->clamped_bytes == memory.size(), 2);
        CHILD_EXPECT(outcome->bytes < MemoryCgroup::kLimit, 3);
        CHILD_EXPECT(outcome->bytes >= MemoryCgroup::kLimit / 2, 4);
        CHILD_EXPECT(memory.present_bytes() == outcome->bytes, 5);
        return kFine;
      });
      if (status == kSetupFailed) GTEST_SKIP() << "cannot enter the cgroup";
      EXPECT_EQ(status, kFine) << to_string(strategy);
    }
  }
}

TEST_P(RealCgroup, WithinItsLimitIsTouchedWhole) {
  const MemoryCgroup cgroup(GetParam());
  if (!cgroup.why().empty()) GTEST_SKIP() << cgroup.why();
  const int status = in_child([&] {
    CHILD_EXPECT(cgroup.enter(), kSetupFailed);
    const FreshMemory memory(MemoryCgroup::kLimit / 2);
    const PretouchOutcome outcome =
        pretouch(memory.begin(), memory.size(), options_with(LimitPolicy::kRefuse));
    CHILD_EXPECT(outcome.has_value(), 1);
    CHILD_EXPECT(memory.present_bytes() == memory.size(), 2);
    return kFine;
  });
  if (status == kSetupFailed) GTEST_SKIP() << "cannot enter the cgroup";
  EXPECT_EQ(status, kFine);
}

INSTANTIATE_TEST_SUITE_P(Versions, RealCgroup, ::testing::Values(1, 2),
                         [](const auto& each) { return "v" + std::to_string(each.param); });

TEST(WithoutProcfs, PretouchWorksAndSaysWhatItCouldNotSee) {
  const int status = in_child([] {
    CHILD_EXPECT(::unshare(CLONE_NEWNS) == 0, kSetupFailed);
    CHILD_EXPECT(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, kSetupFailed);
    CHILD_EXPECT(::mount("none", "/proc", "tmpfs", 0, nullptr) == 0, kSetupFailed);
    CHILD_EXPECT(::mount("none", "/sys", "tmpfs", 0, nullptr) == 0, kSetupFailed);
    const FreshMemory memory(16 * kMiB);
    PretouchOptions options = options_with(LimitPolicy::kRefuse);
    options.strategy = PretouchStrategy::kAutomatic;
    options.threads = 2;
    options.count_system_wide = true;
    const PretouchOutcome outcome = pretouch(memory.begin(), memory.size(), options);
    CHILD_EXPECT(outcome.has_value(), 1);
    CHILD_EXPECT(memory.present_bytes() == memory.size(), 2);
    CHILD_EXPECT(outcome->residency && outcome->residency->source == ResidencySource::kMincore, 3);
    CHILD_EXPECT(!outcome->huge_bytes.has_value(), 4);
    CHILD_EXPECT(outcome->system_wide && !outcome->system_wide->has_value(), 5);
    CHILD_EXPECT(!outcome->limits->cgroup && !outcome->limits->available, 6);
    CHILD_EXPECT(!smaps(memory.begin(), memory.size()).has_value(), 7);
    CHILD_EXPECT(!vmstat().has_value(), 8);
    CHILD_EXPECT(arch::geometry().valid(), 9);
    return kFine;
  });
  if (status == kSetupFailed) GTEST_SKIP() << "may not mount over /proc";
  EXPECT_EQ(status, kFine);
}

}  // namespace
}  // namespace touchstone::heap
