// SPDX-License-Identifier: MIT
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

#include <touchstone/arch/machine.h>
#include <touchstone/jit/fast_paths.h>
#include <touchstone/jit/rmw_assembler.h>
#include <touchstone/jit/rmw_function.h>

#include "emission.h"

namespace touchstone::jit {
namespace {

namespace a64 = asmjit::a64;
namespace x86 = asmjit::x86;
using heap::FastPathLayout;

constexpr const char* kOperation = "emit fast path";

Error argument_error(const char* detail) noexcept {
  return {.code = ErrorCode::kInvalidArgument, .operation = kOperation, .detail = detail};
}

/// Checks the layout, and that the registers are there and apart from each other.
Result<> check(const FastPathLayout& layout, bool is_arm,
               std::initializer_list<std::uint8_t> used) noexcept {
  if (Result<> good = layout.check(); !good) return good;
  std::uint32_t seen = 0;
  for (const std::uint8_t number : used) {
    if (number > (is_arm ? 30 : 15) || (!is_arm && number == x86::Gp::kIdSp)) {
      return std::unexpected(argument_error("a register is missing or cannot be used"));
    }
    if ((seen >> number & 1U) != 0) {
      return std::unexpected(argument_error("two registers are the same"));
    }
    seen |= std::uint32_t{1} << number;
  }
  return {};
}

/// The same for the barrier of a run of slots.
Result<> check_run(const FastPathLayout& layout, bool is_arm,
                   const FastPathRegisters& registers) noexcept {
  const auto& scratch = registers.scratch;
  return is_arm ? check(layout, true,
                        {registers.mutator, registers.input, registers.length, scratch[0],
                         scratch[1], scratch[2]})
                : check(layout, false,
                        {registers.mutator, registers.input, registers.length, scratch[0],
                         scratch[1]});
}

/// The size rounded up to the object alignment.
Result<std::uint32_t> rounded_size(const FastPathLayout& layout, std::size_t size) noexcept {
  if (size == 0) return std::unexpected(argument_error("an object has no bytes"));
  if (size > layout.max_tlab_object) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfRange,
                                 .operation = kOperation,
                                 .length = size,
                                 .detail = "larger than max_tlab_object"});
  }
  const auto bytes = static_cast<std::uint32_t>(size);
  return (bytes + layout.object_alignment - 1) & ~(layout.object_alignment - 1);
}

a64::Mem at(std::uint8_t base, std::uint32_t offset) noexcept {
  return a64::ptr(a64::GpX(base), static_cast<std::int32_t>(offset));
}
x86::Mem at(std::uint8_t base, std::uint32_t offset, std::uint32_t size) noexcept {
  return {x86::gpq(base), static_cast<std::int32_t>(offset), size};
}

constexpr std::uint32_t kTopToEnd = 8;

/// The part of a reference's atomic that emit_rmw makes.
RmwShape reference_shape(RmwOp op, RmwOrder order, RmwTarget target) noexcept {
  return {.op = op, .width = 8, .order = order, .result = RmwResult::kFetch, .target = target};
}
RmwRegisters reference_registers(const ReferenceRmwRegisters& given) noexcept {
  return {.address = given.slot,
          .operand = {given.value, kNoRegister},
          .expected = {given.expected, kNoRegister},
          .result = {given.result, kNoRegister},
          .scratch = {given.scratch[0], given.scratch[1], kNoRegister, kNoRegister, kNoRegister,
                      kNoRegister}};
}
FastPathRegisters slot_registers(const ReferenceRmwRegisters& given) noexcept {
  return {.mutator = given.mutator,
          .input = given.slot,
          .scratch = {given.scratch[0], given.scratch[1], kNoRegister}};
}

}  // namespace

// ---- arm64 ----

