// SPDX-License-Identifier: MIT
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <touchstone/tools/command_line.h>

namespace touchstone::tools {
namespace {

/// The deepest subcommand that was given: its options are the ones that would have been accepted.
const CLI::App* innermost(const CLI::App* app) {
  for (;;) {
    const auto parsed = app->get_subcommands();
    if (parsed.empty()) return app;
    app = parsed.back();
  }
}

std::string accepted(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  for (const CLI::Option* option : app.get_options()) {
    names.push_back(option->get_positional() ? option->get_name(true, false)
                                             : "--" + option->get_single_name());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void print_error(std::string_view name, std::string_view message) {
  std::string line;
  for (const char c : message) {
    if (c != '\n') {
      line += c;
    } else if (!line.empty() && !line.ends_with("; ")) {
      line += "; ";
    }
  }
  if (line.ends_with("; ")) line.resize(line.size() - 2);
  fmt::print(stderr, "{}: {}\n", name, line);
}

std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ExtrasError& error) {
    print_error(app.get_name(),
                fmt::format("{} (accepted: {})", error.what(), accepted(*innermost(&app))));
  } catch (const CLI::RequiredError& error) {
    print_error(app.get_name(),
                fmt::format("{} (accepted: {})", error.what(), accepted(*innermost(&app))));
  } catch (const CLI::ParseError& error) {
    print_error(app.get_name(), error.what());
  }
  return kExitUsage;
}

}  // namespace touchstone::tools
