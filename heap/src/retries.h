// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_RETRIES_H_
#define TOUCHSTONE_HEAP_SRC_RETRIES_H_

#include <cerrno>

namespace touchstone::heap {

/// Bounds how often a system call is repeated that says "not now", so that one that always says so
/// fails instead of hanging.
class Retries {
 public:
  /// After a failed call: whether to try again, by errno, which is kept.
  [[nodiscard]] bool again() noexcept {
    return (errno == EINTR || errno == EAGAIN) && count_++ < kMost;
  }

 private:
  static constexpr unsigned kMost = 1000;
  unsigned count_ = 0;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_RETRIES_H_
