// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_SEEDS_SEED_RUN_H_
#define TOUCHSTONE_BENCH_SEEDS_SEED_RUN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <touchstone/tools/verdict.h>

/// What the benches share that measure again what a patch's author measured (the seed): one table
/// or several, with the seed's figures beside those taken here, as text and as JSON.
namespace touchstone::bench {

/// Several measurements of one thing.
struct Figure {
  double median = 0;
  double mean = 0;
  double low = 0;
  double high = 0;
  std::size_t samples = 0;
};

/// Of at least one sample.
[[nodiscard]] Figure figure_of(std::vector<double> samples);

/// Whose figures a column holds.
enum class Origin : std::uint8_t {
  kHere,  ///< Measured by this run.
  kSeed,  ///< Quoted from the seed: another machine, another kernel.
};

struct Column {
  std::string key;
  std::string label;
  std::string unit;  ///< "ns", "instructions", "faults", "mappings", "ratio", …
  Origin origin = Origin::kHere;
};

/// Nothing (not measured, or not in the seed), a count or ratio, or measurements.
using Cell = std::variant<std::monostate, double, Figure>;

struct Row {
  std::vector<std::string> labels;      ///< One for each of Table::row_labels.
  std::map<std::string, Cell> cells{};  ///< By Column::key.
};

struct Table {
  std::string title;
  std::string explanation;
  std::vector<std::string> row_labels;
  std::vector<Column> columns;
  std::vector<Row> rows{};

  [[nodiscard]] Row& add(std::vector<std::string> labels) {
    return rows.emplace_back(std::move(labels));
  }
};

/// The middle of a cell, or NaN.
[[nodiscard]] double middle(const Cell& cell);
/// middle(of) / middle(to), or nothing where either is missing.
[[nodiscard]] Cell ratio(const Cell& of, const Cell& to);

/// A column, or a part of one, that was not measured.
struct Missing {
  std::string what;
  std::string why;
  std::string remedy;  ///< What would bring it.
};

using tools::Verdict;
using tools::VerdictKind;

/// How much to measure.
enum class Effort : std::uint8_t {
  kFull,     ///< The seed's counts.
  kQuick,    ///< Seconds: shows that everything works.
  kCounted,  ///< The clock counts instructions and repeats exactly (the kernel lab).
};

/// Which seed a bench repeats.
struct SeedDescription {
  std::string_view seed;  ///< "000".
  std::string_view name;  ///< The bench's own: "quarantine".
  std::string_view title;
  std::string_view question;
};

/// One run of a bench. What it is given is kept in order.
class SeedRun {
 public:
  SeedRun(const SeedDescription& description, Effort effort)
      : description_(description), effort_(effort) {}

  [[nodiscard]] Effort effort() const { return effort_; }
  /// The value for this effort.
  template <typename T>
  [[nodiscard]] T pick(T full, T quick, T counted) const {
    if (effort_ == Effort::kFull) return full;
    return effort_ == Effort::kQuick ? quick : counted;
  }
  /// The clock to time work by that one thread does without waiting: processor_time(), or now()
  /// where it counts instructions.
  [[nodiscard]] double clock() const noexcept;
  /// What the clocks count: "ns", or "instructions".
  [[nodiscard]] std::string unit() const {
    return effort_ == Effort::kCounted ? "instructions" : "ns";
  }

  /// The reference stays valid.
  [[nodiscard]] Table& table(Table table) { return tables_.emplace_back(std::move(table)); }
  /// Notes a missing column, once, and says so on standard error at once.
  void missing(const Missing& missing);
  void verdict(VerdictKind kind, std::string headline, std::string explanation);
  /// Whether this process may use so much memory; if not, notes that `what` is missing.
  [[nodiscard]] bool has_memory(std::size_t bytes, const std::string& what);

  [[nodiscard]] const std::deque<Table>& tables() const { return tables_; }
  [[nodiscard]] const std::vector<Verdict>& verdicts() const { return verdicts_; }
  [[nodiscard]] const std::vector<Missing>& all_missing() const { return missing_; }

  [[nodiscard]] const SeedDescription& description() const { return description_; }
  [[nodiscard]] std::string to_text() const;

 private:
  SeedDescription description_;
  Effort effort_;
  std::deque<Table> tables_;
  std::vector<Verdict> verdicts_;
  std::vector<Missing> missing_;
};

/// The monotonic clock, in ns: for single touches, and where threads wait for each other.
[[nodiscard]] double now() noexcept;
/// The processor time of this thread, in ns, user and system: on an idle machine the same for one
/// thread that never waits, and on a busy one what the others do is left out.
[[nodiscard]] double processor_time() noexcept;

/// Page faults of this thread so far, minor and major. 0 where the kernel does not tell.
[[nodiscard]] double faults_so_far() noexcept;

/// main() of a bench: --quick, --count-instructions, --json FILE.
[[nodiscard]] int run_seed(int argc, const char* const* argv, const SeedDescription& description,
                           void (*measure)(SeedRun&));

}  // namespace touchstone::bench

#endif  // TOUCHSTONE_BENCH_SEEDS_SEED_RUN_H_
