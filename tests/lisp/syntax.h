// SPDX-License-Identifier: MIT
// Trees into expressions: names are resolved, and it is known what closures capture.
#ifndef TOUCHSTONE_TESTS_LISP_SYNTAX_H_
#define TOUCHSTONE_TESTS_LISP_SYNTAX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reader.h"
#include "values.h"

namespace touchstone::lisp {

enum class Primitive : std::uint8_t {
  // In emitted code.
  kCons,
  kCar,
  kCdr,
  kSetCar,
  kSetCdr,
  kAdd,
  kSubtract,
  kMultiply,
  kLess,
  kNumberEqual,
  kEq,
  kNull,
  kIsPair,
  kIsNumber,
  kVectorRef,
  kVectorSet,
  kVectorLength,
  // Called.
  kMakeVector,
  kQuotient,
  kRemainder,
  kPrint,
  kCollect,
};

struct Function;
struct Variable {
  std::string name;
  Function* owner = nullptr;
  bool captured = false;
  bool assigned = false;
  std::size_t slot = 0;  ///< In its owner's frame; set when code is emitted.
  /// It lives in a box of its own: closures copy what they capture.
  [[nodiscard]] bool boxed() const { return captured && assigned; }
};

struct Expression {
  enum class Kind : std::uint8_t {
    kConstant,     ///< `constant`, which is no reference.
    kGlobal,       ///< Place `global` of the table of globals and quoted data.
    kSetGlobal,    ///< The same, to parts[0].
    kVariable,     ///< `variables[0]`.
    kSetVariable,  ///< The same, to parts[0].
    kIf,           ///< Condition, then, else.
    kSequence,
    kLet,     ///< What `variables` start with, then the body.
    kLambda,  ///< `function`.
    kCall,    ///< The function, the arguments.
    kPrimitive,
    kTry,  ///< parts[0]; the name of a fault in it as a symbol.
  };
  Kind kind = Kind::kConstant;
  unsigned line = 0;
  Value constant = kNil;
  std::size_t global = 0;
  Primitive primitive{};
  std::vector<Variable*> variables{};
  std::unique_ptr<Function> function{};
  std::vector<Expression> parts{};
};

struct Function {
  std::string name;
  Function* parent = nullptr;
  std::vector<Variable*> parameters;
  std::vector<Variable*> captures;
  Expression body;
  std::deque<Variable> variables;  ///< All of its own.
  std::vector<Variable*> scope;    ///< Those in scope, while it is analysed.
};

/// What the analysis needs of the runtime.
class Names {
 public:
  Names() = default;
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;
  /// The global's place in the table; made if there is none.
  [[nodiscard]] virtual std::size_t global(const std::string& name) = 0;
  [[nodiscard]] virtual Value symbol(const std::string& name) = 0;
  /// A quoted list, in the table.
  [[nodiscard]] virtual Checked<std::size_t> datum(const Node& list) = 0;

 protected:
  ~Names() = default;
};

/// A tree at the top of a program as a function without parameters.
[[nodiscard]] Checked<std::unique_ptr<Function>> analyse(const Node& form, Names& names);

}  // namespace touchstone::lisp

#endif  // TOUCHSTONE_TESTS_LISP_SYNTAX_H_
