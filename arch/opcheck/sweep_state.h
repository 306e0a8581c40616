// SPDX-License-Identifier: MIT
// A sweep that was stopped, as a file from which it is taken up again.
#ifndef TOUCHSTONE_ARCH_OPCHECK_SWEEP_STATE_H_
#define TOUCHSTONE_ARCH_OPCHECK_SWEEP_STATE_H_

#include <expected>
#include <string>

#include "sweep.h"
#include "sweep_result.h"

namespace touchstone::arch::opcheck {

/// Writes the state of a sweep by `plan`. The file appears whole or not at all. The error is one
/// clause about the file.
[[nodiscard]] std::expected<void, std::string> save_state(const std::string& path,
                                                          const SweepPlan& plan,
                                                          const SweepResult& result);

/// Reads it back. The error, one clause, says that the file cannot be read, is no state, or belongs
/// to a sweep of other words, rules, oracles or tables than `plan`.
[[nodiscard]] std::expected<SweepResult, std::string> load_state(const std::string& path,
                                                                 const SweepPlan& plan);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_SWEEP_STATE_H_
