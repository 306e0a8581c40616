// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <touchstone/jit/rmw.h>

namespace touchstone::jit {
namespace {

constexpr std::array<const char*, kRmwOpCount> kOpNames{
    "add", "clear", "set", "eor", "smax", "smin", "umax", "umin", "swap", "compare_swap"};
constexpr std::array<const char*, kRmwOrderCount> kOrderNames{"relaxed", "acquire", "release",
                                                              "acq_rel", "seq_cst"};
constexpr std::array<const char*, 2> kResultNames{"fetch", "discard"};
constexpr std::array<const char*, kRmwTargetCount> kTargetNames{"a64_llsc", "a64_lse", "a64_lse128",
                                                                "x86_64", "x86_64_cx16"};

template <typename Enum, std::size_t Count>
const char* name_of(const std::array<const char*, Count>& names, Enum value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < Count ? names[index] : "unknown";
}

template <typename Enum, std::size_t Count>
std::optional<Enum> value_of(const std::array<const char*, Count>& names,
                             std::string_view name) noexcept {
  const auto* found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

constexpr std::uint32_t bit(unsigned number) {
  return std::uint32_t{1} << number;
}
constexpr std::uint32_t kRax = bit(0);
constexpr std::uint32_t kRcx = bit(1);
constexpr std::uint32_t kRdx = bit(2);
constexpr std::uint32_t kRbx = bit(3);
constexpr std::uint8_t kRsp = 4;

Error argument_error(const char* detail) noexcept {
  return {.code = ErrorCode::kInvalidArgument, .operation = "emit_rmw", .detail = detail};
}

bool acquires(RmwOrder order) noexcept {
  return order != RmwOrder::kRelaxed && order != RmwOrder::kRelease;
}

RmwRequirements llsc_requirements(const RmwShape& shape, RmwRequirements needs) noexcept {
  const bool computes = shape.op != RmwOp::kSwap && shape.op != RmwOp::kCompareSwap;
  const std::uint8_t halves = needs.pair ? 2 : 1;
  needs.scratch_count = 1;  // the status of the store-exclusive
  // A 16-byte compare_swap that fails must write back what it read, or the read is not atomic; so
  // it selects what to store, as the computing operations do.
  if (computes || (needs.pair && shape.op == RmwOp::kCompareSwap)) needs.scratch_count += halves;
  if (!needs.result) needs.scratch_count += halves;
  const bool compares = shape.op == RmwOp::kSmax || shape.op == RmwOp::kSmin ||
                        shape.op == RmwOp::kUmax || shape.op == RmwOp::kUmin ||
                        shape.op == RmwOp::kCompareSwap;
  needs.clobbers_flags = compares || (needs.pair && shape.op == RmwOp::kAdd);
  return needs;
}

RmwRequirements lse_requirements(const RmwShape& shape, RmwRequirements needs) noexcept {
  if (!needs.pair) {
    needs.result_may_be_address = shape.op != RmwOp::kCompareSwap;
    needs.result_may_be_operand = shape.op != RmwOp::kCompareSwap;
    needs.result_may_be_expected = true;
    // With XZR as its destination a LD<op>A, and SWPA, lose their acquire semantics (Arm ARM), so
    // an acquiring discard loads into a register all the same.
    if (!needs.result && (acquires(shape.order) || shape.op == RmwOp::kCompareSwap)) {
      needs.scratch_count = 1;
    }
    return needs;
  }
  const bool has_lse128 = shape.target == RmwTarget::kA64Lse128;
  if (has_lse128 &&
      (shape.op == RmwOp::kSwap || shape.op == RmwOp::kClear || shape.op == RmwOp::kSet)) {
    needs.result_may_be_operand = true;
    if (!needs.result) needs.scratch_count = 2;
    return needs;
  }
  needs.result_even_pair = needs.result;
  if (!needs.result) needs.scratch_even_pairs = 1;
  if (shape.op == RmwOp::kCompareSwap) {
    needs.operand_even_pair = true;
    needs.result_may_be_expected = true;
    needs.scratch_count = static_cast<std::uint8_t>(2 * needs.scratch_even_pairs);
    return needs;
  }
  needs.operand_even_pair = shape.op == RmwOp::kSwap;
  if (shape.op != RmwOp::kSwap) ++needs.scratch_even_pairs;
  needs.scratch_count = static_cast<std::uint8_t>(2 * needs.scratch_even_pairs + 2);
  needs.clobbers_flags = true;
  return needs;
}

RmwRequirements x86_requirements(const RmwShape& shape, RmwRequirements needs) noexcept {
  needs.result_may_be_operand = true;
  needs.result_may_be_expected = true;
  needs.clobbers_flags = true;
  if (needs.pair) {
    needs.fixed_clobbers = kRax | kRdx | kRbx | kRcx;
    return needs;
  }
  switch (shape.op) {
    case RmwOp::kAdd:
      break;
    case RmwOp::kSwap:
      needs.scratch_count = needs.result ? 0 : 1;
      needs.clobbers_flags = false;
      break;
    case RmwOp::kCompareSwap:
      needs.fixed_clobbers = kRax;
      break;
    case RmwOp::kSet:
    case RmwOp::kEor:
      if (needs.result) {
        needs.fixed_clobbers = kRax;
        needs.scratch_count = 1;
      }
      break;
    case RmwOp::kClear:
      if (needs.result) needs.fixed_clobbers = kRax;
      needs.scratch_count = needs.result ? 2 : 1;
      break;
    case RmwOp::kSmax:
    case RmwOp::kSmin:
    case RmwOp::kUmax:
    case RmwOp::kUmin:
      needs.fixed_clobbers = kRax;
      needs.scratch_count = 1;
      break;
  }
  return needs;
}

}  // namespace

const char* to_string(RmwOp op) noexcept {
  return name_of(kOpNames, op);
}
const char* to_string(RmwOrder order) noexcept {
  return name_of(kOrderNames, order);
}
const char* to_string(RmwResult result) noexcept {
  return name_of(kResultNames, result);
}
const char* to_string(RmwTarget target) noexcept {
  return name_of(kTargetNames, target);
}

std::optional<RmwOp> parse_rmw_op(std::string_view name) noexcept {
  return value_of<RmwOp>(kOpNames, name);
}
std::optional<RmwOrder> parse_rmw_order(std::string_view name) noexcept {
  return value_of<RmwOrder>(kOrderNames, name);
}
std::optional<RmwTarget> parse_rmw_target(std::string_view name) noexcept {
  return value_of<RmwTarget>(kTargetNames, name);
}

std::string to_string(const RmwShape& shape) {
  return std::string(to_string(shape.target)) + " " + to_string(shape.op) + " " +
         std::to_string(shape.width) + " " + to_string(shape.order) + " " + to_string(shape.result);
}

Result<RmwRequirements> rmw_requirements(const RmwShape& shape) noexcept {
  if (shape.width != 1 && shape.width != 2 && shape.width != 4 && shape.width != 8 &&
      shape.width != 16) {
    return std::unexpected(argument_error("the width is none of 1, 2, 4, 8 and 16 bytes"));
  }
  if (static_cast<std::size_t>(shape.op) >= kRmwOpCount ||
      static_cast<std::size_t>(shape.order) >= kRmwOrderCount ||
      static_cast<std::size_t>(shape.result) >= kResultNames.size() ||
      static_cast<std::size_t>(shape.target) >= kRmwTargetCount) {
    return std::unexpected(argument_error("the operation, order, result or target is unknown"));
  }
  const RmwRequirements needs{.expected = shape.op == RmwOp::kCompareSwap,
                              .result = shape.result == RmwResult::kFetch,
                              .pair = shape.width == 16};
  switch (shape.target) {
    case RmwTarget::kA64Llsc:
      return llsc_requirements(shape, needs);
    case RmwTarget::kA64Lse:
    case RmwTarget::kA64Lse128:
      return lse_requirements(shape, needs);
    case RmwTarget::kX86_64:
      if (shape.width == 16) {
        return std::unexpected(Error{.code = ErrorCode::kUnsupported,
                                     .operation = "emit_rmw",
                                     .detail = "16 bytes on x86-64 need CMPXCHG16B"});
      }
      return x86_requirements(shape, needs);
    case RmwTarget::kX86_64Cx16:
      break;
  }
  return x86_requirements(shape, needs);
}

Result<> check_rmw_registers(const RmwShape& shape, const RmwRegisters& registers) noexcept {
  const Result<RmwRequirements> checked = rmw_requirements(shape);
  if (!checked) return std::unexpected(checked.error());
  const RmwRequirements& needs = *checked;
  const bool a64 = is_a64(shape.target);
  const std::uint8_t last = a64 ? 30 : 15;
  const std::size_t halves = needs.pair ? 2 : 1;
  const auto usable = [&](std::uint8_t number) {
    return number <= last && (a64 || number != kRsp);
  };

  if (registers.address > last && !(a64 && registers.address == 31)) {
    return std::unexpected(argument_error("the address register is missing or does not exist"));
  }
  for (std::size_t i = 0; i < halves; ++i) {
    if (!usable(registers.operand[i])) {
      return std::unexpected(argument_error("an operand register is missing or cannot be used"));
    }
    if (needs.expected && !usable(registers.expected[i])) {
      return std::unexpected(argument_error("an expected register is missing or cannot be used"));
    }
    if (needs.result && !usable(registers.result[i])) {
      return std::unexpected(argument_error("a result register is missing or cannot be used"));
    }
  }
  for (std::size_t i = 0; i < needs.scratch_count; ++i) {
    if (!usable(registers.scratch[i])) {
      return std::unexpected(argument_error("a scratch register is missing or cannot be used"));
    }
  }

  const auto is_even_pair = [](std::uint8_t low, std::uint8_t high) {
    return low % 2 == 0 && high == low + 1;
  };
  if (needs.operand_even_pair && !is_even_pair(registers.operand[0], registers.operand[1])) {
    return std::unexpected(
        argument_error("CASP needs the operand in an even register and the next one"));
  }
  if (needs.result_even_pair && !is_even_pair(registers.result[0], registers.result[1])) {
    return std::unexpected(
        argument_error("CASP needs the result in an even register and the next one"));
  }
  for (std::size_t i = 0; i < needs.scratch_even_pairs; ++i) {
    if (!is_even_pair(registers.scratch[2 * i], registers.scratch[2 * i + 1])) {
      return std::unexpected(
          argument_error("CASP needs a scratch pair in an even register and the next one"));
    }
  }

  // What is written must be apart from all that is still needed.
  const auto is_fixed = [&](std::uint8_t number) {
    return number < 32 && (needs.fixed_clobbers & bit(number)) != 0;
  };
  if (is_fixed(registers.address)) {
    return std::unexpected(argument_error("the address lies in a register the instruction spoils"));
  }
  const bool operand_is_new_value = shape.op == RmwOp::kSwap || shape.op == RmwOp::kCompareSwap;
  constexpr std::array<std::uint8_t, 2> kOldHalves{0, 2};  // RAX, RDX
  constexpr std::array<std::uint8_t, 2> kNewHalves{3, 1};  // RBX, RCX
  for (std::size_t i = 0; i < halves; ++i) {
    const bool in_its_role =
        needs.pair && operand_is_new_value && registers.operand[i] == kNewHalves[i];
    if (is_fixed(registers.operand[i]) && !in_its_role) {
      return std::unexpected(
          argument_error("an operand lies in a register the instruction spoils"));
    }
    if (needs.expected && is_fixed(registers.expected[i]) &&
        registers.expected[i] != kOldHalves[i]) {
      return std::unexpected(
          argument_error("an expected value lies in a register the instruction spoils"));
    }
    if (!needs.result) continue;
    if (is_fixed(registers.result[i]) && registers.result[i] != kOldHalves[i]) {
      return std::unexpected(argument_error("a result lies in a register the instruction spoils"));
    }
    if (registers.result[i] == registers.address && !needs.result_may_be_address) {
      return std::unexpected(argument_error("the result clashes with the address"));
    }
    for (std::size_t j = 0; j < halves; ++j) {
      if (registers.result[i] == registers.operand[j] && !(needs.result_may_be_operand && i == j)) {
        return std::unexpected(argument_error("the result clashes with the operand"));
      }
      if (needs.expected && registers.result[i] == registers.expected[j] &&
          !(needs.result_may_be_expected && i == j)) {
        return std::unexpected(argument_error("the result clashes with the expected value"));
      }
    }
  }
  if (needs.result && needs.pair && registers.result[0] == registers.result[1]) {
    return std::unexpected(argument_error("the two result registers are the same"));
  }
  for (std::size_t i = 0; i < needs.scratch_count; ++i) {
    const std::uint8_t number = registers.scratch[i];
    bool clash = number == registers.address || is_fixed(number);
    for (std::size_t j = 0; j < halves; ++j) {
      clash = clash || number == registers.operand[j] ||
              (needs.expected && number == registers.expected[j]) ||
              (needs.result && number == registers.result[j]);
    }
    for (std::size_t j = 0; j < i; ++j) clash = clash || number == registers.scratch[j];
    if (clash) {
      return std::unexpected(argument_error("a scratch register clashes with another register"));
    }
  }
  return {};
}

}  // namespace touchstone::jit
