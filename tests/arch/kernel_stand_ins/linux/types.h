/* SPDX-License-Identifier: MIT */
/* What the generated kernel header takes from the kernel's header of this name. */
#ifndef TOUCHSTONE_TESTS_ARCH_LINUX_TYPES_H_
#define TOUCHSTONE_TESTS_ARCH_LINUX_TYPES_H_

#include <stdint.h>

typedef uint32_t u32;

#endif /* TOUCHSTONE_TESTS_ARCH_LINUX_TYPES_H_ */
