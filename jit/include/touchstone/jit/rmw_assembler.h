// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_RMW_ASSEMBLER_H_
#define TOUCHSTONE_JIT_RMW_ASSEMBLER_H_

#include <asmjit/arm/a64assembler.h>
#include <asmjit/core.h>
#include <asmjit/x86.h>

#include <touchstone/arch/error.h>
#include <touchstone/jit/rmw.h>

namespace touchstone::jit {

/// Emits one read-modify-write at the assembler's position, for a runtime's own code generator.
/// `registers` and what is spoilt: see rmw_requirements. On error the position is where it was.
/// Errors: as check_rmw_registers; kInvalidArgument where the target is not of this instruction
/// set; kOutOfMemory. Not thread-safe on one assembler.
[[nodiscard]] Result<> emit_rmw(asmjit::a64::Assembler& assembler, const RmwShape& shape,
                                const RmwRegisters& registers) noexcept;
[[nodiscard]] Result<> emit_rmw(asmjit::x86::Assembler& assembler, const RmwShape& shape,
                                const RmwRegisters& registers) noexcept;

/// Emits a whole function, as the form of rmw.h that takes a buffer does.
[[nodiscard]] Result<> emit_rmw_function(asmjit::a64::Assembler& assembler,
                                         const RmwShape& shape) noexcept;
[[nodiscard]] Result<> emit_rmw_function(asmjit::x86::Assembler& assembler,
                                         const RmwShape& shape) noexcept;

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_RMW_ASSEMBLER_H_
