// SPDX-License-Identifier: MIT
#include "runtime.h"

#include <algorithm>
#include <ostream>
#include <utility>

namespace touchstone::lisp {
namespace {

constexpr std::array<std::string_view, 13> kFaults{
    "none",         "out-of-memory", "too-deep",         "not-a-pair",
    "not-a-number", "not-a-vector",  "not-a-function",   "wrong-number-of-arguments",
    "overflow",     "out-of-range",  "division-by-zero", "unbound",
    "corrupt-heap"};

}  // namespace

std::string_view to_string(Fault fault) {
  return kFaults[static_cast<std::size_t>(fault)];
}

// ---- Step 2 of embedding: a heap, and this thread as its mutator, with roots.

Result<std::unique_ptr<Runtime>> Runtime::create(const heap::HeapOptions& options,
                                                 std::ostream& out) {
  std::unique_ptr<Runtime> runtime(new Runtime(out));
  Result<std::unique_ptr<LispHeap>> heap = LispHeap::create(options);
  if (!heap) return std::unexpected(heap.error());
  runtime->heap_ = std::move(*heap);
  Result<heap::MutatorPointer> mutator = runtime->heap_->attach("lisp");
  if (!mutator) return std::unexpected(mutator.error());
  runtime->mutator_ = std::move(*mutator);

  runtime->stack_ = std::make_unique<Value[]>(kStackSize + kMostFrame);
  Thread& thread = runtime->thread_;
  thread.stack = thread.top = runtime->stack_.get();
  thread.limit = thread.stack + kStackSize;
  thread.runtime = runtime.get();
  static_cast<void>(runtime->symbol("t"));
  runtime->mutator_->add_roots({&Runtime::visit_roots, runtime.get()});
  return runtime;
}

Runtime::~Runtime() = default;

/// Precise roots: every value that is alive lies on the stack of values or in the table. The
/// collector writes the new addresses of what it moves back into them.
void Runtime::visit_roots(heap::RootVisitor& visitor, void* context) noexcept {
  auto& runtime = *static_cast<Runtime*>(context);
  for (Value* slot = runtime.thread_.stack; slot < runtime.thread_.top; ++slot) {
    if (is_reference(*slot)) visitor.visit(slot);
  }
  for (Value& value : runtime.table_) {
    if (is_reference(value)) visitor.visit(&value);
  }
}

// ---- Step 3 of embedding: allocation and stores in C++. What may collect is followed by reading
// the values anew from where the collector has seen them.

bool Runtime::push_datum(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNumber:
      thread_.push(make_number(node.number));
      return true;
    case Node::Kind::kSymbol:
      thread_.push(node.symbol == "nil" ? kNil : symbol(node.symbol));
      return true;
    case Node::Kind::kList:
      break;
  }
  thread_.push(kNil);
  for (std::size_t i = node.items.size(); i-- > 0;) {
    if (!push_datum(node.items[i])) return false;
    std::byte* const memory = heap_->allocate_or_null(*mutator_, 3 * sizeof(Value));
    if (memory == nullptr) return false;
    auto& pair = *reinterpret_cast<Object*>(memory);
    pair.header = header_of(Kind::kPair, 2);  // Before the next safepoint.
    pair[0] = thread_.pop();
    pair[1] = thread_.pop();
    thread_.push(reinterpret_cast<Value>(&pair));
  }
  return true;
}

Value Runtime::make_vector(Thread* thread, Value* arguments) noexcept {
  Runtime& runtime = *thread->runtime;
  if (!is_number(arguments[0])) return fail(*thread, Fault::kNotANumber);
  const auto length = static_cast<std::uint64_t>(number_of(arguments[0]));
  if (length >= std::uint64_t{1} << 40U) return fail(*thread, Fault::kOutOfRange);
  const std::size_t size = (length + 1) * sizeof(Value);
  std::byte* const memory = runtime.heap_->allocate_or_null(*runtime.mutator_, size);
  if (memory == nullptr) return fail(*thread, Fault::kOutOfMemory);
  auto& vector = *reinterpret_cast<Object*>(memory);
  vector.header = header_of(Kind::kVector, length);
  std::fill_n(&vector[0], length, arguments[1]);
  // A large object is old at once: what it refers to may be younger.
  if (runtime.heap_->fast_path_layout().is_old_at_once(size)) {
    runtime.mutator_->write_barrier(memory, size);
  }
  return reinterpret_cast<Value>(&vector);
}

