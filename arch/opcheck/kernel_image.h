// SPDX-License-Identifier: MIT
// Reads the code of an uncompressed arm64 Linux kernel image (arch/arm64/boot/Image).
#ifndef TOUCHSTONE_ARCH_OPCHECK_KERNEL_IMAGE_H_
#define TOUCHSTONE_ARCH_OPCHECK_KERNEL_IMAGE_H_

#include <cstddef>
#include <span>

#include <touchstone/arch/error.h>

#include "code_image.h"

namespace touchstone::arch::opcheck {

/// Does the file hold the magic "ARM\x64" at byte 56 (Documentation/arch/arm64/booting.rst)?
[[nodiscard]] bool is_kernel_image(std::span<const std::byte> file) noexcept;

/// The code of the image: the executable sections of its PE header, or all of it where there is
/// none. Addresses are offsets from its start. Errors: kUnsupported for a big-endian kernel,
/// kInvalidArgument for PE sections outside the file. The image points into `file`. Thread-safe.
[[nodiscard]] Result<CodeImage> read_kernel_image(std::span<const std::byte> file);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_KERNEL_IMAGE_H_
