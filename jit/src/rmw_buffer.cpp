// SPDX-License-Identifier: MIT
#include <cstddef>
#include <span>

#include <touchstone/jit/rmw.h>
#include <touchstone/jit/rmw_assembler.h>

#include "emission.h"

namespace touchstone::jit {

Result<std::size_t> emit_rmw(const RmwShape& shape, const RmwRegisters& registers,
                             std::span<std::byte> buffer) noexcept {
  const auto emit = [&](auto& assembler) { return emit_rmw(assembler, shape, registers); };
  if (is_a64(shape.target)) {
    return emit_to_buffer<asmjit::a64::Assembler>("emit_rmw", buffer, emit);
  }
  return emit_to_buffer<asmjit::x86::Assembler>("emit_rmw", buffer, emit);
}

Result<std::size_t> emit_rmw_function(const RmwShape& shape, std::span<std::byte> buffer) noexcept {
  const auto emit = [&](auto& assembler) { return emit_rmw_function(assembler, shape); };
  if (is_a64(shape.target)) {
    return emit_to_buffer<asmjit::a64::Assembler>("emit_rmw_function", buffer, emit);
  }
  return emit_to_buffer<asmjit::x86::Assembler>("emit_rmw_function", buffer, emit);
}

}  // namespace touchstone::jit
