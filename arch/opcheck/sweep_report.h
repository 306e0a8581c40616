// SPDX-License-Identifier: MIT
// The result of a sweep, for a person and for a program.
#ifndef TOUCHSTONE_ARCH_OPCHECK_SWEEP_REPORT_H_
#define TOUCHSTONE_ARCH_OPCHECK_SWEEP_REPORT_H_

#include <cstddef>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "sweep.h"
#include "sweep_result.h"

namespace touchstone::arch::opcheck {

/// The gaps of the plan that cover one of its oracles, yet explained nothing: what they describe no
/// longer happens. Indices into plan.gaps. Of a complete sweep only.
[[nodiscard]] std::vector<std::size_t> stale_gaps(const SweepPlan& plan, const SweepResult& result);

/// True where the sweep found nothing wrong: no unexplained disagreement, and, where the rules have
/// masks of their own, no difference from the table.
[[nodiscard]] bool is_clean(const SweepResult& result);

/// The JSON document, schema touchstone.opcheck.sweep. `seconds` is the time taken.
[[nodiscard]] nlohmann::ordered_json sweep_json(const SweepPlan& plan, const SweepResult& result,
                                                double seconds);

/// The same as text.
void print_sweep(std::ostream& out, const SweepPlan& plan, const SweepResult& result,
                 double seconds);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_SWEEP_REPORT_H_
