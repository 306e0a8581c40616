// SPDX-License-Identifier: MIT
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <touchstone/heap/quarantine.h>
#include <touchstone/heap/reservation.h>

#include "fault_injection.h"
#include "memory_probe.h"
#include "result_assertions.h"

namespace touchstone::heap {
namespace {

using testing::Call;
using testing::CallRecord;
using testing::FaultInjection;
using touchstone::testing::fails_with;
using touchstone::testing::ok;

constexpr std::array kErrors{ENOMEM, EFAULT, EINTR, EAGAIN, EINVAL, EPERM};
constexpr int kGuardInstall = 102;
constexpr int kGuardRemove = 103;
constexpr int kPopulateRead = 22;

std::size_t page_size() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Committed, filled memory to take blocks from. It is told nothing, neither name nor advice, that
/// a remapped block would lose.
class Blocks {
 public:
  explicit Blocks(std::size_t page_count) {
    Result<Reservation> made =
        Reservation::reserve({.size = page_count * page_size(), .name = nullptr});
    if (!made || !made->commit(made->range())) std::abort();
    memory_ = std::move(*made);
    std::memset(memory_.data(), 7, memory_.size());
  }
  [[nodiscard]] MemoryRange pages(std::size_t first, std::size_t count = 1) const {
    return {memory_.data() + first * page_size(), count * page_size()};
  }
  [[nodiscard]] std::size_t mappings() const {
    return testing::mappings_of(memory_.range()).size();
  }

