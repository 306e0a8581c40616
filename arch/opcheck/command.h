// SPDX-License-Identifier: MIT
// What every subcommand of touchstone-opcheck is made of: where it reads and writes, how it is
// registered, and what its exit codes mean.
#ifndef TOUCHSTONE_ARCH_OPCHECK_COMMAND_H_
#define TOUCHSTONE_ARCH_OPCHECK_COMMAND_H_

#include <functional>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// The whole of it is slow to compile.
namespace CLI {
class App;
}

namespace touchstone::arch::opcheck {

/// The streams of a run, and the command line that made it. Tests pass string streams and run the
/// tool in their own process.
struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  std::string command{};  ///< As tools::command_text gives it; run_tool fills it in.
};

/// Exit codes: the answer is clean; the answer holds findings; part of the question was unusable.
inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFindings = 1;
inline constexpr int kExitBadUse = 2;
/// A sweep that a signal stopped, as shells number SIGINT.
inline constexpr int kExitInterrupted = 130;

/// Runs the subcommand that was chosen and gives the exit code.
using Action = std::function<int(Console&)>;

/// Adds one subcommand to `app`. Its CLI11 callback stores into `chosen` what is to run once the
/// whole command line has been parsed. `chosen` outlives the parse.
using RegisterCommand = void (*)(CLI::App& app, Action& chosen);

void register_classify(CLI::App& app, Action& chosen);
void register_sweep(CLI::App& app, Action& chosen);
void register_masks(CLI::App& app, Action& chosen);
void register_table(CLI::App& app, Action& chosen);
void register_oracles(CLI::App& app, Action& chosen);
void register_scan(CLI::App& app, Action& chosen);

/// Keys that open the JSON document of every subcommand: schema, version, tool. `schema_name` is
/// "classify", "sweep" and so on, which makes the schema "touchstone.opcheck.classify";
/// `schema_version` grows when a key changes
/// its meaning or goes.
[[nodiscard]] nlohmann::ordered_json json_header(std::string_view schema_name, int schema_version);

/// Writes "touchstone-opcheck: MESSAGE" as one line to console.err.
void report_error(Console& console, std::string_view message);

/// Runs the tool on a command line. Never throws; the result is an exit code.
[[nodiscard]] int run_tool(int argc, const char* const* argv, Console& console);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_COMMAND_H_