Result<> emit_allocate(a64::Assembler& as, const FastPathLayout& layout,
                       const FastPathRegisters& registers, std::size_t size,
                       const asmjit::Label& slow) noexcept {
  if (Result<> good =
          check(layout, true,
                {registers.mutator, registers.result, registers.scratch[0], registers.scratch[1]});
      !good) {
    return good;
  }
  const Result<std::uint32_t> bytes = rounded_size(layout, size);
  if (!bytes) return std::unexpected(bytes.error());
  const a64::GpX result(registers.result);
  const a64::GpX end(registers.scratch[0]);
  const a64::GpX next(registers.scratch[1]);
  Emission emit(as);
  emit(as.ldp(result, end, at(registers.mutator, layout.tlab_top_offset)));
  // ADD takes 12 bits, at place 0 or 12. The sum cannot wrap: the top is a user address, and sizes
  // are below 16 MiB.
  const std::uint32_t low = *bytes & 0xfffU;
  const std::uint32_t high = *bytes >> 12U;
  if (high != 0) emit(as.add(next, result, high, a64::lsl(12)));
  if (low != 0) emit(as.add(next, high != 0 ? next : result, low));
  emit(as.cmp(next, end));
  emit(as.b_hi(slow));
  emit(as.str(next, at(registers.mutator, layout.tlab_top_offset)));
  return emit.finish(kOperation);
}

Result<> emit_allocate(a64::Assembler& as, const FastPathLayout& layout,
                       const FastPathRegisters& registers, const asmjit::Label& slow) noexcept {
  if (Result<> good = check(layout, true,
                            {registers.mutator, registers.input, registers.result,
                             registers.scratch[0], registers.scratch[1]});
      !good) {
    return good;
  }
  const a64::GpX size(registers.input);
  const a64::GpX result(registers.result);
  const a64::GpX end(registers.scratch[0]);
  const a64::GpX left(registers.scratch[1]);
  Emission emit(as);
  emit(as.ldp(result, end, at(registers.mutator, layout.tlab_top_offset)));
  // By what is left, as the sum of the top and any size may wrap.
  emit(as.sub(left, end, result));
  emit(as.cmp(size, left));
  emit(as.b_hi(slow));
  emit(as.add(end, result, size));
  emit(as.str(end, at(registers.mutator, layout.tlab_top_offset)));
  return emit.finish(kOperation);
}

Result<> emit_card_barrier(a64::Assembler& as, const FastPathLayout& layout,
                           const FastPathRegisters& registers, CardBarrier kind) noexcept {
  if (Result<> good =
          check(layout, true,
                {registers.mutator, registers.input, registers.scratch[0], registers.scratch[1]});
      !good) {
    return good;
  }
  const a64::GpX table(registers.scratch[0]);
  const a64::GpX card(registers.scratch[1]);
  Emission emit(as);
  emit(as.ldr(table, at(registers.mutator, layout.card_table_offset)));
  emit(as.lsr(card, a64::GpX(registers.input), layout.card_shift));
  const asmjit::Label done = as.newLabel();
  if (kind == CardBarrier::kStoreIfClean) {
    // The table's address is needed once only: the sum takes its place.
    emit(as.add(table, table, card));
    emit(as.ldrb(a64::GpW(registers.scratch[1]), a64::ptr(table)));
    emit(as.cmp(a64::GpW(registers.scratch[1]), layout.dirty_card));
    emit(as.b_eq(done));
    emit(as.mov(a64::GpW(registers.scratch[1]), layout.dirty_card));
    emit(as.strb(a64::GpW(registers.scratch[1]), a64::ptr(table)));
  } else if (layout.dirty_card == 0) {
    emit(as.strb(a64::wzr, a64::ptr(table, card)));
  } else {
    emit(as.add(table, table, card));
    emit(as.mov(a64::GpW(registers.scratch[1]), layout.dirty_card));
    emit(as.strb(a64::GpW(registers.scratch[1]), a64::ptr(table)));
  }
  emit(as.bind(done));
  return emit.finish(kOperation);
}