 private:
  Reservation memory_;
};

std::uintptr_t number(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

class EachMechanism : public ::testing::TestWithParam<QuarantineMechanism> {
 protected:
  void SetUp() override {
    if (!Quarantine::available(GetParam())) GTEST_SKIP() << "not on this kernel";
  }
  [[nodiscard]] static std::unique_ptr<Quarantine> make(QuarantineOptions options = {}) {
    options.mechanism = GetParam();
    Result<std::unique_ptr<Quarantine>> made = Quarantine::create(options);
    if (!made) {
      ADD_FAILURE() << made.error().message();
      std::abort();
    }
    EXPECT_EQ((*made)->mechanism(), GetParam());
    return std::move(*made);
  }
  /// The system call that makes a block inaccessible, and the one that undoes it.
  [[nodiscard]] static testing::Fault revoking() {
    switch (GetParam()) {
      case QuarantineMechanism::kProtect:
        return {.call = Call::kMprotect, .argument = PROT_NONE};
      case QuarantineMechanism::kGuard:
        return {.call = Call::kMadvise, .argument = kGuardInstall};
      case QuarantineMechanism::kRemap:
        break;
    }
    return {.call = Call::kMmap};
  }
  [[nodiscard]] static testing::Fault restoring() {
    if (GetParam() == QuarantineMechanism::kGuard) {
      return {.call = Call::kMadvise, .argument = kGuardRemove};
    }
    return {.call = Call::kMprotect, .argument = PROT_READ | PROT_WRITE};
  }
};

TEST_P(EachMechanism, ABlockIsOutOfReachForItsCollectionsAndThenBack) {
  const Blocks blocks(12);
  const auto quarantine = make({.epochs = 2});
  const MemoryRange block = blocks.pages(3, 4);
  ASSERT_TRUE(ok(quarantine->put(block, 42)));
  EXPECT_EQ(quarantine->held_blocks(), 1U);
  EXPECT_EQ(quarantine->held_bytes(), block.size());
  for (std::size_t i = 0; i < 12; ++i) {
    const bool held = i >= 3 && i < 7;
    EXPECT_EQ(testing::readable(blocks.pages(i).data()), !held) << i;
    if (!held) {
      EXPECT_EQ(blocks.pages(i)[0], std::byte{7});
    }
  }
  for (int collection = 1; collection <= 2; ++collection) {
    const auto early = quarantine->release();
    ASSERT_TRUE(ok(early));
    EXPECT_FALSE(early->has_value());
    EXPECT_EQ(quarantine->advance(), static_cast<std::uint64_t>(collection));
  }
  const auto released = quarantine->release();
  ASSERT_TRUE(ok(released));
  ASSERT_TRUE(released->has_value());
  EXPECT_EQ((*released)->range.data(), block.data());
  EXPECT_EQ((*released)->range.size(), block.size());
  EXPECT_EQ((*released)->tag, 42U);
  EXPECT_EQ((*released)->freed_epoch, 0U);
  EXPECT_EQ((*released)->zeroed, GetParam() != QuarantineMechanism::kProtect);
  for (std::byte& byte : block) {
    ASSERT_EQ(byte, (*released)->zeroed ? std::byte{0} : std::byte{7});
    byte = std::byte{9};
  }
  EXPECT_EQ(quarantine->held_blocks(), 0U);
  EXPECT_EQ(quarantine->held_bytes(), 0U);
  EXPECT_FALSE(quarantine->explain(number(block.data())));
  EXPECT_FALSE(quarantine->release()->has_value());
}

TEST_P(EachMechanism, CostsTheMappingsItSays) {
  if (!testing::mappings_merge()) GTEST_SKIP() << "mappings are not merged here";
  const Blocks blocks(40);
  const auto quarantine = make();
  const std::size_t before = blocks.mappings();
  constexpr std::size_t kCount = 8;
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(ok(quarantine->put(blocks.pages(2 + 4 * i, 2), i)));
  }
  EXPECT_EQ(blocks.mappings() - before, kCount * Quarantine::mappings_per_block(GetParam()));
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_TRUE(ok(quarantine->release_any()));
  EXPECT_EQ(blocks.mappings(), before);
}

TEST_P(EachMechanism, ReleasesInTheOrderOfFreeing) {
  const Blocks blocks(32);
  const auto quarantine = make({.epochs = 1});
  for (std::size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(ok(quarantine->put(blocks.pages(30 - 4 * i), i)));
    quarantine->advance();
  }
  for (std::size_t i = 0; i < 5; ++i) {
    const auto released = quarantine->release();
    ASSERT_TRUE(ok(released));
    ASSERT_TRUE(released->has_value());
    EXPECT_EQ((*released)->tag, i);
    EXPECT_EQ((*released)->freed_epoch, i);
  }
}

TEST_P(EachMechanism, TheCapMakesRoomFromTheOldest) {
  const Blocks blocks(32);
  const auto quarantine = make({.epochs = 100, .max_bytes = 8 * page_size(), .max_blocks = 3});
  ASSERT_TRUE(ok(quarantine->put(blocks.pages(1, 3), 1)));
  ASSERT_TRUE(ok(quarantine->put(blocks.pages(5, 3), 2)));
  EXPECT_TRUE(fails_with(ErrorCode::kLimitExceeded, quarantine->put(blocks.pages(9, 3), 3)));
  EXPECT_TRUE(testing::writable(blocks.pages(9, 3).data()));
  EXPECT_FALSE(quarantine->release(2 * page_size())->has_value()) << "two pages fit";
  auto oldest = quarantine->release(3 * page_size());
  ASSERT_TRUE(ok(oldest));
  ASSERT_TRUE(oldest->has_value());
  EXPECT_EQ((*oldest)->tag, 1U);
  EXPECT_FALSE(quarantine->release(3 * page_size())->has_value());
  ASSERT_TRUE(ok(quarantine->put(blocks.pages(9, 3), 3)));
  ASSERT_TRUE(ok(quarantine->put(blocks.pages(13), 4)));
  // Now the number of blocks is what is full.
  EXPECT_TRUE(fails_with(ErrorCode::kLimitExceeded, quarantine->put(blocks.pages(15), 5)));
  EXPECT_FALSE(quarantine->release()->has_value());
  oldest = quarantine->release(page_size());
  ASSERT_TRUE(ok(oldest));
  ASSERT_TRUE(oldest->has_value());
  EXPECT_EQ((*oldest)->tag, 2U);
  EXPECT_TRUE(fails_with(ErrorCode::kLimitExceeded, quarantine->put(blocks.pages(17, 9), 6)));
}

TEST_P(EachMechanism, RefusesBadBlocksBeforeAnySystemCall) {
  const Blocks blocks(8);
  const auto quarantine = make();
  const std::size_t page = page_size();
  std::byte* const start = blocks.pages(2).data();
  ASSERT_TRUE(ok(quarantine->put(blocks.pages(4, 2), 0)));
  const FaultInjection kernel;
  const auto code_of = [&](MemoryRange block, ErrorCode code) {
    return fails_with(code, quarantine->put(block, 0));
  };
  EXPECT_TRUE(code_of({start, std::size_t{0}}, ErrorCode::kInvalidArgument));
  EXPECT_TRUE(code_of({start + 1, page}, ErrorCode::kMisaligned));
  EXPECT_TRUE(code_of({start, page + 1}, ErrorCode::kMisaligned));
  EXPECT_TRUE(code_of({start, SIZE_MAX - page + 1}, ErrorCode::kOverflow));
  // Freed twice, wholly and in part.
  EXPECT_TRUE(code_of(blocks.pages(4, 2), ErrorCode::kBusy));
  EXPECT_TRUE(code_of(blocks.pages(3, 2), ErrorCode::kBusy));
  EXPECT_TRUE(code_of(blocks.pages(5, 2), ErrorCode::kBusy));
  EXPECT_EQ(kernel.total(), 0U);
  EXPECT_EQ(quarantine->held_blocks(), 1U);
}

TEST_P(EachMechanism, ExplainsWhatAnAddressHit) {
  const Blocks blocks(16);
  const auto quarantine = make({.epochs = 10});
  quarantine->advance();
  ASSERT_TRUE(ok(quarantine->put(blocks.pages(2, 3), 0xabc)));
  quarantine->advance();
  ASSERT_TRUE(ok(quarantine->put(blocks.pages(8), 0xdef)));
  quarantine->advance();
  const std::uintptr_t block = number(blocks.pages(2).data());
  const auto hit = quarantine->explain(block + page_size() + 5);
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->address, block + page_size() + 5);
  EXPECT_EQ(hit->block, block);
  EXPECT_EQ(hit->block_size, 3 * page_size());
  EXPECT_EQ(hit->offset, page_size() + 5);
  EXPECT_EQ(hit->freed_epoch, 1U);
  EXPECT_EQ(hit->age, 2U);
  EXPECT_EQ(hit->tag, 0xabcU);
  EXPECT_EQ(quarantine->explain(number(blocks.pages(8).data()))->tag, 0xdefU);
  EXPECT_TRUE(quarantine->explain(block + 3 * page_size() - 1));
  EXPECT_FALSE(quarantine->explain(block + 3 * page_size()));
  EXPECT_FALSE(quarantine->explain(block - 1));
  EXPECT_FALSE(quarantine->explain(0));
}

TEST_P(EachMechanism, PutThatTheKernelRefusesGivesTheBlockBack) {
  const bool countable = testing::mappings_merge();
  for (const int error : kErrors) {
    for (std::size_t bad = 2; bad < 8; ++bad) {
      const Blocks blocks(12);
      const auto quarantine = make();
      const std::size_t before = blocks.mappings();
      {
        FaultInjection kernel;
        testing::Fault fault = revoking();
        fault.error = error;
        if (GetParam() != QuarantineMechanism::kRemap) {
          fault.address = number(blocks.pages(bad).data());
        }
        kernel.add(fault);
        const Result<> result = quarantine->put(blocks.pages(2, 6), 1);
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().system_errno, error);
        EXPECT_EQ(result.error().progress, 0U);
        EXPECT_STREQ(result.error().detail, "");
      }
      EXPECT_EQ(quarantine->held_blocks(), 0U);
      EXPECT_EQ(quarantine->held_bytes(), 0U);
      EXPECT_FALSE(quarantine->explain(number(blocks.pages(2).data())));
      for (std::size_t i = 0; i < 12; ++i) {
        EXPECT_TRUE(testing::writable(blocks.pages(i).data())) << i;
      }
      if (countable) {
        EXPECT_EQ(blocks.mappings(), before);
      }
      ASSERT_TRUE(ok(quarantine->put(blocks.pages(2, 6), 1)));
      ASSERT_TRUE(ok(quarantine->release_any()));
    }
  }
}

