// SPDX-License-Identifier: MIT
// touchstone-lisp: runs a program of the example language.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include <touchstone/tools/command_line.h>

#include "interpreter.h"

namespace {

using namespace touchstone;

constexpr const char* kName = "touchstone-lisp";

int run(const heap::HeapOptions& options, const std::string& name, const std::string& program,
        bool shows_value, bool statistics) {
  auto interpreter = lisp::Interpreter::create(options, std::cout);
  if (!interpreter) {
    tools::print_error(kName, interpreter.error().message());
    return tools::kExitUsage;
  }
  const auto value = (*interpreter)->run(program);
  if (value && shows_value) std::cout << *value << '\n';
  std::cout.flush();
  if (statistics) std::cerr << to_json((*interpreter)->runtime().heap().statistics()) << '\n';
  if (!value) {
    tools::print_error(kName,
                       name + ':' + std::to_string(value.error().line) + ": " + value.error().what);
    return tools::kExitUsage;
  }
  if (!std::cout) {
    tools::print_error(kName, "standard output could not be written");
    return tools::kExitUsage;
  }
  return tools::kExitSuccess;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs a program of a small Lisp on Touchstone's collector.", kName};
  std::string file;
  std::string text;
  heap::HeapOptions options{.max_size = std::size_t{64} << 20U};
  bool statistics = false;
  auto* const file_option = app.add_option("file", file, "The program");
  app.add_option("-e", text, "The program itself; its last value is printed")
      ->excludes(file_option);
  app.add_option("--heap", options.max_size, "The most the heap may grow to, as 256M (64M)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--workers", options.workers, "Threads that collect (one for each CPU)")
      ->check(CLI::Range(1U, 64U));
  app.add_flag("--verify", options.verify, "Check the heap before and after each collection");
  app.add_option("--stress", options.stress_interval,
                 "Collect at every Nth allocation, moving everything")
      ->check(CLI::Range(std::uint64_t{1}, ~std::uint64_t{0}));
  app.add_flag("--statistics", statistics, "Print the heap's figures as JSON, on standard error");
  if (const auto code = tools::parse_command_line(app, argc, argv)) return *code;
  if (app.count("-e") != 0) return run(options, "-e", text, true, statistics);
  if (file.empty()) {
    tools::print_error(kName, "a file, or -e with a program, is needed");
    return tools::kExitUsage;
  }
  std::ifstream stream(file, std::ios::binary);
  const std::string program((std::istreambuf_iterator<char>(stream)),
                            std::istreambuf_iterator<char>());
  if (!stream.is_open() || stream.bad()) {
    tools::print_error(kName, file + ": cannot be read");
    return tools::kExitUsage;
  }
  return run(options, file, program, false, statistics);
}
