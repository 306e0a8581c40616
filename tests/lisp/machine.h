// SPDX-License-Identifier: MIT
// The few instructions that the compiler needs, for the machine it runs on.
#ifndef TOUCHSTONE_TESTS_LISP_MACHINE_H_
#define TOUCHSTONE_TESTS_LISP_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include <asmjit/arm/a64assembler.h>
#include <asmjit/core.h>
#include <asmjit/x86.h>

namespace touchstone::lisp {

using asmjit::Label;
using Register = std::uint8_t;

enum class Condition : std::uint8_t { kEqual, kNotEqual, kLess, kAbove, kAboveOrEqual, kOverflow };

/// Keeps the first error of an assembler.
class FirstError final : public asmjit::ErrorHandler {
 public:
  void handleError(asmjit::Error error, const char* /*message*/,
                   asmjit::BaseEmitter* /*origin*/) override {
    if (error_ == asmjit::kErrorOk) error_ = error;
  }
  [[nodiscard]] asmjit::Error error() const { return error_; }

 private:
  asmjit::Error error_ = asmjit::kErrorOk;
};

/// What both machines are besides their instructions.
template <typename HostAssembler, asmjit::Arch kHostArch>
class CodeBuffer {
 public:
  using Assembler = HostAssembler;
  static constexpr asmjit::Arch kArch = kHostArch;

  CodeBuffer() {
    code_.init(asmjit::Environment(kArch));
    code_.setErrorHandler(&errors_);
    code_.attach(&as_);
  }

  [[nodiscard]] Assembler& assembler() { return as_; }
  [[nodiscard]] asmjit::Error error() const { return errors_.error(); }
  [[nodiscard]] std::span<const std::byte> text() const {
    const asmjit::CodeBuffer& buffer = code_.textSection()->buffer();
    return std::as_bytes(std::span(buffer.data(), buffer.size()));
  }

  [[nodiscard]] Label label() { return as_.newLabel(); }
  void bind(const Label& label) { as_.bind(label); }

 private:
  FirstError errors_;
  asmjit::CodeHolder code_;

 protected:
  Assembler as_;
};

#if defined(__aarch64__)

class Machine : public CodeBuffer<asmjit::a64::Assembler, asmjit::Arch::kAArch64> {
 public:
  // Kept by functions that are called.
  static constexpr Register kMutator = 19;  ///< What jit's fast paths want: Mutator::block().
  static constexpr Register kThread = 20;
  static constexpr Register kFrame = 21;
  // Not kept.
  static constexpr Register kValue = 0;  ///< Of the expression; what C functions return.
  static constexpr Register kA = 1, kB = 2, kC = 3, kD = 4;
  static constexpr Register kCount = 5;  ///< Of arguments.
  static constexpr Register kArgument[] = {0, 1, 2, 3};
  static constexpr std::size_t kSavedBytes = 32;

  void load(Register to, Register base, std::size_t offset) { as_.ldr(x(to), at(base, offset)); }
  void store(Register base, std::size_t offset, Register from) {
    as_.str(x(from), at(base, offset));
  }
  void load_byte(Register to, Register base) { as_.ldrb(w(to), asmjit::a64::ptr(x(base))); }
  void set(Register to, std::uint64_t value) { as_.mov(x(to), value); }
  void move(Register to, Register from) { as_.mov(x(to), x(from)); }
  void add(Register to, std::int64_t value) {
    const bool down = value < 0;
    const auto size = static_cast<std::uint64_t>(down ? -value : value);
    if (const std::uint64_t high = size >> 12U; high != 0) {
      down ? as_.sub(x(to), x(to), high, asmjit::a64::lsl(12))
           : as_.add(x(to), x(to), high, asmjit::a64::lsl(12));
    }
    down ? as_.sub(x(to), x(to), size & 0xfffU) : as_.add(x(to), x(to), size & 0xfffU);
  }
  /// Sets the condition kOverflow.
  void add_checked(Register to, Register other) { as_.adds(x(to), x(to), x(other)); }
  void subtract_checked(Register to, Register other) { as_.subs(x(to), x(to), x(other)); }
  /// Spoils `spare`. Jumps where the product has more than 64 bits.
  void multiply(Register to, Register other, Register spare, const Label& overflow) {
    as_.smulh(x(spare), x(to), x(other));
    as_.mul(x(to), x(to), x(other));
    as_.cmp(x(spare), x(to), asmjit::a64::asr(63));
    jump_if(Condition::kNotEqual, overflow);
  }
  void shift_right(Register to, unsigned bits) { as_.lsr(x(to), x(to), bits); }
  void shift_right_signed(Register to, unsigned bits) { as_.asr(x(to), x(to), bits); }
  /// The address of element `index`, a number as a value has it, of the vector at `base`.
  void element(Register to, Register base, Register index) {
    as_.add(x(to), x(base), x(index), asmjit::a64::lsl(2));
    as_.add(x(to), x(to), 4);
  }

