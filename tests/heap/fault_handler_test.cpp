// SPDX-License-Identifier: MIT
#include <array>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <touchstone/heap/fault_handler.h>
#include <touchstone/heap/reservation.h>

#include "fault_injection.h"
#include "memory_probe.h"
#include "result_assertions.h"

// Each case installs handlers in a child of its own: the disposition of SIGSEGV is the process's,
// and the sanitizers' too.
namespace touchstone::heap {
namespace {

using testing::Call;
using testing::FaultInjection;
using testing::in_child;
using touchstone::testing::fails_with;
using touchstone::testing::ok;

std::size_t page_size() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// A block in quarantine.
struct Freed {
  Freed() {
    Result<Reservation> made = Reservation::reserve({.size = 4 * page_size()});
    if (!made || !made->commit(made->range())) std::abort();
    memory = std::move(*made);
    auto created = Quarantine::create({.mechanism = QuarantineMechanism::kProtect});
    if (!created) std::abort();
    quarantine = std::move(*created);
    block = memory.range().subspan(page_size(), 2 * page_size());
    if (!quarantine->put(block, 77)) std::abort();
  }
  Reservation memory;
  std::unique_ptr<Quarantine> quarantine;
  MemoryRange block;
};

// What handlers saw. Only one thread of a child faults.
sigjmp_buf back;                               // NOLINT: set and used by one thread at a time.
volatile sig_atomic_t calls = 0;               // NOLINT: written in handlers.
FaultExplanation seen;                         // NOLINT: written in handlers.
volatile std::uintptr_t stack_of_handler = 0;  // NOLINT: written in handlers.

void note_and_leave(const FaultExplanation& fault, const siginfo_t& /*info*/, void* /*context*/) {
  char here = 0;
  stack_of_handler = reinterpret_cast<std::uintptr_t>(&here);
  seen = fault;
  calls = calls + 1;
  siglongjmp(back, 1);
}

void note(const FaultExplanation& fault, const siginfo_t& /*info*/, void* /*context*/) {
  seen = fault;
  calls = calls + 1;
}

/// Writes to an address; true if that was left by siglongjmp.
bool faults(std::byte* address) {
  if (sigsetjmp(back, 1) != 0) return true;
  *static_cast<volatile std::byte*>(address) = std::byte{1};
  return false;
}

/// The default disposition, whatever a sanitizer has put there.
void reset_disposition() {
  struct sigaction by_default{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGSEGV, &by_default, nullptr);
}

TEST(FaultHandler, NoneIsInstalledUnlessAskedFor) {
  struct sigaction before{};
  ::sigaction(SIGSEGV, nullptr, &before);
  {
    const Freed freed;
    struct sigaction during{};
    ::sigaction(SIGSEGV, nullptr, &during);
    EXPECT_EQ(during.sa_handler, before.sa_handler);
    EXPECT_EQ(during.sa_flags, before.sa_flags);
  }
}

TEST(FaultHandler, ExplainsAFaultInAFreedBlock) {
  EXPECT_EQ(in_child([] {
              const Freed freed;
              freed.quarantine->advance();
              auto handler = FaultHandler::install({.on_fault = note_and_leave});
              if (!handler || !handler->installed()) return 1;
              if (!faults(freed.block.data() + page_size() + 3)) return 2;
              if (calls != 1 || seen.tag != 77 || seen.age != 1) return 3;
              if (seen.offset != page_size() + 3 || seen.block_size != freed.block.size()) return 4;
              // And again: the signal is not left blocked, the handler not reset.
              if (!faults(freed.block.data())) return 5;
              return calls == 2 && seen.offset == 0 ? 0 : 6;
            }),
            0);
}

TEST(FaultHandler, ByDefaultWritesTheLineAndThenTheProcessDiesOfTheFault) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const int status = in_child([&] {
    reset_disposition();
    const Freed freed;
    ::dup2(ends[1], STDERR_FILENO);
    auto handler = FaultHandler::install();
    if (!handler) return 1;
    (void)faults(freed.block.data() + 5);
    return 2;
  });
  EXPECT_EQ(status, 128 + SIGSEGV);
  ::close(ends[1]);
  std::string text(400, '\0');
  const ssize_t length = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  ASSERT_GT(length, 0);
  text.resize(static_cast<std::size_t>(length));
  EXPECT_THAT(text, ::testing::HasSubstr("use after free"));
  EXPECT_THAT(text, ::testing::HasSubstr(" is 5 bytes into a block of "));
  // One line of ours; an emulator may add its own word on the death.
  EXPECT_EQ(text.rfind("touchstone:"), 0U);
}

TEST(FaultHandler, HandsOtherFaultsToTheDefaultUnexplained) {
  EXPECT_EQ(in_child([] {
              reset_disposition();
              const Freed freed;
              auto handler = FaultHandler::install(
                  {.on_fault = [](const FaultExplanation&, const siginfo_t&, void*) {
                    // Wrong: it is not a freed block.
                    ::_exit(3);
                  }});
              if (!handler) return 1;
              void* const none =
                  ::mmap(nullptr, page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              (void)faults(static_cast<std::byte*>(none));
              return 2;
            }),
            128 + SIGSEGV);
}

volatile sig_atomic_t chained = 0;         // NOLINT: written in handlers.
void* volatile chained_address = nullptr;  // NOLINT: written in handlers.

TEST(FaultHandler, ChainsToAHandlerWithSiginfo) {
  EXPECT_EQ(in_child([] {
              struct sigaction old{};
              old.sa_flags = SA_SIGINFO;
              sigaddset(&old.sa_mask, SIGUSR1);
              old.sa_sigaction = [](int, siginfo_t* info, void* context) {
                if (context == nullptr) ::_exit(10);
                sigset_t blocked;
                pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
                if (sigismember(&blocked, SIGUSR1) != 1) ::_exit(11);
                chained_address = info->si_addr;
                chained = chained + 1;
                siglongjmp(back, 1);
              };
              ::sigaction(SIGSEGV, &old, nullptr);
              const Freed freed;
              auto handler = FaultHandler::install({.on_fault = note});
              if (!handler) return 1;
              if (!faults(freed.block.data() + 8)) return 2;
              if (calls != 1 || chained != 1) return 3;
              if (chained_address != freed.block.data() + 8) return 4;
              // What is not ours reaches it as well, and only it.
              void* const none =
                  ::mmap(nullptr, page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              if (!faults(static_cast<std::byte*>(none))) return 5;
              if (calls != 1 || chained != 2 || chained_address != none) return 6;
              // After removal it is alone again, as it was.
              if (!handler->remove() || handler->installed()) return 7;
              struct sigaction now{};
              ::sigaction(SIGSEGV, nullptr, &now);
              if (now.sa_sigaction != old.sa_sigaction) return 8;
              if (!faults(freed.block.data())) return 9;
              return calls == 1 && chained == 3 ? 0 : 12;
            }),
            0);
}

TEST(FaultHandler, ChainsToAPlainHandler) {
  EXPECT_EQ(in_child([] {
              struct sigaction old{};
              old.sa_handler = [](int signal) {
                if (signal != SIGSEGV) ::_exit(10);
                chained = chained + 1;
                siglongjmp(back, 1);
              };
              ::sigaction(SIGSEGV, &old, nullptr);
              const Freed freed;
              auto handler = FaultHandler::install({.on_fault = note});
              if (!handler) return 1;
              if (!faults(freed.block.data())) return 2;
              return calls == 1 && chained == 1 ? 0 : 3;
            }),
            0);
}

TEST(FaultHandler, AHandlerThatIsResetByItsFirstCallIsCalledOnce) {
  EXPECT_EQ(in_child([] {
              struct sigaction old{};
              old.sa_flags = static_cast<int>(SA_RESETHAND);
              old.sa_handler = [](int) {
                chained = chained + 1;
                if (chained > 1) ::_exit(10);
                siglongjmp(back, 1);
              };
              ::sigaction(SIGSEGV, &old, nullptr);
              const Freed freed;
              auto handler = FaultHandler::install({.on_fault = note});
              if (!handler) return 1;
              if (!faults(freed.block.data())) return 2;
              (void)faults(freed.block.data());
              return 3;
            }),
            128 + SIGSEGV);
}

TEST(FaultHandler, IgnoredSignalsStayIgnoredAndFaultsDoNot) {
  EXPECT_EQ(in_child([] {
              struct sigaction old{};
              old.sa_handler = SIG_IGN;
              ::sigaction(SIGSEGV, &old, nullptr);
              const Freed freed;
              auto handler = FaultHandler::install({.on_fault = note});
              if (!handler) return 1;
              ::raise(SIGSEGV);
              ::raise(SIGSEGV);
              if (calls != 0) return 2;
              (void)faults(freed.block.data());
              return 3;
            }),
            128 + SIGSEGV);
}

TEST(FaultHandler, ASignalThatWasSentTakesTheDefaultToo) {
  EXPECT_EQ(in_child([] {
              reset_disposition();
              auto handler = FaultHandler::install({.on_fault = note});
              if (!handler) return 1;
              ::raise(SIGSEGV);
              return 2;
            }),
            128 + SIGSEGV);
}

TEST(FaultHandler, OnlyOneAtATime) {
  EXPECT_EQ(in_child([] {
              auto first = FaultHandler::install();
              if (!first) return 1;
              const auto second = FaultHandler::install();
              if (second || second.error().code != ErrorCode::kBusy) return 2;
              FaultHandler moved = std::move(*first);
              if (!moved.installed() || first->installed()) return 3;
              if (!moved.remove() || !moved.remove()) return 4;
              return FaultHandler::install() ? 0 : 5;
            }),
            0);
}

TEST(FaultHandler, ADestructorRestoresWhatWasThere) {
  EXPECT_EQ(in_child([] {
              struct sigaction old{};
              old.sa_handler = [](int) {};
              ::sigaction(SIGSEGV, &old, nullptr);
              {
                const auto handler = FaultHandler::install();
              }
              struct sigaction now{};
              ::sigaction(SIGSEGV, nullptr, &now);
              return now.sa_handler == old.sa_handler ? 0 : 1;
            }),
            0);
}

TEST(FaultHandler, AHandlerInstalledOverItIsNotRemoved) {
  EXPECT_EQ(in_child([] {
              static struct sigaction below{};
              struct sigaction old{};
              old.sa_handler = [](int) {
                chained = chained + 1;
                siglongjmp(back, 1);
              };
              ::sigaction(SIGSEGV, &old, nullptr);
              const Freed freed;
              auto handler = FaultHandler::install({.on_fault = note});
              if (!handler) return 1;
              struct sigaction over{};
              over.sa_flags = SA_SIGINFO;
              over.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
                below.sa_sigaction(signal, info, context);
              };
              ::sigaction(SIGSEGV, &over, &below);
              const Result<> removed = handler->remove();
              if (removed || removed.error().code != ErrorCode::kBusy) return 2;
              // Called from above it explains no more, and hands on.
              if (!faults(freed.block.data())) return 3;
              if (calls != 0 || chained != 1) return 4;
              // Once the other has gone it can go too.
              ::sigaction(SIGSEGV, &below, nullptr);
              if (!handler->remove()) return 5;
              struct sigaction now{};
              ::sigaction(SIGSEGV, nullptr, &now);
              return now.sa_handler == old.sa_handler ? 0 : 6;
            }),
            0);
}

/// Takes away the alternate stack that a sanitizer may have given the thread.
void drop_stack() {
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  ::sigaltstack(&none, nullptr);
}

bool on_alternate_stack(std::uintptr_t address) {
  stack_t current{};
  ::sigaltstack(nullptr, &current);
  return (current.ss_flags & SS_DISABLE) == 0 &&
         address - reinterpret_cast<std::uintptr_t>(current.ss_sp) < current.ss_size;
}

TEST(FaultHandler, RunsOnItsOwnStackInTheThreadsThatHaveOne) {
  EXPECT_EQ(in_child([] {
              drop_stack();
              const Freed freed;
              auto handler = FaultHandler::install({.on_fault = note_and_leave});
              if (!handler) return 1;
              if (!faults(freed.block.data())) return 2;
              if (!on_alternate_stack(stack_of_handler)) return 3;
              int result = 0;
              std::thread([&] {
                drop_stack();
                auto stack = SignalStack::attach();
                if (!stack || !stack->owns()) {
                  result = 4;
                  return;
                }
                if (!faults(freed.block.data()) || !on_alternate_stack(stack_of_handler)) {
                  result = 5;
                  return;
                }
                if (!stack->detach() || stack->owns()) result = 6;
                // Without one it still works, on the thread's own stack.
                stack_t current{};
                ::sigaltstack(nullptr, &current);
                if ((current.ss_flags & SS_DISABLE) == 0) result = 7;
                if (!faults(freed.block.data()) || on_alternate_stack(stack_of_handler)) result = 8;
              }).join();
              if (result != 0) return result;
              if (!handler->remove()) return 9;
              stack_t current{};
              ::sigaltstack(nullptr, &current);
              return (current.ss_flags & SS_DISABLE) != 0 ? 0 : 10;
            }),
            0);
}

TEST(SignalStack, AThreadThatHasOneKeepsIt) {
  std::array<std::byte, 65536> own{};
  std::thread([&] {
    const stack_t mine{.ss_sp = own.data(), .ss_flags = 0, .ss_size = own.size()};
    stack_t before{};
    ASSERT_EQ(::sigaltstack(&mine, &before), 0);
    {
      const Result<SignalStack> stack = SignalStack::attach();
      ASSERT_TRUE(ok(stack));
      EXPECT_FALSE(stack->owns());
    }
    stack_t now{};
    ::sigaltstack(nullptr, &now);
    EXPECT_EQ(now.ss_sp, own.data());
    ::sigaltstack(&before, nullptr);
  }).join();
}

TEST(SignalStack, AnotherThreadCannotTakeItDown) {
  drop_stack();
  Result<SignalStack> stack = SignalStack::attach();
  ASSERT_TRUE(ok(stack));
  ASSERT_TRUE(stack->owns());
  std::thread([&] { EXPECT_TRUE(fails_with(ErrorCode::kBusy, stack->detach())); }).join();
  EXPECT_TRUE(stack->owns());
  ASSERT_TRUE(ok(stack->detach()));
  EXPECT_FALSE(stack->owns());
  ASSERT_TRUE(ok(stack->detach()));
}

TEST(SignalStack, RefusesSizesThatCannotBe) {
  drop_stack();
  EXPECT_TRUE(fails_with(ErrorCode::kLimitExceeded, SignalStack::attach(SIZE_MAX)));
  Result<SignalStack> least = SignalStack::attach(0);
  ASSERT_TRUE(ok(least));
  stack_t current{};
  ::sigaltstack(nullptr, &current);
  EXPECT_GE(current.ss_size, static_cast<std::size_t>(MINSIGSTKSZ));
}

TEST(FaultHandler, EverySystemCallOfInstallingMayFail) {
  EXPECT_EQ(in_child([] {
              reset_disposition();
              drop_stack();
              std::size_t needed = 0;
              {
                const FaultInjection kernel;
                auto handler = FaultHandler::install();
                if (!handler || !handler->remove()) return 1;
                needed = kernel.total();
              }
              if (needed < 6) return 2;
              for (std::size_t nth = 1; nth <= needed; ++nth) {
                for (const int error : {ENOMEM, EINVAL, EPERM}) {
                  FaultInjection kernel;
                  kernel.fail_nth(nth, error);
                  auto handler = FaultHandler::install();
                  if (!handler) {
                    if (handler.error().system_errno != error) return 3;
                  } else {
                    // Removing has failed then, if anything; the second time it must not.
                    const Result<> first = handler->remove();
                    if (!first && first.error().system_errno != error) return 4;
                    if (!handler->remove()) return 5;
                    *handler = {};
                  }
                  if (kernel.count(Call::kMmap) != 0) {
                    std::ptrdiff_t mapped = 0;
                    for (const testing::CallRecord& each : kernel.records()) {
                      if (each.error != 0) continue;
                      mapped += each.call == Call::kMmap;
                      mapped -= each.call == Call::kMunmap;
                    }
                    if (mapped != 0) return 6;
                  }
                  struct sigaction now{};
                  ::sigaction(SIGSEGV, nullptr, &now);
                  if (now.sa_handler != SIG_DFL) return 7;
                  drop_stack();
                }
              }
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace touchstone::heap
