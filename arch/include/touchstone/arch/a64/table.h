// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_A64_TABLE_H_
#define TOUCHSTONE_ARCH_A64_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include <touchstone/arch/a64/encodings.h>
#include <touchstone/arch/export.h>

namespace touchstone::arch::a64 {

/// A row of the table as text for people and for machines.
struct TableRow {
  std::string mnemonic;  ///< "LDADD{A}{L}{B|H}"; {opt} stands for the options of CPY* and SET*.
  std::string store_mnemonic;  ///< The form that discards what it read, or "".
  std::string_view family;     ///< to_string(Group).
  std::string_view feature;
  std::string_view kind;
  Cube cube;
  std::string unallocated;  ///< Operands that take a word out of the row, or "".
  std::string constrained;  ///< Operands that make it CONSTRAINED UNPREDICTABLE, or "".
  std::string width;        ///< In bytes, such as "1, 2, 4, 8"; "variable" where data says.
  std::string order;        ///< Such as "by A and R".
  bool reads = false;
  bool writes = false;
  bool el0 = true;
  bool forced_write = false;
  std::string_view wnr_unmapped;   ///< to_string(Wnr) of the first fault on an unmapped page.
  std::string_view wnr_read_only;  ///< And on a read-only one.
  std::string_view section;        ///< Decode class of DDI 0487, C4.1.
};

/// The text of one row. Thread-safe.
[[nodiscard]] TOUCHSTONE_API TableRow table_row(const Encoding& encoding);

/// The text of all rows of kEncodings, in its order. Thread-safe.
[[nodiscard]] TOUCHSTONE_API std::vector<TableRow> table_rows();

/// The whole table as Markdown, ending in a newline. Thread-safe.
[[nodiscard]] TOUCHSTONE_API std::string markdown_table();

}  // namespace touchstone::arch::a64

#endif  // TOUCHSTONE_ARCH_A64_TABLE_H_
