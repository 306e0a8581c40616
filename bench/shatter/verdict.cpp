// SPDX-License-Identifier: MIT
#include "verdict.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace touchstone::shatter {
namespace {

using heap::PretouchStrategy;

/// Faults a page from which on the touch counts as faulting twice: halfway between one and two, as
/// stray faults of the process are few.
constexpr double kDoubleFault = 1.5;
/// Share of huge pages below which memory counts as shattered, when a store leaves it whole.
/// Between the two there is nothing in practice: a huge page is split or it is not.
constexpr double kWhole = 0.9;

/// nullopt where smaps did not tell.
std::optional<double> huge_share(const Row& row) {
  if (!row.huge_bytes || row.last.bytes == 0) return std::nullopt;
  return static_cast<double>(*row.huge_bytes) / static_cast<double>(row.last.bytes);
}

const Row* find(const std::vector<Row>& rows, PretouchStrategy strategy, Pages pages) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
    return row.what.strategy == strategy && row.what.pages == pages && row.error.empty();
  });
  return found == rows.end() ? nullptr : &*found;
}

std::string percent(double share) {
  return fmt::format("{:.0f}%", 100 * share);
}

std::string subject(const Row& row) {
  if (row.what.strategy == PretouchStrategy::kLoadThenStore) {
    return "A load before the store (what arm64 hardware makes of an atomic)";
  }
  return fmt::format("An atomic touch ({})",
                     row.last.touch_kernel.empty() ? "atomic_rmw" : row.last.touch_kernel);
}

/// Does it take two faults where one would do?
Verdict double_fault_verdict(const Row& row) {
  const bool twice = row.faults_per_page >= kDoubleFault;
  if (!twice && row.what.strategy == PretouchStrategy::kLoadThenStore) {
    return {
        .kind = VerdictKind::kNote,
        .headline = "The arm64 double fault cannot be emulated here.",
        .explanation = fmt::format(
            "A load before the store took {:.3f} faults for each base page: this kernel maps no "
            "zero page for a read, but memory of its own at once.",
            row.faults_per_page)};
  }
  return {
      .kind = twice ? VerdictKind::kBad : VerdictKind::kGood,
      .headline =
          fmt::format("{} faults {} here.", subject(row), twice ? "twice a page" : "once a page"),
      .explanation = fmt::format(
          "{} minor faults, {:.3f} for each base page.{}", row.minor_faults, row.faults_per_page,
          twice ? " The first maps the zero page for reading, the second replaces it." : "")};
}

/// Does it lose the huge pages that a store keeps?
Verdict shatter_verdict(const Row& row, const Row* store) {
  const std::optional<double> share = huge_share(row);
  const std::optional<double> of_store = store != nullptr ? huge_share(*store) : std::nullopt;
  if (!share || (of_store && *of_store < kWhole)) {
    return {.kind = VerdictKind::kNote,
            .headline = "Whether an atomic touch shatters huge pages cannot be told here.",
            .explanation =
                !share
                    ? "smaps, which tells how much memory is in huge pages, cannot be trusted or "
                      "read here."
                    : fmt::format("A plain store got huge pages for {} of the memory only: THP "
                                  "is off for it, or the kernel has no free huge pages left.",
                                  percent(*of_store))};
  }
  const bool whole = *share >= kWhole;
  return {
      .kind = whole ? VerdictKind::kGood : VerdictKind::kBad,
      .headline = fmt::format("{} {} huge pages here.", subject(row), whole ? "keeps" : "shatters"),
      .explanation = fmt::format(
          "{} of the memory is in huge pages afterwards{}, after {} minor faults.", percent(*share),
          of_store ? fmt::format(" (a plain store: {})", percent(*of_store)) : "",
          row.minor_faults)};
}

void judge_touch(const std::vector<Row>& rows, PretouchStrategy strategy,
                 std::vector<Verdict>& verdicts) {
  if (const Row* row = find(rows, strategy, Pages::kBase)) {
    verdicts.push_back(double_fault_verdict(*row));
  }
  if (const Row* row = find(rows, strategy, Pages::kHuge)) {
    verdicts.push_back(shatter_verdict(*row, find(rows, PretouchStrategy::kStore, Pages::kHuge)));
  }
}

/// How automatic did beside the best single strategy, for one kind of pages.
Verdict automatic_verdict(const Row& row, const std::vector<Row>& rows) {
  const Row* best = nullptr;
  for (const Row& other : rows) {
    if (!other.error.empty() || other.what.pages != row.what.pages ||
        other.what.threads != row.what.threads || other.seconds.median <= 0 ||
        other.what.strategy == PretouchStrategy::kAutomatic ||
        other.what.strategy == PretouchStrategy::kNone) {
      continue;
    }
    if (best == nullptr || other.seconds.median < best->seconds.median) best = &other;
  }
  std::string explanation = row.last.choice ? row.last.choice->reason : "";
  if (!explanation.empty() && !explanation.ends_with('.')) explanation += '.';
  if (best != nullptr && row.seconds.median > 0) {
    explanation +=
        fmt::format("{}Its speed was {:.2f} of the fastest single strategy of this run ({}).",
                    explanation.empty() ? "" : " ", best->seconds.median / row.seconds.median,
                    heap::to_string(best->what.strategy));
  }
  return {.kind = VerdictKind::kGood,
          .headline = fmt::format("automatic picks {} for {}.", heap::to_string(row.last.used),
                                  row.what.pages == Pages::kHuge ? "huge pages" : "base pages"),
          .explanation = std::move(explanation)};
}

}  // namespace

std::vector<Verdict> verdicts_of(const std::vector<Row>& rows, const arch::Machine& machine) {
  std::vector<Verdict> verdicts;
  judge_touch(rows, PretouchStrategy::kAtomicRmw, verdicts);
  judge_touch(rows, PretouchStrategy::kLoadThenStore, verdicts);
  if (machine.thp_mode && *machine.thp_mode == arch::ThpMode::kNever) {
    verdicts.push_back({.kind = VerdictKind::kNote,
                        .headline = "Transparent huge pages are switched off on this machine.",
                        .explanation = "The rows for THP show base pages: "
                                       "/sys/kernel/mm/transparent_hugepage/enabled says never."});
  }
  for (const Pages pages : {Pages::kBase, Pages::kHuge}) {
    if (const Row* row = find(rows, PretouchStrategy::kAutomatic, pages)) {
      verdicts.push_back(automatic_verdict(*row, rows));
    }
  }
  if (verdicts.empty()) {
    verdicts.push_back({.kind = VerdictKind::kNote,
                        .headline = "These rows allow no verdict.",
                        .explanation = "It takes atomic_rmw, load_then_store or automatic."});
  }
  return verdicts;
}

}  // namespace touchstone::shatter
