// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_SRC_A64_COVERING_H_
#define TOUCHSTONE_ARCH_SRC_A64_COVERING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace touchstone::arch::a64 {

/// One thing to be covered: the columns that cover it, in ascending order, and an example.
struct CoveringRow {
  std::vector<std::uint32_t> columns;
  std::uint32_t word = 0;
};

/// The unate covering problem with columns of equal cost, solved exactly. Not thread-safe.
class Covering {
 public:
  /// Keeps the rows that no other row implies (a row whose columns contain another's is covered
  /// whenever that one is).
  Covering(std::size_t columns, std::vector<CoveringRow> rows);

  [[nodiscard]] const std::vector<CoveringRow>& rows() const noexcept { return rows_; }

  /// A smallest set of columns that covers every row, in ascending order; nothing where the search
  /// would take too many nodes. Among equals, columns with low numbers are preferred.
  [[nodiscard]] std::optional<std::vector<std::uint32_t>> solve();

  /// Examples of rows no two of which share a column: no cover has fewer columns. A greedy choice,
  /// not always the largest.
  [[nodiscard]] std::vector<std::uint32_t> independent_words() const;

 private:
  std::size_t columns_;
  std::vector<CoveringRow> rows_;
};

}  // namespace touchstone::arch::a64

#endif  // TOUCHSTONE_ARCH_SRC_A64_COVERING_H_
