// SPDX-License-Identifier: MIT
#include "compiler.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include <touchstone/jit/fast_paths.h>

#include "machine.h"

namespace touchstone::lisp {
namespace {

constexpr Register kMutator = Machine::kMutator;
constexpr Register kThread = Machine::kThread;
constexpr Register kFrame = Machine::kFrame;
constexpr Register kValue = Machine::kValue;
constexpr Register kA = Machine::kA;
constexpr Register kB = Machine::kB;
constexpr Register kC = Machine::kC;
constexpr Register kD = Machine::kD;
constexpr Register kCount = Machine::kCount;

constexpr std::size_t slot_offset(std::size_t slot) {
  return slot * sizeof(Value);
}
/// Of a value in an object.
constexpr std::size_t value_offset(std::size_t i) {
  return sizeof(Object) + i * sizeof(Value);
}

// A record on the native stack for each try that is under way.
constexpr unsigned kTryBytes = 32;
constexpr unsigned kTryOuter = 0;
constexpr unsigned kTryResume = 8;
constexpr unsigned kTryFrame = 16;

void begin_try(Machine& m, const Label& resume) {
  m.reserve_stack(kTryBytes);
  m.load(kA, kThread, offsetof(Thread, innermost_try));
  m.store_stack(kTryOuter, kA);
  m.address_of(kA, resume);
  m.store_stack(kTryResume, kA);
  m.store_stack(kTryFrame, kFrame);
  m.get_stack(kA);
  m.store(kThread, offsetof(Thread, innermost_try), kA);
}
void end_try(Machine& m) {
  m.load_stack(kA, kTryOuter);
  m.store(kThread, offsetof(Thread, innermost_try), kA);
  m.release_stack(kTryBytes);
}
/// From wherever a fault was met to the innermost try's `resume`.
void emit_unwind(Machine& m) {
  m.landing();
  m.load(kA, kThread, offsetof(Thread, innermost_try));
  m.set_stack(kA);
  m.load_stack(kB, kTryResume);
  m.load_stack(kFrame, kTryFrame);
  end_try(m);
  m.jump(kB);
}
/// Compiler::Entry: runs code as if within a try.
void emit_entry(Machine& m) {
  const Label resume = m.label();
  const Label done = m.label();
  m.landing();
  m.enter();
  m.save_registers();
  m.move(kD, Machine::kArgument[3]);
  m.move(kFrame, Machine::kArgument[2]);
  m.move(kThread, Machine::kArgument[1]);
  m.move(kMutator, Machine::kArgument[0]);
  begin_try(m, resume);
  m.set(kCount, 0);
  m.call(kD);
  end_try(m);
  m.jump(done);
  m.bind(resume);
  m.landing();
  m.set(kValue, kFailed);
  m.bind(done);
  m.restore_registers();
  m.leave();
  m.ret();
}

/// Emits one function.
class Emitter {
 public:
  Emitter(Compiler& compiler, const heap::FastPathLayout& layout, Function& function)
      : compiler_(compiler), layout_(layout), function_(function) {}

  Checked<> emit() {
    const unsigned line = function_.body.line;
    const std::size_t count = function_.parameters.size();
    depth_ = 1 + count;
    m_.landing();
    m_.enter();
    m_.compare(kCount, static_cast<unsigned>(count));
    m_.jump_if(Condition::kNotEqual, fault(Fault::kWrongCount, line));
    m_.load(kA, kThread, offsetof(Thread, limit));
    m_.compare(kFrame, kA);
    m_.jump_if(Condition::kAbove, fault(Fault::kTooDeep, line));
    poll();
    for (std::size_t i = 0; i < count; ++i) bind_variable(*function_.parameters[i], 1 + i, line);
    expression(function_.body, true);
    m_.leave();
    m_.ret();
    // Those that are added meanwhile are emitted too.
    for (std::size_t i = 0; i < later_.size(); ++i) std::exchange(later_[i], {})();
    if (deepest_ >= Runtime::kMostFrame) complain("a function that is too large", line);
    if (m_.error() != asmjit::kErrorOk) {
      complain(asmjit::DebugUtils::errorAsString(m_.error()), line);
    }
    if (complaint_.what.empty()) return {};
    return std::unexpected(complaint_);
  }
  [[nodiscard]] std::span<const std::byte> text() const { return m_.text(); }

