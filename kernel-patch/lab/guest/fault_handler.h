// SPDX-License-Identifier: GPL-2.0-only
// What runs when memory is touched that may not be.
#ifndef TOUCHSTONE_LAB_FAULT_HANDLER_H
#define TOUCHSTONE_LAB_FAULT_HANDLER_H

#include <signal.h>

namespace lab {

// Has SIGSEGV and SIGBUS handled as long as it lives, and then as before: children that are sent
// ahead to die of a signal must not be caught by a handler that jumps to where nobody is any more.
class FaultHandler {
 public:
  explicit FaultHandler(void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &segv_before_);
    sigaction(SIGBUS, &action, &bus_before_);
  }
  ~FaultHandler() {
    sigaction(SIGSEGV, &segv_before_, nullptr);
    sigaction(SIGBUS, &bus_before_, nullptr);
  }
  FaultHandler(const FaultHandler&) = delete;
  FaultHandler& operator=(const FaultHandler&) = delete;

 private:
  struct sigaction segv_before_ = {};
  struct sigaction bus_before_ = {};
};

}  // namespace lab

#endif  // TOUCHSTONE_LAB_FAULT_HANDLER_H