  void compare(Register left, Register right) { as_.cmp(x(left), x(right)); }
  void compare(Register left, unsigned value) { as_.cmp(x(left), value); }
  void test(Register reg, unsigned bits) { as_.tst(x(reg), bits); }
  void jump(const Label& label) { as_.b(label); }
  void jump(Register to) { as_.br(x(to)); }
  void jump_if(Condition condition, const Label& label) { as_.b(code_of(condition), label); }
  /// 2, which is t, or nil.
  void set_truth(Register to, Condition condition) {
    as_.cset(x(to), code_of(condition));
    as_.lsl(x(to), x(to), 1);
  }
  void call(Register to) { as_.blr(x(to)); }
  /// A C function; its arguments are in kArgument.
  void call(const void* function) {
    as_.mov(asmjit::a64::x16, reinterpret_cast<std::uint64_t>(function));
    as_.blr(asmjit::a64::x16);
  }

  /// Where indirect calls and jumps may lead.
  void landing() { as_.embedUInt32(0xd50324df); }  // BTI jc
  /// Around the body of a function.
  void enter() { as_.str(asmjit::a64::x30, asmjit::a64::ptr_pre(asmjit::a64::sp, -16)); }
  void leave() { as_.ldr(asmjit::a64::x30, asmjit::a64::ptr_post(asmjit::a64::sp, 16)); }
  void ret() { as_.ret(asmjit::a64::x30); }
  /// The caller's kMutator, kThread and kFrame; a multiple of 16 bytes with what `enter` pushed.
  void save_registers() {
    as_.stp(x(kMutator), x(kThread), asmjit::a64::ptr_pre(asmjit::a64::sp, -32));
    as_.str(x(kFrame), asmjit::a64::ptr(asmjit::a64::sp, 16));
  }
  void restore_registers() {
    as_.ldr(x(kFrame), asmjit::a64::ptr(asmjit::a64::sp, 16));
    as_.ldp(x(kMutator), x(kThread), asmjit::a64::ptr_post(asmjit::a64::sp, 32));
  }

  // ---- The native stack
  void reserve_stack(unsigned bytes) { as_.sub(asmjit::a64::sp, asmjit::a64::sp, bytes); }
  void release_stack(unsigned bytes) { as_.add(asmjit::a64::sp, asmjit::a64::sp, bytes); }
  void load_stack(Register to, unsigned offset) {
    as_.ldr(x(to), asmjit::a64::ptr(asmjit::a64::sp, static_cast<std::int32_t>(offset)));
  }
  void store_stack(unsigned offset, Register from) {
    as_.str(x(from), asmjit::a64::ptr(asmjit::a64::sp, static_cast<std::int32_t>(offset)));
  }
  void get_stack(Register to) { as_.mov(x(to), asmjit::a64::sp); }
  void set_stack(Register from) { as_.mov(asmjit::a64::sp, x(from)); }
  void address_of(Register to, const Label& label) { as_.adr(x(to), label); }

 private:
  static asmjit::a64::GpX x(Register number) { return asmjit::a64::GpX(number); }
  static asmjit::a64::GpW w(Register number) { return asmjit::a64::GpW(number); }
  asmjit::a64::Mem at(Register base, std::size_t offset) {
    if (offset <= 32760) return asmjit::a64::ptr(x(base), static_cast<std::int32_t>(offset));
    as_.mov(asmjit::a64::x16, offset);
    return asmjit::a64::ptr(x(base), asmjit::a64::x16);
  }
  static asmjit::a64::CondCode code_of(Condition condition) {
    using asmjit::a64::CondCode;
    constexpr CondCode codes[] = {CondCode::kEQ, CondCode::kNE, CondCode::kLT,
                                  CondCode::kHI, CondCode::kHS, CondCode::kVS};
    return codes[static_cast<std::size_t>(condition)];
  }
};

#else

class Machine : public CodeBuffer<asmjit::x86::Assembler, asmjit::Arch::kX64> {
 public:
  // Kept by functions that are called.
  static constexpr Register kMutator = 3;  ///< RBX. What jit's fast paths want: Mutator::block().
  static constexpr Register kThread = 14;
  static constexpr Register kFrame = 13;
  // Not kept.
  static constexpr Register kValue = 0;  ///< RAX. Of the expression; what C functions return.
  static constexpr Register kA = 1, kB = 2, kC = 6, kD = 8;
  static constexpr Register kCount = 9;                  ///< Of arguments.
  static constexpr Register kArgument[] = {7, 6, 2, 1};  // RDI, RSI, RDX, RCX

