// SPDX-License-Identifier: MIT
#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/fault_handler.h>
#include <touchstone/heap/residency.h>
#include <touchstone/heap/write_tracking.h>

#include "fault_injection.h"
#include "fresh_memory.h"
#include "memory_probe.h"
#include "result_assertions.h"

namespace touchstone::heap {
namespace {

using testing::Call;
using testing::FaultInjection;
using testing::FreshMemory;
using testing::page_size;
using touchstone::testing::fails_with;
using touchstone::testing::ok;
using Method = WriteTrackingMethod;

constexpr std::array kMethods{Method::kAsyncWriteProtect, Method::kSoftDirty, Method::kProtect,
                              Method::kUserfaultfd};

void write_to(std::byte* address, int value = 7) {
  *static_cast<volatile std::byte*>(address) = static_cast<std::byte>(value);
}

/// The granules that were written, by number.
std::set<std::size_t> granules(const WriteTracker& tracker) {
  const Result<std::vector<MemoryRange>> written = tracker.written();
  EXPECT_TRUE(ok(written));
  std::set<std::size_t> found;
  const std::byte* behind = nullptr;
  for (const MemoryRange& each : written.value_or(std::vector<MemoryRange>{})) {
    EXPECT_GT(each.data(), behind) << "out of order, or not merged";
    behind = each.data() + each.size();
    const auto at = static_cast<std::size_t>(each.data() - tracker.range().data());
    EXPECT_EQ(at % tracker.granule(), 0U);
    EXPECT_EQ(each.size() % tracker.granule(), 0U);
    for (std::size_t i = 0; i < each.size() / tracker.granule(); ++i) {
      found.insert(at / tracker.granule() + i);
    }
  }
  return found;
}

/// Faults that writing took, whoever handled them. A signal is one; whether the write behind it
/// faults again, to be made writable, is the kernel's: see ProtectionRoundTrip.
std::uint64_t all_faults(const WriteTracker& tracker) {
  return tracker.method() == Method::kProtect ? tracker.handled_faults()
                                              : testing::minor_faults_of_thread();
}

class WriteTracking : public ::testing::TestWithParam<Method> {
 protected:
  void SetUp() override {
    handler_ = FaultHandler::install();
    ASSERT_TRUE(ok(handler_));
    touch_signal_stack();
    const Result<> works = WriteTracker::check(GetParam());
    if (!works) {
      GTEST_SKIP() << to_string(GetParam())
                   << " is not to be had here: " << works.error().message();
    }
  }

  static Result<std::unique_ptr<WriteTracker>> track(MemoryRange range, std::size_t granule = 0) {
    return WriteTracker::create(range,
                                {.method = GetParam(), .granule = granule, .handles_faults = true});
  }

  /// The first signal on a fresh stack is a fault itself.
  static void touch_signal_stack() {
    const FreshMemory memory(page_size(), page_size());
    const auto tracker = WriteTracker::create({memory.begin(), memory.size()},
                                              {.method = Method::kProtect, .handles_faults = true});
    ASSERT_TRUE(ok(tracker));
    write_to(memory.begin());
    EXPECT_EQ((*tracker)->handled_faults(), 1U);
  }

  Result<FaultHandler> handler_;
};

INSTANTIATE_TEST_SUITE_P(Methods, WriteTracking, ::testing::ValuesIn(kMethods),
                         [](const auto& method) {
                           std::string name = to_string(method.param);
                           for (char& c : name) {
                             if (c == ' ' || c == '-') c = '_';
                           }
                           return name;
                         });

TEST_P(WriteTracking, TellsExactlyThePagesWrittenByOneFaultEach) {
  const std::size_t count = 64;
  const std::size_t page = page_size();
  const FreshMemory memory(count * page, page);
  ::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE);
  std::memset(memory.begin(), 1, memory.size());
  const auto tracker = track({memory.begin(), memory.size()});
  ASSERT_TRUE(ok(tracker));
  EXPECT_EQ((*tracker)->method(), GetParam());
  EXPECT_EQ((*tracker)->granule(), page);
  EXPECT_EQ(granules(**tracker), std::set<std::size_t>{});

