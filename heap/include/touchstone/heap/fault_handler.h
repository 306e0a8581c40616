// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_FAULT_HANDLER_H_
#define TOUCHSTONE_HEAP_FAULT_HANDLER_H_

#include <cstddef>

#include <pthread.h>
#include <signal.h>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>
#include <touchstone/heap/memory_range.h>
#include <touchstone/heap/quarantine.h>

namespace touchstone::heap {

/// An alternate signal stack of the thread that made it. The kernel keeps one per thread, so each
/// thread whose faults are to be handled on a stack of their own (a stack overflow is a SIGSEGV
/// too) attaches one; FaultHandler::install() does so for its caller.
///
/// Must be destroyed, or detached, on the thread that attached it, and not while on that stack.
class TOUCHSTONE_API SignalStack {
 public:
  /// Gives the calling thread an alternate stack of at least this many bytes, with an inaccessible
  /// page below it. A thread that has one already keeps it, and the object owns nothing.
  /// Errors: kOutOfMemory, or what sigaltstack says.
  [[nodiscard]] static Result<SignalStack> attach(std::size_t size = std::size_t{64}
                                                                     << 10U) noexcept;

  SignalStack() noexcept = default;
  SignalStack(SignalStack&& other) noexcept;
  SignalStack& operator=(SignalStack&& other) noexcept;
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
  /// As detach(). What that cannot take down stays mapped, as a stack in use must.
  ~SignalStack();

  /// Takes the stack down, unless the thread has put another in its place, and unmaps it. On error
  /// it stays: kBusy on another thread, kNotPermitted on the stack itself.
  [[nodiscard]] Result<> detach() noexcept;

  /// Whether this object provides the thread's stack.
  [[nodiscard]] bool owns() const noexcept { return !mapping_.empty(); }

 private:
  MemoryRange mapping_;
  pthread_t thread_{};
};

/// What to do on a use after free.
struct FaultHandlerOptions {
  /// Called in the signal handler for a fault in a quarantined block, before the handler that was
  /// there before; may leave by siglongjmp. Null writes FaultExplanation::describe() to standard
  /// error.
  void (*on_fault)(const FaultExplanation& fault, const siginfo_t& info, void* context) = nullptr;
};

/// A SIGSEGV handler that explains uses after free, and resolves the faults of a WriteTracker by
/// mprotect, for programs that have none to call explain_fault() and resolve_tracked_write() from.
/// It is not installed unless asked for.
///
/// For every fault it then does what would have been done without it: calls the handler that was
/// there (of either kind, with its signal mask), takes the default action with the fault's own
/// address, or where signals were ignored ignores those that were sent. It runs on the alternate
/// stack of the thread, if there is one: see SignalStack.
///
/// One at a time in a process. Thread safety: install() and remove() must not run at once.
class TOUCHSTONE_API FaultHandler {
 public:
  /// Errors: kBusy if one is installed; kOutOfMemory or kSystem from the system calls. On error
  /// nothing is changed.
  [[nodiscard]] static Result<FaultHandler> install(FaultHandlerOptions options = {}) noexcept;

  FaultHandler() noexcept = default;
  FaultHandler(FaultHandler&& other) noexcept;
  FaultHandler& operator=(FaultHandler&& other) noexcept;
  FaultHandler(const FaultHandler&) = delete;
  FaultHandler& operator=(const FaultHandler&) = delete;
  /// As remove(). If that fails, the handler stays and only hands faults on.
  ~FaultHandler();

  /// Puts back what was there before. kBusy if another handler has been installed since, which may
  /// call this one: it then only hands faults on, and remove() may be repeated once the other is
  /// gone. Succeeds if nothing is installed. The caller's SignalStack goes too if this is its
  /// thread.
  [[nodiscard]] Result<> remove() noexcept;

  [[nodiscard]] bool installed() const noexcept { return installed_; }

 private:
  bool installed_ = false;
  SignalStack stack_;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_FAULT_HANDLER_H_
