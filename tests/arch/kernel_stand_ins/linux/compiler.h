/* SPDX-License-Identifier: MIT */
/* What the generated kernel header takes from the kernel's header of this name. */
#ifndef TOUCHSTONE_TESTS_ARCH_LINUX_COMPILER_H_
#define TOUCHSTONE_TESTS_ARCH_LINUX_COMPILER_H_

#include <stdbool.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
#endif

#endif /* TOUCHSTONE_TESTS_ARCH_LINUX_COMPILER_H_ */