 private:
  void complain(std::string what, unsigned line) {
    if (complaint_.what.empty()) complaint_ = {.line = line, .what = std::move(what)};
  }
  /// For what jit's emitters return.
  void check(const Result<>& done, unsigned line) {
    if (!done) complain(done.error().message(), line);
  }
  /// What is rarely run goes behind the function.
  void later(std::function<void()> emit) { later_.push_back(std::move(emit)); }

  Label fault(Fault fault, unsigned line) {
    const Label label = m_.label();
    later([this, label, fault, line] {
      m_.bind(label);
      m_.set(kA, static_cast<std::uint64_t>(fault));
      m_.store(kThread, offsetof(Thread, fault), kA);
      raise(line);
    });
    return label;
  }
  /// The same where the fault is known to the thread already.
  Label fault_of_call(unsigned line) {
    const Label label = m_.label();
    later([this, label, line] {
      m_.bind(label);
      raise(line);
    });
    return label;
  }
  void raise(unsigned line) {
    m_.set(kA, line);
    m_.store(kThread, offsetof(Thread, line), kA);
    m_.load(kA, kThread, offsetof(Thread, unwind));
    m_.jump(kA);
  }

  // ---- Step 5 of embedding: safepoints, allocation and stores in emitted code.

  /// Before whatever may collect: tells the collector where the stack of values ends.
  void tell_stack(std::size_t depth) {
    m_.move(kA, kFrame);
    m_.add(kA, static_cast<std::int64_t>(slot_offset(depth)));
    m_.store(kThread, offsetof(Thread, top), kA);
  }

  /// At the start of each function, and thus in each loop.
  void poll() {
    const Label slow = m_.label();
    const Label done = m_.label();
    check(jit::emit_safepoint_poll(m_.assembler(), layout_,
                                   {.mutator = kMutator, .scratch = {kA, kB, kC}}, slow),
          0);
    m_.bind(done);
    later([this, slow, done, depth = depth_] {
      m_.bind(slow);
      tell_stack(depth);
      m_.move(Machine::kArgument[0], kMutator);
      m_.call(std::bit_cast<const void*>(&heap::Mutator::poll_slow_path));
      m_.jump(done);
    });
  }

  /// A zeroed object in kValue, with its header. What the code will still need lies on the stack.
  void allocate(Kind kind, std::size_t values, unsigned line) {
    const std::size_t size = value_offset(values);
    const Label slow = m_.label();
    const Label done = m_.label();
    const Label failed = fault(Fault::kOutOfMemory, line);
    check(jit::emit_allocate(
              m_.assembler(), layout_,
              {.mutator = kMutator, .result = kValue, .scratch = {kA, kB, jit::kNoRegister}}, size,
              slow),
          line);
    m_.bind(done);
    m_.set(kA, header_of(kind, values));
    m_.store(kValue, 0, kA);
    later([this, slow, done, failed, size, depth = depth_] {
      m_.bind(slow);
      tell_stack(depth);
      m_.move(Machine::kArgument[0], kMutator);
      m_.set(Machine::kArgument[1], size);
      m_.call(std::bit_cast<const void*>(&heap::Mutator::allocate_slow_path));
      m_.compare(kValue, 0U);
      m_.jump_if(Condition::kEqual, failed);
      m_.jump(done);
    });
  }
  /// Into an object that allocate() has just made: no barrier, as it is young.
  void initialise(std::size_t i, Register from) { m_.store(kValue, value_offset(i), from); }

  /// Stores kValue at the address in kC, which lies in any object.
  void store_with_barrier() {
    m_.store(kC, 0, kValue);
    check(jit::emit_card_barrier(
              m_.assembler(), layout_,
              {.mutator = kMutator, .input = kC, .scratch = {kA, kB, jit::kNoRegister}},
              jit::CardBarrier::kAlwaysStore),
          0);
  }

  // ---- The stack of values

  void push() {
    m_.store(kFrame, slot_offset(depth_), kValue);
    deepest_ = std::max(deepest_, ++depth_);
  }
  void load_slot(Register to, std::size_t slot) { m_.load(to, kFrame, slot_offset(slot)); }

  /// A variable is in this slot from here on.
  void bind_variable(Variable& variable, std::size_t slot, unsigned line) {
    variable.slot = slot;
    if (!variable.boxed()) return;
    allocate(Kind::kBox, 1, line);
    load_slot(kA, slot);
    initialise(0, kA);
    m_.store(kFrame, slot_offset(slot), kValue);
  }
  /// What the frame or the closure has for a variable: its value, or its box.
  void load_variable(Register to, const Variable& variable) {
    if (variable.owner == &function_) return load_slot(to, variable.slot);
    const auto& captures = function_.captures;
    const auto place = std::ranges::find(captures, &variable) - captures.begin();
    load_slot(to, 0);
    m_.load(to, to, value_offset(1 + static_cast<std::size_t>(place)));
  }

