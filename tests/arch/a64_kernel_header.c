/* SPDX-License-Identifier: MIT */
/* Compiles the generated kernel header as C, the way a kernel would. */
#include "a64_kernel_header.h"

#include "force-write-insn.h"

bool kernel_is_forced_write(uint32_t insn) {
  return aarch64_insn_is_forced_write(insn);
}

bool kernel_is_load_exclusive(uint32_t insn) {
  return aarch64_insn_is_load_exclusive(insn);
}
