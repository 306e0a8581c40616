// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_SRC_DEBUGGER_H_
#define TOUCHSTONE_JIT_SRC_DEBUGGER_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include <touchstone/arch/error.h>

namespace touchstone::jit {

/// One function made known to debuggers, for as long as this object lives, by GDB's JIT compilation
/// interface (GDB manual, "JIT Interface"; LLDB reads it too).
class DebuggerEntry {
 public:
  /// Errors: kOutOfMemory. Thread-safe.
  [[nodiscard]] static Result<std::unique_ptr<DebuggerEntry>> create(
      const void* address, std::size_t size, std::string_view name) noexcept;
  DebuggerEntry(const DebuggerEntry&) = delete;
  DebuggerEntry& operator=(const DebuggerEntry&) = delete;
  ~DebuggerEntry();

 private:
  DebuggerEntry();
  struct Record;
  std::unique_ptr<Record> record_;
};

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_SRC_DEBUGGER_H_