  // ---- Types

  /// Jumps unless the register holds a reference to an object of the kind. Spoils kD.
  void expect_kind(Register value, Kind kind, const Label& otherwise) {
    m_.test(value, 7);
    m_.jump_if(Condition::kNotEqual, otherwise);
    m_.compare(value, 0U);
    m_.jump_if(Condition::kEqual, otherwise);
    m_.load_byte(kD, value);
    m_.compare(kD, static_cast<unsigned>(header_of(kind, 0) & 0xffU));
    m_.jump_if(Condition::kNotEqual, otherwise);
  }
  void expect_number(Register value, const Label& otherwise) {
    m_.test(value, 1);
    m_.jump_if(Condition::kEqual, otherwise);
  }

  // ---- Expressions: the value comes into kValue

  void expression(const Expression& e, bool last) {
    const std::size_t before = depth_;
    switch (e.kind) {
      case Expression::Kind::kConstant:
        m_.set(kValue, e.constant);
        break;
      case Expression::Kind::kGlobal:
        m_.load(kA, kThread, offsetof(Thread, table));
        m_.load(kValue, kA, e.global * sizeof(Value));
        m_.compare(kValue, static_cast<unsigned>(kUnbound));
        m_.jump_if(Condition::kEqual, fault(Fault::kUnknownName, e.line));
        break;
      case Expression::Kind::kSetGlobal:
        expression(e.parts[0], false);
        m_.load(kA, kThread, offsetof(Thread, table));  // A root, not an object: no barrier.
        m_.store(kA, e.global * sizeof(Value), kValue);
        break;
      case Expression::Kind::kVariable:
        load_variable(kValue, *e.variables[0]);
        if (e.variables[0]->boxed()) m_.load(kValue, kValue, value_offset(0));
        break;
      case Expression::Kind::kSetVariable:
        expression(e.parts[0], false);
        if (e.variables[0]->boxed()) {
          load_variable(kC, *e.variables[0]);
          m_.add(kC, static_cast<std::int64_t>(value_offset(0)));
          store_with_barrier();
        } else {
          m_.store(kFrame, slot_offset(e.variables[0]->slot), kValue);
        }
        break;
      case Expression::Kind::kIf:
        conditional(e, last);
        break;
      case Expression::Kind::kSequence:
        for (std::size_t i = 0; i < e.parts.size(); ++i) {
          expression(e.parts[i], last && i + 1 == e.parts.size());
        }
        break;
      case Expression::Kind::kLet:
        for (std::size_t i = 0; i < e.variables.size(); ++i) {
          expression(e.parts[i], false);
          push();
        }
        for (std::size_t i = 0; i < e.variables.size(); ++i) {
          bind_variable(*e.variables[i], before + i, e.line);
        }
        expression(e.parts.back(), last);
        break;
      case Expression::Kind::kLambda:
        closure(e);
        break;
      case Expression::Kind::kCall:
        call(e, last);
        break;
      case Expression::Kind::kPrimitive:
        primitive(e);
        break;
      case Expression::Kind::kTry:
        attempt(e);
        break;
    }
    depth_ = before;
  }

  void conditional(const Expression& e, bool last) {
    const Label otherwise = m_.label();
    const Label done = m_.label();
    expression(e.parts[0], false);
    m_.compare(kValue, 0U);
    m_.jump_if(Condition::kEqual, otherwise);
    expression(e.parts[1], last);
    m_.jump(done);
    m_.bind(otherwise);
    expression(e.parts[2], last);
    m_.bind(done);
  }

  void closure(const Expression& e) {
    const Checked<const void*> code = compiler_.compile(*e.function);
    if (!code) return complain(code.error().what, code.error().line);
    const auto& captures = e.function->captures;
    allocate(Kind::kFunction, 1 + captures.size(), e.line);
    m_.set(kA, reinterpret_cast<std::uint64_t>(*code) | 1U);  // As a number.
    initialise(0, kA);
    for (std::size_t i = 0; i < captures.size(); ++i) {
      load_variable(kA, *captures[i]);
      initialise(1 + i, kA);
    }
  }

