// SPDX-License-Identifier: MIT
#include "known_gaps.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace touchstone::arch::opcheck {
namespace {

constexpr OracleVersion kCapstone5{5, 0, 0};
constexpr OracleVersion kCapstone5Last{5, ~0U, ~0U};

constexpr KnownGap capstone(a64::Cube words, std::string_view reason,
                            GapKind kind = GapKind::kDecodesNothing,
                            GapCondition condition = GapCondition::kAny) {
  return {OracleKind::kCapstone, kCapstone5, kCapstone5Last, words, kind, reason, condition};
}

constexpr KnownGap llvm(unsigned first, unsigned last, a64::Cube words, std::string_view reason,
                        GapKind kind = GapKind::kDecodesNothing,
                        GapCondition condition = GapCondition::kAny) {
  return {OracleKind::kLlvm, {first, 0, 0}, {last, ~0U, ~0U}, words, kind, reason, condition};
}

constexpr std::string_view kUnpredictable =
    "refuses operands that are CONSTRAINED UNPREDICTABLE, or bits that should be ones";
constexpr std::string_view kMopsSize31 = "takes register 31 as the size, which is UNDEFINED or NOP";

constexpr unsigned kLast = ~0U;

constexpr KnownGap kGaps[] = {
    // Capstone 5 has the instructions of Armv8.8 and Armv9.3.
    capstone({0xff20fc00, 0x19201000}, "lacks FEAT_LSE128"),
    capstone({0xff20fc00, 0x19203000}, "lacks FEAT_LSE128"),
    capstone({0xff20fc00, 0x19208000}, "lacks FEAT_LSE128"),
    capstone({0xbf20fc00, 0x38209000}, "lacks FEAT_THE"),
    capstone({0xbf20ec00, 0x3820a000}, "lacks FEAT_THE"),
    capstone({0xbf20f800, 0x19200800}, "lacks FEAT_THE"),
    capstone({0xbf20fc00, 0x19209000}, "lacks FEAT_D128"),
    capstone({0xbf20ec00, 0x1920a000}, "lacks FEAT_D128"),
    capstone({0xbf20ec00, 0x19200400}, "lacks FEAT_LSUI"),
    capstone({0xbf20fc00, 0x19203400}, "lacks FEAT_LSUI"),
    capstone({0xbf20fc00, 0x19208400}, "lacks FEAT_LSUI"),
    capstone({0x7fa07c00, 0x49807c00}, "lacks FEAT_LSUI"),
    capstone({0xbfa00000, 0x89000000}, "lacks FEAT_LSUI"),
    capstone({0x3f208c00, 0x3c200000}, "lacks FEAT_LSFE"),
    capstone({0x3fa08c1f, 0x3c20801f}, "lacks FEAT_LSFE"),
    capstone({0xbfbffc00, 0x99800800}, "lacks FEAT_LRCPC3"),
    capstone({0xbfa0ec00, 0x99000800}, "lacks FEAT_LRCPC3"),
    capstone({0x3f200c00, 0x1d000800}, "lacks FEAT_LRCPC3"),
    capstone({0xbfbffc00, 0x0d018400}, "lacks FEAT_LRCPC3"),
    capstone({0xffa0dc00, 0xd9005800}, "lacks FEAT_LSCP"),
    capstone({0xffffec00, 0xd91f0c00}, "lacks FEAT_GCS"),
    capstone({0xffffffa0, 0xd50b7700}, "prints FEAT_GCS as SYS", GapKind::kNamesOther),
    capstone({0xffffffa0, 0xd52b7720}, "prints FEAT_GCS as SYSL", GapKind::kNamesOther),
    capstone({0xffffffa0, 0xd50b74a0}, "prints FEAT_MTETC as SYS", GapKind::kNamesOther),
    capstone({0xffff0c00, 0x1ddf0000}, "lacks FEAT_MOPS_GO"),
    capstone({0xff400000, 0x69000000}, "lacks STGP"),
    capstone({0xffc00000, 0x68800000}, "lacks STGP"),
    capstone({0xfb200fe0, 0x190007e0}, kMopsSize31, GapKind::kAccepts),
    capstone({0x3f000000, 0x08000000}, kUnpredictable, GapKind::kDecodesNothing,
             GapCondition::kConstrained),

    // The C API of LLVM turns what it decodes with a warning into a failure.
    llvm(14, kLast, {0x3f000000, 0x08000000}, kUnpredictable, GapKind::kDecodesNothing,
         GapCondition::kConstrained),
    llvm(22, kLast, {0xbf000000, 0x89000000}, kUnpredictable, GapKind::kDecodesNothing,
         GapCondition::kConstrained),
    llvm(14, kLast, {0xfec00000, 0x68800000},
         "refuses STGP with write-back to a register it stores", GapKind::kDecodesNothing,
         GapCondition::kPairOverlapsBase),
    llvm(14, kLast, {0xfb200fe0, 0x190007e0}, kMopsSize31, GapKind::kAccepts),
    llvm(22, kLast, {0xffff0fe0, 0x1ddf03e0}, kMopsSize31, GapKind::kAccepts),
};

}  // namespace

std::string_view to_string(GapKind kind) {
  switch (kind) {
    case GapKind::kDecodesNothing:
      return "decodes nothing";
    case GapKind::kNamesOther:
      return "names it otherwise";
    case GapKind::kAccepts:
      return "accepts it";
  }
  return "unknown";
}

bool holds(GapCondition condition, std::uint32_t word, bool constrained) {
  switch (condition) {
    case GapCondition::kAny:
      return true;
    case GapCondition::kConstrained:
      return constrained;
    case GapCondition::kPairOverlapsBase: {
      const std::uint32_t base = word >> 5U & 31U;
      return base != 31 && (base == (word & 31U) || base == (word >> 10U & 31U));
    }
  }
  return false;
}

std::span<const KnownGap> known_gaps() {
  return kGaps;
}

}  // namespace touchstone::arch::opcheck
