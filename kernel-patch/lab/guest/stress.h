// SPDX-License-Identifier: GPL-2.0-only
// Threads that fault, protect, unmap, fork and collapse the same memory.
#ifndef TOUCHSTONE_LAB_STRESS_H
#define TOUCHSTONE_LAB_STRESS_H

namespace lab {

struct StressOptions {
  unsigned threads = 8;
  unsigned seconds = 60;
};

// Fails when a legal read is signalled, an atomic's effect is lost, or no fault was seen to be
// handled as a write where `expect_forced` says that the kernel does that.
void run_stress(const StressOptions& options, bool expect_forced);

}  // namespace lab

#endif  // TOUCHSTONE_LAB_STRESS_H
