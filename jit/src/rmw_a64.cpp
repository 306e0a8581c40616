// SPDX-License-Identifier: MIT
// Read-modify-writes for arm64: LSE, LSE128, and load-exclusive loops.
#include <array>
#include <cstddef>
#include <cstdint>

#include <asmjit/arm/a64assembler.h>
#include <asmjit/core.h>

#include <touchstone/jit/rmw.h>
#include <touchstone/jit/rmw_assembler.h>

#include "emission.h"

namespace touchstone::jit {
namespace {

using asmjit::InstId;
using asmjit::a64::Assembler;
using asmjit::a64::CondCode;
using asmjit::a64::Gp;
using asmjit::a64::GpW;
using asmjit::a64::GpX;
using asmjit::a64::Inst;
using asmjit::a64::Mem;

/// Forms of one instruction by acquire + 2 * release.
using ByOrder = std::array<InstId, 4>;
/// Those by width: 1, 2, and 4 or 8 bytes.
using ByWidth = std::array<ByOrder, 3>;

// AsmJit names one instruction per suffix; these paste them together.
#define TOUCHSTONE_FORMS(Name)                                                                    \
  ByWidth {                                                                                       \
    {                                                                                             \
      {Inst::kId##Name##b, Inst::kId##Name##ab, Inst::kId##Name##lb, Inst::kId##Name##alb},       \
          {Inst::kId##Name##h, Inst::kId##Name##ah, Inst::kId##Name##lh, Inst::kId##Name##alh}, { \
        Inst::kId##Name, Inst::kId##Name##a, Inst::kId##Name##l, Inst::kId##Name##al              \
      }                                                                                           \
    }                                                                                             \
  }
#define TOUCHSTONE_STORE_FORMS(Name)                                                          \
  std::array<std::array<InstId, 2>, 3> {                                                      \
    {                                                                                         \
      {Inst::kId##Name##b, Inst::kId##Name##lb}, {Inst::kId##Name##h, Inst::kId##Name##lh}, { \
        Inst::kId##Name, Inst::kId##Name##l                                                   \
      }                                                                                       \
    }                                                                                         \
  }

/// In the order of RmwOp; compare_swap is kept apart by its other operands.
constexpr std::array<ByWidth, kRmwOpCount> kLoadForms{
    TOUCHSTONE_FORMS(Ldadd),  TOUCHSTONE_FORMS(Ldclr),  TOUCHSTONE_FORMS(Ldset),
    TOUCHSTONE_FORMS(Ldeor),  TOUCHSTONE_FORMS(Ldsmax), TOUCHSTONE_FORMS(Ldsmin),
    TOUCHSTONE_FORMS(Ldumax), TOUCHSTONE_FORMS(Ldumin), TOUCHSTONE_FORMS(Swp),
    TOUCHSTONE_FORMS(Cas)};
/// ST<op>, in the order of RmwOp up to kUmin.
constexpr std::array<std::array<std::array<InstId, 2>, 3>, 8> kStoreForms{
    TOUCHSTONE_STORE_FORMS(Stadd),  TOUCHSTONE_STORE_FORMS(Stclr),  TOUCHSTONE_STORE_FORMS(Stset),
    TOUCHSTONE_STORE_FORMS(Steor),  TOUCHSTONE_STORE_FORMS(Stsmax), TOUCHSTONE_STORE_FORMS(Stsmin),
    TOUCHSTONE_STORE_FORMS(Stumax), TOUCHSTONE_STORE_FORMS(Stumin)};
#undef TOUCHSTONE_FORMS
#undef TOUCHSTONE_STORE_FORMS
constexpr ByOrder kCasp{Inst::kIdCasp, Inst::kIdCaspa, Inst::kIdCaspl, Inst::kIdCaspal};

/// FEAT_LSE128 (Arm ARM, Atomic memory operations, 128-bit): Rt2 at 16, Rn at 5, Rt at 0, acquire
/// is bit 23 and release bit 22.
constexpr std::uint32_t kLdclrp = 0x19201000;
constexpr std::uint32_t kLdsetp = 0x19203000;
constexpr std::uint32_t kSwpp = 0x19208000;
/// STLXR of 64 bits, which AsmJit refuses: Rs at 16, Rn at 5, Rt at 0.
constexpr std::uint32_t kStlxr64 = 0xC800FC00;

class A64Rmw {
 public:
  A64Rmw(Assembler& assembler, const RmwShape& shape, const RmwRegisters& registers) noexcept
      : as_(assembler), emit_(assembler), shape_(shape), registers_(registers) {}

  [[nodiscard]] Result<> run() noexcept {
    if (shape_.target == RmwTarget::kA64Llsc) {
      if (shape_.width == 16) {
        llsc_pair();
      } else {
        llsc();
      }
    } else if (shape_.width != 16) {
      lse();
    } else if (shape_.op == RmwOp::kCompareSwap) {
      casp();
    } else if (shape_.target == RmwTarget::kA64Lse128 &&
               (shape_.op == RmwOp::kSwap || shape_.op == RmwOp::kClear ||
                shape_.op == RmwOp::kSet)) {
      lse128();
    } else {
      casp_loop();
    }
    return emit_.finish("emit_rmw");
  }

 private:
  [[nodiscard]] bool fetches() const { return shape_.result == RmwResult::kFetch; }
  [[nodiscard]] bool acquires() const {
    return shape_.order != RmwOrder::kRelaxed && shape_.order != RmwOrder::kRelease;
  }
  [[nodiscard]] bool releases() const {
    return shape_.order != RmwOrder::kRelaxed && shape_.order != RmwOrder::kAcquire;
  }
  [[nodiscard]] std::size_t order_index() const {
    return static_cast<std::size_t>(acquires()) + 2 * static_cast<std::size_t>(releases());
  }
  [[nodiscard]] std::size_t width_index() const {
    return shape_.width == 1 ? 0 : shape_.width == 2 ? 1 : 2;
  }
  [[nodiscard]] std::size_t op_index() const { return static_cast<std::size_t>(shape_.op); }
  [[nodiscard]] bool is_signed() const {
    return shape_.op == RmwOp::kSmax || shape_.op == RmwOp::kSmin;
  }

  /// The register as the access's width has it: W up to 4 bytes, else X.
  [[nodiscard]] Gp gp(std::uint8_t number) const {
    if (shape_.width <= 4) return GpW(number);
    return GpX(number);
  }
  [[nodiscard]] Mem memory() const {
    return asmjit::a64::ptr(GpX(registers_.address == 31 ? std::uint32_t{Gp::kIdSp}
                                                         : std::uint32_t{registers_.address}));
  }
  [[nodiscard]] std::uint32_t address_field() const {
    return std::uint32_t{registers_.address} << 5;
  }
  std::uint8_t next_scratch() { return registers_.scratch[scratch_used_++]; }

  void move(std::uint8_t to, std::uint8_t from) {
    if (to != from) emit_(as_.mov(gp(to), gp(from)));
  }

  void lse() {
    const InstId load_form = kLoadForms[op_index()][width_index()][order_index()];
    const Gp operand = gp(registers_.operand[0]);
    if (shape_.op == RmwOp::kCompareSwap) {
      const std::uint8_t old = fetches() ? registers_.result[0] : next_scratch();
      move(old, registers_.expected[0]);
      emit_(as_.emit(load_form, gp(old), operand, memory()));
      return;
    }
    if (fetches()) {
      emit_(as_.emit(load_form, operand, gp(registers_.result[0]), memory()));
    } else if (acquires()) {
      emit_(as_.emit(load_form, operand, gp(next_scratch()), memory()));
    } else if (shape_.op == RmwOp::kSwap) {
      emit_(as_.emit(load_form, operand, gp(Gp::kIdZr), memory()));
    } else {
      emit_(
          as_.emit(kStoreForms[op_index()][width_index()][releases() ? 1 : 0], operand, memory()));
    }
  }

  void lse128() {
    std::uint8_t low = registers_.result[0];
    std::uint8_t high = registers_.result[1];
    if (!fetches()) {
      low = next_scratch();
      high = next_scratch();
    }
    move(low, registers_.operand[0]);
    move(high, registers_.operand[1]);
    std::uint32_t word = shape_.op == RmwOp::kSwap    ? kSwpp
                         : shape_.op == RmwOp::kClear ? kLdclrp
                                                      : kLdsetp;
    if (acquires()) word |= 1U << 23;
    if (releases()) word |= 1U << 22;
    emit_.word(word | std::uint32_t{high} << 16 | address_field() | low);
  }

  void emit_casp(std::uint8_t old_low, std::uint8_t old_high, std::uint8_t new_low,
                 std::uint8_t new_high) {
    emit_(as_.emit(kCasp[order_index()], gp(old_low), gp(old_high), gp(new_low), gp(new_high),
                   memory()));
  }

  void casp() {
    std::uint8_t low = registers_.result[0];
    std::uint8_t high = registers_.result[1];
    if (!fetches()) {
      low = next_scratch();
      high = next_scratch();
    }
    move(low, registers_.expected[0]);
    move(high, registers_.expected[1]);
    emit_casp(low, high, registers_.operand[0], registers_.operand[1]);
  }

  /// 16 bytes that no single instruction does: compute, then CASP until nobody came between. The
  /// first load may tear; CASP then finds it unequal and reads the pair whole.
  void casp_loop() {
    std::uint8_t low = registers_.result[0];
    std::uint8_t high = registers_.result[1];
    if (!fetches()) {
      low = next_scratch();
      high = next_scratch();
    }
    std::uint8_t new_low = registers_.operand[0];
    std::uint8_t new_high = registers_.operand[1];
    if (shape_.op != RmwOp::kSwap) {
      new_low = next_scratch();
      new_high = next_scratch();
    }
    const std::uint8_t seen_low = next_scratch();
    const std::uint8_t seen_high = next_scratch();
    const asmjit::Label again = as_.newLabel();
    emit_(as_.ldp(gp(low), gp(high), memory()));
    emit_(as_.bind(again));
    if (shape_.op != RmwOp::kSwap) compute_pair(new_low, new_high, low, high);
    move(seen_low, low);
    move(seen_high, high);
    emit_casp(low, high, new_low, new_high);
    emit_(as_.cmp(gp(low), gp(seen_low)));
    emit_(as_.ccmp(gp(high), gp(seen_high), 0, CondCode::kEQ));
    emit_(as_.b_ne(again));
  }

  void load_exclusive(std::uint8_t into) {
    static constexpr std::array<std::array<InstId, 2>, 3> kForms{{{Inst::kIdLdxrb, Inst::kIdLdaxrb},
                                                                  {Inst::kIdLdxrh, Inst::kIdLdaxrh},
                                                                  {Inst::kIdLdxr, Inst::kIdLdaxr}}};
    emit_(as_.emit(kForms[width_index()][acquires() ? 1 : 0], gp(into), memory()));
  }

  void store_exclusive(std::uint8_t status, std::uint8_t value) {
    if (shape_.width == 8 && releases()) {
      emit_.word(kStlxr64 | std::uint32_t{status} << 16 | address_field() | value);
      return;
    }
    static constexpr std::array<std::array<InstId, 2>, 3> kForms{{{Inst::kIdStxrb, Inst::kIdStlxrb},
                                                                  {Inst::kIdStxrh, Inst::kIdStlxrh},
                                                                  {Inst::kIdStxr, Inst::kIdStlxr}}};
    emit_(as_.emit(kForms[width_index()][releases() ? 1 : 0], GpW(status), gp(value), memory()));
  }

  /// How a register narrower than W is extended in a comparison.
  [[nodiscard]] asmjit::arm::Shift extension() const {
    using asmjit::arm::ShiftOp;
    const bool byte = shape_.width == 1;
    const ShiftOp op = is_signed() ? (byte ? ShiftOp::kSXTB : ShiftOp::kSXTH)
                                   : (byte ? ShiftOp::kUXTB : ShiftOp::kUXTH);
    return {op, 0};
  }

  void compare(std::uint8_t full, std::uint8_t extended) {
    if (shape_.width < 4) {
      emit_(as_.cmp(gp(full), gp(extended), extension()));
    } else {
      emit_(as_.cmp(gp(full), gp(extended)));
    }
  }

  /// The condition under which min or max keeps what is in memory, after memory - operand.
  [[nodiscard]] CondCode keeps() const {
    switch (shape_.op) {
      case RmwOp::kSmax:
        return CondCode::kGE;
      case RmwOp::kSmin:
        return CondCode::kLT;
      case RmwOp::kUmax:
        return CondCode::kHS;
      default:
        return CondCode::kLO;
    }
  }

  /// Puts into `value` what is to be stored where `old` was loaded, zero-extended.
  void compute(std::uint8_t value, std::uint8_t old) {
    const std::uint8_t operand = registers_.operand[0];
    switch (shape_.op) {
      case RmwOp::kAdd:
        emit_(as_.add(gp(value), gp(old), gp(operand)));
        break;
      case RmwOp::kClear:
        emit_(as_.bic(gp(value), gp(old), gp(operand)));
        break;
      case RmwOp::kSet:
        emit_(as_.orr(gp(value), gp(old), gp(operand)));
        break;
      case RmwOp::kEor:
        emit_(as_.eor(gp(value), gp(old), gp(operand)));
        break;
      default:
        if (shape_.width < 4 && is_signed()) {
          emit_(shape_.width == 1 ? as_.sxtb(gp(value), gp(old)) : as_.sxth(gp(value), gp(old)));
          compare(value, operand);
        } else {
          compare(old, operand);
        }
        emit_(as_.csel(gp(value), gp(old), gp(operand), keeps()));
        break;
    }
  }

  void compute_pair(std::uint8_t value_low, std::uint8_t value_high, std::uint8_t old_low,
                    std::uint8_t old_high) {
    const Gp low = gp(registers_.operand[0]);
    const Gp high = gp(registers_.operand[1]);
    switch (shape_.op) {
      case RmwOp::kAdd:
        emit_(as_.adds(gp(value_low), gp(old_low), low));
        emit_(as_.adc(gp(value_high), gp(old_high), high));
        break;
      case RmwOp::kClear:
        emit_(as_.bic(gp(value_low), gp(old_low), low));
        emit_(as_.bic(gp(value_high), gp(old_high), high));
        break;
      case RmwOp::kSet:
        emit_(as_.orr(gp(value_low), gp(old_low), low));
        emit_(as_.orr(gp(value_high), gp(old_high), high));
        break;
      case RmwOp::kEor:
        emit_(as_.eor(gp(value_low), gp(old_low), low));
        emit_(as_.eor(gp(value_high), gp(old_high), high));
        break;
      default:
        emit_(as_.cmp(gp(old_low), low));
        emit_(as_.sbcs(gp(value_high), gp(old_high), high));
        emit_(as_.csel(gp(value_low), gp(old_low), low, keeps()));
        emit_(as_.csel(gp(value_high), gp(old_high), high, keeps()));
        break;
    }
  }

  void llsc() {
    const bool computes = shape_.op != RmwOp::kSwap && shape_.op != RmwOp::kCompareSwap;
    const std::uint8_t value = computes ? next_scratch() : registers_.operand[0];
    const std::uint8_t status = next_scratch();
    const std::uint8_t old = fetches() ? registers_.result[0] : next_scratch();
    const asmjit::Label again = as_.newLabel();
    const asmjit::Label done = as_.newLabel();
    emit_(as_.bind(again));
    load_exclusive(old);
    if (shape_.op == RmwOp::kCompareSwap) {
      compare(old, registers_.expected[0]);
      emit_(as_.b_ne(done));
    } else if (computes) {
      compute(value, old);
    }
    store_exclusive(status, value);
    emit_(as_.cbnz(GpW(status), again));
    emit_(as_.bind(done));
  }

  void llsc_pair() {
    std::uint8_t value_low = registers_.operand[0];
    std::uint8_t value_high = registers_.operand[1];
    if (shape_.op != RmwOp::kSwap) {
      value_low = next_scratch();
      value_high = next_scratch();
    }
    const std::uint8_t status = next_scratch();
    std::uint8_t low = registers_.result[0];
    std::uint8_t high = registers_.result[1];
    if (!fetches()) {
      low = next_scratch();
      high = next_scratch();
    }
    const asmjit::Label again = as_.newLabel();
    emit_(as_.bind(again));
    emit_(acquires() ? as_.ldaxp(gp(low), gp(high), memory())
                     : as_.ldxp(gp(low), gp(high), memory()));
    if (shape_.op == RmwOp::kCompareSwap) {
      emit_(as_.cmp(gp(low), gp(registers_.expected[0])));
      emit_(as_.ccmp(gp(high), gp(registers_.expected[1]), 0, CondCode::kEQ));
      emit_(as_.csel(gp(value_low), gp(registers_.operand[0]), gp(low), CondCode::kEQ));
      emit_(as_.csel(gp(value_high), gp(registers_.operand[1]), gp(high), CondCode::kEQ));
    } else if (shape_.op != RmwOp::kSwap) {
      compute_pair(value_low, value_high, low, high);
    }
    emit_(releases() ? as_.stlxp(GpW(status), gp(value_low), gp(value_high), memory())
                     : as_.stxp(GpW(status), gp(value_low), gp(value_high), memory()));
    emit_(as_.cbnz(GpW(status), again));
  }

  Assembler& as_;
  Emission<Assembler> emit_;
  const RmwShape& shape_;
  const RmwRegisters& registers_;
  std::size_t scratch_used_ = 0;
};

}  // namespace

Result<> emit_rmw(Assembler& assembler, const RmwShape& shape,
                  const RmwRegisters& registers) noexcept {
  if (Result<> checked = check_rmw_registers(shape, registers); !checked) return checked;
  if (!is_a64(shape.target)) {
    return std::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                                 .operation = "emit_rmw",
                                 .detail = "an x86-64 target in an arm64 assembler"});
  }
  return A64Rmw(assembler, shape, registers).run();
}

