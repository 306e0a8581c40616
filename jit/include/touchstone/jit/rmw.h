// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_RMW_H_
#define TOUCHSTONE_JIT_RMW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <touchstone/arch/error.h>

namespace touchstone::jit {

/// What an atomic read-modify-write stores, from the value in memory and the operand.
enum class RmwOp : std::uint8_t {
  kAdd,          ///< memory + operand, wrapping.
  kClear,        ///< memory & ~operand.
  kSet,          ///< memory | operand.
  kEor,          ///< memory ^ operand.
  kSmax,         ///< The greater, as signed numbers.
  kSmin,         ///< The smaller, as signed numbers.
  kUmax,         ///< The greater, as unsigned numbers.
  kUmin,         ///< The smaller, as unsigned numbers.
  kSwap,         ///< operand.
  kCompareSwap,  ///< operand if memory equals expected, else memory.
};
inline constexpr std::size_t kRmwOpCount = 10;

/// Memory order, as std::memory_order means it. A compare_swap that fails has the same order with
/// the release part dropped. On arm64 kSeqCst and kAcqRel are the same instructions, and on x86-64
/// all five are.
enum class RmwOrder : std::uint8_t { kRelaxed, kAcquire, kRelease, kAcqRel, kSeqCst };
inline constexpr std::size_t kRmwOrderCount = 5;

/// Whether the value that memory held before is wanted.
///
/// Discarding is shorter on some targets. On arm64 with relaxed or release order it becomes a
/// ST<op>, whose read a later acquire fence does not order (Arm ARM, DMB); where a fence is to
/// order it, use kFetch or an acquiring order.
enum class RmwResult : std::uint8_t { kFetch, kDiscard };

/// The instructions to emit. Any target can be emitted on any host.
enum class RmwTarget : std::uint8_t {
  kA64Llsc,    ///< Load-exclusive and store-exclusive loops; every arm64 CPU.
  kA64Lse,     ///< FEAT_LSE: LD<op>, ST<op>, SWP, CAS, CASP.
  kA64Lse128,  ///< FEAT_LSE128 beside LSE: SWPP, LDCLRP, LDSETP for 16 bytes.
  kX86_64,     ///< Every x86-64 CPU; 16 bytes are refused.
  kX86_64Cx16  ///< With CMPXCHG16B for 16 bytes.
};
inline constexpr std::size_t kRmwTargetCount = 5;

/// One atomic read-modify-write.
struct RmwShape {
  RmwOp op = RmwOp::kAdd;
  /// Bytes: 1, 2, 4, 8 or 16. The address must be a multiple of it.
  std::uint8_t width = 8;
  RmwOrder order = RmwOrder::kSeqCst;
  RmwResult result = RmwResult::kFetch;
  RmwTarget target = RmwTarget::kA64Lse;

