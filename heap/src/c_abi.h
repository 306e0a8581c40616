// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_SRC_C_ABI_H_
#define TOUCHSTONE_SRC_C_ABI_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <touchstone/arch/error.h>
#include <touchstone/c/base.h>

/// How values cross from C to C++ and back. See touchstone.h for structs of other sizes.
namespace touchstone::heap::c {

/// Overwrites `known`, which holds the defaults, with what a struct of any version says. kOverflow
/// where it says more than this version knows, kInvalidArgument where it has no size.
template <typename T>
[[nodiscard]] Result<> read_struct(const char* operation, const T* given, T& known) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, size) == 0);
  if (given == nullptr) return {};
  const std::size_t size = given->size;
  const auto bad = [&](const char* detail) {
    return std::unexpected(
        Error{.code = ErrorCode::kInvalidArgument, .operation = operation, .detail = detail});
  };
  // Larger than any struct will ever be: not a size at all.
  if (size < sizeof(std::size_t) || size > 4096) return bad("a struct's size is not set");
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) return bad("a struct has members that this version does not know");
  }
  std::memcpy(&known, given, std::min(size, sizeof(T)));
  known.size = sizeof(T);
  return {};
}

/// The other way. What the caller's version does not have is left out, what it has more is zeroed.
template <typename T>
void write_struct(const T& known, T* given) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, size) == 0);
  if (given == nullptr) return;
  const std::size_t size = given->size;
  if (size <= sizeof(std::size_t) || size > 4096) return;
  auto* const bytes = reinterpret_cast<unsigned char*>(given);
  const std::size_t common = std::min(size, sizeof(T));
  std::memcpy(bytes + sizeof(std::size_t),
              reinterpret_cast<const unsigned char*>(&known) + sizeof(std::size_t),
              common - sizeof(std::size_t));
  if (size > common) std::memset(bytes + common, 0, size - common);
}
/// Whether a struct to write to is one.
template <typename T>
[[nodiscard]] Result<> check_output(const char* operation, const T* given) noexcept {
  if (given != nullptr && given->size > sizeof(std::size_t) && given->size <= 4096) return {};
  return std::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                               .operation = operation,
                               .detail = given == nullptr ? "nowhere to write the result to"
                                                          : "a struct's size is not set"});
}

[[nodiscard]] constexpr ts_code code_of(ErrorCode code) noexcept {
  return static_cast<ts_code>(static_cast<unsigned>(code) + 1);
}
static_assert(code_of(ErrorCode::kInvalidArgument) == TS_INVALID_ARGUMENT &&
              code_of(ErrorCode::kMisaligned) == TS_MISALIGNED &&
              code_of(ErrorCode::kOverflow) == TS_OVERFLOW &&
              code_of(ErrorCode::kOutOfRange) == TS_OUT_OF_RANGE &&
              code_of(ErrorCode::kLimitExceeded) == TS_LIMIT_EXCEEDED &&
              code_of(ErrorCode::kOutOfMemory) == TS_OUT_OF_MEMORY &&
              code_of(ErrorCode::kPoolEmpty) == TS_POOL_EMPTY &&
              code_of(ErrorCode::kNotPermitted) == TS_NOT_PERMITTED &&
              code_of(ErrorCode::kUnsupported) == TS_UNSUPPORTED &&
              code_of(ErrorCode::kIneffective) == TS_INEFFECTIVE &&
              code_of(ErrorCode::kCancelled) == TS_CANCELLED &&
              code_of(ErrorCode::kBusy) == TS_BUSY &&
              code_of(ErrorCode::kUnavailable) == TS_UNAVAILABLE &&
              code_of(ErrorCode::kFrozen) == TS_FROZEN &&
              code_of(ErrorCode::kTimedOut) == TS_TIMED_OUT &&
              code_of(ErrorCode::kCorrupt) == TS_CORRUPT &&
              code_of(ErrorCode::kSystem) == TS_SYSTEM);

[[nodiscard]] ts_error to_c(const Error& error) noexcept;

/// Tells the caller of a failure, and returns its code.
[[nodiscard]] ts_code fail(const Error& error, ts_error* told) noexcept;
[[nodiscard]] ts_code fail(ErrorCode code, const char* operation, const char* detail,
                           ts_error* told) noexcept;

/// TS_OK, or what failed.
template <typename T>
[[nodiscard]] ts_code finish(const Result<T>& result, ts_error* told) noexcept {
  return result ? TS_OK : fail(result.error(), told);
}

/// Copies a text as snprintf() does, and returns its length.
std::size_t write_text(const char* text, std::size_t length, char* buffer,
                       std::size_t size) noexcept;

}  // namespace touchstone::heap::c

#endif  // TOUCHSTONE_SRC_C_ABI_H_
