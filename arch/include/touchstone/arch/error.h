// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_ERROR_H_
#define TOUCHSTONE_ARCH_ERROR_H_

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>

#include <touchstone/arch/export.h>

namespace touchstone {

/// Why an operation failed, independent of the system call that told.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  ///< A value outside what the function accepts; detail says which.
  kMisaligned,       ///< An address or a size that is not a multiple of what it must be.
  kOverflow,         ///< Address plus size wraps, or a size exceeds the address space.
  kOutOfRange,       ///< Part of the range lies outside the object it was given to.
  kLimitExceeded,    ///< A known limit (cgroup, RLIMIT_AS, max_map_count) forbids it beforehand.
  kOutOfMemory,      ///< The kernel had no memory, address space or mapping left.
  kPoolEmpty,        ///< The kernel's pool of hugetlb pages of that size has too few free ones.
  kNotPermitted,     ///< The kernel refused for want of privilege or because of a seal.
  kUnsupported,      ///< This kernel, CPU or instruction set cannot do it.
  kIneffective,      ///< The call reported success and had no effect.
  kCancelled,        ///< The caller asked for it to stop.
  kBusy,             ///< The memory is in use in a way that the operation would break.
  kUnavailable,      ///< A source of information (procfs, sysfs) could not be read or parsed.
  kFrozen,           ///< The object is read-only in this process (after fork).
  kTimedOut,         ///< It was not done in the time it was given; nothing has changed.
  kCorrupt,          ///< A check of data found it broken; detail says what.
  kSystem,           ///< Any other failed system call; system_errno tells.
};

/// The name of a code, such as "out of memory". Never null. Thread-safe.
[[nodiscard]] TOUCHSTONE_API const char* to_string(ErrorCode code) noexcept;

/// What failed, where, why and how far it got.
///
/// A plain value: copying never allocates and never fails. The strings are literals or otherwise
/// live for ever.
struct Error {
  ErrorCode code = ErrorCode::kSystem;
  /// The operation or system call, such as "madvise(MADV_POPULATE_WRITE)".
  const char* operation = "";
  /// Start of the range the operation was asked to work on, or 0 where there is none.
  std::uintptr_t address = 0;
  /// Length of that range in bytes.
  std::size_t length = 0;
  /// errno of the system call, or 0 where no system call failed.
  int system_errno = 0;
  /// Bytes from `address` on for which the operation is complete. Exact: what lies behind it is
  /// untouched.
  std::size_t progress = 0;
  /// One short clause that says more, or "".
  const char* detail = "";

  /// One line for a person: operation, range, cause, progress.
  [[nodiscard]] TOUCHSTONE_API std::string message() const;

  friend bool operator==(const Error&, const Error&) = default;
};

/// The result of everything that can fail.
template <typename T = void>
using Result = std::expected<T, Error>;

/// The code that an errno value stands for: ENOMEM is kOutOfMemory, EPERM and EACCES are
/// kNotPermitted, ENOSYS and EOPNOTSUPP are kUnsupported, EINVAL is kInvalidArgument; all else is
/// kSystem.
[[nodiscard]] TOUCHSTONE_API ErrorCode code_of_errno(int system_errno) noexcept;

}  // namespace touchstone

#endif  // TOUCHSTONE_ARCH_ERROR_H_
