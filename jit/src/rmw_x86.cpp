// SPDX-License-Identifier: MIT
// Read-modify-writes for x86-64.
#include <array>
#include <cstddef>
#include <cstdint>

#include <asmjit/core.h>
#include <asmjit/x86.h>

#include <touchstone/jit/rmw.h>
#include <touchstone/jit/rmw_assembler.h>

#include "emission.h"

namespace touchstone::jit {
namespace {

using asmjit::x86::Assembler;
using asmjit::x86::Gp;
using asmjit::x86::Mem;

constexpr std::uint8_t kRax = Gp::kIdAx;
constexpr std::uint8_t kRcx = Gp::kIdCx;
constexpr std::uint8_t kRdx = Gp::kIdDx;
constexpr std::uint8_t kRbx = Gp::kIdBx;

class X86Rmw {
 public:
  X86Rmw(Assembler& assembler, const RmwShape& shape, const RmwRegisters& registers) noexcept
      : as_(assembler), emit_(assembler), shape_(shape), registers_(registers) {}

  [[nodiscard]] Result<> run() noexcept {
    if (shape_.width == 16) {
      pair();
    } else {
      switch (shape_.op) {
        case RmwOp::kAdd:
          add();
          break;
        case RmwOp::kSwap:
          swap();
          break;
        case RmwOp::kCompareSwap:
          compare_swap();
          break;
        case RmwOp::kClear:
        case RmwOp::kSet:
        case RmwOp::kEor:
          if (fetches()) {
            loop();
          } else {
            logic_in_place();
          }
          break;
        default:
          loop();
          break;
      }
    }
    return emit_.finish("emit_rmw");
  }

 private:
  [[nodiscard]] bool fetches() const { return shape_.result == RmwResult::kFetch; }
  [[nodiscard]] bool sub_word() const { return shape_.width < 4; }

  /// The register at the access's own width.
  [[nodiscard]] Gp exact(std::uint8_t number) const {
    switch (shape_.width) {
      case 1:
        return asmjit::x86::gpb_lo(number);
      case 2:
        return asmjit::x86::gpw(number);
      case 4:
        return asmjit::x86::gpd(number);
      default:
        return asmjit::x86::gpq(number);
    }
  }
  /// The register at 4 or 8 bytes: narrower writes would depend on what it held.
  [[nodiscard]] Gp whole(std::uint8_t number) const {
    if (shape_.width <= 4) return asmjit::x86::gpd(number);
    return asmjit::x86::gpq(number);
  }
  [[nodiscard]] Mem memory(std::int32_t offset = 0) const {
    const Gp base = asmjit::x86::gpq(registers_.address);
    switch (shape_.width) {
      case 1:
        return asmjit::x86::byte_ptr(base, offset);
      case 2:
        return asmjit::x86::word_ptr(base, offset);
      case 4:
        return asmjit::x86::dword_ptr(base, offset);
      default:
        return asmjit::x86::qword_ptr(base, offset);
    }
  }

  void move(std::uint8_t to, std::uint8_t from) {
    if (to != from) emit_(as_.mov(whole(to), whole(from)));
  }
  void zero_extend(std::uint8_t to, std::uint8_t from) {
    emit_(as_.movzx(asmjit::x86::gpd(to), exact(from)));
  }

  void add() {
    if (!fetches()) {
      emit_(as_.lock().add(memory(), exact(registers_.operand[0])));
      return;
    }
    const std::uint8_t result = registers_.result[0];
    move(result, registers_.operand[0]);
    emit_(as_.lock().xadd(memory(), exact(result)));
    if (sub_word()) zero_extend(result, result);
  }

  void swap() {
    const std::uint8_t result = fetches() ? registers_.result[0] : registers_.scratch[0];
    move(result, registers_.operand[0]);
    emit_(as_.xchg(memory(), exact(result)));  // locks by itself
    if (sub_word() && fetches()) zero_extend(result, result);
  }

  void compare_swap() {
    move(kRax, registers_.expected[0]);
    emit_(as_.lock().cmpxchg(memory(), exact(registers_.operand[0]), exact(kRax)));
    if (!fetches()) return;
    const std::uint8_t result = registers_.result[0];
    if (sub_word()) {
      zero_extend(result, kRax);
    } else if (shape_.width == 4) {
      // On success EAX is not written, so what was above it in the caller's RAX is still there.
      emit_(as_.mov(whole(result), whole(kRax)));
    } else {
      move(result, kRax);
    }
  }

