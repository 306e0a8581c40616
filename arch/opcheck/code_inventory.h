// SPDX-License-Identifier: MIT
// Counts what the code of a program does to memory, by group of the table and by function.
#ifndef TOUCHSTONE_ARCH_OPCHECK_CODE_INVENTORY_H_
#define TOUCHSTONE_ARCH_OPCHECK_CODE_INVENTORY_H_

#include <array>
#include <cstdint>
#include <vector>

#include <touchstone/arch/a64/encodings.h>

#include "code_image.h"

namespace touchstone::arch::opcheck {

/// Instructions of each group of the table, by a64::Group.
using GroupCounts = std::array<std::uint64_t, a64::kGroupCount>;

/// A function that holds instructions of the table.
struct FunctionInventory {
  /// Its symbol, or null: then `address` is where the unwind table has it start, or its section.
  const CodeSymbol* symbol = nullptr;
  std::uint64_t address = 0;
  GroupCounts groups{};
  /// Of those, single-instruction read-modify-writes.
  std::uint64_t atomics = 0;
  std::uint64_t store_exclusives = 0;
  bool is_outline_helper = false;
};

struct CodeInventory {
  std::uint64_t words = 0;
  GroupCounts groups{};
  /// Atomic instructions of FEAT_LSE (LD<op>, ST<op>, SWP, CAS, CASP), wherever they are.
  std::uint64_t lse_atomics = 0;
  /// Read-modify-writes of any feature outside outline helpers.
  std::uint64_t inline_atomics = 0;
  /// Store-exclusives outside outline helpers.
  std::uint64_t inline_store_exclusives = 0;
  /// Outline-atomics helpers in the code, and calls to them (to external ones too).
  std::uint64_t outline_helpers = 0;
  std::uint64_t outline_calls = 0;
  /// Those with something to count, by address.
  std::vector<FunctionInventory> functions;
};

/// Counts once over all words. The result points into the image. Thread-safe.
[[nodiscard]] CodeInventory take_inventory(const CodeImage& image);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_CODE_INVENTORY_H_