  const std::set<std::size_t> first{0, 1, 2, 17, 40, 63};
  std::uint64_t before = all_faults(**tracker);
  for (const std::size_t each : first) write_to(memory.begin() + each * page + each);
  std::uint64_t taken = all_faults(**tracker) - before;
  if (testing::fault_counts_are_exact()) {
    EXPECT_EQ(taken, first.size());
  }
  EXPECT_EQ(granules(**tracker), first);

  // Again, and by reading: no fault, and nothing new.
  before = all_faults(**tracker);
  for (const std::size_t each : first) write_to(memory.begin() + each * page);
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<void>(*static_cast<volatile std::byte*>(memory.begin() + i * page));
  }
  taken = all_faults(**tracker) - before;
  if (testing::fault_counts_are_exact()) {
    EXPECT_EQ(taken, 0U);
  }
  EXPECT_EQ(granules(**tracker), first);

  ASSERT_TRUE(ok((*tracker)->reset()));
  EXPECT_EQ(granules(**tracker), std::set<std::size_t>{});
  const std::set<std::size_t> second{1, 5, 62};
  before = all_faults(**tracker);
  for (const std::size_t each : second) write_to(memory.begin() + each * page);
  taken = all_faults(**tracker) - before;
  if (testing::fault_counts_are_exact()) {
    EXPECT_EQ(taken, second.size());
  }
  EXPECT_EQ(granules(**tracker), second);
}

TEST_P(WriteTracking, AgreesWithAModelThroughManyResets) {
  const std::size_t count = 300;
  const std::size_t page = page_size();
  const FreshMemory memory(count * page, page);
  std::memset(memory.begin(), 1, memory.size());
  const auto tracker = track({memory.begin(), memory.size()});
  ASSERT_TRUE(ok(tracker));
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same each time
  for (int round = 0; round < 20; ++round) {
    std::set<std::size_t> model;
    const std::size_t writes = random() % (2 * count);
    for (std::size_t i = 0; i < writes; ++i) {
      const std::size_t at = random() % (count * page);
      write_to(memory.begin() + at, round);
      model.insert(at / page);
    }
    ASSERT_EQ(granules(**tracker), model) << "round " << round;
    ASSERT_TRUE(ok((*tracker)->reset()));
  }
}

TEST_P(WriteTracking, TellsPagesThatWereNotThere) {
  const std::size_t page = page_size();
  const FreshMemory memory(16 * page, page);
  ::madvise(memory.begin(), memory.size(), MADV_NOHUGEPAGE);
  const auto tracker = track({memory.begin(), memory.size()});
  ASSERT_TRUE(ok(tracker));
  write_to(memory.begin() + 3 * page);
  write_to(memory.begin() + 9 * page);
  EXPECT_EQ(granules(**tracker), (std::set<std::size_t>{3, 9}));
  ASSERT_TRUE(ok((*tracker)->reset()));
  write_to(memory.begin() + 9 * page);
  write_to(memory.begin() + 10 * page);
  EXPECT_EQ(granules(**tracker), (std::set<std::size_t>{9, 10}));
}

TEST_P(WriteTracking, TellsWholeGranules) {
  const std::size_t page = page_size();
  const FreshMemory memory(64 * page, 8 * page);
  std::memset(memory.begin(), 1, memory.size());
  const auto tracker = track({memory.begin(), memory.size()}, 8 * page);
  ASSERT_TRUE(ok(tracker));
  write_to(memory.begin() + 3 * page);
  write_to(memory.begin() + 31 * page);
  EXPECT_EQ(granules(**tracker), (std::set<std::size_t>{0, 3}));
}