  void logic_in_place() {
    const std::uint8_t operand = registers_.operand[0];
    switch (shape_.op) {
      case RmwOp::kClear:
        move(registers_.scratch[0], operand);
        emit_(as_.not_(whole(registers_.scratch[0])));
        emit_(as_.lock().and_(memory(), exact(registers_.scratch[0])));
        break;
      case RmwOp::kSet:
        emit_(as_.lock().or_(memory(), exact(operand)));
        break;
      default:
        emit_(as_.lock().xor_(memory(), exact(operand)));
        break;
    }
  }

  /// What x86 has no instruction for: compute, then CMPXCHG until nobody came between.
  void loop() {
    const std::uint8_t value = registers_.scratch[0];
    std::uint8_t operand = registers_.operand[0];
    if (shape_.op == RmwOp::kClear) {
      operand = registers_.scratch[1];
      move(operand, registers_.operand[0]);
      emit_(as_.not_(whole(operand)));
    }
    if (sub_word()) {
      emit_(as_.movzx(asmjit::x86::eax, memory()));
    } else {
      emit_(as_.mov(whole(kRax), memory()));
    }
    const asmjit::Label again = as_.newLabel();
    emit_(as_.bind(again));
    compute(value, operand);
    emit_(as_.lock().cmpxchg(memory(), exact(value), exact(kRax)));
    emit_(as_.jne(again));
    // RAX was loaded zero-extended, and CMPXCHG writes no more than the width of it.
    if (fetches()) move(registers_.result[0], kRax);
  }

  void compute(std::uint8_t value, std::uint8_t operand) {
    switch (shape_.op) {
      case RmwOp::kClear:
        move(value, kRax);
        emit_(as_.and_(whole(value), whole(operand)));
        return;
      case RmwOp::kSet:
        move(value, kRax);
        emit_(as_.or_(whole(value), whole(operand)));
        return;
      case RmwOp::kEor:
        move(value, kRax);
        emit_(as_.xor_(whole(value), whole(operand)));
        return;
      default:
        break;
    }
    move(value, operand);
    emit_(as_.cmp(exact(kRax), exact(operand)));
    switch (shape_.op) {
      case RmwOp::kSmax:
        emit_(as_.cmovg(whole(value), whole(kRax)));
        break;
      case RmwOp::kSmin:
        emit_(as_.cmovl(whole(value), whole(kRax)));
        break;
      case RmwOp::kUmax:
        emit_(as_.cmova(whole(value), whole(kRax)));
        break;
      default:
        emit_(as_.cmovb(whole(value), whole(kRax)));
        break;
    }
  }

  void exchange_pair() {
    using asmjit::x86::rax;
    using asmjit::x86::rbx;
    using asmjit::x86::rcx;
    using asmjit::x86::rdx;
    const Mem whole_pair = asmjit::x86::xmmword_ptr(asmjit::x86::gpq(registers_.address));
    emit_(as_.lock().cmpxchg16b(whole_pair, rdx, rax, rcx, rbx));
  }

  /// 16 bytes, by CMPXCHG16B: memory is compared with RDX:RAX and replaced by RCX:RBX.
  void pair() {
    const std::uint8_t low = registers_.operand[0];
    const std::uint8_t high = registers_.operand[1];
    if (shape_.op == RmwOp::kCompareSwap) {
      move(kRax, registers_.expected[0]);
      move(kRdx, registers_.expected[1]);
      move(kRbx, low);
      move(kRcx, high);
      exchange_pair();
    } else {
      if (shape_.op == RmwOp::kSwap) {
        move(kRbx, low);
        move(kRcx, high);
      }
      // These two loads may tear; the comparison then fails and reads the pair whole.
      emit_(as_.mov(asmjit::x86::rax, memory(0)));
      emit_(as_.mov(asmjit::x86::rdx, memory(8)));
      const asmjit::Label again = as_.newLabel();
      emit_(as_.bind(again));
      if (shape_.op != RmwOp::kSwap) compute_pair(low, high);
      exchange_pair();
      emit_(as_.jne(again));
    }
    if (fetches()) {
      move(registers_.result[0], kRax);
      move(registers_.result[1], kRdx);
    }
  }

