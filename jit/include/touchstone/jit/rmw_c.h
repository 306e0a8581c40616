/* SPDX-License-Identifier: MIT */
#ifndef TOUCHSTONE_JIT_RMW_C_H_
#define TOUCHSTONE_JIT_RMW_C_H_

/* rmw.h for C: the same emitters into a caller's buffer. What the words mean is told there. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum touchstone_rmw_op {
  TOUCHSTONE_RMW_ADD,
  TOUCHSTONE_RMW_CLEAR,
  TOUCHSTONE_RMW_SET,
  TOUCHSTONE_RMW_EOR,
  TOUCHSTONE_RMW_SMAX,
  TOUCHSTONE_RMW_SMIN,
  TOUCHSTONE_RMW_UMAX,
  TOUCHSTONE_RMW_UMIN,
  TOUCHSTONE_RMW_SWAP,
  TOUCHSTONE_RMW_COMPARE_SWAP
} touchstone_rmw_op;

typedef enum touchstone_rmw_order {
  TOUCHSTONE_RMW_RELAXED,
  TOUCHSTONE_RMW_ACQUIRE,
  TOUCHSTONE_RMW_RELEASE,
  TOUCHSTONE_RMW_ACQ_REL,
  TOUCHSTONE_RMW_SEQ_CST
} touchstone_rmw_order;

typedef enum touchstone_rmw_result {
  TOUCHSTONE_RMW_FETCH,
  TOUCHSTONE_RMW_DISCARD
} touchstone_rmw_result;

typedef enum touchstone_rmw_target {
  TOUCHSTONE_RMW_A64_LLSC,
  TOUCHSTONE_RMW_A64_LSE,
  TOUCHSTONE_RMW_A64_LSE128,
  TOUCHSTONE_RMW_X86_64,
  TOUCHSTONE_RMW_X86_64_CX16
} touchstone_rmw_target;

/* One atomic read-modify-write. Plain numbers, so that a wrong one is an error and not undefined.
 */
typedef struct touchstone_rmw_shape {
  uint32_t op;     /* touchstone_rmw_op */
  uint32_t width;  /* 1, 2, 4, 8 or 16 bytes */
  uint32_t order;  /* touchstone_rmw_order */
  uint32_t result; /* touchstone_rmw_result */
  uint32_t target; /* touchstone_rmw_target */
} touchstone_rmw_shape;

#define TOUCHSTONE_RMW_NO_REGISTER 0xff

/* Registers by number; 16-byte values take two, low half first. */
typedef struct touchstone_rmw_registers {
  uint8_t address;
  uint8_t operand[2];
  uint8_t expected[2];
  uint8_t result[2];
  uint8_t scratch[6];
} touchstone_rmw_registers;

/* What the emitted code needs and spoils: see RmwRequirements in rmw.h. */
typedef struct touchstone_rmw_requirements {
  bool expected;
  bool result;
  bool pair;
  bool operand_even_pair;
  bool result_even_pair;
  bool result_may_be_address;
  bool result_may_be_operand;
  bool result_may_be_expected;
  bool clobbers_flags;
  uint8_t scratch_count;
  uint8_t scratch_even_pairs;
  uint32_t fixed_clobbers;
} touchstone_rmw_requirements;

/* Why a call failed; both strings are literals. `code` is the value of touchstone::ErrorCode, and
 * `code_name` its name. */
typedef struct touchstone_jit_error {
  int code;
  const char* code_name;
  const char* operation;
  const char* detail;
} touchstone_jit_error;

/* Each returns true, or false with `*error` filled in where `error` is not null. Null pointers for
 * the other arguments are errors too. Thread-safe. */

bool touchstone_rmw_get_requirements(const touchstone_rmw_shape* shape,
                                     touchstone_rmw_requirements* requirements,
                                     touchstone_jit_error* error);

/* Writes the instructions, to be run inline, and their size in bytes to `*size`. */
bool touchstone_rmw_emit(const touchstone_rmw_shape* shape,
                         const touchstone_rmw_registers* registers, void* buffer, size_t capacity,
                         size_t* size, touchstone_jit_error* error);

/* Writes a whole function: uint64_t (*)(void* address, uint64_t operand, uint64_t expected), or for
 * 16 bytes one that takes and returns structs of two uint64_t, low half first. */
bool touchstone_rmw_emit_function(const touchstone_rmw_shape* shape, void* buffer, size_t capacity,
                                  size_t* size, touchstone_jit_error* error);

#ifdef __cplusplus
}
#endif

#endif /* TOUCHSTONE_JIT_RMW_C_H_ */