Result<> emit_bulk_barrier(a64::Assembler& as, const FastPathLayout& layout,
                           const FastPathRegisters& registers) noexcept {
  if (Result<> good = check_run(layout, true, registers); !good) return good;
  const a64::GpX begin(registers.input);
  const a64::GpX length(registers.length);
  const a64::GpX table(registers.scratch[0]);
  const a64::GpX last(registers.scratch[1]);
  const a64::GpW value(registers.scratch[2]);
  const asmjit::Label again = as.newLabel();
  const asmjit::Label done = as.newLabel();
  Emission emit(as);
  emit(as.cbz(length, done));
  emit(as.ldr(table, at(registers.mutator, layout.card_table_offset)));
  emit(as.add(last, begin, length));
  emit(as.sub(last, last, 1));
  emit(as.lsr(last, last, layout.card_shift));
  emit(as.add(last, table, last));
  emit(as.add(table, table, begin, a64::lsr(layout.card_shift)));
  if (layout.dirty_card != 0) emit(as.mov(value, layout.dirty_card));
  emit(as.bind(again));
  if (layout.dirty_card == 0) {
    emit(as.strb(a64::wzr, a64::ptr_post(table, 1)));
  } else {
    emit(as.strb(value, a64::ptr_post(table, 1)));
  }
  emit(as.cmp(table, last));
  emit(as.b_ls(again));
  emit(as.bind(done));
  return emit.finish(kOperation);
}

Result<> emit_initialising_barrier(a64::Assembler& as, const FastPathLayout& layout,
                                   const FastPathRegisters& registers) noexcept {
  if (Result<> good = check_run(layout, true, registers); !good) return good;
  const a64::GpX limit(registers.scratch[0]);
  const asmjit::Label done = as.newLabel();
  Emission emit(as);
  emit(as.mov(limit, layout.max_young_object));
  emit(as.cmp(a64::GpX(registers.length), limit));
  emit(as.b_ls(done));
  if (Result<> bulk = emit_bulk_barrier(as, layout, registers); !bulk) {
    emit.undo();
    return bulk;
  }
  emit(as.bind(done));
  return emit.finish(kOperation);
}

Result<> emit_reference_swap(a64::Assembler& as, const FastPathLayout& layout,
                             const ReferenceRmwRegisters& registers, RmwOrder order,
                             RmwTarget target) noexcept {
  if (Result<> good = check(layout, true,
                            {registers.mutator, registers.slot, registers.value, registers.result,
                             registers.scratch[0], registers.scratch[1]});
      !good) {
    return good;
  }
  Emission emit(as);
  Result<> done =
      emit_rmw(as, reference_shape(RmwOp::kSwap, order, target), reference_registers(registers));
  if (done) {
    done = emit_card_barrier(as, layout, slot_registers(registers), CardBarrier::kAlwaysStore);
  }
  if (!done) emit.undo();
  return done;
}

Result<> emit_reference_compare_swap(a64::Assembler& as, const FastPathLayout& layout,
                                     const ReferenceRmwRegisters& registers, RmwOrder order,
                                     RmwTarget target, const asmjit::Label& failed) noexcept {
  if (Result<> good = check(layout, true,
                            {registers.mutator, registers.slot, registers.value, registers.expected,
                             registers.result, registers.scratch[0], registers.scratch[1]});
      !good) {
    return good;
  }
  Emission emit(as);
  if (Result<> rmw = emit_rmw(as, reference_shape(RmwOp::kCompareSwap, order, target),
                              reference_registers(registers));
      !rmw) {
    emit.undo();
    return rmw;
  }
  emit(as.cmp(a64::GpX(registers.result), a64::GpX(registers.expected)));
  emit(as.b_ne(failed));
  if (Result<> barrier =
          emit_card_barrier(as, layout, slot_registers(registers), CardBarrier::kAlwaysStore);
      !barrier) {
    emit.undo();
    return barrier;
  }
  return emit.finish(kOperation);
}

