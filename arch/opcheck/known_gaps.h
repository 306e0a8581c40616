// SPDX-License-Identifier: MIT
// What releases of the oracles are known to decode wrongly or not at all.
#ifndef TOUCHSTONE_ARCH_OPCHECK_KNOWN_GAPS_H_
#define TOUCHSTONE_ARCH_OPCHECK_KNOWN_GAPS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include <touchstone/arch/a64/encodings.h>

#include "oracle.h"
#include "reading.h"

namespace touchstone::arch::opcheck {

/// How an oracle differs from the table.
enum class GapKind : std::uint8_t {
  kDecodesNothing,  ///< The table has the word, the oracle does not.
  kNamesOther,      ///< Both have it, under names that differ.
  kAccepts,         ///< The oracle names an access where the table has none.
};

/// "decodes nothing", "names it otherwise" or "accepts it".
[[nodiscard]] std::string_view to_string(GapKind kind);

/// Which words of a gap's cube it is about.
enum class GapCondition : std::uint8_t {
  kAny,
  /// Those that the rules mark as CONSTRAINED UNPREDICTABLE for their operands.
  kConstrained,
  /// Those of a load or store pair with write-back, one of whose registers is the base.
  kPairOverlapsBase,
};

/// True where the condition holds of the word, whose rules say `constrained`.
[[nodiscard]] bool holds(GapCondition condition, std::uint32_t word, bool constrained);

/// A known gap of an oracle. It explains a disagreement over a word of `words` when the oracle's
/// release is from `first` to `last`, both included.
struct KnownGap {
  OracleKind oracle = OracleKind::kCapstone;
  OracleVersion first;
  OracleVersion last;
  a64::Cube words;
  GapKind kind = GapKind::kDecodesNothing;
  std::string_view reason;
  GapCondition condition = GapCondition::kAny;

  [[nodiscard]] bool covers(OracleKind other, const OracleVersion& version) const {
    return oracle == other && first <= version && version <= last;
  }
};

/// All that are known.
[[nodiscard]] std::span<const KnownGap> known_gaps();

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_KNOWN_GAPS_H_
