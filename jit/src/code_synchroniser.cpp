// SPDX-License-Identifier: MIT
#include "code_synchroniser.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>

#include <linux/membarrier.h>

#include <touchstone/heap/system_calls.h>

namespace touchstone::jit {
namespace {

using heap::system_calls;

constexpr std::size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
/// A bit for each of 8192 CPUs, the most that Linux is built for.
using CpuMask = std::array<unsigned long, 8192 / kWordBits>;

Error refused(const char* operation, int system_errno) noexcept {
  ErrorCode code = code_of_errno(system_errno);
  if (code == ErrorCode::kInvalidArgument) code = ErrorCode::kUnsupported;
  return {.code = code,
          .operation = operation,
          .system_errno = system_errno,
          .detail = "other cores cannot be made to see new code"};
}

Result<> visit_cpus() noexcept {
  const auto& calls = system_calls();
  CpuMask before{};
  if (calls.get_affinity(sizeof before, before.data()) != 0) {
    return std::unexpected(refused("sched_getaffinity", errno));
  }
  // Not only the CPUs of this thread: the others of the process may be allowed more.
  std::size_t visited = 0;
  int why = 0;
  std::size_t absent = 0;
  for (std::size_t cpu = 0; cpu < before.size() * kWordBits; ++cpu) {
    CpuMask one{};
    one[cpu / kWordBits] = 1UL << (cpu % kWordBits);
    if (calls.set_affinity(sizeof one, one.data()) == 0) {
      ++visited;
      absent = 0;
      continue;
    }
    why = errno;
    // EINVAL: no such CPU, or not one of this cpuset's. Numbers have gaps, but not wide ones.
    if (why != EINVAL || ++absent > 1024) break;
  }
  const bool restored = calls.set_affinity(sizeof before, before.data()) == 0;
  if (visited == 0) return std::unexpected(refused("sched_setaffinity", why));
  if (why != EINVAL && why != 0) return std::unexpected(refused("sched_setaffinity", why));
  if (!restored) return std::unexpected(refused("sched_setaffinity", errno));
  return {};
}

Result<> membarrier() noexcept {
  if (system_calls().membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) != 0) {
    return std::unexpected(refused("membarrier(PRIVATE_EXPEDITED_SYNC_CORE)", errno));
  }
  return {};
}

}  // namespace

void flush_code([[maybe_unused]] const std::byte* writable,
                [[maybe_unused]] const std::byte* executable,
                [[maybe_unused]] std::size_t size) noexcept {
#if defined(__aarch64__)
  // Arm ARM, "Concurrent modification and execution of instructions"; CTR_EL0 gives the line sizes
  // in words (log2) and says which of the two steps the hardware does itself (IDC, DIC).
  std::uint64_t ctr = 0;
  asm volatile("mrs %0, ctr_el0" : "=r"(ctr));
  const std::size_t data_line = std::size_t{4} << ((ctr >> 16U) & 15U);
  const std::size_t instruction_line = std::size_t{4} << (ctr & 15U);
  const bool data_coherent = (ctr >> 28U & 1U) != 0;
  const bool instruction_coherent = (ctr >> 29U & 1U) != 0;
  const auto lines = [](const std::byte* start, std::size_t bytes, std::size_t line, auto each) {
    const auto from = reinterpret_cast<std::uintptr_t>(start);
    for (std::uintptr_t at = from & ~(line - 1); at < from + bytes; at += line) each(at);
  };
  if (!data_coherent) {
    lines(writable, size, data_line, [](std::uintptr_t at) {
      asm volatile("dc cvau, %0" : : "r"(at) : "memory");
    });
  }
  asm volatile("dsb ish" : : : "memory");
  if (!instruction_coherent) {
    lines(executable, size, instruction_line, [](std::uintptr_t at) {
      asm volatile("ic ivau, %0" : : "r"(at) : "memory");
    });
    asm volatile("dsb ish" : : : "memory");
  }
  asm volatile("isb" : : : "memory");
#endif
}

Result<CodeSynchronisation> CodeSynchroniser::probe(CodeSynchronisation wanted) noexcept {
  if (wanted == CodeSynchronisation::kVisitCpus) return wanted;
  const auto& calls = system_calls();
  constexpr int kNeeded = MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE |
                          MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE;
  const int commands = calls.membarrier(MEMBARRIER_CMD_QUERY, 0, 0);
  int why = commands < 0 ? errno : ENOSYS;
  if (commands >= 0 && (commands & kNeeded) == kNeeded) {
    if (calls.membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) == 0 &&
        membarrier()) {
      return CodeSynchronisation::kMembarrier;
    }
    why = errno;
  }
  if (wanted == CodeSynchronisation::kMembarrier) {
    return std::unexpected(refused("membarrier(PRIVATE_EXPEDITED_SYNC_CORE)", why));
  }
  return CodeSynchronisation::kVisitCpus;
}

Result<> CodeSynchroniser::synchronise() noexcept {
  if (!visits_cpus()) {
    Result<> done = membarrier();
    if (done || wanted_ == CodeSynchronisation::kMembarrier) return done;
    // Refused since it was probed, as by a seccomp filter installed meanwhile.
    way_.store(CodeSynchronisation::kVisitCpus, std::memory_order_relaxed);
  }
  return visit_cpus();
}

}  // namespace touchstone::jit