  void call(const Expression& e, bool last) {
    const std::size_t callee = depth_;
    for (const Expression& part : e.parts) {
      expression(part, false);
      push();
    }
    load_slot(kA, callee);
    expect_kind(kA, Kind::kFunction, fault(Fault::kNotAFunction, e.line));
    m_.load(kB, kA, value_offset(0));
    m_.add(kB, -1);
    m_.set(kCount, e.parts.size() - 1);
    if (last) {
      // The callee's frame takes the place of this one.
      for (std::size_t i = 0; i < e.parts.size(); ++i) {
        load_slot(kC, callee + i);
        m_.store(kFrame, slot_offset(i), kC);
      }
      m_.leave();
      m_.jump(kB);
      return;
    }
    const auto bytes = static_cast<std::int64_t>(slot_offset(callee));
    m_.add(kFrame, bytes);
    m_.call(kB);
    m_.add(kFrame, -bytes);
  }

  void attempt(const Expression& e) {
    const Label resume = m_.label();
    const Label done = m_.label();
    begin_try(m_, resume);
    expression(e.parts[0], false);
    end_try(m_);
    m_.bind(done);
    later([this, resume, done] {
      m_.bind(resume);
      m_.landing();
      m_.move(Machine::kArgument[0], kThread);
      m_.call(std::bit_cast<const void*>(&Runtime::caught));
      m_.jump(done);
    });
  }

  void primitive(const Expression& e) {
    const std::size_t first = depth_;
    const unsigned line = e.line;
    // All but the last argument go to the stack, the last is in kValue.
    for (std::size_t i = 0; i < e.parts.size(); ++i) {
      expression(e.parts[i], false);
      if (i + 1 < e.parts.size()) push();
    }
    const auto numbers = [&] {
      const Label no_number = fault(Fault::kNotANumber, line);
      load_slot(kA, first);
      expect_number(kA, no_number);
      expect_number(kValue, no_number);
    };
    switch (e.primitive) {
      case Primitive::kCons:
        push();
        allocate(Kind::kPair, 2, line);
        for (std::size_t i : {0U, 1U}) {
          load_slot(kA, first + i);
          initialise(i, kA);
        }
        break;
      case Primitive::kCar:
      case Primitive::kCdr:
        expect_kind(kValue, Kind::kPair, fault(Fault::kNotAPair, line));
        m_.load(kValue, kValue, value_offset(e.primitive == Primitive::kCar ? 0 : 1));
        break;
      case Primitive::kSetCar:
      case Primitive::kSetCdr:
        load_slot(kC, first);
        expect_kind(kC, Kind::kPair, fault(Fault::kNotAPair, line));
        m_.add(kC,
               static_cast<std::int64_t>(value_offset(e.primitive == Primitive::kSetCar ? 0 : 1)));
        store_with_barrier();
        break;
      case Primitive::kAdd:
        numbers();
        m_.add(kA, -1);
        m_.add_checked(kValue, kA);
        m_.jump_if(Condition::kOverflow, fault(Fault::kOverflow, line));
        break;
      case Primitive::kSubtract:
        numbers();
        m_.add(kValue, -1);
        m_.subtract_checked(kA, kValue);
        m_.jump_if(Condition::kOverflow, fault(Fault::kOverflow, line));
        m_.move(kValue, kA);
        break;
      case Primitive::kMultiply:
        numbers();
        m_.add(kA, -1);
        m_.shift_right_signed(kValue, 1);
        m_.multiply(kValue, kA, kB, fault(Fault::kOverflow, line));
        m_.add(kValue, 1);
        break;
      case Primitive::kLess:
        numbers();
        m_.compare(kA, kValue);
        m_.set_truth(kValue, Condition::kLess);
        break;
      case Primitive::kNumberEqual:
        numbers();
        m_.compare(kA, kValue);
        m_.set_truth(kValue, Condition::kEqual);
        break;
      case Primitive::kEq:
        load_slot(kA, first);
        m_.compare(kA, kValue);
        m_.set_truth(kValue, Condition::kEqual);
        break;
      case Primitive::kNull:
        m_.compare(kValue, 0U);
        m_.set_truth(kValue, Condition::kEqual);
        break;
      case Primitive::kIsNumber:
        m_.test(kValue, 1);
        m_.set_truth(kValue, Condition::kNotEqual);
        break;
      case Primitive::kIsPair: {
        const Label no = m_.label();
        const Label done = m_.label();
        expect_kind(kValue, Kind::kPair, no);
        m_.set(kValue, kTrue);
        m_.jump(done);
        m_.bind(no);
        m_.set(kValue, kNil);
        m_.bind(done);
        break;
      }
      case Primitive::kVectorLength:
        expect_kind(kValue, Kind::kVector, fault(Fault::kNotAVector, line));
        vector_length(kValue, kValue);
        break;
      case Primitive::kVectorRef:
        m_.move(kB, kValue);
        vector_element(first, line);
        m_.load(kValue, kC, 0);
        break;
      case Primitive::kVectorSet:
        load_slot(kB, first + 1);
        vector_element(first, line);
        store_with_barrier();
        break;
      case Primitive::kMakeVector:
        return call_runtime(e, first, &Runtime::make_vector);
      case Primitive::kQuotient:
        return call_runtime(e, first, &Runtime::quotient);
      case Primitive::kRemainder:
        return call_runtime(e, first, &Runtime::remainder);
      case Primitive::kPrint:
        return call_runtime(e, first, &Runtime::print);
      case Primitive::kCollect:
        return call_runtime(e, first, &Runtime::collect);
    }
  }

