// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TOOLS_COMMAND_LINE_H_
#define TOUCHSTONE_TOOLS_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <optional>
#include <string_view>

namespace touchstone::tools {

/// Exit codes that every tool uses.
inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;  ///< The tool ran; what it checked or did failed.
inline constexpr int kExitUsage = 2;    ///< An option, a word or an input file was unusable.

/// Parses the command line. Returns the exit code when the tool should end now: 0 after --help or
/// --version; kExitUsage after one line on standard error that says what was wrong and what is
/// accepted. Empty when the tool should go on.
[[nodiscard]] std::optional<int> parse_command_line(CLI::App& app, int argc,
                                                    const char* const* argv);

/// Prints "NAME: message" as one line on standard error; line breaks inside the message become ";
/// ".
void print_error(std::string_view name, std::string_view message);

}  // namespace touchstone::tools

#endif  // TOUCHSTONE_TOOLS_COMMAND_LINE_H_
