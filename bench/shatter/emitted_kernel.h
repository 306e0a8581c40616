// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_SHATTER_EMITTED_KERNEL_H_
#define TOUCHSTONE_BENCH_SHATTER_EMITTED_KERNEL_H_

#include <memory>
#include <string>

#include <touchstone/arch/error.h>
#include <touchstone/heap/pretouch.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/touch_kernel.h>

namespace touchstone::shatter {

/// The emitted loop that atomic_rmw runs, with what it looks like. Movable; the kernel stays where
/// it is.
class EmittedKernel {
 public:
  /// Emits the shape for this CPU. Errors: those of jit::CodeCache and jit::TouchKernel.
  [[nodiscard]] static Result<EmittedKernel> create(const jit::TouchShape& shape);

  [[nodiscard]] const heap::TouchKernel* kernel() const noexcept { return &named_; }
  /// The instructions that access memory, as disassembled: "lock or dword ptr [rdi], eax".
  [[nodiscard]] const std::string& instruction() const noexcept { return *instruction_; }
  /// The whole loop, an instruction a line.
  [[nodiscard]] const std::string& listing() const noexcept { return listing_; }

 private:
  EmittedKernel(std::unique_ptr<jit::CodeCache> cache, jit::TouchKernel kernel,
                std::string instruction, std::string listing);

  std::unique_ptr<jit::CodeCache> cache_;  // Outlives the kernel in it.
  jit::TouchKernel kernel_;
  std::unique_ptr<std::string> instruction_;  // Does not move: named_ points into it.
  std::string listing_;
  heap::TouchKernel named_;
};

}  // namespace touchstone::shatter

#endif  // TOUCHSTONE_BENCH_SHATTER_EMITTED_KERNEL_H_
