// SPDX-License-Identifier: MIT
// Is emitted TLAB allocation as fast as the compiled inline path? Two loops, one of each; the aim
// is a ratio of at most 1.05. Headers are not initialised.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <asmjit/arm/a64assembler.h>
#include <asmjit/core.h>
#include <asmjit/x86.h>
#include <benchmark/benchmark.h>

#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/fast_paths.h>
#include <touchstone/jit/instruction_set.h>

#include "paired.h"

namespace {

using touchstone::Result;
using touchstone::heap::FastPathLayout;
using touchstone::jit::CodeCache;
using touchstone::jit::emit_allocate;
using touchstone::jit::InstructionSet;
using touchstone::jit::kHostInstructionSet;
using touchstone::jit::kNoRegister;

struct Mutator {
  std::uintptr_t top = 0;
  std::uintptr_t end = 0;
};
constexpr FastPathLayout kLayout{.tlab_top_offset = offsetof(Mutator, top)};
constexpr std::size_t kSize = 32;

/// Allocates until the TLAB is full; the xor of all objects keeps the loop honest.
using Loop = std::uintptr_t (*)(Mutator* mutator, std::size_t size);

[[gnu::noinline]] std::uintptr_t compiled_loop(Mutator* mutator, std::size_t size) {
  std::uintptr_t all = 0;
  for (;;) {
    const std::uintptr_t object = mutator->top;
    const std::uintptr_t left = mutator->end - object;
    if (size > left) return all;
    mutator->top = object + size;
    all ^= object;
    // Between two allocations other code runs, and the block may have changed.
    asm volatile("" : : : "memory");
  }
}

template <typename Assembler>
Result<std::vector<std::byte>> emit_loop() {
  constexpr bool a64 = std::is_same_v<Assembler, asmjit::a64::Assembler>;
  asmjit::CodeHolder code;
  code.init(asmjit::Environment(a64 ? asmjit::Arch::kAArch64 : asmjit::Arch::kX64));
  Assembler as(&code);
  const asmjit::Label again = as.newLabel();
  const asmjit::Label full = as.newLabel();
  Result<> emitted;
  if constexpr (a64) {
    using namespace asmjit::a64;
    as.embedUInt32(0xD503245F);  // BTI c
    as.mov(x5, 0);
    as.bind(again);
    emitted = emit_allocate(
        as, kLayout, {.mutator = 0, .input = 1, .result = 2, .scratch = {3, 4, kNoRegister}}, full);
    as.eor(x5, x5, x2);
    as.b(again);
    as.bind(full);
    as.mov(x0, x5);
    as.ret(x30);
  } else {
    using namespace asmjit::x86;
    as.xor_(r8d, r8d);
    as.align(asmjit::AlignMode::kCode, 16);
    as.bind(again);
    emitted = emit_allocate(as, kLayout,
                            {.mutator = Gp::kIdDi,
                             .input = Gp::kIdSi,
                             .result = Gp::kIdAx,
                             .scratch = {Gp::kIdCx, kNoRegister, kNoRegister}},
                            full);
    as.xor_(r8, rax);
    as.jmp(again);
    as.bind(full);
    as.mov(rax, r8);
    as.ret();
  }
  if (!emitted) return std::unexpected(emitted.error());
  const auto* bytes = reinterpret_cast<const std::byte*>(code.textSection()->data());
  return std::vector<std::byte>(bytes, bytes + code.textSection()->bufferSize());
}

void tlab_allocation(benchmark::State& state) {
  using HostAssembler = std::conditional_t<kHostInstructionSet == InstructionSet::kA64,
                                           asmjit::a64::Assembler, asmjit::x86::Assembler>;
  const auto cache = CodeCache::create();
  const auto code = emit_loop<HostAssembler>();
  if (!cache || !code) {
    state.SkipWithError("no code");
    return;
  }
  const auto entry = (*cache)->add(*code, "allocation loop");
  if (!entry) {
    state.SkipWithError(entry.error().message().c_str());
    return;
  }
  const auto emitted = std::bit_cast<Loop>(*entry);
  constexpr std::size_t objects = 100'000;
  std::vector<std::byte> memory(objects * kSize);
  const auto run = [&](Loop loop) {
    Mutator mutator;
    mutator.top = reinterpret_cast<std::uintptr_t>(memory.data());
    mutator.end = mutator.top + memory.size();
    std::uintptr_t all = loop(&mutator, kSize);
    benchmark::DoNotOptimize(all);
  };
  touchstone::bench::compare(state, objects, [&] { run(emitted); }, [&] { run(compiled_loop); });
}
BENCHMARK(tlab_allocation)->UseManualTime();

}  // namespace

BENCHMARK_MAIN();