  /// As a number. Of the vector in `from`.
  void vector_length(Register to, Register from) {
    m_.load(to, from, 0);
    m_.shift_right(to, 8);  // In words, header included.
    m_.add_checked(to, to);
    m_.add(to, -1);
  }
  /// The address of the element that kB says of the vector in a slot, in kC. Keeps kValue.
  void vector_element(std::size_t slot, unsigned line) {
    load_slot(kA, slot);
    expect_kind(kA, Kind::kVector, fault(Fault::kNotAVector, line));
    expect_number(kB, fault(Fault::kNotANumber, line));
    vector_length(kC, kA);
    m_.compare(kB, kC);  // Negative ones are large.
    m_.jump_if(Condition::kAboveOrEqual, fault(Fault::kOutOfRange, line));
    m_.element(kC, kA, kB);
  }

  void call_runtime(const Expression& e, std::size_t first,
                    Value (*function)(Thread*, Value*) noexcept) {
    if (!e.parts.empty()) push();
    tell_stack(depth_);
    m_.move(Machine::kArgument[0], kThread);
    m_.move(Machine::kArgument[1], kFrame);
    m_.add(Machine::kArgument[1], static_cast<std::int64_t>(slot_offset(first)));
    m_.call(std::bit_cast<const void*>(function));
    m_.compare(kValue, static_cast<unsigned>(kFailed));
    m_.jump_if(Condition::kEqual, fault_of_call(e.line));
  }

  Compiler& compiler_;
  const heap::FastPathLayout& layout_;
  Function& function_;
  Machine m_;
  std::vector<std::function<void()>> later_;
  std::size_t depth_ = 0;
  std::size_t deepest_ = 0;
  Complaint complaint_;
};

}  // namespace

Result<std::unique_ptr<Compiler>> Compiler::create(Runtime& runtime) {
  std::unique_ptr<Compiler> compiler(new Compiler(runtime));
  Result<std::unique_ptr<jit::CodeCache>> cache =
      jit::CodeCache::create({.capacity = std::size_t{16} << 20U});
  if (!cache) return std::unexpected(cache.error());
  compiler->cache_ = std::move(*cache);
  Machine unwind;
  emit_unwind(unwind);
  const Result<const void*> unwind_code = compiler->cache_->add(unwind.text(), "lisp unwind");
  if (!unwind_code) return std::unexpected(unwind_code.error());
  runtime.thread().unwind = *unwind_code;
  Machine entry;
  emit_entry(entry);
  const Result<const void*> entry_code = compiler->cache_->add(entry.text(), "lisp entry");
  if (!entry_code) return std::unexpected(entry_code.error());
  compiler->entry_ = std::bit_cast<Entry>(*entry_code);
  return compiler;
}

Checked<const void*> Compiler::compile(Function& function) {
  Emitter emitter(*this, layout_, function);
  if (Checked<> done = emitter.emit(); !done) return std::unexpected(std::move(done.error()));
  const Result<const void*> code = cache_->add(emitter.text(), "lisp " + function.name);
  if (!code) {
    return std::unexpected(Complaint{.line = function.body.line, .what = code.error().message()});
  }
  return *code;
}

Result<> Compiler::release(const void* code) {
  return cache_->release(code);
}

Value Compiler::run(const void* code) {
  Thread& thread = runtime_.thread();
  thread.fault = 0;
  thread.top[0] = kNil;  // The frame of a function without parameters: its closure.
  const Value value = entry_(runtime_.mutator().block(), &thread, thread.top, code);
  thread.top = thread.stack;
  return value;
}

}  // namespace touchstone::lisp
