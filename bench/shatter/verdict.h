// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_SHATTER_VERDICT_H_
#define TOUCHSTONE_BENCH_SHATTER_VERDICT_H_

#include <cstdint>
#include <string>
#include <vector>

#include <touchstone/arch/machine.h>

#include "experiment.h"

/// The table in words: does this kernel double-fault, does it shatter, what automatic picks and
/// why.
namespace touchstone::shatter {

enum class VerdictKind : std::uint8_t {
  kGood,  ///< Nothing to worry about.
  kBad,   ///< Costs faults or huge pages.
  kNote,  ///< Cannot be told, or worth knowing.
};

struct Verdict {
  VerdictKind kind = VerdictKind::kNote;
  std::string headline;
  std::string explanation;
};

/// "good", "bad", "note".
[[nodiscard]] const char* to_string(VerdictKind kind) noexcept;

/// Judges the rows by faults (getrusage) and huge pages (smaps) alone, never by time nor by
/// counters that are system-wide. Says what it cannot tell for want of rows.
[[nodiscard]] std::vector<Verdict> verdicts_of(const std::vector<Row>& rows,
                                               const arch::Machine& machine);

}  // namespace touchstone::shatter

#endif  // TOUCHSTONE_BENCH_SHATTER_VERDICT_H_