  void compute_pair(std::uint8_t operand_low, std::uint8_t operand_high) {
    using asmjit::x86::rax;
    using asmjit::x86::rbx;
    using asmjit::x86::rcx;
    using asmjit::x86::rdx;
    const Gp low = asmjit::x86::gpq(operand_low);
    const Gp high = asmjit::x86::gpq(operand_high);
    switch (shape_.op) {
      case RmwOp::kAdd:
        emit_(as_.mov(rbx, rax));
        emit_(as_.mov(rcx, rdx));
        emit_(as_.add(rbx, low));
        emit_(as_.adc(rcx, high));
        return;
      case RmwOp::kClear:
        emit_(as_.mov(rbx, low));
        emit_(as_.mov(rcx, high));
        emit_(as_.not_(rbx));
        emit_(as_.not_(rcx));
        emit_(as_.and_(rbx, rax));
        emit_(as_.and_(rcx, rdx));
        return;
      case RmwOp::kSet:
        emit_(as_.mov(rbx, rax));
        emit_(as_.mov(rcx, rdx));
        emit_(as_.or_(rbx, low));
        emit_(as_.or_(rcx, high));
        return;
      case RmwOp::kEor:
        emit_(as_.mov(rbx, rax));
        emit_(as_.mov(rcx, rdx));
        emit_(as_.xor_(rbx, low));
        emit_(as_.xor_(rcx, high));
        return;
      default:
        break;
    }
    // Flags of memory - operand over 128 bits; RCX takes the difference and is then overwritten.
    emit_(as_.mov(rbx, low));
    emit_(as_.mov(rcx, rdx));
    emit_(as_.cmp(rax, low));
    emit_(as_.sbb(rcx, high));
    emit_(as_.mov(rcx, high));  // a move leaves the flags alone
    switch (shape_.op) {
      case RmwOp::kSmax:
        emit_(as_.cmovge(rbx, rax));
        emit_(as_.cmovge(rcx, rdx));
        break;
      case RmwOp::kSmin:
        emit_(as_.cmovl(rbx, rax));
        emit_(as_.cmovl(rcx, rdx));
        break;
      case RmwOp::kUmax:
        emit_(as_.cmovae(rbx, rax));
        emit_(as_.cmovae(rcx, rdx));
        break;
      default:
        emit_(as_.cmovb(rbx, rax));
        emit_(as_.cmovb(rcx, rdx));
        break;
    }
  }

  Assembler& as_;
  Emission<Assembler> emit_;
  const RmwShape& shape_;
  const RmwRegisters& registers_;
};

}  // namespace

Result<> emit_rmw(Assembler& assembler, const RmwShape& shape,
                  const RmwRegisters& registers) noexcept {
  if (Result<> checked = check_rmw_registers(shape, registers); !checked) return checked;
  if (is_a64(shape.target)) {
    return std::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                                 .operation = "emit_rmw",
                                 .detail = "an arm64 target in an x86-64 assembler"});
  }
  return X86Rmw(assembler, shape, registers).run();
}

Result<> emit_rmw_function(Assembler& assembler, const RmwShape& shape) noexcept {
  using namespace asmjit::x86;
  const Result<RmwRequirements> needs = rmw_requirements(shape);
  if (!needs) return std::unexpected(needs.error());
  Emission emit(assembler);
  RmwRegisters registers{.address = Gp::kIdDi,
                         .operand = {Gp::kIdSi, kNoRegister},
                         .expected = {Gp::kIdDx, kNoRegister},
                         .result = {Gp::kIdAx, kNoRegister},
                         .scratch = {8, 9, kNoRegister, kNoRegister, kNoRegister, kNoRegister}};
  if (needs->pair) {
    // (address, operand low, high, expected low, high) in RDI, RSI, RDX, RCX, R8; RDX and RCX are
    // the instruction's own, and RBX is the caller's.
    emit(assembler.mov(r9, rdx));
    registers.operand = {Gp::kIdSi, 9};
    registers.result = {kRax, kRdx};
    if (needs->expected) {
      emit(assembler.mov(r10, rcx));
      registers.expected = {10, 8};
    }
    emit(assembler.push(rbx));
  }
  if (Result<> prologue = emit.finish("emit_rmw_function"); !prologue) return prologue;
  if (Result<> body = emit_rmw(assembler, shape, registers); !body) {
    emit.undo();
    return body;
  }
  if (!needs->result) {
    emit(assembler.xor_(eax, eax));
    if (needs->pair) emit(assembler.xor_(edx, edx));
  }
  if (needs->pair) emit(assembler.pop(rbx));
  emit(assembler.ret());
  return emit.finish("emit_rmw_function");
}

}  // namespace touchstone::jit
