// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TOOLS_PROVENANCE_H_
#define TOUCHSTONE_TOOLS_PROVENANCE_H_

#include <string>

#include <touchstone/arch/machine.h>
#include <touchstone/tools/json_file.h>

namespace touchstone::tools {

/// How a figure came about: the command, and the machine and day it ran on.
struct Provenance {
  std::string command;
  std::string date;  ///< ISO 8601, UTC, such as "2026-01-31T12:00:00Z".
  std::string cpu;   ///< From /proc/cpuinfo; "unknown CPU" where that has no name (most arm64).
  arch::Machine machine;
};

/// Reads date and machine, now, for a command line as command_text gives it.
[[nodiscard]] Provenance provenance_of(std::string command);
[[nodiscard]] Provenance provenance_of(int argc, const char* const* argv);

/// The command line, quoted where a shell would need it, without the program's folder.
[[nodiscard]] std::string command_text(int argc, const char* const* argv);

/// Adds "touchstone" (the version), "command", "date" and "machine".
void add_provenance(Json& document, const Provenance& provenance);

/// The kernel's release; "unknown" where uname does not tell.
[[nodiscard]] std::string kernel_text(const arch::Machine& machine);

}  // namespace touchstone::tools

#endif  // TOUCHSTONE_TOOLS_PROVENANCE_H_