  friend bool operator==(const RmwShape&, const RmwShape&) = default;
};

/// Names as the enumerators spell them in lower case: "add", "acq_rel", "discard", "a64_lse". Never
/// null.
[[nodiscard]] const char* to_string(RmwOp op) noexcept;
[[nodiscard]] const char* to_string(RmwOrder order) noexcept;
[[nodiscard]] const char* to_string(RmwResult result) noexcept;
[[nodiscard]] const char* to_string(RmwTarget target) noexcept;

/// The inverse of to_string; nothing where no enumerator has the name.
[[nodiscard]] std::optional<RmwOp> parse_rmw_op(std::string_view name) noexcept;
[[nodiscard]] std::optional<RmwOrder> parse_rmw_order(std::string_view name) noexcept;
[[nodiscard]] std::optional<RmwTarget> parse_rmw_target(std::string_view name) noexcept;

/// "a64_lse add 8 acq_rel fetch".
[[nodiscard]] std::string to_string(const RmwShape& shape);

/// Whether the target is an arm64 one.
[[nodiscard]] constexpr bool is_a64(RmwTarget target) noexcept {
  return target == RmwTarget::kA64Llsc || target == RmwTarget::kA64Lse ||
         target == RmwTarget::kA64Lse128;
}

/// Says that a register is not given.
inline constexpr std::uint8_t kNoRegister = 0xff;

/// Registers by number: 0 to 30 for X0 to X30 (31 as the address is SP), or 0 to 15 for RAX, RCX,
/// RDX, RBX, RSP, RBP, RSI, RDI, R8 … R15. RSP is accepted as the address only.
///
/// 16-byte values take two registers, low half first; smaller ones use [0] alone, and bits above
/// the width are ignored.
struct RmwRegisters {
  std::uint8_t address = kNoRegister;
  std::array<std::uint8_t, 2> operand{kNoRegister, kNoRegister};
  /// For compare_swap.
  std::array<std::uint8_t, 2> expected{kNoRegister, kNoRegister};
  /// For kFetch: the value before, zero-extended to the register.
  std::array<std::uint8_t, 2> result{kNoRegister, kNoRegister};
  /// As many as RmwRequirements::scratch_count tells; the rest is ignored.
  std::array<std::uint8_t, 6> scratch{kNoRegister, kNoRegister, kNoRegister,
                                      kNoRegister, kNoRegister, kNoRegister};
};

/// What the emitted code needs and spoils. Address, operand and expected keep their values, unless
/// the result is put into one of them.
struct RmwRequirements {
  bool expected = false;  ///< `expected` must be given.
  bool result = false;    ///< `result` must be given.
  bool pair = false;      ///< Values take two registers.
  /// Registers of `scratch` that are used and spoilt.
  std::uint8_t scratch_count = 0;
  /// So many pairs at the front of `scratch` must be an even register and the next one (CASP).
  std::uint8_t scratch_even_pairs = 0;
  bool operand_even_pair = false;  ///< `operand` must be an even register and the next one (CASP).
  bool result_even_pair = false;   ///< `result` must be an even register and the next one (CASP).
  bool result_may_be_address = false;
  bool result_may_be_operand = false;
  bool result_may_be_expected = false;
  /// Bit n set: register n is spoilt whatever the caller gives. None may be given, but in the role
  /// that the instruction has for it: RAX (and RDX) as expected or result, RBX and RCX as the
  /// operand of a 16-byte swap or compare_swap.
  std::uint32_t fixed_clobbers = 0;
  /// NZCV, or the arithmetic flags of RFLAGS, are spoilt.
  bool clobbers_flags = false;
};

/// No read-modify-write is longer, in bytes.
inline constexpr std::size_t kMaxRmwSize = 96;
/// No function from emit_rmw_function is longer, in bytes.
inline constexpr std::size_t kMaxRmwFunctionSize = 160;

/// What `shape` needs. Errors: kInvalidArgument for a width that is none of the five, and
/// kUnsupported for one that the target cannot do. Thread-safe.
[[nodiscard]] Result<RmwRequirements> rmw_requirements(const RmwShape& shape) noexcept;

/// Checks that `registers` fulfil rmw_requirements(shape). Errors: as there, and kInvalidArgument
/// that names the register at fault and why. Thread-safe.
[[nodiscard]] Result<> check_rmw_registers(const RmwShape& shape,
                                           const RmwRegisters& registers) noexcept;

/// Writes the instructions of one read-modify-write to `buffer`, to be run inline; they fall
/// through at their end and do not depend on where they lie. Returns the bytes written. A64
/// instructions are stored little-endian, as they are fetched. On error the buffer is unchanged.
/// Errors: as check_rmw_registers; kOutOfRange where the buffer is too small; kOutOfMemory.
/// Thread-safe.
[[nodiscard]] Result<std::size_t> emit_rmw(const RmwShape& shape, const RmwRegisters& registers,
                                           std::span<std::byte> buffer) noexcept;

/// A value of up to 16 bytes, low half first.
struct RmwValue {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const RmwValue&, const RmwValue&) = default;
};

/// What emit_rmw_function makes for widths up to 8: (address, operand, expected) to the value
/// before, zero-extended (0 for kDiscard). `expected` is read by compare_swap only.
using RmwEntry = std::uint64_t (*)(void* address, std::uint64_t operand, std::uint64_t expected);
/// The same for 16 bytes.
using RmwEntry16 = RmwValue (*)(void* address, RmwValue operand, RmwValue expected);

/// Writes a whole function of the target's C calling convention (AAPCS64 or System V) to `buffer`:
/// RmwEntry for widths up to 8, RmwEntry16 for 16. It starts with `BTI c` on arm64, holds no
/// literal pool and does not depend on where it lies. Returns the bytes written. Errors: as
/// emit_rmw. Thread-safe.
[[nodiscard]] Result<std::size_t> emit_rmw_function(const RmwShape& shape,
                                                    std::span<std::byte> buffer) noexcept;

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_RMW_H_