Result<> emit_mark(a64::Assembler& as, const FastPathLayout& layout,
                   const FastPathRegisters& registers, RmwTarget target) noexcept {
  const auto& scratch = registers.scratch;
  if (Result<> good = check(layout, true,
                            {registers.mutator, registers.input, registers.result, scratch[0],
                             scratch[1], scratch[2]});
      !good) {
    return good;
  }
  if (!is_a64(target)) {
    return std::unexpected(argument_error("an x86-64 target in an arm64 assembler"));
  }
  const a64::GpX object(registers.input);
  const a64::GpX result(registers.result);
  const a64::GpX word(scratch[0]);
  const a64::GpX bit(scratch[1]);
  const a64::GpX old(scratch[2]);
  Emission emit(as);
  emit(as.ldr(word, at(registers.mutator, layout.mark_bitmap_offset)));
  emit(as.lsr(bit, object, layout.mark_shift + 6U));
  emit(as.add(word, word, bit, a64::lsl(3)));
  emit(as.lsr(bit, object, layout.mark_shift));
  if (target == RmwTarget::kA64Llsc) {
    const asmjit::Label again = as.newLabel();
    const asmjit::Label was_set = as.newLabel();
    const asmjit::Label done = as.newLabel();
    emit(as.mov(old, 1));
    emit(as.lsl(bit, old, bit));
    emit(as.bind(again));
    emit(as.ldaxr(old, a64::ptr(word)));
    emit(as.tst(old, bit));
    emit(as.b_ne(was_set));
    emit(as.orr(old, old, bit));
    // STLXR of 64 bits, which AsmJit refuses. Its status, 0 on success, is the result.
    emit.word(0xC800FC00U | std::uint32_t{registers.result} << 16U |
              std::uint32_t{scratch[0]} << 5U | scratch[2]);
    emit(as.cbnz(a64::GpW(registers.result), again));
    emit(as.b(done));
    emit(as.bind(was_set));
    emit(as.mov(result, 1));
    emit(as.bind(done));
    return emit.finish(kOperation);
  }
  emit(as.mov(old, 1));
  emit(as.lsl(old, old, bit));
  emit(as.ldsetal(old, result, a64::ptr(word)));
  // The shift takes the bit number modulo 64, as the one above did.
  emit(as.lsr(result, result, bit));
  emit(as.and_(result, result, 1));
  return emit.finish(kOperation);
}

Result<> emit_safepoint_poll(a64::Assembler& as, const FastPathLayout& layout,
                             const FastPathRegisters& registers,
                             const asmjit::Label& slow) noexcept {
  if (Result<> good = check(layout, true, {registers.mutator, registers.scratch[0]}); !good) {
    return good;
  }
  const a64::GpW flag(registers.scratch[0]);
  Emission emit(as);
  emit(as.ldr(flag, at(registers.mutator, layout.safepoint_flag_offset)));
  emit(as.cbnz(flag, slow));
  return emit.finish(kOperation);
}

// ---- x86-64 ----

Result<> emit_allocate(x86::Assembler& as, const FastPathLayout& layout,
                       const FastPathRegisters& registers, std::size_t size,
                       const asmjit::Label& slow) noexcept {
  if (Result<> good =
          check(layout, false, {registers.mutator, registers.result, registers.scratch[0]});
      !good) {
    return good;
  }
  const Result<std::uint32_t> bytes = rounded_size(layout, size);
  if (!bytes) return std::unexpected(bytes.error());
  const x86::Gp result = x86::gpq(registers.result);
  const x86::Gp next = x86::gpq(registers.scratch[0]);
  Emission emit(as);
  emit(as.mov(result, at(registers.mutator, layout.tlab_top_offset, 8)));
  emit(as.lea(next, x86::ptr(result, static_cast<std::int32_t>(*bytes))));
  emit(as.cmp(next, at(registers.mutator, layout.tlab_top_offset + kTopToEnd, 8)));
  emit(as.ja(slow));
  emit(as.mov(at(registers.mutator, layout.tlab_top_offset, 8), next));
  return emit.finish(kOperation);
}

Result<> emit_allocate(x86::Assembler& as, const FastPathLayout& layout,
                       const FastPathRegisters& registers, const asmjit::Label& slow) noexcept {
  if (Result<> good =
          check(layout, false,
                {registers.mutator, registers.input, registers.result, registers.scratch[0]});
      !good) {
    return good;
  }
  const x86::Gp size = x86::gpq(registers.input);
  const x86::Gp result = x86::gpq(registers.result);
  const x86::Gp left = x86::gpq(registers.scratch[0]);
  Emission emit(as);
  emit(as.mov(result, at(registers.mutator, layout.tlab_top_offset, 8)));
  emit(as.mov(left, at(registers.mutator, layout.tlab_top_offset + kTopToEnd, 8)));
  emit(as.sub(left, result));
  emit(as.cmp(size, left));
  emit(as.ja(slow));
  emit(as.lea(left, x86::ptr(result, size)));
  emit(as.mov(at(registers.mutator, layout.tlab_top_offset, 8), left));
  return emit.finish(kOperation);
}

