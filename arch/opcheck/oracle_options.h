// SPDX-License-Identifier: MIT
// Command-line options on oracles that several subcommands share.
#ifndef TOUCHSTONE_ARCH_OPCHECK_ORACLE_OPTIONS_H_
#define TOUCHSTONE_ARCH_OPCHECK_ORACLE_OPTIONS_H_

#include <CLI/CLI.hpp>

#include "oracle.h"

namespace touchstone::arch::opcheck {

/// Adds --llvm-library and --objdump, which say where to look. `search` outlives the parse.
inline void add_oracle_search_options(CLI::App& command, OracleSearch& search) {
  command
      .add_option("--llvm-library", search.llvm_library,
                  "A libLLVM to load instead of the newest one found")
      ->type_name("PATH");
  command
      .add_option("--objdump", search.objdump_program,
                  "An objdump to run instead of the first one found that knows arm64")
      ->type_name("PROGRAM");
}

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_ORACLE_OPTIONS_H_