TEST_P(EachMechanism, PutSaysWhenItCouldNotUndo) {
  const Blocks blocks(12);
  const auto quarantine = make();
  FaultInjection kernel;
  testing::Fault revoke = revoking();
  const bool whole = GetParam() == QuarantineMechanism::kRemap;  // One call, for all or nothing.
  revoke.error = ENOMEM;
  if (!whole) revoke.address = number(blocks.pages(5).data());
  kernel.add(revoke);
  testing::Fault restore = restoring();
  restore.error = ENOMEM;
  kernel.add(restore);
  const Result<> result = quarantine->put(blocks.pages(2, 6), 1);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().progress, whole ? 0 : 3 * page_size());
  EXPECT_STREQ(result.error().detail, "the block may be inaccessible or unmapped in part");
}

TEST_P(EachMechanism, ReleaseThatTheKernelRefusesKeepsTheBlock) {
  for (const int error : kErrors) {
    const Blocks blocks(12);
    const auto quarantine = make({.epochs = 1});
    ASSERT_TRUE(ok(quarantine->put(blocks.pages(2, 6), 1)));
    quarantine->advance();
    {
      FaultInjection kernel;
      testing::Fault fault = restoring();
      fault.error = error;
      fault.address = number(blocks.pages(5).data());
      kernel.add(fault);
      const auto result = quarantine->release();
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().system_errno, error);
      EXPECT_EQ(result.error().progress, 3 * page_size());
      EXPECT_EQ(result.error().address, number(blocks.pages(2).data()));
    }
    EXPECT_EQ(quarantine->held_blocks(), 1U);
    EXPECT_TRUE(quarantine->explain(number(blocks.pages(6).data())));
    for (std::size_t i = 2; i < 8; ++i) {
      EXPECT_EQ(testing::readable(blocks.pages(i).data()), i < 5);
    }
    const auto released = quarantine->release();
    ASSERT_TRUE(ok(released));
    ASSERT_TRUE(released->has_value());
    EXPECT_TRUE(testing::writable(blocks.pages(7).data()));
  }
}

