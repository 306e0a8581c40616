/* SPDX-License-Identifier: MIT */
/* The C interface as a C compiler sees it; rmw_c_test.cpp calls these. */
#include "rmw_c_test.h"

#include <string.h>

#include <touchstone/jit/rmw_c.h>

size_t emit_from_c(uint32_t width, int target, unsigned char* buffer, size_t capacity,
                   touchstone_jit_error* error) {
  const touchstone_rmw_shape shape = {TOUCHSTONE_RMW_ADD, width, TOUCHSTONE_RMW_ACQ_REL,
                                      TOUCHSTONE_RMW_FETCH, (uint32_t)target};
  touchstone_rmw_registers registers;
  memset(&registers, TOUCHSTONE_RMW_NO_REGISTER, sizeof registers);
  registers.address = 7;
  registers.operand[0] = 6;
  registers.result[0] = 8;
  size_t size = 0;
  return touchstone_rmw_emit(&shape, &registers, buffer, capacity, &size, error) ? size : 0;
}
