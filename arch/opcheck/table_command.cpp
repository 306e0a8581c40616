// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <touchstone/arch/a64/table.h>

#include "command.h"

namespace touchstone::arch::opcheck {
namespace {

using Json = nlohmann::ordered_json;

struct TableOptions {
  std::string format = "markdown";
  bool json = false;
};

Json row_json(const a64::TableRow& row) {
  return {{"mnemonic", row.mnemonic},
          {"store_mnemonic", row.store_mnemonic.empty() ? Json(nullptr) : Json(row.store_mnemonic)},
          {"family", row.family},
          {"feature", row.feature},
          {"kind", row.kind},
          {"mask", fmt::format("{:08x}", row.cube.mask)},
          {"value", fmt::format("{:08x}", row.cube.value)},
          {"unallocated", row.unallocated},
          {"constrained_unpredictable", row.constrained},
          {"width", row.width},
          {"order", row.order},
          {"reads", row.reads},
          {"writes", row.writes},
          {"el0", row.el0},
          {"forced_write", row.forced_write},
          {"wnr_unmapped", row.wnr_unmapped},
          {"wnr_read_only", row.wnr_read_only},
          {"section", row.section}};
}

int run_table(const TableOptions& options, Console& console) {
  if (!options.json && options.format == "markdown") {
    console.out << a64::markdown_table();
    return kExitSuccess;
  }
  Json document = json_header("table", 1);
  Json& rows = document["rows"] = Json::array();
  for (const a64::TableRow& row : a64::table_rows()) rows.push_back(row_json(row));
  console.out << document.dump(2) << '\n';
  return kExitSuccess;
}

}  // namespace

void register_table(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<TableOptions>();
  CLI::App* const command = app.add_subcommand("table", "Print the table of encodings");
  CLI::Option* const format =
      command->add_option("--format", options->format, "markdown or json (default: markdown)")
          ->check(CLI::IsMember({"markdown", "json"}))
          ->type_name("NAME");
  command->add_flag("--json", options->json, "The same as --format json")->excludes(format);
  command->callback([options, &chosen] {
    chosen = [options](Console& console) { return run_table(*options, console); };
  });
}

}  // namespace touchstone::arch::opcheck
