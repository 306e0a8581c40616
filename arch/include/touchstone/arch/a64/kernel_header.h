// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_A64_KERNEL_HEADER_H_
#define TOUCHSTONE_ARCH_A64_KERNEL_HEADER_H_

#include <string>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>

namespace touchstone::arch::a64 {

/// The text of the Linux kernel header that holds `aarch64_insn_is_forced_write(u32)` and
/// `aarch64_insn_is_load_exclusive(u32)`, in kernel style and under the kernel's licence: the
/// covers exact_cover() and load_exclusive_cover() as C, a comment at each compare saying what it
/// is for. The same table gives the same bytes. Fails as minimise() does. Thread-safe.
[[nodiscard]] TOUCHSTONE_API Result<std::string> kernel_header();

}  // namespace touchstone::arch::a64

#endif  // TOUCHSTONE_ARCH_A64_KERNEL_HEADER_H_