// ---- Step 4 of embedding: what takes long without touching objects holds up no collection.

Value Runtime::print(Thread* thread, Value* arguments) noexcept {
  Runtime& runtime = *thread->runtime;
  const std::string text = runtime.show(arguments[0]);
  {
    const heap::NativeScope native(*runtime.mutator_);
    runtime.out_ << text << '\n';
  }
  return arguments[0];  // Read after the safepoint.
}

Value Runtime::collect(Thread* thread, Value* /*arguments*/) noexcept {
  Runtime& runtime = *thread->runtime;
  if (!runtime.heap_->collect(runtime.mutator_.get())) return fail(*thread, Fault::kCorruptHeap);
  return kNil;
}

// ---- The rest has nothing to do with the collector.

Value Runtime::quotient(Thread* thread, Value* arguments) noexcept {
  if (!is_number(arguments[0]) || !is_number(arguments[1])) {
    return fail(*thread, Fault::kNotANumber);
  }
  if (number_of(arguments[1]) == 0) return fail(*thread, Fault::kDivisionByZero);
  const std::int64_t result = number_of(arguments[0]) / number_of(arguments[1]);
  return result > kMostNumber ? fail(*thread, Fault::kOverflow) : make_number(result);
}

Value Runtime::remainder(Thread* thread, Value* arguments) noexcept {
  if (!is_number(arguments[0]) || !is_number(arguments[1])) {
    return fail(*thread, Fault::kNotANumber);
  }
  if (number_of(arguments[1]) == 0) return fail(*thread, Fault::kDivisionByZero);
  return make_number(number_of(arguments[0]) % number_of(arguments[1]));
}

Value Runtime::fail(Thread& thread, Fault fault) noexcept {
  thread.fault = static_cast<std::uint64_t>(fault);
  return kFailed;
}

Value Runtime::caught(Thread* thread) noexcept {
  const auto fault = static_cast<Fault>(std::exchange(thread->fault, 0));
  return thread->runtime->symbol(std::string(to_string(fault)));
}

std::size_t Runtime::add_to_table(Value value) {
  table_.push_back(value);
  thread_.table = table_.data();
  return table_.size() - 1;
}

std::size_t Runtime::global(const std::string& name) {
  const auto found = globals_.find(name);
  if (found != globals_.end()) return found->second;
  return globals_.emplace(name, add_to_table(kUnbound)).first->second;
}

Value Runtime::symbol(const std::string& name) {
  const auto [found, fresh] = symbol_values_.try_emplace(name, make_symbol(symbols_.size()));
  if (fresh) symbols_.push_back(name);
  return found->second;
}

Checked<std::size_t> Runtime::datum(const Node& list) {
  Value* const before = thread_.top;
  if (!push_datum(list)) {
    thread_.top = before;
    return std::unexpected(Complaint{.line = list.line, .what = mutator_->error().message()});
  }
  return add_to_table(thread_.pop());
}

namespace {
constexpr std::size_t kMostShown = 1000;
constexpr unsigned kMostShownNesting = 100;
}  // namespace

std::string Runtime::show(Value value) const {
  std::string text;
  std::size_t left = kMostShown;
  const auto append = [&](const auto& self, Value shown, unsigned nesting) -> void {
    if (left == 0 || nesting == kMostShownNesting) {
      text += "...";
      return;
    }
    --left;
    if (shown == kNil) {
      text += "nil";
    } else if (is_number(shown)) {
      text += std::to_string(number_of(shown));
    } else if (is_symbol(shown)) {
      text += symbols_[symbol_of(shown)];
    } else if (is_kind(shown, Kind::kFunction)) {
      text += "function";
    } else if (is_kind(shown, Kind::kVector)) {
      text += '[';
      for (std::size_t i = 0; i < object_of(shown).values() && left != 0; ++i) {
        if (i != 0) text += ' ';
        self(self, object_of(shown)[i], nesting + 1);
      }
      text += ']';
    } else if (is_kind(shown, Kind::kPair)) {
      text += '(';
      for (; is_kind(shown, Kind::kPair) && left != 0; shown = object_of(shown)[1]) {
        if (text.back() != '(') text += ' ';
        self(self, object_of(shown)[0], nesting + 1);
      }
      if (shown != kNil) {
        text += " . ";
        self(self, shown, nesting + 1);
      }
      text += ')';
    }
  };
  append(append, value, 0);
  return text;
}

}  // namespace touchstone::lisp