TEST_P(WriteTracking, TakesOneFaultForAHugePageThatStaysWhole) {
  const std::size_t huge = arch::geometry().pmd;
  if (!testing::faults_bring_huge_pages() || !testing::fault_counts_are_exact()) {
    GTEST_SKIP() << "no huge pages here, or no exact counts";
  }
  const FreshMemory memory(3 * huge, huge);
  ASSERT_EQ(::madvise(memory.begin(), memory.size(), MADV_HUGEPAGE), 0);
  for (std::size_t i = 0; i < 3; ++i) write_to(memory.begin() + i * huge);
  const auto tracker = track({memory.begin(), memory.size()}, huge);
  ASSERT_TRUE(ok(tracker));
  const auto huge_bytes = [&] {
    const auto told = residency_by(ResidencySource::kPagemapScan, memory.begin(), memory.size());
    return told && told->huge ? *told->huge : 0;
  };
  if (huge_bytes() != memory.size()) GTEST_SKIP() << "the kernel gave no huge pages";
  const std::uint64_t before = all_faults(**tracker);
  for (std::size_t i = 0; i < 10; ++i) write_to(memory.begin() + huge + i * page_size());
  const std::uint64_t taken = all_faults(**tracker) - before;
  EXPECT_EQ(granules(**tracker), std::set<std::size_t>{1});
  if (GetParam() == Method::kAsyncWriteProtect) {
    // The kernel splits the page and goes on page by page.
    EXPECT_EQ(taken, 10U);
    EXPECT_EQ(huge_bytes(), 2 * huge);
  } else {
    EXPECT_EQ(taken, 1U);
    EXPECT_EQ(huge_bytes(), 3 * huge);
  }
}

TEST_P(WriteTracking, WritersOnSeveralThreadsAreAllTold) {
  if (GetParam() == Method::kProtect && !testing::populate_write_works()) {
    GTEST_SKIP() << "two threads that fault on one page were seen to hang QEMU's user mode";
  }
  const std::size_t count = 256;
  const std::size_t page = page_size();
  const FreshMemory memory(count * page, page);
  std::memset(memory.begin(), 1, memory.size());
  const auto tracker = track({memory.begin(), memory.size()});
  ASSERT_TRUE(ok(tracker));
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(ok((*tracker)->reset()));
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const auto stack = SignalStack::attach();
        // Each page by two of them, at different bytes.
        for (std::size_t i = t / 2; i < count; i += 2) write_to(memory.begin() + i * page + t);
      });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(granules(**tracker).size(), count);
  }
}

TEST_P(WriteTracking, LeavesPlainMemoryBehind) {
  const std::size_t page = page_size();
  const FreshMemory memory(8 * page, page);
  for (std::size_t i = 0; i < 8; ++i) write_to(memory.begin() + i * page, static_cast<int>(i + 1));
  {
    const auto tracker = track({memory.begin(), memory.size()});
    ASSERT_TRUE(ok(tracker));
    write_to(memory.begin() + 2 * page, 30);
  }
  ASSERT_TRUE(ok(handler_->remove()));
  EXPECT_TRUE(testing::writable(memory.begin()));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(memory.begin()[i * page], static_cast<std::byte>(i == 2 ? 30 : i + 1));
    write_to(memory.begin() + i * page);
  }
}

TEST_P(WriteTracking, RefusesWhatIsTrackedAlready) {
  const std::size_t page = page_size();
  const FreshMemory memory(8 * page, page);
  std::memset(memory.begin(), 1, memory.size());
  const auto tracker = track({memory.begin(), memory.size()});
  ASSERT_TRUE(ok(tracker));
  EXPECT_TRUE(fails_with(ErrorCode::kBusy, track({memory.begin() + page, page})));
  write_to(memory.begin());
  EXPECT_EQ(granules(**tracker), std::set<std::size_t>{0});
}