Result<> emit_rmw_function(Assembler& assembler, const RmwShape& shape) noexcept {
  const Result<RmwRequirements> needs = rmw_requirements(shape);
  if (!needs) return std::unexpected(needs.error());
  Emission emit(assembler);
  // X18 belongs to the platform; X9 to X15 and the argument registers are free.
  RmwRegisters registers{
      .address = 0,
      .operand = {1, kNoRegister},
      .expected = {2, kNoRegister},
      .result = {needs->result_may_be_address ? std::uint8_t{0} : std::uint8_t{3}, kNoRegister},
      .scratch = {9, 10, 11, 12, 13, 14}};
  constexpr std::uint32_t kBtiC = 0xD503245F;  // BTI c, which AsmJit does not name
  emit.word(kBtiC);
  if (needs->pair) {
    // (address, operand low, high, expected low, high) in X0 to X4.
    registers.expected = {3, 4};
    registers.operand = {1, 2};
    registers.result = {8, 9};
    registers.scratch = {10, 11, 12, 13, 14, 15};
    if (needs->operand_even_pair) {
      emit(assembler.mov(GpX(6), GpX(1)));
      emit(assembler.mov(GpX(7), GpX(2)));
      registers.operand = {6, 7};
    }
  }
  if (Result<> prologue = emit.finish("emit_rmw_function"); !prologue) return prologue;
  if (Result<> body = emit_rmw(assembler, shape, registers); !body) {
    emit.undo();
    return body;
  }
  if (!needs->result) {
    emit(assembler.mov(GpX(0), GpX(Gp::kIdZr)));
    if (needs->pair) emit(assembler.mov(GpX(1), GpX(Gp::kIdZr)));
  } else {
    if (registers.result[0] != 0) emit(assembler.mov(GpX(0), GpX(registers.result[0])));
    if (needs->pair) emit(assembler.mov(GpX(1), GpX(registers.result[1])));
  }
  emit(assembler.ret(GpX(30)));
  return emit.finish("emit_rmw_function");
}

}  // namespace touchstone::jit
