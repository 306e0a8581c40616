// SPDX-License-Identifier: MIT
// What a running program consists of: the heap, a mutator, a stack of values, a table of globals.
#ifndef TOUCHSTONE_TESTS_LISP_RUNTIME_H_
#define TOUCHSTONE_TESTS_LISP_RUNTIME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <touchstone/heap/heap.h>

#include "syntax.h"
#include "values.h"

namespace touchstone::lisp {

/// What can go wrong while a program runs. (try expression) makes it a symbol of that name.
enum class Fault : std::uint8_t {
  kNone,
  kOutOfMemory,
  kTooDeep,
  kNotAPair,
  kNotANumber,
  kNotAVector,
  kNotAFunction,
  kWrongCount,
  kOverflow,
  kOutOfRange,
  kDivisionByZero,
  kUnknownName,
  kCorruptHeap,
};
[[nodiscard]] std::string_view to_string(Fault fault);

class Runtime;

/// What emitted code reaches through a register. All members are 8 bytes.
struct Thread {
  /// The stack of values grows up from `stack`; the collector looks at [stack, top). Emitted code
  /// keeps `top` right at each safepoint.
  Value* stack = nullptr;
  Value* top = nullptr;
  Value* limit = nullptr;         ///< No function starts behind this.
  Value* table = nullptr;         ///< Globals and quoted data.
  const void* unwind = nullptr;   ///< Code that leads to the innermost try.
  void* innermost_try = nullptr;  ///< Its record on the native stack.
  std::uint64_t fault = 0;        ///< Fault.
  std::uint64_t line = 0;         ///< Where.
  Runtime* runtime = nullptr;

  void push(Value value) { *top++ = value; }
  Value pop() { return *--top; }
};

class Runtime final : public Names {
 public:
  /// Values on the stack: the depth of recursion. Each call takes at least one, and 16 bytes of the
  /// native stack, 48 more with a try.
  static constexpr std::size_t kStackSize = 64 * 1024;
  /// A function's frame is smaller.
  static constexpr std::size_t kMostFrame = 4096;

  [[nodiscard]] static Result<std::unique_ptr<Runtime>> create(const heap::HeapOptions& options,
                                                               std::ostream& out);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  [[nodiscard]] LispHeap& heap() { return *heap_; }
  [[nodiscard]] heap::Mutator& mutator() { return *mutator_; }
  [[nodiscard]] Thread& thread() { return thread_; }
  /// Text of a value; "..." stands for what is too much.
  [[nodiscard]] std::string show(Value value) const;

  std::size_t global(const std::string& name) override;
  Value symbol(const std::string& name) override;
  Checked<std::size_t> datum(const Node& list) override;

  // ---- What emitted code calls. The arguments of primitives lie on the stack; kFailed is a fault.
  static Value make_vector(Thread* thread, Value* arguments) noexcept;
  static Value quotient(Thread* thread, Value* arguments) noexcept;
  static Value remainder(Thread* thread, Value* arguments) noexcept;
  static Value print(Thread* thread, Value* arguments) noexcept;
  static Value collect(Thread* thread, Value* arguments) noexcept;
  /// The fault that a try has caught, as a symbol.
  static Value caught(Thread* thread) noexcept;

 private:
  explicit Runtime(std::ostream& out) : out_(out) {}
  static void visit_roots(heap::RootVisitor& visitor, void* runtime) noexcept;
  static Value fail(Thread& thread, Fault fault) noexcept;
  [[nodiscard]] std::size_t add_to_table(Value value);
  /// On the stack of values then. False: no memory.
  [[nodiscard]] bool push_datum(const Node& node);

  std::ostream& out_;
  std::unique_ptr<LispHeap> heap_;
  heap::MutatorPointer mutator_;
  Thread thread_;
  std::unique_ptr<Value[]> stack_;
  std::vector<Value> table_;
  std::vector<std::string> symbols_;
  std::unordered_map<std::string, std::size_t> globals_;
  std::unordered_map<std::string, Value> symbol_values_;
};

}  // namespace touchstone::lisp

#endif  // TOUCHSTONE_TESTS_LISP_RUNTIME_H_
