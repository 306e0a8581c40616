// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_EXACT_PREFIX_H_
#define TOUCHSTONE_HEAP_SRC_EXACT_PREFIX_H_

#include <cerrno>
#include <cstddef>

namespace touchstone::heap {

/// How often a call is repeated that says EINTR or EAGAIN before these count as failures.
inline constexpr int kTransientRetries = 64;

/// How far a call on a range of pages got.
struct Prefix {
  std::size_t done = 0;  ///< Bytes from the start on which it took effect.
  int error = 0;         ///< errno of the first page on which it did not; 0 if it did on all.
};

/// Runs `call` (0, or -1 and errno) until it says anything but EINTR or EAGAIN; errno or 0.
template <typename Call>
[[nodiscard]] int retried(Call call) noexcept {
  int error = 0;
  for (int i = 0; i <= kTransientRetries; ++i) {
    if (call() == 0) return 0;
    error = errno;
    if (error != EINTR && error != EAGAIN) break;
  }
  return error;
}

/// Applies `call(start, length)` to a range, and where it fails finds the exact prefix for which it
/// succeeds. The kernel works from low to high addresses and does not tell where it stopped, so
/// this halves the rest: `call` must be harmless to repeat where it succeeded before (mprotect,
/// madvise and mseal are).
template <typename Call>
[[nodiscard]] Prefix exact_prefix(std::byte* start, std::size_t length, std::size_t page,
                                  Call call) noexcept {
  // A failure may pass while the halves are tried; then the rest is worth another try, within
  // reason.
  constexpr int kRounds = 8;
  Prefix prefix;
  for (int round = 0; round < kRounds; ++round) {
    prefix.error = retried([&] { return call(start + prefix.done, length - prefix.done); });
    if (prefix.error == 0) {
      prefix.done = length;
      return prefix;
    }
    std::size_t failing = length;
    while (failing - prefix.done > page) {
      const std::size_t half = (failing - prefix.done) / page / 2 * page;
      const int error = retried([&] { return call(start + prefix.done, half); });
      if (error == 0) {
        prefix.done += half;
      } else {
        failing = prefix.done + half;
        prefix.error = error;
      }
    }
    const int error = retried([&] { return call(start + prefix.done, page); });
    if (error != 0) {
      prefix.error = error;
      return prefix;
    }
    prefix.done += page;
    if (prefix.done == length) {
      prefix.error = 0;
      return prefix;
    }
  }
  return prefix;
}

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_EXACT_PREFIX_H_
