// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <touchstone/tools/command_line.h>
#include <touchstone/tools/json_file.h>
#include <touchstone/tools/provenance.h>

#include "command.h"

namespace touchstone::arch::opcheck {
namespace {

// One line per subcommand, in the order that --help shows.
constexpr RegisterCommand kCommands[] = {
    register_classify, register_scan,  register_sweep,
    register_masks,    register_table, register_oracles,
};

int run_checked(int argc, const char* const* argv, Console& console) {
  CLI::App app{"Validates the decoding of arm64 memory instructions against disassemblers.",
               "touchstone-opcheck"};
  app.set_version_flag("--version", "touchstone-opcheck " TOUCHSTONE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(30);
  app.footer("Exit status: 0 clean, 1 findings, 2 unusable input or arguments.");
  Action chosen;
  for (const RegisterCommand add : kCommands) add(app, chosen);
  if (const std::optional<int> code = tools::parse_command_line(app, argc, argv)) return *code;
  console.command = tools::command_text(argc, argv);
  const int code = chosen(console);
  console.out.flush();
  if (!console.out) {
    report_error(console, "standard output: write failed");
    return kExitBadUse;
  }
  return code;
}

}  // namespace

nlohmann::ordered_json json_header(std::string_view schema_name, int schema_version) {
  auto document =
      tools::json_document(fmt::format("touchstone.opcheck.{}", schema_name), schema_version);
  document["tool"] = "touchstone-opcheck " TOUCHSTONE_VERSION;
  return document;
}

void report_error(Console& console, std::string_view message) {
  std::string line = fmt::format("touchstone-opcheck: {}", message);
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  console.err << line << '\n';
}

int run_tool(int argc, const char* const* argv, Console& console) {
  try {
    return run_checked(argc, argv, console);
  } catch (const std::exception& error) {
    report_error(console, error.what());
    return kExitBadUse;
  }
}

}  // namespace touchstone::arch::opcheck