Result<> emit_card_barrier(x86::Assembler& as, const FastPathLayout& layout,
                           const FastPathRegisters& registers, CardBarrier kind) noexcept {
  if (Result<> good =
          check(layout, false,
                {registers.mutator, registers.input, registers.scratch[0], registers.scratch[1]});
      !good) {
    return good;
  }
  const x86::Gp table = x86::gpq(registers.scratch[0]);
  const x86::Gp card = x86::gpq(registers.scratch[1]);
  const x86::Mem place = x86::byte_ptr(table, card);
  Emission emit(as);
  emit(as.mov(table, at(registers.mutator, layout.card_table_offset, 8)));
  emit(as.mov(card, x86::gpq(registers.input)));
  emit(as.shr(card, layout.card_shift));
  const asmjit::Label done = as.newLabel();
  if (kind == CardBarrier::kStoreIfClean) {
    emit(as.cmp(place, static_cast<std::int8_t>(layout.dirty_card)));
    emit(as.je(done));
  }
  emit(as.mov(place, static_cast<std::int8_t>(layout.dirty_card)));
  emit(as.bind(done));
  return emit.finish(kOperation);
}

Result<> emit_bulk_barrier(x86::Assembler& as, const FastPathLayout& layout,
                           const FastPathRegisters& registers) noexcept {
  if (Result<> good = check_run(layout, false, registers); !good) return good;
  const x86::Gp begin = x86::gpq(registers.input);
  const x86::Gp length = x86::gpq(registers.length);
  const x86::Gp card = x86::gpq(registers.scratch[0]);
  const x86::Gp last = x86::gpq(registers.scratch[1]);
  const x86::Mem table = at(registers.mutator, layout.card_table_offset, 8);
  const asmjit::Label again = as.newLabel();
  const asmjit::Label done = as.newLabel();
  Emission emit(as);
  emit(as.test(length, length));
  emit(as.jz(done));
  emit(as.lea(last, x86::ptr(begin, length, 0, -1)));
  emit(as.shr(last, layout.card_shift));
  emit(as.add(last, table));
  emit(as.mov(card, begin));
  emit(as.shr(card, layout.card_shift));
  emit(as.add(card, table));
  emit(as.bind(again));
  emit(as.mov(x86::byte_ptr(card), static_cast<std::int8_t>(layout.dirty_card)));
  emit(as.inc(card));
  emit(as.cmp(card, last));
  emit(as.jbe(again));
  emit(as.bind(done));
  return emit.finish(kOperation);
}

Result<> emit_initialising_barrier(x86::Assembler& as, const FastPathLayout& layout,
                                   const FastPathRegisters& registers) noexcept {
  if (Result<> good = check_run(layout, false, registers); !good) return good;
  const asmjit::Label done = as.newLabel();
  Emission emit(as);
  emit(as.cmp(x86::gpq(registers.length), layout.max_young_object));
  emit(as.jbe(done));
  if (Result<> bulk = emit_bulk_barrier(as, layout, registers); !bulk) {
    emit.undo();
    return bulk;
  }
  emit(as.bind(done));
  return emit.finish(kOperation);
}

Result<> emit_reference_swap(x86::Assembler& as, const FastPathLayout& layout,
                             const ReferenceRmwRegisters& registers) noexcept {
  if (Result<> good = check(layout, false,
                            {registers.mutator, registers.slot, registers.value, registers.result,
                             registers.scratch[0], registers.scratch[1]});
      !good) {
    return good;
  }
  Emission emit(as);
  Result<> done = emit_rmw(as, reference_shape(RmwOp::kSwap, RmwOrder::kSeqCst, RmwTarget::kX86_64),
                           reference_registers(registers));
  if (done) {
    done = emit_card_barrier(as, layout, slot_registers(registers), CardBarrier::kAlwaysStore);
  }
  if (!done) emit.undo();
  return done;
}

