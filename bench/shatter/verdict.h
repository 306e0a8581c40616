// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_SHATTER_VERDICT_H_
#define TOUCHSTONE_BENCH_SHATTER_VERDICT_H_

#include <vector>

#include <touchstone/arch/machine.h>
#include <touchstone/tools/verdict.h>

#include "experiment.h"

/// The table in words: does this kernel double-fault, does it shatter, what automatic picks and
/// why.
namespace touchstone::shatter {

using tools::Verdict;
using tools::VerdictKind;

/// Judges the rows by faults (getrusage) and huge pages (smaps) alone, never by time nor by
/// counters that are system-wide. Says what it cannot tell for want of rows.
[[nodiscard]] std::vector<Verdict> verdicts_of(const std::vector<Row>& rows,
                                               const arch::Machine& machine);

}  // namespace touchstone::shatter

#endif  // TOUCHSTONE_BENCH_SHATTER_VERDICT_H_
