// SPDX-License-Identifier: MIT
#include "pretouch_limits.h"

#include <algorithm>
#include <cerrno>

#include <sys/resource.h>

#include <touchstone/heap/system_calls.h>

namespace touchstone::heap {
namespace {

// What a process that touches memory is charged besides: a page of page tables for each PMD, the
// stacks of the threads, and the batches in which the kernel charges each CPU's cgroup ahead (64
// pages).
constexpr std::uint64_t kPerThread = std::uint64_t{384} << 10;
constexpr std::uint64_t kSlack = std::uint64_t{1} << 20;

Result<std::optional<std::uint64_t>> address_space_limit() {
  rlimit limit{};
  if (system_calls().getrlimit(RLIMIT_AS, &limit) != 0) {
    return std::unexpected(Error{.code = ErrorCode::kUnavailable,
                                 .operation = "getrlimit(RLIMIT_AS)",
                                 .system_errno = errno});
  }
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

/// UINT64_MAX where there is no limit or none is known.
std::uint64_t value_or_none(const Result<std::optional<std::uint64_t>>& limit) noexcept {
  return limit.value_or(std::nullopt).value_or(UINT64_MAX);
}

std::uint64_t cgroup_headroom(const PretouchLimits& limits) noexcept {
  if (!limits.cgroup) return UINT64_MAX;
  const std::optional<arch::CgroupMemory>& binding = *limits.cgroup;
  return binding ? binding->headroom() : UINT64_MAX;
}

}  // namespace

PretouchLimits read_limits(const arch::SystemRoots& roots) {
  return {.cgroup = arch::cgroup_memory(roots),
          .available = arch::available_memory(roots),
          .address_space = address_space_limit()};
}

std::uint64_t memory_headroom(const PretouchLimits& limits, std::size_t length,
                              arch::Geometry geometry, unsigned threads) noexcept {
  std::uint64_t room = UINT64_MAX;
  if (limits.available) room = *limits.available;
  room = std::min(room, cgroup_headroom(limits));
  if (room == UINT64_MAX) return room;
  const std::uint64_t tables = (length / geometry.pmd + 2) * geometry.base_page;
  const std::uint64_t besides = tables + threads * kPerThread + kSlack;
  return room > besides ? room - besides : 0;
}

Result<std::size_t> length_within(const PretouchLimits& limits, LimitPolicy policy,
                                  const std::byte* begin, std::size_t length,
                                  arch::Geometry geometry, unsigned threads,
                                  const PageProbe* probe) {
  const auto start = reinterpret_cast<std::uintptr_t>(begin);
  Error error{.code = ErrorCode::kLimitExceeded,
              .operation = "pretouch",
              .address = start,
              .length = length};
  std::uint64_t fits = length;
  const std::uint64_t most_mapped = value_or_none(limits.address_space);
  if (most_mapped < fits) {
    fits = most_mapped;
    error.detail = "RLIMIT_AS is smaller than the range";
  }
  const std::uint64_t room = memory_headroom(limits, length, geometry, threads);
  if (room < length) {
    std::uint64_t resident = 0;
    std::uint64_t prefix = 0;
    if (probe != nullptr) {
      const Result<Residency> found = probe->residency(begin, length);
      if (found) resident = found->populated();
      prefix = probe->populated_prefix(begin, length).value_or(0);
    }
    if (length - resident > room && prefix + room < fits) {
      fits = prefix + room;
      const bool cgroup = cgroup_headroom(limits) <= limits.available.value_or(UINT64_MAX);
      error.detail = cgroup ? "the memory cgroup has less room than that"
                            : "the machine has less memory available than that";
    }
  }
  if (fits >= length) return length;
  if (policy == LimitPolicy::kRefuse) return std::unexpected(error);
  const std::uintptr_t stop =
      (start + static_cast<std::size_t>(fits)) / geometry.pmd * geometry.pmd;
  return stop > start ? stop - start : std::size_t{0};
}

}  // namespace touchstone::heap
