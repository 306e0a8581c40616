// SPDX-License-Identifier: MIT
// The choice of oracles on the command line, which several subcommands share.
#ifndef TOUCHSTONE_ARCH_OPCHECK_ORACLE_OPTIONS_H_
#define TOUCHSTONE_ARCH_OPCHECK_ORACLE_OPTIONS_H_

#include <expected>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "oracle.h"

namespace touchstone::arch::opcheck {

/// What was asked for.
struct OracleChoice {
  /// Names as given; empty leaves the choice to the tool.
  std::vector<std::string> names;
  OracleSearch search;
};

using OracleSources = std::vector<std::unique_ptr<OracleSource>>;

/// Adds --llvm-library and --objdump, which say where to look. `search` outlives the parse.
void add_oracle_search_options(CLI::App& command, OracleSearch& search);

/// Adds those and --oracle. `choice` outlives the parse.
void add_oracle_options(CLI::App& command, OracleChoice& choice);

/// The oracles asked for, each once: of "all", every one found; without a wish, Capstone and LLVM
/// where it is found; of "none", none. The error is one clause about what was asked for by name
/// and is not there.
[[nodiscard]] std::expected<OracleSources, std::string> choose_oracles(const OracleChoice& choice);

/// [{"oracle": "llvm", "version": "22.1.8", "location": ...}, ...].
[[nodiscard]] nlohmann::ordered_json oracles_json(const OracleSources& sources);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_ORACLE_OPTIONS_H_
