// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_ADDRESS_RANGE_H_
#define TOUCHSTONE_HEAP_SRC_ADDRESS_RANGE_H_

#include <cstddef>
#include <cstdint>

#include <touchstone/arch/error.h>
#include <touchstone/heap/memory_range.h>

#include "exact_prefix.h"
#include "interval_set.h"

namespace touchstone::heap {

[[nodiscard]] inline std::uintptr_t address_of(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

[[nodiscard]] inline Interval interval_of(MemoryRange range) noexcept {
  return {address_of(range.data()), address_of(range.data()) + range.size()};
}

[[nodiscard]] inline std::unexpected<Error> range_failure(ErrorCode code, const char* operation,
                                                          MemoryRange range, int system_errno,
                                                          std::size_t progress,
                                                          const char* detail = "") noexcept {
  return std::unexpected(Error{.code = code,
                               .operation = operation,
                               .address = address_of(range.data()),
                               .length = range.size(),
                               .system_errno = system_errno,
                               .progress = progress,
                               .detail = detail});
}

[[nodiscard]] inline std::unexpected<Error> range_failure(const char* operation, MemoryRange range,
                                                          const Prefix& prefix,
                                                          const char* detail = "") noexcept {
  return range_failure(code_of_errno(prefix.error), operation, range, prefix.error, prefix.done,
                       detail);
}

[[nodiscard]] inline std::unexpected<Error> no_bookkeeping(const char* operation,
                                                           MemoryRange range) noexcept {
  return range_failure(ErrorCode::kOutOfMemory, operation, range, 0, 0,
                       "no memory for bookkeeping");
}

/// Whether a range is one that the kernel can work on: not empty, whole pages, no wrap.
[[nodiscard]] inline Result<> check_pages(const char* operation, MemoryRange range,
                                          std::size_t page) noexcept {
  const std::uintptr_t begin = address_of(range.data());
  if (range.empty()) {
    return range_failure(ErrorCode::kInvalidArgument, operation, range, 0, 0, "length is 0");
  }
  if (begin + range.size() < begin) {
    return range_failure(ErrorCode::kOverflow, operation, range, 0, 0, "address plus length wraps");
  }
  if (begin % page != 0 || range.size() % page != 0) {
    return range_failure(ErrorCode::kMisaligned, operation, range, 0, 0,
                         "address or length is not a multiple of the page size");
  }
  return {};
}

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_ADDRESS_RANGE_H_
