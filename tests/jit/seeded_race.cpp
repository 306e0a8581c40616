// SPDX-License-Identifier: MIT
// A program with a data race on purpose: it publishes code and hands its address over by a plain
// pointer instead of a slot. The thread sanitizer sees nothing inside emitted code; this shows that
// it does see what C++ does around it.
#include <cstdio>
#include <thread>

#include <touchstone/jit/code_cache.h>

#include "small_functions.h"

int main() {
  using namespace touchstone::jit;
  const auto cache = CodeCache::create({.capacity = std::size_t{256} << 10U});
  if (!cache) return 2;
  const void* plain = (*cache)->add(constant_function(1), "first").value();
  std::thread publisher([&] {
    for (unsigned i = 0; i < 1000; ++i) {
      plain = (*cache)->add(constant_function(2), "next").value();  // races with the reads below
    }
  });
  unsigned long sum = 0;
  for (unsigned i = 0; i < 1000; ++i) sum += call(plain);
  publisher.join();
  return std::printf("%lu\n", sum) < 0 ? 1 : 0;
}
