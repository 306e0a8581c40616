// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_SRC_EMISSION_H_
#define TOUCHSTONE_JIT_SRC_EMISSION_H_

#include <cstddef>
#include <cstring>
#include <span>

#include <asmjit/arm/a64assembler.h>
#include <asmjit/core.h>
#include <asmjit/x86.h>

#include <touchstone/arch/error.h>

namespace touchstone::jit {

/// AsmJit's error as the project's own. AsmJit's texts are literals.
[[nodiscard]] inline Error error_of_asmjit(const char* operation, asmjit::Error error) noexcept {
  ErrorCode code = ErrorCode::kUnsupported;
  if (error == asmjit::kErrorOutOfMemory || error == asmjit::kErrorTooLarge) {
    code = ErrorCode::kOutOfMemory;
  } else if (error == asmjit::kErrorInvalidDisplacement ||
             error == asmjit::kErrorRelocOffsetOutOfRange) {
    code = ErrorCode::kOutOfRange;
  }
  return {.code = code, .operation = operation, .detail = asmjit::DebugUtils::errorAsString(error)};
}

/// Emits through one assembler, keeps the first error, and on error puts the assembler back to
/// where it was.
template <typename Assembler>
class Emission {
 public:
  explicit Emission(Assembler& assembler) noexcept
      : assembler_(assembler), start_(assembler.offset()) {}

  void operator()(asmjit::Error error) noexcept {
    if (error != asmjit::kErrorOk && error_ == asmjit::kErrorOk) error_ = error;
  }

  /// One A64 word that AsmJit has no instruction for, or refuses.
  void word(std::uint32_t value) noexcept { (*this)(assembler_.embedUInt32(value)); }

  /// Puts the assembler back to where it was. The offset was valid when it was read, so that going
  /// back to it cannot fail.
  void undo() noexcept {
    [[maybe_unused]] const asmjit::Error ignored = assembler_.setOffset(start_);
  }

  [[nodiscard]] Result<> finish(const char* operation) noexcept {
    if (error_ == asmjit::kErrorOk) return {};
    undo();
    return std::unexpected(error_of_asmjit(operation, error_));
  }

 private:
  Assembler& assembler_;
  std::size_t start_;
  asmjit::Error error_ = asmjit::kErrorOk;
};

/// Runs `emit(assembler)` on a fresh assembler and copies what it emitted to `buffer`.
template <typename Assembler, typename Emit>
[[nodiscard]] Result<std::size_t> emit_to_buffer(const char* operation, std::span<std::byte> buffer,
                                                 Emit&& emit) noexcept {
  constexpr bool kA64Code = std::is_same_v<Assembler, asmjit::a64::Assembler>;
  asmjit::CodeHolder code;
  const asmjit::Environment environment(kA64Code ? asmjit::Arch::kAArch64 : asmjit::Arch::kX64);
  if (const asmjit::Error error = code.init(environment); error != asmjit::kErrorOk) {
    return std::unexpected(error_of_asmjit(operation, error));
  }
  Assembler assembler;
  if (const asmjit::Error error = code.attach(&assembler); error != asmjit::kErrorOk) {
    return std::unexpected(error_of_asmjit(operation, error));
  }
  if (Result<> emitted = emit(assembler); !emitted) return std::unexpected(emitted.error());
  const asmjit::CodeBuffer& text = code.textSection()->buffer();
  if (text.size() > buffer.size()) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfRange,
                                 .operation = operation,
                                 .length = buffer.size(),
                                 .detail = "the buffer is too small for the code"});
  }
  if (text.size() != 0) std::memcpy(buffer.data(), text.data(), text.size());
  return text.size();
}

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_SRC_EMISSION_H_
