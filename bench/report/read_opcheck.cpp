// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "readers.h"

namespace touchstone::report {

using tools::Json;

Section read_sweep(const Json& document) {
  Section section{.id = "sweep",
                  .title = "Opcode classification",
                  .question =
                      "Does the table that decides which faults become writes agree with "
                      "independent disassemblers?"};
  const auto words = document.at("words").get<std::uint64_t>();
  const auto unexplained = document.at("unexplained").get<std::uint64_t>();
  const auto unjudged = document.at("unjudged").get<std::uint64_t>();
  std::vector<std::string> oracles;
  std::vector<std::string> names;
  for (const Json& oracle : document.at("oracles")) {
    names.push_back(oracle.at("oracle"));
    oracles.push_back(fmt::format("{} {}", names.back(), oracle.at("version").get<std::string>()));
  }
  const std::string judges = fmt::format("{}", fmt::join(oracles, " and "));
  if (unexplained == 0) {
    section.verdicts.push_back(
        {VerdictKind::kGood,
         fmt::format("{} words, no disagreement that is not explained.", grouped(words)),
         fmt::format("Compared with {}; {} words none of them decodes, and only the manual speaks "
                     "for those.",
                     judges, grouped(unjudged))});
  } else {
    section.verdicts.push_back({VerdictKind::kBad,
                                fmt::format("{} words are not classified as {} decodes them.",
                                            grouped(unexplained), judges),
                                "The sweep's own output lists them."});
  }
  Table table{.title = "Families",
              .explanation =
                  "Words that each oracle confirms; in brackets those that it is "
                  "known not to decode.",
              .columns = {"family", "words"},
              .rows = {}};
  for (const std::string& oracle : oracles) table.columns.push_back(oracle);
  table.columns.emplace_back("judged by none");
  for (const Json& family : document.at("families")) {
    std::vector<std::string> cells{family.at("family"), grouped(family.at("words"))};
    for (const std::string& name : names) {
      const Json& counts = family.at("oracles").at(name);
      const auto gap = counts.at("known_gap").get<std::uint64_t>();
      cells.push_back(grouped(counts.at("confirmed")) +
                      (gap > 0 ? fmt::format(" ({})", grouped(gap)) : ""));
    }
    cells.push_back(grouped(family.at("unjudged")));
    table.rows.push_back(std::move(cells));
  }
  section.tables.push_back(std::move(table));
  section.sources.push_back(provenance_source(document));
  return section;
}

Section read_scan(const Json& document) {
  Section section{
      .id = "scan",
      .title = "Atomics in programs",
      .question = "Which programs touch memory by atomics, and with which instructions?"};
  Table table{.title = "Programs",
              .explanation =
                  "Instructions outside outline helpers; a touch loop steps a page or "
                  "more with an atomic that changes nothing.",
              .columns = {"program", "LSE", "LL/SC stores", "outline calls", "touch loops"},
              .rows = {}};
  for (const Json& file : document.at("files")) {
    const std::string subject = file.at("subject");
    const std::string status = file.at("status");
    if (status != "scanned") {
      section.missing.push_back(
          fmt::format("{}: {}", subject,
                      value_at<std::string>(file, "reason").value_or("no arm64 code: " + status)));
      continue;
    }
    const Json& atomics = file.at("atomics");
    const Json& loops = file.at("touch_loops");
    table.rows.push_back({subject, grouped(atomics.at("inline_atomics")),
                          grouped(atomics.at("inline_store_exclusives")),
                          grouped(atomics.at("outline_calls")), grouped(loops.size())});
    for (const Json& loop : loops) {
      section.verdicts.push_back(
          {VerdictKind::kBad,
           fmt::format("{} touches memory by {}.", subject,
                       loop.at("instruction").get<std::string>()),
           fmt::format("In {}, a {} of {} bytes; confidence {}.",
                       loop.at("function").get<std::string>(),
                       loop.at("operation").get<std::string>(), loop.at("width").get<unsigned>(),
                       loop.at("confidence").get<std::string>())});
    }
  }
  section.tables.push_back(std::move(table));
  section.sources.push_back(provenance_source(document));
  return section;
}

}  // namespace touchstone::report
