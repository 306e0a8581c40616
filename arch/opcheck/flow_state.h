// SPDX-License-Identifier: MIT
// What a symbolic arm64 core holds at one point of a function, and what instructions do to it.
#ifndef TOUCHSTONE_ARCH_OPCHECK_FLOW_STATE_H_
#define TOUCHSTONE_ARCH_OPCHECK_FLOW_STATE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "code_image.h"
#include "value_table.h"

namespace touchstone::arch::opcheck {

/// Index of the stack pointer among FlowState::registers.
inline constexpr unsigned kStackPointer = 31;

/// Bytes of memory that a store left behind.
struct MemoryEntry {
  ValueId base = 0;         ///< The address without its constant.
  std::int64_t offset = 0;  ///< The constant.
  std::uint32_t size = 0;   ///< Bytes.
  ValueId value = 0;

  friend bool operator==(const MemoryEntry&, const MemoryEntry&) = default;
};

/// Two values known or tested to be equal; {0, 0} says nothing.
struct ValuePair {
  ValueId a = 0;
  ValueId b = 0;

  friend bool operator==(const ValuePair&, const ValuePair&) = default;
};

/// Registers and memory at a point of a function. A plain value.
struct FlowState {
  /// x0 to x30 and the stack pointer.
  std::array<ValueId, 32> registers{};
  /// Sorted by base, then offset; entries of one base do not overlap.
  std::vector<MemoryEntry> memory;
  /// True once a store found no room: then what `memory` lacks is unknown, not unchanged.
  bool memory_overflow = false;
  /// Operands of the comparison that set the flags.
  ValuePair flags{};
  /// What the branch that led here proved.
  ValuePair proven_equal{};
  /// Address and value of the last load-exclusive, pairs included.
  ValueId exclusive_address = 0;
  std::array<ValueId, 2> exclusive_values{};
  bool exclusive_open = false;

  friend bool operator==(const FlowState&, const FlowState&) = default;
};

/// What an atomic does with its operands, by the test that says whether it keeps the value.
enum class RmwKind : std::uint8_t {
  kAdd,
  kClear,
  kSet,
  kEor,
  kSignedMax,
  kSignedMin,
  kUnsignedMax,
  kUnsignedMin,
  kCompareSwap,  ///< first: expected; second: desired.
  kExclusive,    ///< first: what the store-exclusive stores; second: what the load-exclusive read.
};

/// One atomic read-modify-write as a function performs it.
struct AtomicEffect {
  /// The atomic or store-exclusive itself, in whichever function it is.
  std::uint64_t pc = 0;
  /// Where this function performs it: `pc`, or the call that leads there.
  std::uint64_t site = 0;
  /// The function called at `site`, or 0.
  std::uint64_t callee = 0;
  /// Reached through a pointer that the program may change at run time.
  bool indirect = false;
  RmwKind kind = RmwKind::kAdd;
  /// Bytes of one element; a pair has two.
  std::uint8_t width = 4;
  std::uint8_t elements = 1;
  ValueId address = 0;
  std::array<ValueId, 2> first{};
  std::array<ValueId, 2> second{};
  /// kExclusive: what a branch between load and store proved.
  ValuePair proven_equal{};
};

/// Does the atomic leave memory as it was, whatever was there?
[[nodiscard]] bool preserves_value(const AtomicEffect& effect, ValueTable& values);
/// Could it, once the values that are still symbols are known?
[[nodiscard]] bool may_preserve_value(const AtomicEffect& effect, ValueTable& values);

/// Executes single instructions on a FlowState. Not thread-safe. Branches are the caller's part.
class FlowMachine {
 public:
  /// `constants`: 8-byte words of memory that hold a known address all the time. Sorted by where
  /// they are; must outlive this.
  FlowMachine(ValueTable& values, const std::vector<AddressLink>& constants)
      : values_(values), constants_(constants) {}

  /// Does to the state what the instruction does; atomics are appended to `effects` where given.
  /// What is not understood makes its destination unknown.
  void step(FlowState& state, std::uint64_t pc, std::uint32_t word,
            std::vector<AtomicEffect>* effects);

  /// A call at `pc` that may change the registers of which `registers` has the bits.
  void clobber_for_call(FlowState& state, std::uint64_t pc, std::uint32_t registers);

  [[nodiscard]] ValueId load(const FlowState& state, ValueId address, std::uint32_t size,
                             std::uint64_t pc, unsigned destination);
  void store(FlowState& state, ValueId address, std::uint32_t size, ValueId value);
  /// What `size` bytes at an address hold, by exact entry or as untouched; nothing if neither.
  [[nodiscard]] std::optional<ValueId> peek(const FlowState& state, ValueId address,
                                            std::uint32_t size);

  [[nodiscard]] ValueTable& values() noexcept { return values_; }

 private:
  [[nodiscard]] ValueId read(const FlowState& state, unsigned index) const noexcept;
  [[nodiscard]] ValueId read_sp(const FlowState& state, unsigned index) const noexcept;
  static void write(FlowState& state, unsigned index, ValueId value) noexcept;
  static void write_sp(FlowState& state, unsigned index, ValueId value) noexcept;
  void unknown(FlowState& state, std::uint64_t pc, unsigned index);
  [[nodiscard]] ValueId add_sub(ValueId a, ValueId b, bool subtract, bool wide);
  [[nodiscard]] ValueId shifted(ValueId a, unsigned type, unsigned amount, bool wide,
                                std::uint64_t pc, unsigned destination);
  [[nodiscard]] ValueId extended(ValueId a, unsigned option, unsigned shift);

  void step_immediate(FlowState& state, std::uint64_t pc, std::uint32_t word);
  void step_register(FlowState& state, std::uint64_t pc, std::uint32_t word);
  void step_bitfield(FlowState& state, std::uint64_t pc, std::uint32_t word);
  void step_float(FlowState& state, std::uint64_t pc, std::uint32_t word);
  void step_memory(FlowState& state, std::uint64_t pc, std::uint32_t word,
                   std::vector<AtomicEffect>* effects);
  void step_exclusive(FlowState& state, std::uint64_t pc, std::uint32_t word,
                      std::vector<AtomicEffect>* effects);
  void step_atomic(FlowState& state, std::uint64_t pc, std::uint32_t word,
                   std::vector<AtomicEffect>* effects);
  void step_pair(FlowState& state, std::uint64_t pc, std::uint32_t word);
  void step_single(FlowState& state, std::uint64_t pc, std::uint32_t word);
  void step_ordered(FlowState& state, std::uint64_t pc, std::uint32_t word,
                    std::vector<AtomicEffect>* effects);
  void transfer(FlowState& state, std::uint64_t pc, ValueId address, std::uint32_t size,
                unsigned target, bool is_load, bool is_vector);

  ValueTable& values_;
  const std::vector<AddressLink>& constants_;
};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_FLOW_STATE_H_
