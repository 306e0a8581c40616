// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_SRC_PERF_MAP_H_
#define TOUCHSTONE_JIT_SRC_PERF_MAP_H_

#include <cstddef>
#include <string_view>

#include <touchstone/arch/error.h>

namespace touchstone::jit {

/// Appends one function to /tmp/perf-<pid>.map, where perf looks for the names of emitted code
/// (Linux, tools/perf/Documentation/jit-interface.txt). The file belongs to the process, so all
/// caches share it. Errors: kSystem and others by errno where it cannot be opened or written.
/// Thread-safe.
[[nodiscard]] Result<> append_to_perf_map(const void* address, std::size_t size,
                                          std::string_view name) noexcept;

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_SRC_PERF_MAP_H_
