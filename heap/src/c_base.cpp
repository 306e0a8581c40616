// SPDX-License-Identifier: MIT
// touchstone/c/base.h.
#include <new>
#include <string>

#include "c_abi.h"

namespace touchstone::heap::c {

ts_error to_c(const Error& error) noexcept {
  return {.size = sizeof(ts_error),
          .code = code_of(error.code),
          .system_errno = error.system_errno,
          .operation = error.operation,
          .address = error.address,
          .length = error.length,
          .progress = error.progress,
          .detail = error.detail};
}

ts_code fail(const Error& error, ts_error* told) noexcept {
  write_struct(to_c(error), told);
  return code_of(error.code);
}

ts_code fail(ErrorCode code, const char* operation, const char* detail, ts_error* told) noexcept {
  return fail({.code = code, .operation = operation, .detail = detail}, told);
}

std::size_t write_text(const char* text, std::size_t length, char* buffer,
                       std::size_t size) noexcept {
  if (size != 0) {
    const std::size_t written = std::min(length, size - 1);
    std::memcpy(buffer, text, written);
    buffer[written] = '\0';
  }
  return length;
}

}  // namespace touchstone::heap::c

using namespace touchstone;

extern "C" {

const char* ts_code_name(ts_code code) noexcept {
  if (code == TS_OK) return "success";
  if (code > TS_SYSTEM) return "unknown error";
  return to_string(static_cast<ErrorCode>(static_cast<int>(code) - 1));
}

size_t ts_error_message(const ts_error* error, char* buffer, size_t size) noexcept {
  ts_error known = ts_error_init();
  if (auto read = heap::c::read_struct("ts_error_message", error, known); !read) {
    known = heap::c::to_c(read.error());
  }
  const char* const name = ts_code_name(known.code);
  if (known.code == TS_OK || known.code > TS_SYSTEM) {
    return heap::c::write_text(name, std::strlen(name), buffer, size);
  }
  try {
    const auto text = [](const char* given) { return given != nullptr ? given : ""; };
    const std::string line = Error{.code = static_cast<ErrorCode>(static_cast<int>(known.code) - 1),
                                   .operation = text(known.operation),
                                   .address = known.address,
                                   .length = known.length,
                                   .system_errno = known.system_errno,
                                   .progress = known.progress,
                                   .detail = text(known.detail)}
                                 .message();
    return heap::c::write_text(line.c_str(), line.size(), buffer, size);
  } catch (const std::bad_alloc&) {
    return heap::c::write_text(name, std::strlen(name), buffer, size);
  }
}

const char* ts_version() noexcept {
  return TOUCHSTONE_VERSION;
}

}  // extern "C"