TEST(WriteTrackingByProtection, CountsAllAsWrittenWhenMappingsRunOut) {
  const auto handler = FaultHandler::install();
  ASSERT_TRUE(ok(handler));
  const std::size_t page = page_size();
  const FreshMemory memory(8 * page, page);
  std::memset(memory.begin(), 1, memory.size());
  const auto tracker = WriteTracker::create({memory.begin(), memory.size()},
                                            {.method = Method::kProtect, .handles_faults = true});
  ASSERT_TRUE(ok(tracker));
  // By hand, as this is for a signal handler.
  static std::atomic<bool> fail;
  fail = true;
  SystemCalls table = kernel_calls();
  table.mprotect = [](void* address, std::size_t length, int protection) {
    if (!fail.exchange(false)) return kernel_calls().mprotect(address, length, protection);
    errno = ENOMEM;
    return -1;
  };
  replace_system_calls(&table);
  write_to(memory.begin() + 5 * page);
  replace_system_calls(nullptr);
  EXPECT_FALSE(fail);
  EXPECT_EQ(granules(**tracker).size(), 8U);
  EXPECT_EQ(memory.begin()[5 * page], std::byte{7});
  ASSERT_TRUE(ok((*tracker)->reset()));
  write_to(memory.begin() + page);
  EXPECT_EQ(granules(**tracker), std::set<std::size_t>{1});
}

TEST(WriteTrackingByProtection, LeavesOtherFaultsToOthers) {
  const std::size_t page = page_size();
  const FreshMemory memory(8 * page, page);
  const auto tracker = WriteTracker::create({memory.begin(), 4 * page},
                                            {.method = Method::kProtect, .handles_faults = true});
  ASSERT_TRUE(ok(tracker));
  // A program's own handler, which asks first.
  static sigjmp_buf not_ours;
  struct sigaction action{};
  struct sigaction before{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    if (!resolve_tracked_write(*info)) siglongjmp(not_ours, 1);
  };
  ASSERT_EQ(::sigaction(SIGSEGV, &action, &before), 0);
  ASSERT_EQ(::mprotect(memory.begin() + 6 * page, page, PROT_READ), 0);
  volatile bool left = false;
  if (sigsetjmp(not_ours, 1) == 0) {
    write_to(memory.begin() + page);
    write_to(memory.begin() + 6 * page);
  } else {
    left = true;
  }
  ::sigaction(SIGSEGV, &before, nullptr);
  EXPECT_TRUE(left);
  EXPECT_EQ((*tracker)->handled_faults(), 1U);
  EXPECT_EQ(granules(**tracker), std::set<std::size_t>{1});
}

TEST(WriteTrackingOptions, AreChecked) {
  const std::size_t page = page_size();
  const FreshMemory memory(8 * page, 8 * page);
  const MemoryRange range{memory.begin(), memory.size()};
  const auto create = [](MemoryRange what, WriteTrackingOptions options) {
    return WriteTracker::create(what, options);
  };
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, create({}, {})));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, create(range, {.granule = 3 * page})));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, create(range, {.granule = page / 2})));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, create(range, {.method = Method::kProtect})));
  EXPECT_TRUE(
      fails_with(ErrorCode::kMisaligned, create(range.subspan(page), {.granule = 8 * page})));
  EXPECT_TRUE(fails_with(ErrorCode::kMisaligned, create(range.first(page + 1), {})));
}

TEST(WriteTrackingByUserfaultfd, KeepsNobodyWaitingWhenCallsFail) {
  if (const Result<> works = WriteTracker::check(Method::kUserfaultfd); !works) {
    GTEST_SKIP() << "no userfaultfd here: " << works.error().message();
  }
  const std::size_t page = page_size();
  const FreshMemory memory(8 * page, page);
  std::memset(memory.begin(), 1, memory.size());
  for (const Call call : {Call::kIoctl, Call::kRead}) {
    for (std::size_t times = 1; times < 3; ++times) {
      FaultInjection kernel;
      const auto tracker =
          WriteTracker::create({memory.begin(), memory.size()}, {.method = Method::kUserfaultfd});
      ASSERT_TRUE(ok(tracker));
      kernel.add({.call = call, .times = times, .error = EIO});
      write_to(memory.begin() + page);  // Read: the thread is at it, and fails the next time.
      write_to(memory.begin() + 2 * page);
      kernel.clear();
      const std::set<std::size_t> told = granules(**tracker);
      EXPECT_TRUE(told.contains(1) && told.contains(2));
      if ((*tracker)->reset()) {
        write_to(memory.begin() + 3 * page);
        EXPECT_EQ(granules(**tracker), std::set<std::size_t>{3});
      } else {
        EXPECT_EQ(call, Call::kRead);
        EXPECT_EQ(granules(**tracker).size(), 8U);
      }
    }
  }
}

