// SPDX-License-Identifier: MIT
// What an instruction's printed name says of the memory access it makes: knowledge drawn from
// mnemonics alone, so that it can contradict the table of encodings.
#ifndef TOUCHSTONE_ARCH_OPCHECK_ACCESS_NAME_H_
#define TOUCHSTONE_ARCH_OPCHECK_ACCESS_NAME_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include <touchstone/arch/a64/encodings.h>

namespace touchstone::arch::opcheck {

/// The access that a mnemonic names.
struct AccessName {
  a64::Group group = a64::Group::kLse;
  a64::Kind kind = a64::Kind::kLoad;
  a64::Order order = a64::Order::kRelaxed;
  /// Bytes, or 0 where the name and the registers do not tell.
  std::uint8_t width = 0;

  friend bool operator==(const AccessName&, const AccessName&) = default;
};

/// The access named by `mnemonic` with operands of kinds `operands` (as in Reading), or nothing
/// where it names none of those that the table of encodings is about. Thread-safe.
[[nodiscard]] std::optional<AccessName> parse_access_name(std::string_view mnemonic,
                                                          std::string_view operands);

/// True for the loads, stores and prefetches that are neither atomic nor exclusive, ordered or
/// block accesses: LDR, STP, LD1, PRFM and so on. Thread-safe.
[[nodiscard]] bool is_plain_access(std::string_view mnemonic);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_ACCESS_NAME_H_
