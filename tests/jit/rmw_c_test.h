/* SPDX-License-Identifier: MIT */
#ifndef TOUCHSTONE_TESTS_JIT_RMW_C_TEST_H_
#define TOUCHSTONE_TESTS_JIT_RMW_C_TEST_H_

#include <touchstone/jit/rmw_c.h>

#ifdef __cplusplus
extern "C" {
#endif
/* A fetching acq_rel add at [7] by 6 into 8; the size in bytes, or 0 with `*error` set. */
size_t emit_from_c(uint32_t width, int target, unsigned char* buffer, size_t capacity,
                   touchstone_jit_error* error);
#ifdef __cplusplus
}
#endif

#endif /* TOUCHSTONE_TESTS_JIT_RMW_C_TEST_H_ */