// ---- Choosing ----

TEST(WriteTrackingChoice, TakesTheNextMethodWhereOneIsRefused) {
  const auto handler = FaultHandler::install();
  ASSERT_TRUE(ok(handler));
  const std::size_t page = page_size();
  const FreshMemory memory(8 * page, page);
  std::memset(memory.begin(), 1, memory.size());
  const auto without = [](auto body) {
    FaultInjection kernel;
    kernel.fail(Call::kUserfaultfd, EPERM);
    kernel.fail(Call::kOpen, EACCES);  // No procfs either.
    return body();
  };
  auto tracker = without([&] {
    return WriteTracker::create({memory.begin(), memory.size()}, {.handles_faults = true});
  });
  ASSERT_TRUE(ok(tracker));
  EXPECT_EQ((*tracker)->method(), Method::kProtect);
  write_to(memory.begin() + 4 * page);
  EXPECT_EQ(granules(**tracker), std::set<std::size_t>{4});
  tracker->reset();
  // And no handler.
  const auto refused = [&](auto body) {
    return fails_with(ErrorCode::kNotPermitted, without(body));
  };
  EXPECT_TRUE(refused([&] { return WriteTracker::create({memory.begin(), memory.size()}); }));
  for (const Method method : {Method::kAsyncWriteProtect, Method::kUserfaultfd}) {
    EXPECT_TRUE(refused([&] { return WriteTracker::check(method); }));
  }
  EXPECT_TRUE(fails_with(ErrorCode::kUnavailable,
                         without([] { return WriteTracker::check(Method::kSoftDirty); })));
}

TEST(WriteTrackingChoice, PrefersTheKernelsOwnMethod) {
  if (!WriteTracker::check(Method::kAsyncWriteProtect)) {
    GTEST_SKIP() << "no WP_ASYNC here: "
                 << WriteTracker::check(Method::kAsyncWriteProtect).error().message();
  }
  const FreshMemory memory(page_size(), page_size());
  const auto tracker = WriteTracker::create({memory.begin(), memory.size()});
  ASSERT_TRUE(ok(tracker));
  EXPECT_EQ((*tracker)->method(), Method::kAsyncWriteProtect);
}

TEST(WriteTrackingChoice, LeavesHugePagesWholeWhereItCan) {
  if (!WriteTracker::check(Method::kUserfaultfd)) GTEST_SKIP() << "no userfaultfd here";
  const std::size_t huge = arch::geometry().pmd;
  if (huge > (std::size_t{64} << 20U)) GTEST_SKIP() << "huge pages are too large here";
  const FreshMemory memory(huge, huge);
  const auto tracker = WriteTracker::create({memory.begin(), memory.size()}, {.granule = huge});
  ASSERT_TRUE(ok(tracker));
  EXPECT_NE((*tracker)->method(), Method::kAsyncWriteProtect);
}

TEST(WriteTrackingChoice, SaysWhatIsMissing) {
  if (!WriteTracker::check(Method::kAsyncWriteProtect)) GTEST_SKIP() << "no WP_ASYNC here";
  FaultInjection kernel;
  kernel.fail(Call::kIoctl, ENOTTY);
  EXPECT_FALSE(WriteTracker::check(Method::kAsyncWriteProtect));
  kernel.clear();
  kernel.fail(Call::kIoctl, EINVAL);  // As UFFDIO_API does for features it does not know.
  EXPECT_TRUE(fails_with(ErrorCode::kUnsupported, WriteTracker::check(Method::kAsyncWriteProtect)));
}

