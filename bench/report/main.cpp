// SPDX-License-Identifier: MIT
// touchstone-report: what the other tools wrote as JSON, as one page.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <touchstone/bench/page.h>
#include <touchstone/tools/command_line.h>
#include <touchstone/tools/json_file.h>
#include <touchstone/tools/provenance.h>

#include "gather.h"

namespace {

using namespace touchstone;

constexpr const char* kName = "touchstone-report";

int run(const std::vector<std::string>& inputs, const std::string& output,
        const std::string& command) {
  const report::Gathered gathered = report::gather(inputs);
  for (const report::Skipped& each : gathered.skipped) {
    tools::print_error(kName, fmt::format("{}: skipped: {}", each.file, each.why));
  }
  if (gathered.sections.empty()) {
    tools::print_error(kName, "nothing to report on, so no page was written");
    return tools::kExitFailure;
  }
  const std::string page =
      bench::render_page(bench::Page::kReport, report::report_json(gathered, command));
  if (auto written = tools::write_text_file(output, page); !written) {
    tools::print_error(kName, written.error().message());
    return tools::kExitUsage;
  }
  if (output != "-") {
    std::size_t files = 0;
    for (const report::Section& section : gathered.sections) files += section.sources.size();
    fmt::print("{}: {} section{} from {} file{}\n", output, gathered.sections.size(),
               gathered.sections.size() == 1 ? "" : "s", files, files == 1 ? "" : "s");
  }
  return gathered.skipped.empty() ? tools::kExitSuccess : tools::kExitFailure;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Gathers the JSON of touchstone-shatter, touchstone-gc, touchstone-opcheck, the seeds' "
      "benches and the kernel lab into one self-contained HTML page.",
      kName};
  std::vector<std::string> inputs;
  std::string output;
  app.set_version_flag("--version", std::string(kName) + " " TOUCHSTONE_VERSION);
  app.add_option("inputs", inputs, "JSON files, and folders whose *.json files are taken")
      ->required();
  app.add_option("-o,--output", output, "The page to write; - prints it")->required();
  app.footer(
      "Exit: 0 all went in, 1 a file was skipped (the page has the rest) or nothing was left, "
      "2 wrong usage or the page cannot be written.");
  if (const auto code = tools::parse_command_line(app, argc, argv)) return *code;
  return run(inputs, output, tools::command_text(argc, argv));
}
