// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include <touchstone/arch/error.h>

namespace touchstone {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kMisaligned:
      return "misaligned";
    case ErrorCode::kOverflow:
      return "overflow";
    case ErrorCode::kOutOfRange:
      return "out of range";
    case ErrorCode::kLimitExceeded:
      return "limit exceeded";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kPoolEmpty:
      return "hugetlb pool empty";
    case ErrorCode::kNotPermitted:
      return "not permitted";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kIneffective:
      return "no effect";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kBusy:
      return "busy";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kFrozen:
      return "frozen after fork";
    case ErrorCode::kTimedOut:
      return "timed out";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kSystem:
      return "system call failed";
  }
  return "unknown error";
}

ErrorCode code_of_errno(int system_errno) noexcept {
  switch (system_errno) {
    case ENOMEM:
      return ErrorCode::kOutOfMemory;
    case EPERM:
    case EACCES:
      return ErrorCode::kNotPermitted;
    case ENOSYS:
    case EOPNOTSUPP:
      return ErrorCode::kUnsupported;
    case EINVAL:
      return ErrorCode::kInvalidArgument;
    default:
      return ErrorCode::kSystem;
  }
}

std::string Error::message() const {
  std::string text = operation;
  text += ": ";
  text += to_string(code);
  if (*detail != '\0') {
    text += " (";
    text += detail;
    text += ")";
  }
  char buffer[128];
  if (system_errno != 0) {
    // strerrordesc_np is thread-safe and never localised, unlike strerror.
    const char* description = strerrordesc_np(system_errno);
    text += ": ";
    text += description != nullptr ? description : "unknown errno";
    std::snprintf(buffer, sizeof buffer, " (errno %d)", system_errno);
    text += buffer;
  }
  if (address != 0 || length != 0) {
    std::snprintf(buffer, sizeof buffer, " at 0x%" PRIxPTR " + %zu bytes, %zu done", address,
                  length, progress);
    text += buffer;
  }
  return text;
}

}  // namespace touchstone