TEST(WriteTrackingChoice, EveryFailedCallIsAnErrorAndLeavesNothingBehind) {
  const auto handler = FaultHandler::install();
  ASSERT_TRUE(ok(handler));
  const std::size_t page = page_size();
  const FreshMemory memory(4 * page, page);
  std::memset(memory.begin(), 1, memory.size());
  for (const Method method : kMethods) {
    if (!WriteTracker::check(method)) continue;
    std::size_t calls = 0;
    for (std::size_t nth = 1; nth < 100; ++nth) {
      bool failed = false;
      const auto tracker = [&] {
        FaultInjection kernel;
        kernel.fail_nth(nth, ENOMEM);
        auto made = WriteTracker::create({memory.begin(), memory.size()},
                                         {.method = method, .handles_faults = true});
        failed = kernel.faked() != 0;
        return made;
      }();
      if (tracker) {
        write_to(memory.begin() + page);
        EXPECT_EQ(granules(**tracker), std::set<std::size_t>{1}) << to_string(method) << nth;
      }
      calls = nth;
      if (!failed) break;
    }
    EXPECT_GT(calls, 1U) << to_string(method);
    write_to(memory.begin());
  }
}

// ---- Soft-dirty, by a kernel that is played ----

/// Plays CONFIG_MEM_SOFT_DIRTY: a page is dirty when its contents are not those at the last clear.
class SoftDirtyKernel {
 public:
  explicit SoftDirtyKernel(bool effective = true) : effective_(effective) {
    active = this;
    table_ = kernel_calls();
    table_.open = [](const char* path, int flags) {
      const bool clear = std::string_view(path) == "/proc/self/clear_refs";
      const bool pagemap = std::string_view(path) == "/proc/self/pagemap";
      const int fd = kernel_calls().open(clear || pagemap ? "/dev/null" : path,
                                         clear || pagemap ? O_RDWR : flags);
      if (clear) active->clear_fd_ = fd;
      if (pagemap) active->pagemap_fd_ = fd;
      return fd;
    };
    table_.mmap = [](void* address, std::size_t length, int protection, int flags, int fd,
                     off_t offset) {
      void* const mapped = kernel_calls().mmap(address, length, protection, flags, fd, offset);
      active->watch({static_cast<std::byte*>(mapped), length});
      return mapped;
    };
    table_.munmap = [](void* address, std::size_t length) {
      active->pages_.clear();
      if (active->kept_.data() != nullptr) active->watch(active->kept_);
      return kernel_calls().munmap(address, length);
    };
    table_.write = [](int fd, const void* text, std::size_t size) -> ssize_t {
      if (fd != active->clear_fd_) return kernel_calls().write(fd, text, size);
      EXPECT_EQ(std::string_view(static_cast<const char*>(text), size), "4");
      ++active->clears;
      for (auto& [page, contents] : active->pages_) {
        std::memcpy(contents.data(), at(page), contents.size());
      }
      return 1;
    };
    table_.pread = [](int fd, void* buffer, std::size_t size, off_t offset) -> ssize_t {
      if (fd != active->pagemap_fd_) return kernel_calls().pread(fd, buffer, size, offset);
      auto* const entries = static_cast<std::uint64_t*>(buffer);
      for (std::size_t i = 0; i < size / 8; ++i) {
        const std::uintptr_t page = (static_cast<std::size_t>(offset) / 8 + i) * page_size();
        const auto found = active->pages_.find(page);
        const bool dirty = active->effective_ && found != active->pages_.end() &&
                           std::memcmp(found->second.data(), at(page), page_size()) != 0;
        entries[i] = (std::uint64_t{1} << 63) | (dirty ? std::uint64_t{1} << 55 : 0);
      }
      return static_cast<ssize_t>(size);
    };
    replace_system_calls(&table_);
  }
  ~SoftDirtyKernel() {
    replace_system_calls(nullptr);
    active = nullptr;
  }
  SoftDirtyKernel(const SoftDirtyKernel&) = delete;
  SoftDirtyKernel& operator=(const SoftDirtyKernel&) = delete;

  void keep(MemoryRange range) {
    kept_ = range;
    watch(range);
  }

  int clears = 0;

