// SPDX-License-Identifier: GPL-2.0-only
// Other people's programs in the guest: what their faults were, and which instructions took them.
#ifndef TOUCHSTONE_LAB_RUNTIME_H
#define TOUCHSTONE_LAB_RUNTIME_H

#include <span>
#include <string_view>

namespace lab {

// Runs words[0] with the words as its arguments, and prints its faults, its huge pages, and how
// long it ran. With `sample`, every 61st fault is looked at, and the instructions that took most of
// them are printed with their words; that slows the program down. Returns the program's exit
// status.
int run_runtime(std::string_view name, std::span<char*> words, bool sample);

}  // namespace lab

#endif  // TOUCHSTONE_LAB_RUNTIME_H
