// SPDX-License-Identifier: MIT
// Where an arm64 branch goes.
#ifndef TOUCHSTONE_ARCH_OPCHECK_BRANCH_H_
#define TOUCHSTONE_ARCH_OPCHECK_BRANCH_H_

#include <cstdint>

namespace touchstone::arch::opcheck {

enum class BranchKind : std::uint8_t {
  kNone,          ///< Not a branch: execution goes on.
  kJump,          ///< B.
  kCondition,     ///< B.cond, BC.cond.
  kCompareZero,   ///< CBZ, CBNZ.
  kTestBit,       ///< TBZ, TBNZ.
  kCall,          ///< BL.
  kIndirectCall,  ///< BLR and its authenticated forms.
  kIndirectJump,  ///< BR and its authenticated forms.
  kEnd,           ///< RET, ERET, BRK, UDF: execution does not go on here.
};

struct Branch {
  BranchKind kind = BranchKind::kNone;
  /// Of a direct branch, modulo 2^64.
  std::uint64_t target = 0;
  /// The register of CBZ, CBNZ, TBZ, TBNZ, BLR and BR.
  std::uint8_t register_index = 0;
  /// kCondition: taken if equal. kCompareZero: taken if zero.
  bool taken_if_equal = false;
  /// kCondition: taken if not equal. kCompareZero: taken if not zero.
  bool taken_if_different = false;
};

/// What the instruction `word` at `pc` does to the flow of control.
[[nodiscard]] constexpr Branch decode_branch(std::uint32_t word, std::uint64_t pc) noexcept {
  const auto offset = [word](unsigned low, unsigned width) -> std::uint64_t {
    const std::uint64_t field = (word >> low) & ((1ULL << width) - 1);
    const std::uint64_t sign = 1ULL << (width - 1);
    return ((field ^ sign) - sign) * 4;
  };
  Branch branch;
  branch.register_index = static_cast<std::uint8_t>(word & 0x1f);
  if ((word & 0x7c000000) == 0x14000000) {
    branch.kind = (word >> 31) != 0 ? BranchKind::kCall : BranchKind::kJump;
    branch.target = pc + offset(0, 26);
  } else if ((word & 0xff000000) == 0x54000000) {
    branch.kind = BranchKind::kCondition;
    branch.target = pc + offset(5, 19);
    branch.taken_if_equal = (word & 0xf) == 0;
    branch.taken_if_different = (word & 0xf) == 1;
    if ((word & 0xe) == 0xe) branch.kind = BranchKind::kJump;  // AL, NV
  } else if ((word & 0x7e000000) == 0x34000000) {
    branch.kind = BranchKind::kCompareZero;
    branch.target = pc + offset(5, 19);
    branch.taken_if_equal = (word >> 24 & 1) == 0;
    branch.taken_if_different = !branch.taken_if_equal;
  } else if ((word & 0x7e000000) == 0x36000000) {
    branch.kind = BranchKind::kTestBit;
    branch.target = pc + offset(5, 14);
  } else if ((word & 0xfe000000) == 0xd6000000) {
    branch.register_index = static_cast<std::uint8_t>(word >> 5 & 0x1f);
    switch (word >> 21 & 0x7) {
      case 0:
        branch.kind = BranchKind::kIndirectJump;
        break;
      case 1:
        branch.kind = BranchKind::kIndirectCall;
        break;
      default:
        branch.kind = BranchKind::kEnd;
        break;
    }
  } else if ((word & 0xffe0001f) == 0xd4200000 || (word & 0xffff0000) == 0) {
    branch.kind = BranchKind::kEnd;
  }
  return branch;
}

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_BRANCH_H_
