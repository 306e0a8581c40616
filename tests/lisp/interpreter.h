// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_LISP_INTERPRETER_H_
#define TOUCHSTONE_TESTS_LISP_INTERPRETER_H_

#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

#include "compiler.h"
#include "runtime.h"

namespace touchstone::lisp {

/// Reads programs, compiles and runs them. For one thread.
class Interpreter {
 public:
  /// Errors: those of Heap::create(), Heap::attach() and CodeCache::create().
  [[nodiscard]] static Result<std::unique_ptr<Interpreter>> create(const heap::HeapOptions& options,
                                                                   std::ostream& out);

  /// Runs one expression after the other; the text of the last one's value. After a complaint the
  /// definitions before it stand, and more can be run.
  [[nodiscard]] Checked<std::string> run(std::string_view program);
  [[nodiscard]] Runtime& runtime() { return *runtime_; }

 private:
  Interpreter() = default;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Compiler> compiler_;
};

}  // namespace touchstone::lisp

#endif  // TOUCHSTONE_TESTS_LISP_INTERPRETER_H_
