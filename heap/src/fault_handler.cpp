// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/fault_handler.h>
#include <touchstone/heap/reservation.h>
#include <touchstone/heap/system_calls.h>
#include <touchstone/heap/write_tracking.h>

#include "address_range.h"

namespace touchstone::heap {
namespace {

using FaultFunction = void (*)(const FaultExplanation&, const siginfo_t&, void*);

/// What the one handler of the process needs. The handler reads it from any thread at any moment;
/// `before` is written only while the handler is not installed.
struct Installed {
  std::atomic<bool> taken{false};       // There is a FaultHandler.
  std::atomic<bool> explaining{false};  // Not only handing on.
  std::atomic<FaultFunction> on_fault{nullptr};
  struct sigaction before{};
  std::atomic<bool> before_used{false};  // For a handler that was to be reset by its first call.
};
constinit Installed process;

Error failed(const char* operation, int error, const char* detail = "") noexcept {
  return {.code = code_of_errno(error),
          .operation = operation,
          .system_errno = error,
          .detail = detail};
}

void write_explanation(const FaultExplanation& fault) noexcept {
  std::array<char, 256> line;
  const std::size_t length = fault.describe(line);
  // Nobody is left to tell if standard error is closed.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), length);
}

/// Lets the default action happen once the handler returns.
void leave_to_default(int signal, const siginfo_t& info) noexcept {
  struct sigaction by_default{};
  by_default.sa_handler = SIG_DFL;
  (void)system_calls().sigaction(signal, &by_default, nullptr);
  // A real fault comes again at the same instruction, with its own address for a core dump and
  // whoever debugs; one that was sent must be sent again.
  if (info.si_code <= 0) (void)std::raise(signal);
}

/// Does what would have been done without this handler.
void hand_on(int signal, siginfo_t* info, void* context) noexcept {
  const struct sigaction& before = process.before;
  const auto flags = static_cast<unsigned int>(before.sa_flags);
  const bool reset = (flags & SA_RESETHAND) != 0 && process.before_used.exchange(true);
  if (before.sa_handler == SIG_IGN && info->si_code <= 0) {
    // Ignored. A fault cannot be: the kernel takes the default action then.
  } else if (before.sa_handler == SIG_IGN || before.sa_handler == SIG_DFL || reset) {
    leave_to_default(signal, *info);
  } else if ((flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
}

void handle(int signal, siginfo_t* info, void* context) noexcept {
  const int saved = errno;
  if (resolve_tracked_write(*info)) {
    errno = saved;
    return;
  }
  if (process.explaining.load(std::memory_order_acquire)) {
    if (const std::optional<FaultExplanation> fault = explain_fault(*info); fault) {
      const FaultFunction on_fault = process.on_fault.load(std::memory_order_acquire);
      if (on_fault != nullptr) {
        on_fault(*fault, *info, context);
      } else {
        write_explanation(*fault);
      }
    }
  }
  hand_on(signal, info, context);
  errno = saved;
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &handle;
}

}  // namespace

Result<SignalStack> SignalStack::attach(std::size_t size) noexcept {
  constexpr const char* kOperation = "sigaltstack";
  const SystemCalls& calls = system_calls();
  stack_t current{};
  if (calls.sigaltstack(nullptr, &current) != 0) {
    return std::unexpected(failed(kOperation, errno));
  }
  SignalStack made;
  if ((current.ss_flags & SS_DISABLE) == 0) return made;
  const std::size_t page = arch::base_page_size();
  if (size > Reservation::kMaxSize) {
    return std::unexpected(Error{.code = ErrorCode::kLimitExceeded,
                                 .operation = "attach signal stack",
                                 .length = size,
                                 .detail = "more than 2^47 bytes"});
  }
  const std::size_t least = std::max(size, static_cast<std::size_t>(MINSIGSTKSZ));
  const std::size_t usable = (least + page - 1) / page * page;
  void* const mapped =
      calls.mmap(nullptr, page + usable, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED) return std::unexpected(failed("mmap", errno, "no signal stack"));
  std::byte* const bottom = static_cast<std::byte*>(mapped) + page;
  const stack_t stack{.ss_sp = bottom, .ss_flags = 0, .ss_size = usable};
  const char* operation = "mprotect";
  int error = retried([&] { return calls.mprotect(bottom, usable, PROT_READ | PROT_WRITE); });
  if (error == 0) {
    operation = kOperation;
    error = retried([&] { return calls.sigaltstack(&stack, nullptr); });
  }
  if (error != 0) {
    if (retried([&] { return calls.munmap(mapped, page + usable); }) != 0) {
      (void)calls.munmap(mapped, page + usable);
    }
    return std::unexpected(failed(operation, error, "no signal stack"));
  }
  made.mapping_ = {static_cast<std::byte*>(mapped), page + usable};
  made.thread_ = ::pthread_self();
  return made;
}

SignalStack::SignalStack(SignalStack&& other) noexcept
    : mapping_(std::exchange(other.mapping_, {})), thread_(other.thread_) {}

SignalStack& SignalStack::operator=(SignalStack&& other) noexcept {
  if (this != &other) {
    [[maybe_unused]] const Result<> stays_if_it_must = detach();
    mapping_ = std::exchange(other.mapping_, {});
    thread_ = other.thread_;
  }
  return *this;
}

SignalStack::~SignalStack() {
  [[maybe_unused]] const Result<> stays_if_it_must = detach();
}

Result<> SignalStack::detach() noexcept {
  if (mapping_.empty()) return {};
  const SystemCalls& calls = system_calls();
  if (::pthread_equal(thread_, ::pthread_self()) == 0) {
    return range_failure(ErrorCode::kBusy, "detach signal stack", mapping_, 0, 0,
                         "it is another thread's");
  }
  stack_t current{};
  if (calls.sigaltstack(nullptr, &current) != 0) {
    return std::unexpected(failed("sigaltstack", errno));
  }
  const std::byte* const bottom = mapping_.data() + arch::base_page_size();
  if (current.ss_sp == bottom && (current.ss_flags & SS_DISABLE) == 0) {
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    if (calls.sigaltstack(&none, nullptr) != 0) {
      return std::unexpected(failed("sigaltstack", errno, "in use"));
    }
  }
  const int error = retried([&] { return calls.munmap(mapping_.data(), mapping_.size()); });
  if (error != 0) return range_failure(code_of_errno(error), "munmap", mapping_, error, 0);
  mapping_ = {};
  return {};
}

Result<FaultHandler> FaultHandler::install(FaultHandlerOptions options) noexcept {
  constexpr const char* kOperation = "sigaction(SIGSEGV)";
  const SystemCalls& calls = system_calls();
  if (process.taken.exchange(true)) {
    return std::unexpected(Error{.code = ErrorCode::kBusy,
                                 .operation = "install fault handler",
                                 .detail = "there is one in this process"});
  }
  const auto refuse = [](const Error& error) {
    process.taken.store(false);
    return std::unexpected(error);
  };
  Result<SignalStack> stack = SignalStack::attach();
  if (!stack) return refuse(stack.error());
  struct sigaction before{};
  if (calls.sigaction(SIGSEGV, nullptr, &before) != 0) return refuse(failed(kOperation, errno));
  process.before = before;
  process.before_used.store(false);
  process.on_fault.store(options.on_fault);
  process.explaining.store(true);
  struct sigaction action{};
  action.sa_sigaction = &handle;
  // What the handler before wanted held back while it runs is held back for it.
  action.sa_mask = before.sa_mask;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & (SA_NODEFER | SA_RESTART));
  if (calls.sigaction(SIGSEGV, &action, nullptr) != 0) {
    process.explaining.store(false);
    return refuse(failed(kOperation, errno));
  }
  FaultHandler made;
  made.installed_ = true;
  made.stack_ = std::move(*stack);
  return made;
}

FaultHandler::FaultHandler(FaultHandler&& other) noexcept
    : installed_(std::exchange(other.installed_, false)), stack_(std::move(other.stack_)) {}

FaultHandler& FaultHandler::operator=(FaultHandler&& other) noexcept {
  if (this != &other) {
    [[maybe_unused]] const Result<> hands_on_if_it_must = remove();
    installed_ = std::exchange(other.installed_, false);
    stack_ = std::move(other.stack_);
  }
  return *this;
}

FaultHandler::~FaultHandler() {
  [[maybe_unused]] const Result<> hands_on_if_it_must = remove();
}

Result<> FaultHandler::remove() noexcept {
  constexpr const char* kOperation = "sigaction(SIGSEGV)";
  if (!installed_) return {};
  const SystemCalls& calls = system_calls();
  process.explaining.store(false);
  struct sigaction current{};
  if (calls.sigaction(SIGSEGV, nullptr, &current) != 0) {
    return std::unexpected(failed(kOperation, errno, "it only hands faults on"));
  }
  if (!is_ours(current)) {
    return std::unexpected(Error{.code = ErrorCode::kBusy,
                                 .operation = "remove fault handler",
                                 .detail = "another handler was installed over it"});
  }
  if (calls.sigaction(SIGSEGV, &process.before, nullptr) != 0) {
    return std::unexpected(failed(kOperation, errno, "it only hands faults on"));
  }
  installed_ = false;
  process.taken.store(false);
  // A stack of another thread stays with that thread.
  if (Result<> gone = stack_.detach(); !gone && gone.error().code != ErrorCode::kBusy) return gone;
  return {};
}

}  // namespace touchstone::heap