Result<> emit_reference_compare_swap(x86::Assembler& as, const FastPathLayout& layout,
                                     const ReferenceRmwRegisters& registers,
                                     const asmjit::Label& failed) noexcept {
  // `expected` and `result` may both be RAX, which nothing else may.
  const bool both = registers.expected == x86::Gp::kIdAx && registers.result == x86::Gp::kIdAx;
  const Result<> good =
      both ? check(layout, false,
                   {registers.mutator, registers.slot, registers.value, x86::Gp::kIdAx,
                    registers.scratch[0], registers.scratch[1]})
           : check(layout, false,
                   {registers.mutator, registers.slot, registers.value, registers.expected,
                    registers.result, registers.scratch[0], registers.scratch[1]});
  if (!good) return good;
  for (const std::uint8_t other : {registers.mutator, registers.slot, registers.value,
                                   registers.scratch[0], registers.scratch[1]}) {
    if (other == x86::Gp::kIdAx) return std::unexpected(argument_error("RAX is CMPXCHG's own"));
  }
  Emission emit(as);
  if (Result<> rmw =
          emit_rmw(as, reference_shape(RmwOp::kCompareSwap, RmwOrder::kSeqCst, RmwTarget::kX86_64),
                   reference_registers(registers));
      !rmw) {
    emit.undo();
    return rmw;
  }
  // By CMPXCHG's own flag, which moves leave alone: `expected` may be gone.
  emit(as.jne(failed));
  if (Result<> barrier =
          emit_card_barrier(as, layout, slot_registers(registers), CardBarrier::kAlwaysStore);
      !barrier) {
    emit.undo();
    return barrier;
  }
  return emit.finish(kOperation);
}

Result<> emit_mark(x86::Assembler& as, const FastPathLayout& layout,
                   const FastPathRegisters& registers) noexcept {
  if (Result<> good = check(layout, false,
                            {registers.mutator, registers.input, registers.result,
                             registers.scratch[0], registers.scratch[1]});
      !good) {
    return good;
  }
  const x86::Gp object = x86::gpq(registers.input);
  const x86::Gp word = x86::gpq(registers.scratch[0]);
  const x86::Gp bit = x86::gpq(registers.scratch[1]);
  Emission emit(as);
  emit(as.mov(bit, object));
  emit(as.shr(bit, layout.mark_shift + 6U));
  emit(as.mov(word, at(registers.mutator, layout.mark_bitmap_offset, 8)));
  emit(as.lea(word, x86::ptr(word, bit, 3)));
  emit(as.mov(bit, object));
  emit(as.shr(bit, layout.mark_shift));
  // With a memory operand BTS takes the bit number as it is, not modulo 64.
  emit(as.and_(x86::gpd(registers.scratch[1]), 63));
  emit(as.lock().bts(x86::qword_ptr(word), bit));
  emit(as.setc(x86::gpb_lo(registers.result)));
  emit(as.movzx(x86::gpd(registers.result), x86::gpb_lo(registers.result)));
  return emit.finish(kOperation);
}

Result<> emit_safepoint_poll(x86::Assembler& as, const FastPathLayout& layout,
                             const FastPathRegisters& registers,
                             const asmjit::Label& slow) noexcept {
  if (Result<> good = check(layout, false, {registers.mutator}); !good) return good;
  Emission emit(as);
  emit(as.cmp(at(registers.mutator, layout.safepoint_flag_offset, 4), 0));
  emit(as.jne(slow));
  return emit.finish(kOperation);
}

// ---- Functions ----

