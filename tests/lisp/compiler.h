// SPDX-License-Identifier: MIT
// Expressions into machine code.
#ifndef TOUCHSTONE_TESTS_LISP_COMPILER_H_
#define TOUCHSTONE_TESTS_LISP_COMPILER_H_

#include <memory>

#include <touchstone/arch/error.h>
#include <touchstone/jit/code_cache.h>

#include "runtime.h"
#include "syntax.h"

namespace touchstone::lisp {

/// Code keeps every value that outlives a safepoint on the stack of values, where the collector
/// finds and updates it. A function's frame there: its closure, its arguments, then what is bound
/// and half done. At each place in the code it is known how many that are, so that one addition
/// tells the collector the end.
class Compiler {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Compiler>> create(Runtime& runtime);
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  /// The address of a function's code, which stays.
  [[nodiscard]] Checked<const void*> compile(Function& function);
  /// Takes code back that nothing calls any more.
  [[nodiscard]] Result<> release(const void* code);
  /// Runs the code of a function without parameters. kFailed: see Thread::fault.
  [[nodiscard]] Value run(const void* code);

 private:
  using Entry = Value (*)(heap::MutatorBlock* mutator, Thread* thread, Value* frame,
                          const void* code);
  explicit Compiler(Runtime& runtime)
      : runtime_(runtime), layout_(runtime.heap().fast_path_layout()) {}

  Runtime& runtime_;
  const heap::FastPathLayout layout_;
  std::unique_ptr<jit::CodeCache> cache_;
  Entry entry_ = nullptr;
};

}  // namespace touchstone::lisp

#endif  // TOUCHSTONE_TESTS_LISP_COMPILER_H_
