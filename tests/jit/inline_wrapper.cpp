// SPDX-License-Identifier: MIT
#include "inline_wrapper.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <asmjit/arm/a64assembler.h>
#include <asmjit/core.h>
#include <asmjit/x86.h>

#include <touchstone/jit/rmw_assembler.h>

namespace touchstone::jit {
namespace {

std::array<std::uint8_t, 7> all_of(const RmwRegisters& r) {
  return {r.address,     r.operand[0], r.operand[1], r.expected[0],
          r.expected[1], r.result[0],  r.result[1]};
}
static_assert(offsetof(InlineFrame, out) == 40 && offsetof(InlineFrame, result) == 80);

Result<> wrap(asmjit::a64::Assembler& as, const RmwShape& shape, const RmwRegisters& registers) {
  using namespace asmjit::a64;
  const auto given = all_of(registers);
  as.embedUInt32(0xd503245f);  // BTI c: the cache's pages are guarded where the CPU can
  // X19 holds the frame: no shape is tested with it.
  for (std::uint32_t i = 19; i < 29; i += 2) as.stp(GpX(i), GpX(i + 1), ptr_pre(sp, -16));
  as.stp(x29, x30, ptr_pre(sp, -16));
  as.mov(x19, x0);
  for (std::int32_t i = 0; i < 5; ++i) {
    const std::uint8_t number = given[static_cast<std::size_t>(i)];
    if (number != kNoRegister) as.ldr(GpX(number), ptr(x19, 8 * i));
  }
  if (Result<> body = emit_rmw(as, shape, registers); !body) return body;
  for (std::int32_t i = 0; i < 7; ++i) {
    const std::uint8_t number = given[static_cast<std::size_t>(i)];
    if (number != kNoRegister) as.str(GpX(number), ptr(x19, 40 + 8 * i));
  }
  as.ldp(x29, x30, ptr_post(sp, 16));
  for (std::uint32_t i = 27; i >= 19; i -= 2) as.ldp(GpX(i), GpX(i + 1), ptr_post(sp, 16));
  as.ret(x30);
  return {};
}

Result<> wrap(asmjit::x86::Assembler& as, const RmwShape& shape, const RmwRegisters& registers) {
  using namespace asmjit::x86;
  const auto given = all_of(registers);
  for (const Gp& saved : {Gp(rbx), Gp(rbp), Gp(r12), Gp(r13), Gp(r14), Gp(r15), Gp(rdi)}) {
    as.push(saved);
  }
  // Through RSP, since any register may be one that is being loaded.
  for (std::size_t i = 0; i < 5; ++i) {
    if (given[i] != kNoRegister) as.push(qword_ptr(rdi, static_cast<std::int32_t>(8 * i)));
  }
  for (std::size_t i = 5; i-- > 0;) {
    if (given[i] != kNoRegister) as.pop(gpq(given[i]));
  }
  if (Result<> body = emit_rmw(as, shape, registers); !body) return body;
  std::int32_t pushed = 0;
  for (std::size_t i = 0; i < 7; ++i) {
    if (given[i] == kNoRegister) continue;
    as.push(gpq(given[i]));
    pushed += 8;
  }
  as.mov(rax, qword_ptr(rsp, pushed));
  for (std::size_t i = 7; i-- > 0;) {
    if (given[i] != kNoRegister) as.pop(qword_ptr(rax, static_cast<std::int32_t>(40 + 8 * i)));
  }
  for (const Gp& saved : {Gp(rdi), Gp(r15), Gp(r14), Gp(r13), Gp(r12), Gp(rbp), Gp(rbx)}) {
    as.pop(saved);
  }
  as.ret();
  return {};
}

template <typename Assembler>
Result<std::vector<std::byte>> make(asmjit::Arch arch, const RmwShape& shape,
                                    const RmwRegisters& registers) {
  asmjit::CodeHolder code;
  code.init(asmjit::Environment(arch));
  Assembler assembler(&code);
  if (Result<> wrapped = wrap(assembler, shape, registers); !wrapped) {
    return std::unexpected(wrapped.error());
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(code.textSection()->data());
  return std::vector<std::byte>(bytes, bytes + code.textSection()->bufferSize());
}

}  // namespace

Result<std::vector<std::byte>> wrap_inline(const RmwShape& shape, const RmwRegisters& registers) {
  return is_a64(shape.target)
             ? make<asmjit::a64::Assembler>(asmjit::Arch::kAArch64, shape, registers)
             : make<asmjit::x86::Assembler>(asmjit::Arch::kX64, shape, registers);
}

}  // namespace touchstone::jit
