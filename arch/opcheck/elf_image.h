// SPDX-License-Identifier: MIT
// Reads the code of an arm64 ELF file.
#ifndef TOUCHSTONE_ARCH_OPCHECK_ELF_IMAGE_H_
#define TOUCHSTONE_ARCH_OPCHECK_ELF_IMAGE_H_

#include <cstddef>
#include <span>

#include <touchstone/arch/error.h>

#include "code_image.h"

namespace touchstone::arch::opcheck {

/// Does the file start as an ELF file does?
[[nodiscard]] bool is_elf(std::span<const std::byte> file) noexcept;

/// Is it an ELF file for x86 (32 or 64 bits)? Then there is nothing to decode, and nothing wrong.
[[nodiscard]] bool is_x86_elf(std::span<const std::byte> file) noexcept;

/// Is this, by the first 20 bytes of its header, a little-endian 64-bit arm64 ELF file? What it is
/// instead is in the error.
[[nodiscard]] Result<> check_arm64_elf(std::span<const std::byte> file);

/// The code of a little-endian, 64-bit arm64 ELF file: relocatable, executable, shared or core.
/// Code is what lies in executable sections, without the literal pools that mapping symbols mark;
/// where there are no section headers, it is all of the executable segments.
///
/// No header is trusted: whatever lies outside the file, overlaps other code or links to the wrong
/// kind of section is kInvalidArgument, with a clause in `detail`; other machines are kUnsupported.
/// The image points into `file`. Thread-safe.
[[nodiscard]] Result<CodeImage> read_elf(std::span<const std::byte> file);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_ELF_IMAGE_H_
