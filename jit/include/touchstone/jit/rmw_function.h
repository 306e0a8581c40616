// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_RMW_FUNCTION_H_
#define TOUCHSTONE_JIT_RMW_FUNCTION_H_

#include <cstdint>

#include <touchstone/arch/error.h>
#include <touchstone/arch/machine.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/instruction_set.h>
#include <touchstone/jit/rmw.h>

namespace touchstone::jit {

/// The features of the CPU that runs this, asked for once: CPUID costs tens of microseconds in a
/// virtual machine. Thread-safe.
[[nodiscard]] const arch::CpuFeatures& host_features() noexcept;

/// The best target for a CPU with these features: LSE128, else LSE, else load-exclusive loops; or
/// on x86-64 with CMPXCHG16B, else without. Thread-safe.
[[nodiscard]] RmwTarget best_rmw_target(
    const arch::CpuFeatures& features,
    InstructionSet instruction_set = kHostInstructionSet) noexcept;

/// Whether a CPU with these features runs the target's code. Thread-safe.
[[nodiscard]] bool can_run(RmwTarget target, const arch::CpuFeatures& features,
                           InstructionSet instruction_set = kHostInstructionSet) noexcept;

/// A read-modify-write as a function in a code cache, released when this object ends; the cache
/// must live longer. Calling is thread-safe.
class RmwFunction {
 public:
  /// Emits and publishes. Errors: as rmw_requirements; kUnsupported where this CPU cannot run the
  /// target; as CodeCache::add.
  [[nodiscard]] static Result<RmwFunction> create(CodeCache& cache, const RmwShape& shape);

  /// The same with the best target for this CPU; shape.target is ignored.
  [[nodiscard]] static Result<RmwFunction> create_for_host(CodeCache& cache, RmwShape shape);

  RmwFunction(RmwFunction&& other) noexcept;
  RmwFunction& operator=(RmwFunction&& other) noexcept;
  RmwFunction(const RmwFunction&) = delete;
  RmwFunction& operator=(const RmwFunction&) = delete;
  ~RmwFunction();

  [[nodiscard]] const RmwShape& shape() const noexcept { return shape_; }

  /// Performs it; the value before, zero-extended (0 for kDiscard). Errors: kMisaligned for an
  /// address that is no multiple of the width; kInvalidArgument for a null address.
  [[nodiscard]] Result<RmwValue> operator()(void* address, RmwValue operand,
                                            RmwValue expected = {}) const noexcept;

  /// The function itself, unchecked: for widths up to 8, and for 16; null for the others.
  [[nodiscard]] RmwEntry entry() const noexcept;
  [[nodiscard]] RmwEntry16 entry16() const noexcept;
  [[nodiscard]] const void* address() const noexcept { return address_; }

 private:
  RmwFunction(CodeCache* cache, const RmwShape& shape, const void* address) noexcept
      : cache_(cache), shape_(shape), address_(address) {}
  void reset() noexcept;

  CodeCache* cache_ = nullptr;
  RmwShape shape_;
  const void* address_ = nullptr;
};

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_RMW_FUNCTION_H_