TEST_P(EachMechanism, EverySystemCallMayFailWithEveryError) {
  const auto scenario = [&](const Blocks& blocks) {
    const Result<std::unique_ptr<Quarantine>> made =
        Quarantine::create({.mechanism = GetParam(), .epochs = 1});
    if (!made) return;
    Quarantine& quarantine = **made;
    for (std::size_t i = 0; i < 3; ++i) {
      const Result<> put = quarantine.put(blocks.pages(1 + 4 * i, 2), i);
      if (!put) {
        EXPECT_NE(put.error().system_errno, 0);
      }
    }
    quarantine.advance();
    for (int tries = 0; quarantine.held_blocks() != 0 && tries < 10; ++tries) {
      const auto released = quarantine.release();
      if (!released) {
        EXPECT_NE(released.error().system_errno, 0);
      }
    }
    EXPECT_EQ(quarantine.held_blocks(), 0U);
  };
  std::size_t calls = 0;
  {
    const Blocks blocks(16);
    const FaultInjection kernel;
    scenario(blocks);
    calls = kernel.total();
  }
  ASSERT_GE(calls, 6U);
  const bool countable = testing::mappings_merge();
  for (std::size_t nth = 1; nth <= calls; ++nth) {
    for (const int error : kErrors) {
      const Blocks blocks(16);
      const std::size_t before = blocks.mappings();
      std::size_t mapped = 0;
      std::size_t unmapped = 0;
      {
        FaultInjection kernel;
        kernel.fail_nth(nth, error);
        scenario(blocks);
        EXPECT_EQ(kernel.faked(), 1U);
        for (const CallRecord& each : kernel.records()) {
          // Mappings in a block's place are none more; those of a probe must go again.
          if (each.error != 0) continue;
          if (each.call == Call::kMmap && each.address == 0) ++mapped;
          if (each.call == Call::kMunmap) ++unmapped;
        }
      }
      EXPECT_EQ(mapped, unmapped) << "call " << nth << " errno " << error;
      if (countable) {
        EXPECT_EQ(blocks.mappings(), before);
      }
      for (std::size_t i = 0; i < 16; ++i) {
        EXPECT_TRUE(testing::writable(blocks.pages(i).data())) << "call " << nth << " page " << i;
      }
    }
  }
}

