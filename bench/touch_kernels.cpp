// SPDX-License-Identifier: MIT
// Is an emitted touch kernel as fast over 1 GiB of resident memory as the loop the compiler makes?
// The aim is a ratio of at most 1.05.
#include <cstddef>
#include <cstdint>
#include <memory>

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/pretouch.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/rmw_function.h>
#include <touchstone/jit/touch_kernel.h>

#include "paired.h"

namespace {

using namespace touchstone;

void touch_kernels(benchmark::State& state) {
  const std::size_t length = std::size_t{1} << 30U;
  const auto cache = jit::CodeCache::create();
  if (!cache) {
    state.SkipWithError(cache.error().message().c_str());
    return;
  }
  const auto kernel =
      jit::TouchKernel::create(**cache, {.access = jit::TouchAccess::kAdd,
                                         .width = 8,
                                         .target = jit::best_rmw_target(arch::cpu_features()),
                                         .result = jit::RmwResult::kDiscard});
  if (!kernel) {
    state.SkipWithError(kernel.error().message().c_str());
    return;
  }
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    state.SkipWithError("mmap of 1 GiB failed");
    return;
  }
  void* end = static_cast<std::byte*>(memory) + length;
  const std::size_t page = arch::base_page_size();
  const std::size_t pages = length / page;
  kernel->entry()(memory, end, page);
  bench::compare(
      state, static_cast<double>(pages), [&] { kernel->entry()(memory, end, page); },
      [&] { heap::compiler_touch_kernel().touch(memory, end, page); });
  munmap(memory, length);
}
BENCHMARK(touch_kernels)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
