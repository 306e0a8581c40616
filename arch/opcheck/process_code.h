// SPDX-License-Identifier: MIT
// Reads the executable memory of a live process.
#ifndef TOUCHSTONE_ARCH_OPCHECK_PROCESS_CODE_H_
#define TOUCHSTONE_ARCH_OPCHECK_PROCESS_CODE_H_

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include <sys/types.h>

#include <touchstone/arch/error.h>

#include "code_image.h"
#include "file_bytes.h"

namespace touchstone::arch::opcheck {

/// The code of a process and what its image points into.
struct ProcessCode {
  /// The process runs x86 code: there is nothing to decode, and `image` is empty.
  bool is_x86 = false;
  CodeImage image;
  std::deque<std::vector<std::byte>> memory;
  std::deque<FileBytes> files;
};

/// Copies the executable mappings of process `pid`, with the symbols of the files they come from.
/// Code that was generated or patched at run time is seen as it is in memory. What a guest of an
/// emulator executes is data to the process, and is not seen.
///
/// `proc` is where procfs is mounted. Errors: what opening and reading its files reports
/// (kNotPermitted without ptrace rights, kSystem with ENOENT where there is no such process);
/// kUnsupported for machines other than arm64 and x86.
[[nodiscard]] Result<ProcessCode> read_process(pid_t pid, const std::string& proc = "/proc");

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_PROCESS_CODE_H_
