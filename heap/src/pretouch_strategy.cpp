// SPDX-License-Identifier: MIT
#include <array>
#include <atomic>
#include <cstdint>

#include <touchstone/heap/pretouch.h>

#include "touching.h"

namespace touchstone::heap {
namespace {

constexpr std::array kStrategies{PretouchStrategy::kNone,
                                 PretouchStrategy::kStore,
                                 PretouchStrategy::kAtomicRmw,
                                 PretouchStrategy::kPopulateWrite,
                                 PretouchStrategy::kPopulateReadThenStore,
                                 PretouchStrategy::kLoadThenStore,
                                 PretouchStrategy::kCollapse,
                                 PretouchStrategy::kAutomatic};

TOUCHSTONE_TOUCHES void touch_by_compiler(void* begin, void* end, std::size_t stride) {
  // Clang drops an atomic addition of a known 0 whose result nobody wants, and with it the touch.
  std::uint64_t zero = 0;  // NOLINT(misc-const-correctness): written as far as the compiler knows
  __asm__("" : "+r"(zero));
  auto* const last = static_cast<std::byte*>(end);
  for (auto* page = static_cast<std::byte*>(begin); page < last; page += stride) {
    __atomic_fetch_add(reinterpret_cast<std::uint64_t*>(page), zero, __ATOMIC_RELAXED);
  }
}

constexpr TouchKernel kCompilerKernel{
    .touch = touch_by_compiler, .name = "compiler fetch_add", .value_preserving = true};

constinit std::atomic<const TouchKernel*> registered{&kCompilerKernel};

}  // namespace

std::span<const PretouchStrategy> all_pretouch_strategies() noexcept {
  return kStrategies;
}

const char* to_string(PretouchStrategy strategy) noexcept {
  switch (strategy) {
    case PretouchStrategy::kNone:
      return "none";
    case PretouchStrategy::kStore:
      return "store";
    case PretouchStrategy::kAtomicRmw:
      return "atomic_rmw";
    case PretouchStrategy::kPopulateWrite:
      return "populate_write";
    case PretouchStrategy::kPopulateReadThenStore:
      return "populate_read_then_store";
    case PretouchStrategy::kLoadThenStore:
      return "load_then_store";
    case PretouchStrategy::kCollapse:
      return "collapse";
    case PretouchStrategy::kAutomatic:
      return "automatic";
  }
  return "unknown";
}

std::optional<PretouchStrategy> parse_pretouch_strategy(std::string_view name) noexcept {
  for (const PretouchStrategy strategy : kStrategies) {
    if (name == to_string(strategy)) return strategy;
  }
  return std::nullopt;
}

bool safe_beside_mutators(PretouchStrategy strategy) noexcept {
  switch (strategy) {
    case PretouchStrategy::kNone:
    case PretouchStrategy::kAtomicRmw:
    case PretouchStrategy::kPopulateWrite:
    case PretouchStrategy::kCollapse:
    case PretouchStrategy::kAutomatic:
      return true;
    case PretouchStrategy::kStore:
    case PretouchStrategy::kPopulateReadThenStore:
    case PretouchStrategy::kLoadThenStore:
      break;
  }
  return false;
}

const TouchKernel& compiler_touch_kernel() noexcept {
  return kCompilerKernel;
}

const TouchKernel* register_touch_kernel(const TouchKernel* kernel) noexcept {
  if (kernel != nullptr && kernel->touch == nullptr) return registered.load();
  return registered.exchange(kernel != nullptr ? kernel : &kCompilerKernel);
}

const TouchKernel& default_touch_kernel() noexcept {
  return *registered.load();
}

}  // namespace touchstone::heap
