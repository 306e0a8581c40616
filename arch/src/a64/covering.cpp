// SPDX-License-Identifier: MIT
#include "a64/covering.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace touchstone::arch::a64 {
namespace {

constexpr std::size_t kNodeLimit = 10'000'000;

using Columns = std::vector<std::uint32_t>;

/// Rows still to be covered, each by the columns that are still allowed.
using Problem = std::vector<Columns>;

void keep_minimal_rows(Problem& rows) {
  std::ranges::sort(rows, [](const Columns& a, const Columns& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  Problem kept;
  for (Columns& row : rows) {
    const bool implied = std::ranges::any_of(
        kept, [&](const Columns& small) { return std::ranges::includes(row, small); });
    if (!implied) kept.push_back(std::move(row));
  }
  rows = std::move(kept);
}

/// The rows that each column covers, by row number.
[[nodiscard]] std::vector<Columns> by_column(const Problem& rows, std::size_t columns) {
  std::vector<Columns> covered(columns);
  for (std::uint32_t row = 0; row < rows.size(); ++row) {
    for (const std::uint32_t column : rows[row]) covered[column].push_back(row);
  }
  return covered;
}

/// Drops columns that cover nothing another does not. Of equal columns the first stays.
[[nodiscard]] bool drop_dominated_columns(Problem& rows, std::size_t columns) {
  const std::vector<Columns> covered = by_column(rows, columns);
  std::vector<bool> dropped(columns, false);
  bool changed = false;
  for (std::uint32_t column = 0; column < columns; ++column) {
    if (covered[column].empty()) continue;
    // Whatever dominates it covers its first row.
    for (const std::uint32_t other : rows[covered[column].front()]) {
      if (other == column || dropped[other]) continue;
      const bool same = covered[other].size() == covered[column].size();
      if (same && other > column) continue;
      if (std::ranges::includes(covered[other], covered[column])) {
        dropped[column] = true;
        changed = true;
        break;
      }
    }
  }
  if (changed) {
    for (Columns& row : rows) {
      std::erase_if(row, [&](std::uint32_t column) { return dropped[column]; });
    }
  }
  return changed;
}

void choose(Problem& rows, std::uint32_t column, Columns& chosen) {
  chosen.push_back(column);
  std::erase_if(rows, [&](const Columns& row) { return std::ranges::binary_search(row, column); });
}

/// Takes every column that some row leaves no choice about, and drops what that makes needless,
/// until nothing changes.
void reduce(Problem& rows, std::size_t columns, Columns& chosen) {
  for (;;) {
    keep_minimal_rows(rows);
    const auto forced =
        std::ranges::find_if(rows, [](const Columns& row) { return row.size() == 1; });
    if (forced != rows.end()) {
      choose(rows, forced->front(), chosen);
      continue;
    }
    if (!drop_dominated_columns(rows, columns)) return;
  }
}

/// Rows of which no two share a column, few columns first.
[[nodiscard]] std::vector<std::size_t> independent_rows(const Problem& rows) {
  std::vector<std::size_t> order(rows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](std::size_t row) { return std::pair(rows[row].size(), row); });
  std::vector<std::size_t> independent;
  Columns used;
  for (const std::size_t row : order) {
    Columns common;
    std::ranges::set_intersection(rows[row], used, std::back_inserter(common));
    if (!common.empty()) continue;
    independent.push_back(row);
    Columns merged;
    std::ranges::set_union(rows[row], used, std::back_inserter(merged));
    used = std::move(merged);
  }
  return independent;
}

class Search {
 public:
  explicit Search(std::size_t columns) : columns_(columns) {}

  /// False where the limit was reached.
  [[nodiscard]] bool run(Problem rows, Columns chosen) {
    if (++nodes_ > kNodeLimit) return false;
    reduce(rows, columns_, chosen);
    if (rows.empty()) {
      if (!found_ || chosen.size() < best_.size()) best_ = std::move(chosen);
      found_ = true;
      return true;
    }
    if (found_ && chosen.size() + independent_rows(rows).size() >= best_.size()) return true;
    // A row must be covered by one of its columns: try each, leaving out those already tried.
    const Columns branch = *std::ranges::min_element(rows, {}, &Columns::size);
    const std::vector<Columns> covered = by_column(rows, columns_);
    Columns order = branch;
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
      const std::size_t of_a = covered[a].size();
      const std::size_t of_b = covered[b].size();
      return of_a != of_b ? of_a > of_b : a < b;
    });
    for (const std::uint32_t column : order) {
      Problem rest = rows;
      Columns with = chosen;
      choose(rest, column, with);
      if (!run(std::move(rest), std::move(with))) return false;
      for (Columns& row : rows) {
        std::erase(row, column);
        if (row.empty()) return true;
      }
    }
    return true;
  }

  [[nodiscard]] Columns& best() { return best_; }

 private:
  std::size_t columns_;
  std::size_t nodes_ = 0;
  bool found_ = false;
  Columns best_;
};

}  // namespace

Covering::Covering(std::size_t columns, std::vector<CoveringRow> rows) : columns_(columns) {
  std::ranges::sort(rows, [](const CoveringRow& a, const CoveringRow& b) {
    return a.columns.size() != b.columns.size() ? a.columns.size() < b.columns.size()
                                                : a.columns < b.columns;
  });
  for (CoveringRow& row : rows) {
    const bool implied = std::ranges::any_of(rows_, [&](const CoveringRow& small) {
      return std::ranges::includes(row.columns, small.columns);
    });
    if (!implied) rows_.push_back(std::move(row));
  }
}

std::optional<std::vector<std::uint32_t>> Covering::solve() {
  Problem problem;
  problem.reserve(rows_.size());
  for (const CoveringRow& row : rows_) problem.push_back(row.columns);
  Search search(columns_);
  if (!search.run(std::move(problem), {})) return std::nullopt;
  std::ranges::sort(search.best());
  return std::move(search.best());
}

std::vector<std::uint32_t> Covering::independent_words() const {
  Problem problem;
  problem.reserve(rows_.size());
  for (const CoveringRow& row : rows_) problem.push_back(row.columns);
  std::vector<std::uint32_t> words;
  for (const std::size_t row : independent_rows(problem)) words.push_back(rows_[row].word);
  std::ranges::sort(words);
  return words;
}

}  // namespace touchstone::arch::a64
