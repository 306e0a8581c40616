// SPDX-License-Identifier: MIT
// With the leak sanitizer: memory to which objects of a heap hold the only pointers is no leak, and
// is one when they let go of it.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <sanitizer/lsan_interface.h>

#include "collector_fixture.h"

int main() {
  using namespace touchstone::heap;
  using namespace touchstone::heap::testing;
  const auto fail = [](const char* what) {
    std::fprintf(stderr, "not so: %s\n", what);
    return 1;
  };
  auto heap = TestHeap::create({.max_size = std::size_t{16} << 20U, .poison = true});
  if (!heap) return fail("there is a heap");
  auto mutator = (*heap)->attach();
  if (!mutator) return fail("there is a mutator");
  // So many that what may be left of some on the stack does not matter.
  constexpr std::size_t count = 1000;
  const Local<Table> table(**mutator, make_table(**heap, **mutator, count));
  for (std::size_t i = 0; i < count; ++i) {
    Pair* const pair = make_pair(**heap, **mutator, 0);
    if (pair == nullptr) return fail("there is memory");
    pair->number = reinterpret_cast<std::uintptr_t>(std::malloc(100));
    (*mutator)->write((*table)[i], pair);
  }
  if (!(*heap)->collect(mutator->get())) return fail("the heap is sound");
  if (__lsan_do_recoverable_leak_check() != 0) return fail("pointers in the heap are seen");
  std::array<std::uintptr_t, count> hidden{};
  for (std::size_t i = 0; i < count; ++i) {
    hidden[i] = ~(*table)[i]->number;
    (*table)[i]->number = 0;
  }
  // What is freed is overwritten: copies that were left behind keep nothing.
  if (!(*heap)->trim(mutator->get())) return fail("the heap is sound");
  std::fputs("a report of leaks is expected:\n", stderr);
  if (__lsan_do_recoverable_leak_check() == 0) return fail("what is let go of is a leak");
  for (const std::uintptr_t each : hidden) {
    std::free(reinterpret_cast<void*>(~each));  // NOLINT(performance-no-int-to-ptr)
  }
  return 0;
}
