// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_SRC_CODE_SYNCHRONISER_H_
#define TOUCHSTONE_JIT_SRC_CODE_SYNCHRONISER_H_

#include <atomic>
#include <cstddef>

#include <touchstone/arch/error.h>
#include <touchstone/jit/code_cache.h>

namespace touchstone::jit {

/// Cleans the data cache by the address written through and invalidates the instruction cache by
/// the one executed at, to the point of unification, and waits. Nothing on x86-64, whose caches are
/// coherent. `executable` must be readable.
void flush_code(const std::byte* writable, const std::byte* executable, std::size_t size) noexcept;

/// Makes every core of this process drop what it fetched before. Thread-safe.
class CodeSynchroniser {
 public:
  /// Probes membarrier, and registers for it.
  [[nodiscard]] static Result<CodeSynchronisation> probe(CodeSynchronisation wanted) noexcept;

  explicit CodeSynchroniser(CodeSynchronisation wanted, CodeSynchronisation probed) noexcept
      : wanted_(wanted), way_(probed) {}

  [[nodiscard]] Result<> synchronise() noexcept;
  [[nodiscard]] bool visits_cpus() const noexcept {
    return way_.load(std::memory_order_relaxed) == CodeSynchronisation::kVisitCpus;
  }

 private:
  CodeSynchronisation wanted_;
  std::atomic<CodeSynchronisation> way_;
};

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_SRC_CODE_SYNCHRONISER_H_