namespace {

Result<> emit_function(a64::Assembler& as, FastPath path, const FastPathLayout& layout,
                       const SlowPaths& slow, RmwTarget target) noexcept {
  // (mutator, argument) in X0 and X1; the result in X0 at the end.
  const FastPathRegisters registers{.mutator = 0, .input = 1, .result = 2, .scratch = {3, 4, 5}};
  const asmjit::Label away = as.newLabel();
  Emission emit(as);
  emit.word(0xD503245F);  // BTI c
  Result<> body;
  std::uint64_t slow_address = 0;
  switch (path) {
    case FastPath::kAllocate:
      body = emit_allocate(as, layout, registers, away);
      emit(as.mov(a64::x0, a64::x2));
      slow_address = std::bit_cast<std::uint64_t>(slow.allocate);
      break;
    case FastPath::kCardBarrier:
      body = emit_card_barrier(as, layout, registers, CardBarrier::kAlwaysStore);
      break;
    case FastPath::kMark:
      body = emit_mark(as, layout, registers, target);
      emit(as.mov(a64::x0, a64::x2));
      break;
    case FastPath::kSafepointPoll:
      body = emit_safepoint_poll(as, layout, registers, away);
      slow_address = std::bit_cast<std::uint64_t>(slow.safepoint);
      break;
    case FastPath::kBulkBarrier:
      body = emit_bulk_barrier(as, layout,
                               {.mutator = 0, .input = 1, .length = 2, .scratch = {3, 4, 5}});
      break;
    case FastPath::kReferenceSwap:
      body = emit_reference_swap(
          as, layout, {.mutator = 0, .slot = 1, .value = 2, .result = 3, .scratch = {4, 5}},
          RmwOrder::kAcqRel, target);
      emit(as.mov(a64::x0, a64::x3));
      break;
    case FastPath::kReferenceCompareSwap:
      body = emit_reference_compare_swap(
          as, layout,
          {.mutator = 0, .slot = 1, .value = 3, .expected = 2, .result = 4, .scratch = {5, 6}},
          RmwOrder::kAcqRel, target, away);
      emit(as.mov(a64::x0, 1));
      emit(as.ret(a64::x30));
      emit(as.bind(away));
      emit(as.mov(a64::x0, 0));
      break;
  }
  emit(as.ret(a64::x30));
  if (slow_address != 0) {
    // The arguments are where they were: a tail call, by a register that BTI c allows.
    emit(as.bind(away));
    emit(as.mov(a64::x16, slow_address));
    emit(as.br(a64::x16));
  }
  return body ? emit.finish(kOperation) : body;
}

Result<> emit_function(x86::Assembler& as, FastPath path, const FastPathLayout& layout,
                       const SlowPaths& slow, RmwTarget /*target*/) noexcept {
  // (mutator, argument) in RDI and RSI.
  const FastPathRegisters registers{.mutator = x86::Gp::kIdDi,
                                    .input = x86::Gp::kIdSi,
                                    .result = x86::Gp::kIdAx,
                                    .scratch = {x86::Gp::kIdCx, x86::Gp::kIdDx, kNoRegister}};
  const asmjit::Label away = as.newLabel();
  Emission emit(as);
  Result<> body;
  std::uint64_t slow_address = 0;
  switch (path) {
    case FastPath::kAllocate:
      body = emit_allocate(as, layout, registers, away);
      slow_address = std::bit_cast<std::uint64_t>(slow.allocate);
      break;
    case FastPath::kCardBarrier:
      body = emit_card_barrier(as, layout, registers, CardBarrier::kAlwaysStore);
      break;
    case FastPath::kMark:
      body = emit_mark(as, layout, registers);
      break;
    case FastPath::kSafepointPoll:
      body = emit_safepoint_poll(as, layout, registers, away);
      slow_address = std::bit_cast<std::uint64_t>(slow.safepoint);
      break;
    case FastPath::kBulkBarrier:
      body = emit_bulk_barrier(as, layout,
                               {.mutator = x86::Gp::kIdDi,
                                .input = x86::Gp::kIdSi,
                                .length = x86::Gp::kIdDx,
                                .scratch = {x86::Gp::kIdCx, x86::Gp::kIdAx, kNoRegister}});
      break;
    case FastPath::kReferenceSwap:
      body = emit_reference_swap(as, layout,
                                 {.mutator = x86::Gp::kIdDi,
                                  .slot = x86::Gp::kIdSi,
                                  .value = x86::Gp::kIdDx,
                                  .result = x86::Gp::kIdAx,
                                  .scratch = {x86::Gp::kIdCx, x86::Gp::kIdR8}});
      break;
    case FastPath::kReferenceCompareSwap:
      body = emit_reference_compare_swap(as, layout,
                                         {.mutator = x86::Gp::kIdDi,
                                          .slot = x86::Gp::kIdSi,
                                          .value = x86::Gp::kIdCx,
                                          .expected = x86::Gp::kIdDx,
                                          .result = x86::Gp::kIdAx,
                                          .scratch = {x86::Gp::kIdR8, x86::Gp::kIdR9}},
                                         away);
      emit(as.mov(x86::eax, 1));
      emit(as.ret());
      emit(as.bind(away));
      emit(as.xor_(x86::eax, x86::eax));
      break;
  }
  emit(as.ret());
  if (slow_address != 0) {
    emit(as.bind(away));
    emit(as.mov(x86::rax, slow_address));
    emit(as.jmp(x86::rax));
  }
  return body ? emit.finish(kOperation) : body;
}

constexpr std::array<const char*, kFastPathCount> kNames{"touchstone allocate",
                                                         "touchstone card barrier",
                                                         "touchstone mark",
                                                         "touchstone safepoint poll",
                                                         "touchstone bulk barrier",
                                                         "touchstone reference swap",
                                                         "touchstone reference compare-and-swap"};

}  // namespace