 private:
  static const void* at(std::uintptr_t page) {
    return reinterpret_cast<const void*>(page);  // NOLINT(performance-no-int-to-ptr)
  }
  void watch(MemoryRange range) {
    for (std::size_t i = 0; i < range.size(); i += page_size()) {
      pages_[reinterpret_cast<std::uintptr_t>(range.data() + i)].resize(page_size());
    }
  }

  inline static SoftDirtyKernel* active = nullptr;
  SystemCalls table_{};
  bool effective_;
  int clear_fd_ = -1;
  int pagemap_fd_ = -1;
  MemoryRange kept_;
  std::map<std::uintptr_t, std::vector<std::byte>> pages_;
};

TEST(WriteTrackingBySoftDirty, TellsWhatThePagemapTells) {
  const std::size_t page = page_size();
  const FreshMemory memory(1500 * page, page);  // More than one read of entries.
  std::memset(memory.begin(), 1, memory.size());
  SoftDirtyKernel kernel;
  kernel.keep({memory.begin(), memory.size()});
  const auto tracker =
      WriteTracker::create({memory.begin(), memory.size()}, {.method = Method::kSoftDirty});
  ASSERT_TRUE(ok(tracker));
  EXPECT_EQ(kernel.clears, 2);  // One of them for the trial.
  const std::set<std::size_t> pages{0, 7, 8, 1023, 1024, 1499};
  for (const std::size_t each : pages) write_to(memory.begin() + each * page);
  EXPECT_EQ(granules(**tracker), pages);
  ASSERT_TRUE(ok((*tracker)->reset()));
  EXPECT_EQ(granules(**tracker), std::set<std::size_t>{});
  // Clearing is for all of the process: only one at a time.
  EXPECT_TRUE(fails_with(ErrorCode::kBusy, WriteTracker::check(Method::kSoftDirty)));
}

TEST(WriteTrackingBySoftDirty, IsFoundOutWhereItDoesNothing) {
  // As without CONFIG_MEM_SOFT_DIRTY: writing to clear_refs succeeds.
  const SoftDirtyKernel kernel(false);
  EXPECT_TRUE(fails_with(ErrorCode::kIneffective, WriteTracker::check(Method::kSoftDirty)));
}

// ---- What the kernel does by itself ----

/// Faults of writing to all pages again, after their protection was taken away and given back.
std::uint64_t faults_after(int protection, std::size_t size, bool huge) {
  const std::size_t alignment = huge ? arch::geometry().pmd : page_size();
  const FreshMemory memory(size, alignment);
  ::madvise(memory.begin(), size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(memory.begin(), 1, size);
  EXPECT_EQ(::mprotect(memory.begin(), size, protection), 0);
  EXPECT_EQ(::mprotect(memory.begin(), size, PROT_READ | PROT_WRITE), 0);
  const std::uint64_t before = testing::minor_faults_of_thread();
  for (std::size_t at = 0; at < size; at += page_size()) write_to(memory.begin() + at);
  return testing::minor_faults_of_thread() - before;
}

TEST(ProtectionRoundTrip, TakesNoFaultWhereTheKernelLeavesExclusivePagesWritable) {
  const auto kernel = arch::kernel_version();
  if (!testing::fault_counts_are_exact()) GTEST_SKIP() << "no exact counts here";
  if (!kernel || std::pair(kernel->major, kernel->minor) < std::pair(6U, 1U)) {
    GTEST_SKIP() << "Linux before 6.1 takes a fault for each page";
  }
  // 6.1 still takes one for a huge page, 6.12 does not.
  const bool huge = std::pair(kernel->major, kernel->minor) >= std::pair(6U, 12U) &&
                    testing::faults_bring_huge_pages();
  for (const int protection : {PROT_NONE, PROT_READ}) {
    EXPECT_EQ(faults_after(protection, 64 * page_size(), false), 0U) << "protection " << protection;
    if (huge) {
      EXPECT_EQ(faults_after(protection, 2 * arch::geometry().pmd, true), 0U)
          << "huge pages, protection " << protection;
    }
  }
}

}  // namespace
}  // namespace touchstone::heap