TEST_P(EachMechanism, ReadersNeedNoLockWhileBlocksComeAndGo) {
  const Blocks blocks(34);
  const auto quarantine = make({.epochs = 1, .max_blocks = 4});
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    while (!stop.load()) {
      for (std::size_t i = 0; i < 16; ++i) {
        const std::uintptr_t address = number(blocks.pages(1 + 2 * i).data()) + 3;
        const auto hit = quarantine->explain(address);
        // Each block has its own tag: fields of two must never be mixed.
        if (hit && (hit->tag != i || hit->offset != 3 || hit->block_size != page_size())) ++wrong;
      }
    }
  });
  for (int round = 0; round < 200; ++round) {
    for (std::size_t i = 0; i < 16; ++i) {
      while (quarantine->release(page_size())->has_value()) {
      }
      if (!quarantine->put(blocks.pages(1 + 2 * i), i)) ++wrong;
      quarantine->advance();
    }
    while (quarantine->release_any()->has_value()) {
    }
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Quarantine, EachMechanism,
                         ::testing::Values(QuarantineMechanism::kProtect,
                                           QuarantineMechanism::kGuard,
                                           QuarantineMechanism::kRemap),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(Quarantine, RefusesLimitsOfZeroAndMoreThanThereIs) {
  for (const QuarantineOptions& each :
       {QuarantineOptions{.epochs = 0}, QuarantineOptions{.max_bytes = 0},
        QuarantineOptions{.max_blocks = 0}}) {
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, Quarantine::create(each)));
  }
  EXPECT_TRUE(fails_with(ErrorCode::kOutOfMemory, Quarantine::create({.max_blocks = SIZE_MAX})));
}

TEST(Quarantine, GuardsAreTakenWhereTheyWorkAndOnlyThere) {
  {
    const auto made = Quarantine::create({});
    ASSERT_TRUE(ok(made));
    EXPECT_EQ((*made)->mechanism(), Quarantine::available(QuarantineMechanism::kGuard)
                                        ? QuarantineMechanism::kGuard
                                        : QuarantineMechanism::kProtect);
  }
  // A kernel that lacks them, and one that reports success and does nothing.
  for (const int error : {EINVAL, 0}) {
    FaultInjection kernel;
    kernel.add({.call = Call::kMadvise, .argument = kGuardInstall, .error = error});
    EXPECT_FALSE(Quarantine::available(QuarantineMechanism::kGuard));
    EXPECT_TRUE(fails_with(ErrorCode::kUnsupported,
                           Quarantine::create({.mechanism = QuarantineMechanism::kGuard})));
    const auto made = Quarantine::create({});
    ASSERT_TRUE(ok(made));
    EXPECT_EQ((*made)->mechanism(), QuarantineMechanism::kProtect);
  }
  // One that installs and does not remove.
  FaultInjection kernel;
  kernel.add({.call = Call::kMadvise, .argument = kGuardRemove});
  EXPECT_FALSE(Quarantine::available(QuarantineMechanism::kGuard));
  EXPECT_EQ(kernel.count(Call::kMmap), kernel.count(Call::kMunmap));
  // One whose populating fails for another reason proves nothing.
  kernel.clear();
  kernel.add({.call = Call::kMadvise, .argument = kPopulateRead, .error = EINVAL});
  EXPECT_FALSE(Quarantine::available(QuarantineMechanism::kGuard));
}

