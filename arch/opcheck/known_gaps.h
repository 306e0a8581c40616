// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_OPCHECK_KNOWN_GAPS_H_
#define TOUCHSTONE_ARCH_OPCHECK_KNOWN_GAPS_H_

#include <array>
#include <cstdint>
#include <string_view>

/// Where a disassembler is known to differ from the table, and why. A disagreement outside these
/// records is a finding; a record that no longer occurs is one too.
namespace touchstone::opcheck {

/// Which of the two calls the word an instruction of the table.
enum class GapDirection : std::uint8_t {
  kOracleAccepts,  ///< The oracle names it, the table does not.
  kOracleRejects,  ///< The table names it, the oracle calls it undefined or something else.
};

/// One known difference: the words of the cube, for the versions of the oracle in
/// [min_version, max_version].
struct KnownGap {
  std::uint32_t mask;
  std::uint32_t value;
  std::string_view oracle;  ///< "llvm", "capstone" or "objdump".
  unsigned min_version;     ///< Major version; of objdump, major * 100 + minor.
  unsigned max_version;
  GapDirection direction;
  std::string_view reason;
};

inline constexpr unsigned kAnyVersion = ~0U;

inline constexpr auto kKnownGaps = std::to_array<KnownGap>({
    {0xffa00000, 0xc9800000, "llvm", 22, kAnyVersion, GapDirection::kOracleAccepts,
     "CAST: bits 14:10 are taken for should-be-ones; the manual has them fixed at 11111"},
    {0xffa10001, 0x49800000, "llvm", 22, kAnyVersion, GapDirection::kOracleAccepts,
     "CASPT: bits 14:10 are taken for should-be-ones; the manual has them fixed at 11111"},
    {0xfb200fe0, 0x190007e0, "llvm", 15, kAnyVersion, GapDirection::kOracleAccepts,
     "CPY*, SET*, SETG*: Rn 31 is taken; the manual leaves it UNDEFINED or NOP"},
    {0xffff0fe0, 0x1ddf03e0, "llvm", 22, kAnyVersion, GapDirection::kOracleAccepts,
     "SETGO*: Rn 31 is taken; the manual leaves it UNDEFINED or NOP"},
});

}  // namespace touchstone::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_KNOWN_GAPS_H_