Result<std::size_t> emit_fast_path_function(FastPath path, const FastPathLayout& layout,
                                            const SlowPaths& slow, RmwTarget target,
                                            std::span<std::byte> buffer) noexcept {
  if (static_cast<std::size_t>(path) >= kNames.size() ||
      static_cast<std::size_t>(target) >= kRmwTargetCount) {
    return std::unexpected(argument_error("the function or the target is unknown"));
  }
  if ((path == FastPath::kAllocate && slow.allocate == nullptr) ||
      (path == FastPath::kSafepointPoll && slow.safepoint == nullptr)) {
    return std::unexpected(argument_error("the slow path is null"));
  }
  const auto emit = [&](auto& assembler) {
    return emit_function(assembler, path, layout, slow, target);
  };
  return is_a64(target) ? emit_to_buffer<a64::Assembler>(kOperation, buffer, emit)
                        : emit_to_buffer<x86::Assembler>(kOperation, buffer, emit);
}

Result<FastPaths> FastPaths::create(CodeCache& cache, const FastPathLayout& layout,
                                    const SlowPaths& slow) {
  const RmwTarget target = best_rmw_target(host_features());
  FastPaths paths(cache);
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    std::array<std::byte, kMaxFastPathSize> code{};
    const Result<std::size_t> size =
        emit_fast_path_function(static_cast<FastPath>(i), layout, slow, target, code);
    if (!size) return std::unexpected(size.error());
    const Result<const void*> entry = cache.add(std::span(code).first(*size), kNames[i]);
    if (!entry) return std::unexpected(entry.error());
    paths.entries_[i] = *entry;
  }
  return paths;
}

FastPaths::FastPaths(FastPaths&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), entries_(other.entries_) {}

FastPaths::~FastPaths() {
  if (cache_ == nullptr) return;
  for (const void* entry : entries_) {
    // Fails in a forked child alone, whose cache is frozen: then the code stays.
    if (entry != nullptr) static_cast<void>(cache_->release(entry));
  }
}

FastPaths::Allocate FastPaths::allocate() const noexcept {
  return std::bit_cast<Allocate>(entries_[0]);
}
FastPaths::Barrier FastPaths::card_barrier() const noexcept {
  return std::bit_cast<Barrier>(entries_[1]);
}
FastPaths::Mark FastPaths::mark() const noexcept {
  return std::bit_cast<Mark>(entries_[2]);
}
FastPaths::Poll FastPaths::safepoint_poll() const noexcept {
  return std::bit_cast<Poll>(entries_[3]);
}
FastPaths::BulkBarrier FastPaths::bulk_barrier() const noexcept {
  return std::bit_cast<BulkBarrier>(entries_[4]);
}
FastPaths::Swap FastPaths::reference_swap() const noexcept {
  return std::bit_cast<Swap>(entries_[5]);
}
FastPaths::CompareSwap FastPaths::reference_compare_swap() const noexcept {
  return std::bit_cast<CompareSwap>(entries_[6]);
}

}  // namespace touchstone::jit
