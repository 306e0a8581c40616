// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <touchstone/jit/rmw.h>
#include <touchstone/jit/rmw_c.h>

using touchstone::Error;
using touchstone::ErrorCode;
using touchstone::Result;
using touchstone::jit::RmwOp;
using touchstone::jit::RmwOrder;
using touchstone::jit::RmwRegisters;
using touchstone::jit::RmwRequirements;
using touchstone::jit::RmwResult;
using touchstone::jit::RmwShape;
using touchstone::jit::RmwTarget;

static_assert(static_cast<int>(RmwOp::kCompareSwap) == TOUCHSTONE_RMW_COMPARE_SWAP);
static_assert(static_cast<int>(RmwOrder::kSeqCst) == TOUCHSTONE_RMW_SEQ_CST);
static_assert(static_cast<int>(RmwResult::kDiscard) == TOUCHSTONE_RMW_DISCARD);
static_assert(static_cast<int>(RmwTarget::kX86_64Cx16) == TOUCHSTONE_RMW_X86_64_CX16);

namespace {

bool fail(const Error& error, touchstone_jit_error* out) {
  if (out != nullptr) {
    *out = {.code = static_cast<int>(error.code),
            .code_name = to_string(error.code),
            .operation = error.operation,
            .detail = error.detail};
  }
  return false;
}

bool fail_null(touchstone_jit_error* out) {
  return fail({.code = ErrorCode::kInvalidArgument,
               .operation = "touchstone_rmw",
               .detail = "an argument is a null pointer"},
              out);
}

/// What does not fit is carried over as a value that no enumerator and no width has.
std::uint8_t narrow(unsigned value) {
  constexpr unsigned max = std::numeric_limits<std::uint8_t>::max();
  return static_cast<std::uint8_t>(value < max ? value : max);
}

RmwShape to_cpp(const touchstone_rmw_shape& shape) {
  return {.op = static_cast<RmwOp>(narrow(shape.op)),
          .width = narrow(shape.width),
          .order = static_cast<RmwOrder>(narrow(shape.order)),
          .result = static_cast<RmwResult>(narrow(shape.result)),
          .target = static_cast<RmwTarget>(narrow(shape.target))};
}

RmwRegisters to_cpp(const touchstone_rmw_registers& registers) {
  RmwRegisters copy{.address = registers.address};
  for (std::size_t i = 0; i < 2; ++i) {
    copy.operand[i] = registers.operand[i];
    copy.expected[i] = registers.expected[i];
    copy.result[i] = registers.result[i];
  }
  for (std::size_t i = 0; i < copy.scratch.size(); ++i) copy.scratch[i] = registers.scratch[i];
  return copy;
}

bool give(const Result<std::size_t>& emitted, std::size_t* size, touchstone_jit_error* error) {
  if (!emitted) return fail(emitted.error(), error);
  *size = *emitted;
  return true;
}

}  // namespace

bool touchstone_rmw_get_requirements(const touchstone_rmw_shape* shape,
                                     touchstone_rmw_requirements* requirements,
                                     touchstone_jit_error* error) {
  if (shape == nullptr || requirements == nullptr) return fail_null(error);
  const Result<RmwRequirements> needs = touchstone::jit::rmw_requirements(to_cpp(*shape));
  if (!needs) return fail(needs.error(), error);
  *requirements = {.expected = needs->expected,
                   .result = needs->result,
                   .pair = needs->pair,
                   .operand_even_pair = needs->operand_even_pair,
                   .result_even_pair = needs->result_even_pair,
                   .result_may_be_address = needs->result_may_be_address,
                   .result_may_be_operand = needs->result_may_be_operand,
                   .result_may_be_expected = needs->result_may_be_expected,
                   .clobbers_flags = needs->clobbers_flags,
                   .scratch_count = needs->scratch_count,
                   .scratch_even_pairs = needs->scratch_even_pairs,
                   .fixed_clobbers = needs->fixed_clobbers};
  return true;
}

bool touchstone_rmw_emit(const touchstone_rmw_shape* shape,
                         const touchstone_rmw_registers* registers, void* buffer, size_t capacity,
                         size_t* size, touchstone_jit_error* error) {
  if (shape == nullptr || registers == nullptr || buffer == nullptr || size == nullptr) {
    return fail_null(error);
  }
  return give(touchstone::jit::emit_rmw(to_cpp(*shape), to_cpp(*registers),
                                        std::span(static_cast<std::byte*>(buffer), capacity)),
              size, error);
}

bool touchstone_rmw_emit_function(const touchstone_rmw_shape* shape, void* buffer, size_t capacity,
                                  size_t* size, touchstone_jit_error* error) {
  if (shape == nullptr || buffer == nullptr || size == nullptr) return fail_null(error);
  return give(touchstone::jit::emit_rmw_function(
                  to_cpp(*shape), std::span(static_cast<std::byte*>(buffer), capacity)),
              size, error);
}