TEST(Quarantine, AtMaxMapCountTheBlockIsTheCallersAndTheRestWorks) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "TSan itself needs mappings and ends without";
  std::size_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit == 0 || limit > 300000) GTEST_SKIP() << "vm.max_map_count is " << limit;
  const int status = testing::in_child([limit]() -> int {
    const Blocks blocks(limit + 64);
    auto made = Quarantine::create({.mechanism = QuarantineMechanism::kProtect,
                                    .epochs = 1,
                                    .max_bytes = SIZE_MAX,
                                    .max_blocks = limit});
    if (!made) return 1;
    Quarantine& quarantine = **made;
    std::size_t held = 0;
    Result<> put;
    for (; held < limit / 2 + 30; ++held) {
      put = quarantine.put(blocks.pages(2 * held + 1), held);
      if (!put) break;
    }
    if (put) return 2;
    if (put.error().code != ErrorCode::kOutOfMemory) return 3;
    const std::span<std::byte> refused = blocks.pages(2 * held + 1);
    if (!testing::writable(refused.data())) return 4;
    if (quarantine.held_blocks() != held) return 5;
    // Room is made by releasing one, and then it can be held.
    const auto released = quarantine.release_any();
    if (!released || !released->has_value()) return 6;
    return quarantine.put(refused, held) ? 0 : 7;
  });
  EXPECT_EQ(status, 0);
}

TEST(ExplainFault, LooksAtAllQuarantinesAndOnlyAtRealFaults) {
  const Blocks blocks(8);
  siginfo_t info{};
  info.si_signo = SIGSEGV;
  info.si_code = SEGV_ACCERR;
  info.si_addr = blocks.pages(5).data() + 9;
  EXPECT_FALSE(explain_fault(info));
  auto first = Quarantine::create({});
  auto second = Quarantine::create({});
  auto third = Quarantine::create({});
  ASSERT_TRUE(first && second && third);
  EXPECT_FALSE(explain_fault(info));
  ASSERT_TRUE(ok((*second)->put(blocks.pages(4, 2), 5)));
  const auto fault = explain_fault(info);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->tag, 5U);
  EXPECT_EQ(fault->offset, page_size() + 9);

  siginfo_t other = info;
  other.si_code = SI_USER;  // Sent by kill: there is no address in it.
  EXPECT_FALSE(explain_fault(other));
  other = info;
  other.si_signo = SIGILL;
  EXPECT_FALSE(explain_fault(other));
  other = info;
  other.si_signo = SIGBUS;
  EXPECT_TRUE(explain_fault(other));

  // In whatever order they go.
  third->reset();
  EXPECT_TRUE(explain_fault(info));
  first->reset();
  EXPECT_TRUE(explain_fault(info));
  ASSERT_TRUE(ok((*second)->release_any()));
  EXPECT_FALSE(explain_fault(info));
}

TEST(ExplainFault, RunsWhileQuarantinesComeAndGo) {
  const Blocks blocks(8);
  siginfo_t info{};
  info.si_signo = SIGSEGV;
  info.si_code = SEGV_ACCERR;
  info.si_addr = blocks.pages(5).data();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    while (!stop.load()) {
      const auto fault = explain_fault(info);
      if (fault && fault->tag != 5) ++wrong;
    }
  });
  for (int i = 0; i < 300; ++i) {
    auto made = Quarantine::create({.mechanism = QuarantineMechanism::kProtect, .max_blocks = 2});
    if (!made || !(*made)->put(blocks.pages(5), 5) || !(*made)->release_any()) ++wrong;
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST(FaultExplanation, DescribesItselfInOneLine) {
  const FaultExplanation fault{.address = 0x7f0000001010,
                               .block = 0x7f0000000000,
                               .block_size = 131072,
                               .offset = 4112,
                               .freed_epoch = 12,
                               .age = 3,
                               .tag = 0xc0de};
  std::array<char, 256> line{};
  const std::string text(line.data(), fault.describe(line));
  EXPECT_EQ(
      text,
      "touchstone: use after free: address 0x7f0000001010 is 4112 bytes into a block of 131072 "
      "bytes at 0x7f0000000000, freed in collection 12, 3 ago, tag 0xc0de\n");
  std::array<char, 20> little{};
  const std::string cut(little.data(), fault.describe(little));
  EXPECT_EQ(cut, "touchstone: use aft\n");
  EXPECT_EQ(fault.describe({}), 0U);
  const FaultExplanation zero{};
  EXPECT_THAT(std::string(line.data(), zero.describe(line)),
              ::testing::HasSubstr("address 0x0 is 0 bytes"));
}

}  // namespace
}  // namespace touchstone::heap
