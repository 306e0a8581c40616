// SPDX-License-Identifier: MIT
#include "sweep_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <touchstone/arch/a64/encodings.h>

#include "command.h"

namespace touchstone::arch::opcheck {
namespace {

using Json = nlohmann::ordered_json;

std::string hex(std::uint32_t word) {
  return fmt::format("{:08x}", word);
}

// 12345678 as "12,345,678".
std::string grouped(std::uint64_t number) {
  std::string digits = fmt::format("{}", number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

Json verdicts_json(const SweepPlan& plan,
                   const std::array<OracleVerdicts, kMostOracles>& verdicts) {
  Json json = Json::object();
  for (std::size_t i = 0; i < plan.oracles.size(); ++i) {
    json[std::string(to_string(plan.oracles[i]->kind()))] = {
        {"confirmed", verdicts[i].confirmed},
        {"known_gap", verdicts[i].gap},
        {"contradicted", verdicts[i].contradicted}};
  }
  return json;
}

Json gap_json(const KnownGap& gap) {
  Json json{{"oracle", to_string(gap.oracle)},
            {"mask", hex(gap.words.mask)},
            {"value", hex(gap.words.value)},
            {"kind", to_string(gap.kind)},
            {"from", to_string(gap.first)}};
  json["to"] = gap.last.major == ~0U ? Json(nullptr) : Json(to_string(gap.last));
  json["reason"] = gap.reason;
  return json;
}

std::uint64_t unjudged_words(const SweepResult& result) {
  std::uint64_t total = 0;
  for (const FamilyTally& family : result.families) total += family.unjudged;
  return total;
}

std::string name_or(std::string_view name, std::string_view otherwise) {
  return std::string(name.empty() ? otherwise : name);
}

// How an oracle's verdicts on `words` words read in a table cell.
std::string cell(const OracleVerdicts& verdicts, std::uint64_t words) {
  if (verdicts.confirmed == words) return "all";
  if (verdicts.gap == words) return "gap";
  std::string text = fmt::format("{}", grouped(verdicts.confirmed));
  if (verdicts.gap != 0) text += fmt::format(" +{} gap", grouped(verdicts.gap));
  if (verdicts.contradicted != 0) text += fmt::format(" -{}", grouped(verdicts.contradicted));
  return text;
}

void print_families(std::ostream& out, const SweepPlan& plan, const SweepResult& result) {
  std::vector<std::vector<std::string>> rows(1);
  rows[0] = {"family", "words"};
  for (const OracleSource* const source : plan.oracles) rows[0].push_back(source->name());
  rows[0].emplace_back("no oracle can judge");
  for (std::size_t i = 0; i < result.families.size(); ++i) {
    const FamilyTally& family = result.families[i];
    if (family.words == 0) continue;
    std::vector<std::string>& row = rows.emplace_back();
    row = {std::string(a64::to_string(static_cast<a64::Group>(i))), grouped(family.words)};
    for (std::size_t oracle = 0; oracle < plan.oracles.size(); ++oracle) {
      row.push_back(cell(family.oracles[oracle], family.words));
    }
    row.push_back(family.unjudged == 0 ? "-" : grouped(family.unjudged));
    if (family.unjudged_unpredictable != 0) {
      row.back() +=
          fmt::format(" ({} unpredictable)", family.unjudged_unpredictable == family.unjudged
                                                 ? "all"
                                                 : grouped(family.unjudged_unpredictable));
    }
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const std::vector<std::string>& row : rows) {
    std::string line = fmt::format("{:<{}}  {:>{}}", row[0], widths[0], row[1], widths[1]);
    for (std::size_t i = 2; i < row.size(); ++i) {
      line += fmt::format("  {:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print(out, "{}\n", line);
  }
}

// Gaps that share an oracle, a kind and a reason, as one line each.
void print_gaps(std::ostream& out, const SweepPlan& plan, const SweepResult& result) {
  std::vector<std::pair<std::string, Bucket>> lines;
  for (std::size_t i = 0; i < result.gaps.size(); ++i) {
    if (result.gaps[i].count == 0) continue;
    const KnownGap& gap = plan.gaps[i];
    std::string text =
        fmt::format("{:<9} {}: {}", to_string(gap.oracle), to_string(gap.kind), gap.reason);
    const auto same = std::ranges::find(lines, text, &std::pair<std::string, Bucket>::first);
    if (same == lines.end()) {
      lines.emplace_back(std::move(text), result.gaps[i]);
    } else {
      same->second.merge(result.gaps[i]);
    }
  }
  if (!lines.empty()) fmt::print(out, "\nknown gaps of the oracles:\n");
  for (const auto& [text, bucket] : lines) {
    fmt::print(out, "  {} ({} words, such as {})\n", text, grouped(bucket.count),
               hex(bucket.smallest));
  }
  const std::vector<std::size_t> stale = stale_gaps(plan, result);
  if (!stale.empty()) fmt::print(out, "\nstale gaps, which no longer occur (mask/value):\n");
  for (const std::size_t index : stale) {
    const KnownGap& gap = plan.gaps[index];
    fmt::print(out, "  {:<9} {}/{}  {}: {}\n", to_string(gap.oracle), hex(gap.words.mask),
               hex(gap.words.value), to_string(gap.kind), gap.reason);
  }
}

void print_disagreements(std::ostream& out, const SweepPlan& plan, const SweepResult& result) {
  if (result.disagreements.empty()) return;
  fmt::print(out, "\ndisagreements:\n");
  for (const auto& [key, bucket] : result.disagreements) {
    fmt::print(out, "  {:<10} {:<15} {:<15} says {:<14} {:>12} words, such as {}\n",
               name_or(key.rule, "no access"), name_or(key.family, "-"),
               plan.oracles[key.oracle]->name(), name_or(key.reading, "nothing"),
               grouped(bucket.count), hex(bucket.smallest));
  }
}

void print_forced(std::ostream& out, const SweepPlan& plan, const SweepResult& result,
                  bool missed) {
  bool first = true;
  for (const auto& [key, tally] : result.forced) {
    if (key.missed != missed) continue;
    if (first) {
      fmt::print(out, "\n{} {}:\n", plan.rules->name,
                 missed ? "misses, by family" : "takes without need, by family");
      first = false;
    }
    fmt::print(out, "  {:<16} {:>13} words, such as {}", key.family, grouped(tally.words.count),
               hex(tally.words.smallest));
    for (std::size_t oracle = 0; oracle < plan.oracles.size(); ++oracle) {
      const OracleVerdicts& verdicts = tally.oracles[oracle];
      const std::string name = plan.oracles[oracle]->name();
      if (verdicts.gap == tally.words.count) {
        fmt::print(out, "; {} cannot judge", name);
      } else {
        fmt::print(out, "; {} confirms {}", name, cell(verdicts, tally.words.count));
      }
    }
    fmt::print(out, "\n");
  }
}

}  // namespace

std::vector<std::size_t> stale_gaps(const SweepPlan& plan, const SweepResult& result) {
  std::vector<std::size_t> stale;
  for (std::size_t i = 0; i < plan.gaps.size(); ++i) {
    if (result.gaps[i].count != 0) continue;
    const bool asked = std::ranges::any_of(plan.oracles, [&](const OracleSource* source) {
      return plan.gaps[i].covers(source->kind(), source->version());
    });
    if (asked) stale.push_back(i);
  }
  return stale;
}

bool is_clean(const SweepResult& result) {
  return result.disagreements.empty() && result.forced.empty();
}

Json sweep_json(const SweepPlan& plan, const SweepResult& result, double seconds) {
  Json document = json_header("sweep", 2);
  document["rules"] = plan.rules->name;
  document["space"] = plan.space->name();
  document["words"] = result.words;
  document["seconds"] = seconds;
  Json& oracles = document["oracles"] = Json::array();
  for (const OracleSource* const source : plan.oracles) {
    oracles.push_back({{"oracle", to_string(source->kind())},
                       {"version", to_string(source->version())},
                       {"location", source->location()}});
  }
  document["unexplained"] = result.unexplained();
  document["unjudged"] = unjudged_words(result);
  Json& families = document["families"] = Json::array();
  for (std::size_t i = 0; i < result.families.size(); ++i) {
    const FamilyTally& family = result.families[i];
    families.push_back({{"family", a64::to_string(static_cast<a64::Group>(i))},
                        {"words", family.words},
                        {"oracles", verdicts_json(plan, family.oracles)},
                        {"unjudged", family.unjudged},
                        {"unjudged_unpredictable", family.unjudged_unpredictable}});
  }
  Json& disagreements = document["disagreements"] = Json::array();
  for (const auto& [key, bucket] : result.disagreements) {
    Json entry;
    entry["rule"] = key.rule.empty() ? Json(nullptr) : Json(key.rule);
    entry["family"] = key.family.empty() ? Json(nullptr) : Json(key.family);
    entry["oracle"] = to_string(plan.oracles[key.oracle]->kind());
    entry["mnemonic"] = key.reading.empty() ? Json(nullptr) : Json(key.reading);
    entry["count"] = bucket.count;
    entry["example"] = hex(bucket.smallest);
    disagreements.push_back(std::move(entry));
  }
  Json& gaps = document["known_gaps"] = Json::array();
  for (std::size_t i = 0; i < result.gaps.size(); ++i) {
    if (result.gaps[i].count == 0) continue;
    Json entry = gap_json(plan.gaps[i]);
    entry["words"] = result.gaps[i].count;
    entry["example"] = hex(result.gaps[i].smallest);
    gaps.push_back(std::move(entry));
  }
  Json& stale = document["stale_gaps"] = Json::array();
  for (const std::size_t index : stale_gaps(plan, result)) {
    stale.push_back(gap_json(plan.gaps[index]));
  }
  if (plan.rules->forced_write == nullptr) return document;
  Json& forced = document["forced_write"] = Json::object();
  for (const bool missed : {true, false}) {
    Json& list = forced[missed ? "missed" : "needless"] = Json::array();
    for (const auto& [key, tally] : result.forced) {
      if (key.missed != missed) continue;
      list.push_back({{"family", key.family},
                      {"words", tally.words.count},
                      {"example", hex(tally.words.smallest)},
                      {"oracles", verdicts_json(plan, tally.oracles)}});
    }
  }
  return document;
}

void print_sweep(std::ostream& out, const SweepPlan& plan, const SweepResult& result,
                 double seconds) {
  std::string oracles;
  for (const OracleSource* const source : plan.oracles) {
    if (!oracles.empty()) oracles += ", ";
    oracles += source->name();
  }
  fmt::print(out, "{} words ({}), rules {}, oracles {}; {:.1f} s, {:.1f} M words/s\n\n",
             grouped(result.words), plan.space->name(), plan.rules->name, oracles, seconds,
             seconds > 0 ? static_cast<double>(result.words) / seconds / 1e6 : 0.0);
  print_families(out, plan, result);
  print_gaps(out, plan, result);
  print_disagreements(out, plan, result);
  print_forced(out, plan, result, true);
  print_forced(out, plan, result, false);
  fmt::print(out, "\nno oracle here can judge: {}\nunexplained: {}\n",
             grouped(unjudged_words(result)), grouped(result.unexplained()));
}

}  // namespace touchstone::arch::opcheck
