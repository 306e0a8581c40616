// SPDX-License-Identifier: MIT
// Any text: reading, analysing and compiling it gives code or a complaint of one line. It is not
// run, as a program may loop for ever.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "compiler.h"
#include "reader.h"
#include "runtime.h"
#include "syntax.h"

namespace {

using namespace touchstone::lisp;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

template <typename T>
bool good(const Checked<T>& checked) {
  if (checked) return true;
  require(!checked.error().what.empty(), "a complaint says something");
  require(checked.error().what.find('\n') == std::string::npos, "a complaint is one line");
  require(checked.error().line != 0, "a complaint has a line");
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(size == 0 ? "" : reinterpret_cast<const char*>(data), size);
  std::ostringstream out;
  auto runtime = Runtime::create({.max_size = std::size_t{4} << 20U, .workers = 1}, out);
  require(runtime.has_value(), "there is a runtime");
  auto compiler = Compiler::create(**runtime);
  require(compiler.has_value(), "there is a compiler");
  for (Reader reader(text);;) {
    const auto form = reader.next();
    if (!good(form) || !*form) break;
    const auto function = analyse(**form, **runtime);
    if (!good(function)) break;
    if (!good((*compiler)->compile(**function))) break;
  }
  require((*runtime)->heap().collect(&(*runtime)->mutator()).has_value(), "the heap is sound");
  return 0;
}