  void load(Register to, Register base, std::size_t offset) { as_.mov(r(to), at(base, offset)); }
  void store(Register base, std::size_t offset, Register from) {
    as_.mov(at(base, offset), r(from));
  }
  void load_byte(Register to, Register base) {
    as_.movzx(asmjit::x86::gpd(to), asmjit::x86::byte_ptr(r(base)));
  }
  void set(Register to, std::uint64_t value) { as_.mov(r(to), value); }
  void move(Register to, Register from) { as_.mov(r(to), r(from)); }
  void add(Register to, std::int64_t value) { as_.add(r(to), value); }
  /// Sets the condition kOverflow.
  void add_checked(Register to, Register other) { as_.add(r(to), r(other)); }
  void subtract_checked(Register to, Register other) { as_.sub(r(to), r(other)); }
  /// Spoils `spare`. Jumps where the product has more than 64 bits.
  void multiply(Register to, Register other, Register /*spare*/, const Label& overflow) {
    as_.imul(r(to), r(other));
    jump_if(Condition::kOverflow, overflow);
  }
  void shift_right(Register to, unsigned bits) { as_.shr(r(to), bits); }
  void shift_right_signed(Register to, unsigned bits) { as_.sar(r(to), bits); }
  /// The address of element `index`, a number as a value has it, of the vector at `base`.
  void element(Register to, Register base, Register index) {
    as_.lea(r(to), asmjit::x86::ptr(r(base), r(index), 2, 4));
  }

  void compare(Register left, Register right) { as_.cmp(r(left), r(right)); }
  void compare(Register left, unsigned value) { as_.cmp(r(left), value); }
  void test(Register reg, unsigned bits) { as_.test(r(reg), bits); }
  void jump(const Label& label) { as_.jmp(label); }
  void jump(Register to) { as_.jmp(r(to)); }
  void jump_if(Condition condition, const Label& label) { as_.j(code_of(condition), label); }
  /// 2, which is t, or nil.
  void set_truth(Register to, Condition condition) {
    as_.set(code_of(condition), asmjit::x86::gpb_lo(to));
    as_.movzx(asmjit::x86::gpd(to), asmjit::x86::gpb_lo(to));
    as_.add(r(to), r(to));
  }
  void call(Register to) { as_.call(r(to)); }
  /// A C function; its arguments are in kArgument.
  void call(const void* function) {
    as_.mov(asmjit::x86::rax, reinterpret_cast<std::uint64_t>(function));
    as_.call(asmjit::x86::rax);
  }

  /// Where indirect calls and jumps may lead.
  void landing() {}
  /// Around the body of a function.
  void enter() { as_.sub(asmjit::x86::rsp, 8); }
  void leave() { as_.add(asmjit::x86::rsp, 8); }
  void ret() { as_.ret(); }
  /// The caller's kMutator, kThread and kFrame; a multiple of 16 bytes with what `enter` pushed.
  void save_registers() {
    as_.push(r(kMutator));
    as_.push(r(kThread));
    as_.push(r(kFrame));
    as_.sub(asmjit::x86::rsp, 8);
  }
  void restore_registers() {
    as_.add(asmjit::x86::rsp, 8);
    as_.pop(r(kFrame));
    as_.pop(r(kThread));
    as_.pop(r(kMutator));
  }

  // ---- The native stack
  void reserve_stack(unsigned bytes) { as_.sub(asmjit::x86::rsp, bytes); }
  void release_stack(unsigned bytes) { as_.add(asmjit::x86::rsp, bytes); }
  void load_stack(Register to, unsigned offset) {
    as_.mov(r(to), at(asmjit::x86::Gp::kIdSp, offset));
  }
  void store_stack(unsigned offset, Register from) {
    as_.mov(at(asmjit::x86::Gp::kIdSp, offset), r(from));
  }
  void get_stack(Register to) { as_.mov(r(to), asmjit::x86::rsp); }
  void set_stack(Register from) { as_.mov(asmjit::x86::rsp, r(from)); }
  void address_of(Register to, const Label& label) { as_.lea(r(to), asmjit::x86::ptr(label)); }

 private:
  static asmjit::x86::Gp r(std::uint32_t number) { return asmjit::x86::gpq(number); }
  static asmjit::x86::Mem at(std::uint32_t base, std::size_t offset) {
    return asmjit::x86::qword_ptr(r(base), static_cast<std::int32_t>(offset));
  }
  static asmjit::x86::CondCode code_of(Condition condition) {
    using asmjit::x86::CondCode;
    constexpr CondCode codes[] = {CondCode::kEqual,      CondCode::kNotEqual,
                                  CondCode::kSignedLT,   CondCode::kUnsignedGT,
                                  CondCode::kUnsignedGE, CondCode::kOverflow};
    return codes[static_cast<std::size_t>(condition)];
  }
};

#endif

}  // namespace touchstone::lisp

#endif  // TOUCHSTONE_TESTS_LISP_MACHINE_H_
