/* SPDX-License-Identifier: MIT */
#ifndef TOUCHSTONE_TESTS_ARCH_A64_KERNEL_HEADER_H_
#define TOUCHSTONE_TESTS_ARCH_A64_KERNEL_HEADER_H_

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The predicates of the generated kernel header, compiled as C. */
bool kernel_is_forced_write(uint32_t insn);
bool kernel_is_load_exclusive(uint32_t insn);

#ifdef __cplusplus
}
#endif

#endif /* TOUCHSTONE_TESTS_ARCH_A64_KERNEL_HEADER_H_ */
