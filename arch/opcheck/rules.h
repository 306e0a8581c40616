// SPDX-License-Identifier: MIT
// What a sweep holds against the oracles.
#ifndef TOUCHSTONE_ARCH_OPCHECK_RULES_H_
#define TOUCHSTONE_ARCH_OPCHECK_RULES_H_

#include <cstdint>
#include <string_view>

#include <touchstone/arch/a64/classify.h>

namespace touchstone::arch::opcheck {

/// A way to classify words. Tests pass broken ones to see that a sweep finds what is broken.
struct Rules {
  std::string_view name;
  a64::MemoryAccess (*classify)(std::uint32_t word) = nullptr;
  a64::Mnemonic (*mnemonic)(std::uint32_t word) = nullptr;
  /// Where set, the sweep also lists the words for which this differs from being a
  /// read-modify-write of `classify`.
  bool (*forced_write)(std::uint32_t word) = nullptr;
};

/// The table of encodings.
inline constexpr Rules kFullRules{
    .name = "full", .classify = &a64::classify, .mnemonic = &a64::format_mnemonic};

/// The masks of the patch on the mailing list, judged by the table of encodings.
inline constexpr Rules kV5Rules{.name = "v5",
                                .classify = &a64::classify,
                                .mnemonic = &a64::format_mnemonic,
                                .forced_write = &a64::v5::is_forced_write};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_RULES_H_
