// SPDX-License-Identifier: MIT
#include "interpreter.h"

#include <optional>
#include <utility>

#include "reader.h"
#include "syntax.h"

namespace touchstone::lisp {

Result<std::unique_ptr<Interpreter>> Interpreter::create(const heap::HeapOptions& options,
                                                         std::ostream& out) {
  std::unique_ptr<Interpreter> interpreter(new Interpreter);
  Result<std::unique_ptr<Runtime>> runtime = Runtime::create(options, out);
  if (!runtime) return std::unexpected(runtime.error());
  interpreter->runtime_ = std::move(*runtime);
  Result<std::unique_ptr<Compiler>> compiler = Compiler::create(*interpreter->runtime_);
  if (!compiler) return std::unexpected(compiler.error());
  interpreter->compiler_ = std::move(*compiler);
  return interpreter;
}

Checked<std::string> Interpreter::run(std::string_view program) {
  std::string last = "nil";
  for (Reader reader(program);;) {
    const Checked<std::optional<Node>> form = reader.next();
    if (!form) return std::unexpected(form.error());
    if (!*form) return last;
    const Checked<std::unique_ptr<Function>> function = analyse(**form, *runtime_);
    if (!function) return std::unexpected(function.error());
    const Checked<const void*> code = compiler_->compile(**function);
    if (!code) return std::unexpected(code.error());
    const Value value = compiler_->run(*code);
    if (value != kFailed) last = runtime_->show(value);
    if (Result<> released = compiler_->release(*code); !released) {
      return std::unexpected(Complaint{.line = (*form)->line, .what = released.error().message()});
    }
    if (value == kFailed) {
      const Thread& thread = runtime_->thread();
      std::string what(to_string(static_cast<Fault>(thread.fault)));
      // The heap knows more of it.
      const Error& error = runtime_->mutator().error();
      if (static_cast<Fault>(thread.fault) == Fault::kOutOfMemory &&
          error.code != ErrorCode::kOutOfMemory) {
        what += ": " + error.message();
      }
      return std::unexpected(
          Complaint{.line = static_cast<unsigned>(thread.line), .what = std::move(what)});
    }
  }
}

}  // namespace touchstone::lisp
