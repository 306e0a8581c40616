// SPDX-License-Identifier: MIT
#include "syntax.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace touchstone::lisp {
namespace {

struct PrimitiveName {
  std::string_view name;
  Primitive primitive;
  std::size_t arguments;
};
constexpr std::array<PrimitiveName, 22> kPrimitives{{
    {"cons", Primitive::kCons, 2},
    {"car", Primitive::kCar, 1},
    {"cdr", Primitive::kCdr, 1},
    {"set-car!", Primitive::kSetCar, 2},
    {"set-cdr!", Primitive::kSetCdr, 2},
    {"+", Primitive::kAdd, 2},
    {"-", Primitive::kSubtract, 2},
    {"*", Primitive::kMultiply, 2},
    {"<", Primitive::kLess, 2},
    {"=", Primitive::kNumberEqual, 2},
    {"eq?", Primitive::kEq, 2},
    {"null?", Primitive::kNull, 1},
    {"pair?", Primitive::kIsPair, 1},
    {"number?", Primitive::kIsNumber, 1},
    {"vector-ref", Primitive::kVectorRef, 2},
    {"vector-set!", Primitive::kVectorSet, 3},
    {"vector-length", Primitive::kVectorLength, 1},
    {"make-vector", Primitive::kMakeVector, 2},
    {"quotient", Primitive::kQuotient, 2},
    {"remainder", Primitive::kRemainder, 2},
    {"print", Primitive::kPrint, 1},
    {"collect", Primitive::kCollect, 0},
}};
constexpr std::array<std::string_view, 13> kForms{"quote", "if",   "define", "set!", "lambda",
                                                  "let",   "cond", "begin",  "and",  "or",
                                                  "list",  "try",  "else"};
constexpr std::size_t kMostArguments = 100;
constexpr unsigned kMostNesting = 400;

const PrimitiveName* find_primitive(std::string_view name) {
  const auto* const found = std::ranges::find(kPrimitives, name, &PrimitiveName::name);
  return found == kPrimitives.end() ? nullptr : found;
}

Node symbol_node(std::string_view name, unsigned line) {
  return {.kind = Node::Kind::kSymbol, .line = line, .symbol = std::string(name)};
}

bool contains(const auto& range, const auto& value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

Variable* find(const std::string& name, Function& function) {
  for (std::size_t i = function.scope.size(); i-- > 0;) {
    if (function.scope[i]->name == name) return function.scope[i];
  }
  if (function.parent == nullptr) return nullptr;
  Variable* const outer = find(name, *function.parent);
  if (outer != nullptr && !contains(function.captures, outer)) {
    outer->captured = true;
    function.captures.push_back(outer);
  }
  return outer;
}

class Analysis {
 public:
  /// `nesting` is how deep the function lies in expressions around it.
  Analysis(Names& names, Function& function, unsigned nesting = 0)
      : names_(names), function_(function), nesting_(nesting) {}

  Checked<Expression> expression(const Node& node) {
    return nested(node, [&] { return any(node); });
  }

  /// The parts of a list from `first` on, each evaluated, the last one's value counts.
  Checked<Expression> sequence(const Node& node, std::size_t first) {
    if (node.items.size() == first) return constant(kNil, node);
    return combine(Expression::Kind::kSequence, node, first);
  }

  Checked<Variable*> declare(const Node& name) {
    if (Checked<> fine = check_name(name); !fine) return std::unexpected(fine.error());
    return &function_.variables.emplace_back(Variable{.name = name.symbol, .owner = &function_});
  }
  static Checked<> check_name(const Node& name) {
    if (name.kind != Node::Kind::kSymbol) return complain(name, "a name is expected");
    if (name.symbol == "nil" || name.symbol == "t" || find_primitive(name.symbol) != nullptr ||
        contains(kForms, name.symbol)) {
      return complain(name, name.symbol + " cannot be given another meaning");
    }
    return {};
  }

  static std::unexpected<Complaint> complain(const Node& node, std::string what) {
    return std::unexpected(Complaint{.line = node.line, .what = std::move(what)});
  }

 private:
  /// Runs `make` one level deeper, within what the native stack bears.
  Checked<Expression> nested(const Node& node, auto&& make) {
    if (nesting_ == kMostNesting) return complain(node, "nested too deep");
    ++nesting_;
    Checked<Expression> made = make();
    --nesting_;
    return made;
  }

  Checked<Expression> any(const Node& node) {
    using Kind = Expression::Kind;
    if (node.kind == Node::Kind::kNumber) return constant(make_number(node.number), node);
    if (node.kind == Node::Kind::kSymbol) return reference(node);
    if (node.items.empty()) return constant(kNil, node);
    const std::vector<Node>& items = node.items;
    const std::string& head = items[0].symbol;
    if (items[0].kind == Node::Kind::kSymbol) {
      if (head == "quote") return quote(node);
      if (head == "if") return conditional(node);
      if (head == "define") return complain(node, "define stands at the top of a program only");
      if (head == "set!") return assignment(node);
      if (head == "lambda") return lambda(node);
      if (head == "let") return let(node);
      if (head == "cond") return cond(node, 1);
      if (head == "begin") return sequence(node, 1);
      if (head == "and") return both(node, 1);
      if (head == "or") return either(node, 1);
      if (head == "list") return list(node, 1);
      if (head == "try") {
        if (items.size() != 2) return complain(node, "try takes one expression");
        return combine(Kind::kTry, node, 1);
      }
      if (head == "else") return complain(node, "else outside of cond");
      if (const PrimitiveName* const primitive = find_primitive(head)) {
        if (items.size() - 1 != primitive->arguments) {
          return complain(node,
                          head + " takes " + std::to_string(primitive->arguments) + " arguments");
        }
        Checked<Expression> made = combine(Kind::kPrimitive, node, 1);
        if (made) made->primitive = primitive->primitive;
        return made;
      }
    }
    if (items.size() > kMostArguments) return complain(node, "more than 99 arguments");
    return combine(Kind::kCall, node, 0);
  }

  static Expression constant(Value value, const Node& node) {
    return {.kind = Expression::Kind::kConstant, .line = node.line, .constant = value};
  }

  Checked<Expression> combine(Expression::Kind kind, const Node& node, std::size_t first) {
    Expression made{.kind = kind, .line = node.line};
    for (std::size_t i = first; i < node.items.size(); ++i) {
      Checked<Expression> part = expression(node.items[i]);
      if (!part) return part;
      made.parts.push_back(std::move(*part));
    }
    return made;
  }

  Checked<Expression> reference(const Node& node) {
    if (node.symbol == "nil") return constant(kNil, node);
    if (node.symbol == "t") return constant(kTrue, node);
    if (contains(kForms, node.symbol)) {
      return complain(node, node.symbol + " is no value");
    }
    if (const PrimitiveName* const primitive = find_primitive(node.symbol)) {
      return as_function(node, *primitive);
    }
    if (Variable* const variable = find(node.symbol, function_)) {
      return Expression{
          .kind = Expression::Kind::kVariable, .line = node.line, .variables = {variable}};
    }
    return Expression{
        .kind = Expression::Kind::kGlobal, .line = node.line, .global = names_.global(node.symbol)};
  }

  /// (lambda (a b) (cons a b))
  Checked<Expression> as_function(const Node& node, const PrimitiveName& primitive) {
    Node parameters{.line = node.line};
    Node body{.line = node.line, .items = {node}};
    for (std::size_t i = 0; i < primitive.arguments; ++i) {
      const Node name = symbol_node(std::string(1, static_cast<char>('a' + i)), node.line);
      parameters.items.push_back(name);
      body.items.push_back(name);
    }
    return lambda(
        {.line = node.line,
         .items = {symbol_node("lambda", node.line), std::move(parameters), std::move(body)}});
  }

  Checked<Expression> quote(const Node& node) {
    if (node.items.size() != 2) return complain(node, "quote takes one thing");
    const Node& quoted = node.items[1];
    if (quoted.kind == Node::Kind::kNumber) return constant(make_number(quoted.number), node);
    if (quoted.is("nil") || (quoted.is_list() && quoted.items.empty())) {
      return constant(kNil, node);
    }
    if (quoted.kind == Node::Kind::kSymbol) return constant(names_.symbol(quoted.symbol), node);
    const Checked<std::size_t> place = names_.datum(quoted);
    if (!place) return std::unexpected(place.error());
    return Expression{.kind = Expression::Kind::kGlobal, .line = node.line, .global = *place};
  }

  Checked<Expression> conditional(const Node& node) {
    if (node.items.size() != 3 && node.items.size() != 4) {
      return complain(node, "if takes a condition and one or two expressions");
    }
    Checked<Expression> made = combine(Expression::Kind::kIf, node, 1);
    if (made && node.items.size() == 3) made->parts.push_back(constant(kNil, node));
    return made;
  }

  Checked<Expression> assignment(const Node& node) {
    if (node.items.size() != 3) return complain(node, "set! takes a name and a value");
    const Node& name = node.items[1];
    if (Checked<> fine = check_name(name); !fine) return std::unexpected(fine.error());
    Checked<Expression> made = combine(Expression::Kind::kSetGlobal, node, 2);
    if (!made) return made;
    if (Variable* const variable = find(name.symbol, function_)) {
      made->kind = Expression::Kind::kSetVariable;
      variable->assigned = true;
      made->variables = {variable};
    } else {
      made->global = names_.global(name.symbol);
    }
    return made;
  }

  Checked<Expression> lambda(const Node& node) {
    if (node.items.size() < 3 || !node.items[1].is_list()) {
      return complain(node, "lambda takes a list of names and a body");
    }
    auto made = std::make_unique<Function>();
    made->name = function_.name;
    made->parent = &function_;
    Analysis inner(names_, *made, nesting_);
    if (node.items[1].items.size() >= kMostArguments) {
      return complain(node, "more than 99 parameters");
    }
    for (const Node& name : node.items[1].items) {
      Checked<Variable*> parameter = inner.declare(name);
      if (!parameter) return std::unexpected(parameter.error());
      made->parameters.push_back(*parameter);
    }
    made->scope = made->parameters;
    Checked<Expression> body = inner.sequence(node, 2);
    if (!body) return body;
    made->body = std::move(*body);
    Expression expression{.kind = Expression::Kind::kLambda, .line = node.line};
    expression.function = std::move(made);
    return expression;
  }

  Checked<Expression> let(const Node& node) {
    if (node.items.size() < 3 || !node.items[1].is_list()) {
      return complain(node, "let takes a list of names with values, and a body");
    }
    Expression made{.kind = Expression::Kind::kLet, .line = node.line};
    for (const Node& binding : node.items[1].items) {
      if (!binding.is_list() || binding.items.size() != 2) {
        return complain(binding, "let takes (name value)");
      }
      Checked<Expression> value = expression(binding.items[1]);
      if (!value) return value;
      made.parts.push_back(std::move(*value));
      Checked<Variable*> variable = declare(binding.items[0]);
      if (!variable) return std::unexpected(variable.error());
      made.variables.push_back(*variable);
    }
    const std::size_t outside = function_.scope.size();
    function_.scope.insert(function_.scope.end(), made.variables.begin(), made.variables.end());
    Checked<Expression> body = sequence(node, 2);
    function_.scope.resize(outside);
    if (!body) return body;
    made.parts.push_back(std::move(*body));
    return made;
  }

  Checked<Expression> make_if(const Node& node, Checked<Expression> condition,
                              Checked<Expression> yes, Checked<Expression> no) {
    Expression made{.kind = Expression::Kind::kIf, .line = node.line};
    for (Checked<Expression>* part : {&condition, &yes, &no}) {
      if (!*part) return std::move(*part);
      made.parts.push_back(std::move(**part));
    }
    return made;
  }
  Checked<Expression> cond(const Node& node, std::size_t first) {
    if (first == node.items.size()) return constant(kNil, node);
    const Node& clause = node.items[first];
    if (!clause.is_list() || clause.items.size() < 2) {
      return complain(clause, "cond takes (condition expression ...)");
    }
    if (clause.items[0].is("else")) return sequence(clause, 1);
    return make_if(clause, expression(clause.items[0]), sequence(clause, 1),
                   nested(node, [&] { return cond(node, first + 1); }));
  }
  Checked<Expression> both(const Node& node, std::size_t first) {
    if (first == node.items.size()) return constant(kTrue, node);
    if (first + 1 == node.items.size()) return expression(node.items[first]);
    return make_if(node, expression(node.items[first]),
                   nested(node, [&] { return both(node, first + 1); }), constant(kNil, node));
  }
  Checked<Expression> either(const Node& node, std::size_t first) {
    if (first == node.items.size()) return constant(kNil, node);
    if (first + 1 == node.items.size()) return expression(node.items[first]);
    // (let ((value first)) (if value value (or ...))), with a variable that has no name.
    Expression made{.kind = Expression::Kind::kLet, .line = node.line};
    Variable* const variable = &function_.variables.emplace_back(Variable{.owner = &function_});
    const auto value = [&] {
      return Expression{
          .kind = Expression::Kind::kVariable, .line = node.line, .variables = {variable}};
    };
    made.variables = {variable};
    Checked<Expression> start = expression(node.items[first]);
    if (!start) return start;
    Checked<Expression> body =
        make_if(node, value(), value(), nested(node, [&] { return either(node, first + 1); }));
    if (!body) return body;
    made.parts.push_back(std::move(*start));
    made.parts.push_back(std::move(*body));
    return made;
  }
  Checked<Expression> list(const Node& node, std::size_t first) {
    if (first == node.items.size()) return constant(kNil, node);
    Expression made{
        .kind = Expression::Kind::kPrimitive, .line = node.line, .primitive = Primitive::kCons};
    Checked<Expression> head = expression(node.items[first]);
    if (!head) return head;
    Checked<Expression> tail = nested(node, [&] { return list(node, first + 1); });
    if (!tail) return tail;
    made.parts.push_back(std::move(*head));
    made.parts.push_back(std::move(*tail));
    return made;
  }

  Names& names_;
  Function& function_;
  unsigned nesting_;
};

/// (define name value) and (define (name parameter ...) body ...).
Checked<Expression> definition(const Node& node, Names& names, Function& function) {
  if (node.items.size() < 3) return Analysis::complain(node, "define takes a name and a value");
  Node name = node.items[1];
  Node value = node.items[2];
  if (name.is_list()) {
    if (name.items.empty()) return Analysis::complain(name, "a name is expected");
    Node parameters{.line = name.line};
    parameters.items.assign(name.items.begin() + 1, name.items.end());
    value = {.line = node.line, .items = {symbol_node("lambda", node.line), std::move(parameters)}};
    value.items.insert(value.items.end(), node.items.begin() + 2, node.items.end());
    name = Node(name.items[0]);
  } else if (node.items.size() != 3) {
    return Analysis::complain(node, "define takes a name and a value");
  }
  if (Checked<> fine = Analysis::check_name(name); !fine) return std::unexpected(fine.error());
  function.name = name.symbol;
  Expression made{
      .kind = Expression::Kind::kSetGlobal, .line = node.line, .global = names.global(name.symbol)};
  Checked<Expression> part = Analysis(names, function).expression(value);
  if (!part) return part;
  made.parts.push_back(std::move(*part));
  return made;
}

}  // namespace

Checked<std::unique_ptr<Function>> analyse(const Node& form, Names& names) {
  auto function = std::make_unique<Function>();
  function->name = "top";
  Checked<Expression> body = form.is_form("define") ? definition(form, names, *function)
                                                    : Analysis(names, *function).expression(form);
  if (!body) return std::unexpected(std::move(body.error()));
  function->body = std::move(*body);
  return function;
}

}  // namespace touchstone::lisp
