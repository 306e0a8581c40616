// SPDX-License-Identifier: MIT
// Takes a file apart into the programs it holds.
#ifndef TOUCHSTONE_ARCH_OPCHECK_CODE_SOURCE_H_
#define TOUCHSTONE_ARCH_OPCHECK_CODE_SOURCE_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <touchstone/arch/error.h>

#include "code_image.h"

namespace touchstone::arch::opcheck {

/// What read_code found besides arm64 code.
struct CodeSource {
  /// "archive", or the kind of the only image.
  std::string kind;
  /// Members of an archive that hold arm64 code; 1 for anything else.
  std::size_t members = 0;
  /// x86 programs: nothing to decode in them.
  std::size_t x86 = 0;
  /// Members that are no ELF files (text, bitcode …).
  std::size_t not_elf = 0;
};

/// Is given each program: the name of the archive member, or "", and its code, for the duration of
/// the call.
using CodeVisitor = std::function<void(std::string_view member, CodeImage&& image)>;

/// Reads an ELF file, an `ar` archive of such, or an arm64 kernel image, and hands its programs to
/// `visit` in order. Errors: as read_elf and read_kernel_image; kInvalidArgument for what is none
/// of them, kUnsupported for compressed kernels and thin archives. In an archive the first bad
/// member ends it, after the good ones before it. Not thread-safe in `visit` alone.
[[nodiscard]] Result<CodeSource> read_code(std::span<const std::byte> file,
                                           const CodeVisitor& visit);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_CODE_SOURCE_H_
