// SPDX-License-Identifier: GPL-2.0-only
// Other people's programs in the guest: what their faults were, and which instructions took them.
#ifndef TOUCHSTONE_LAB_RUNTIME_H
#define TOUCHSTONE_LAB_RUNTIME_H

#include <span>
#include <string_view>

namespace lab {

struct RuntimeOptions {
  bool sample = false;      // look at every 61st fault; that slows the program down
  bool thp_always = false;  // huge pages for all memory, not only where it is asked for
};

// Runs words[0] with the words as its arguments, and prints its faults, its huge pages, and how
// long it ran; with `sample` also the instructions that took most of the faults. Returns the
// program's exit status.
int run_runtime(std::string_view name, std::span<char*> words, const RuntimeOptions& options);

}  // namespace lab

#endif  // TOUCHSTONE_LAB_RUNTIME_H
