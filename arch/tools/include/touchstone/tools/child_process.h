// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TOOLS_CHILD_PROCESS_H_
#define TOUCHSTONE_TOOLS_CHILD_PROCESS_H_

#include <cstddef>
#include <string>
#include <vector>

#include <touchstone/arch/error.h>

namespace touchstone::tools {

/// A program that has run to its end.
struct ChildProcess {
  int exit_code = 0;         ///< 128 and the signal's number, as shells say it, after a signal.
  double seconds = 0;        ///< From its start to its end.
  double cpu_seconds = 0;    ///< User and system, all threads.
  std::size_t peak_rss = 0;  ///< Bytes; at least what the caller had.
  std::string output;        ///< Everything it printed, on either stream.
};

/// Runs a program, found by PATH where its name has no slash, with these words, the first being its
/// name. Errors: kSystem and kin, when it could not be started; errno is ENOENT if it is not there.
[[nodiscard]] Result<ChildProcess> run_child_process(const std::vector<std::string>& words);

}  // namespace touchstone::tools

#endif  // TOUCHSTONE_TOOLS_CHILD_PROCESS_H_
