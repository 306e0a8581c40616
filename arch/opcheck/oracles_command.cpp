// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "command.h"
#include "oracle.h"
#include "oracle_options.h"

namespace touchstone::arch::opcheck {
namespace {

struct OraclesOptions {
  OracleSearch search;
  bool json = false;
};

int run_oracles(const OraclesOptions& options, Console& console) {
  nlohmann::ordered_json document = json_header("oracles", 1);
  document["oracles"] = nlohmann::ordered_json::array();
  for (const OracleKind kind : {OracleKind::kCapstone, OracleKind::kLlvm, OracleKind::kObjdump}) {
    const auto source = find_oracle(kind, options.search);
    nlohmann::ordered_json entry{{"oracle", to_string(kind)}, {"found", source.has_value()}};
    if (source) {
      entry["version"] = to_string((*source)->version());
      entry["location"] = (*source)->location();
    } else {
      entry["reason"] = source.error();
    }
    if (!options.json) {
      fmt::print(
          console.out, "{:<9} {}\n", to_string(kind),
          source ? fmt::format("{}  ({})", to_string((*source)->version()), (*source)->location())
                 : fmt::format("not found: {}", source.error()));
    }
    document["oracles"].push_back(std::move(entry));
  }
  if (options.json) console.out << document.dump(2) << '\n';
  return kExitSuccess;
}

}  // namespace

void register_oracles(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<OraclesOptions>();
  CLI::App* const command =
      app.add_subcommand("oracles", "Show which disassemblers are found, and their versions");
  command->add_flag("--json", options->json, "Print JSON");
  add_oracle_search_options(*command, options->search);
  command->callback([options, &chosen] {
    chosen = [options](Console& console) { return run_oracles(*options, console); };
  });
}

}  // namespace touchstone::arch::opcheck
