// SPDX-License-Identifier: MIT
#include "known_gaps.h"

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace touchstone::arch::opcheck {
namespace {

// What an oracle that is older than a feature makes of its words.
struct Lack {
  a64::Cube words;
  std::string_view reason;
  GapKind kind = GapKind::kDecodesNothing;
};

constexpr Lack kLse128[] = {
    {{0xff20fc00, 0x19201000}, "lacks FEAT_LSE128"},
    {{0xff20fc00, 0x19203000}, "lacks FEAT_LSE128"},
    {{0xff20fc00, 0x19208000}, "lacks FEAT_LSE128"},
};
constexpr Lack kThe[] = {
    {{0xbf20fc00, 0x38209000}, "lacks FEAT_THE"},  {{0xbf20ec00, 0x3820a000}, "lacks FEAT_THE"},
    {{0xbf20f800, 0x19200800}, "lacks FEAT_THE"},  {{0xbf20fc00, 0x19209000}, "lacks FEAT_D128"},
    {{0xbf20ec00, 0x1920a000}, "lacks FEAT_D128"},
};
constexpr Lack kLrcpc3[] = {
    {{0xbfbffc00, 0x99800800}, "lacks FEAT_LRCPC3"},
    {{0xbfa0ec00, 0x99000800}, "lacks FEAT_LRCPC3"},
    {{0x3f200c00, 0x1d000800}, "lacks FEAT_LRCPC3"},
    {{0xbfbffc00, 0x0d018400}, "lacks FEAT_LRCPC3"},
};
constexpr Lack kGcs[] = {
    {{0xffffec00, 0xd91f0c00}, "lacks FEAT_GCS"},
    {{0xffffffa0, 0xd50b7700}, "prints FEAT_GCS as SYS", GapKind::kNamesOther},
    {{0xffffffa0, 0xd52b7720}, "prints FEAT_GCS as SYSL", GapKind::kNamesOther},
};
constexpr Lack kLsui[] = {
    {{0xbf20ec00, 0x19200400}, "lacks FEAT_LSUI"}, {{0xbf20fc00, 0x19203400}, "lacks FEAT_LSUI"},
    {{0xbf20fc00, 0x19208400}, "lacks FEAT_LSUI"}, {{0x7fa07c00, 0x49807c00}, "lacks FEAT_LSUI"},
    {{0xbfa00000, 0x89000000}, "lacks FEAT_LSUI"},
};
constexpr Lack kLsfe[] = {
    {{0x3f208c00, 0x3c200000}, "lacks FEAT_LSFE"},
    {{0x3fa08c1f, 0x3c20801f}, "lacks FEAT_LSFE"},
};
constexpr Lack kLscp[] = {{{0xffa0dc00, 0xd9005800}, "lacks FEAT_LSCP"}};
constexpr Lack kMopsGo[] = {{{0xffff0c00, 0x1ddf0000}, "lacks FEAT_MOPS_GO"}};
constexpr Lack kMteTc[] = {
    {{0xffffffa0, 0xd50b74a0}, "prints FEAT_MTETC as SYS", GapKind::kNamesOther}};
constexpr Lack kStgp[] = {
    {{0xff400000, 0x69000000}, "lacks STGP"},
    {{0xffc00000, 0x68800000}, "lacks STGP"},
};

constexpr unsigned kAny = ~0U;

// Gaps of one oracle.
class Gaps {
 public:
  Gaps(std::vector<KnownGap>& gaps, OracleKind oracle) : gaps_(gaps), oracle_(oracle) {}

  void lacks(OracleVersion first, OracleVersion last,
             std::initializer_list<std::span<const Lack>> features) {
    for (const std::span<const Lack> feature : features) {
      for (const Lack& lack : feature) {
        gaps_.push_back({oracle_, first, last, lack.words, lack.kind, lack.reason});
      }
    }
  }
  void accepts(OracleVersion first, OracleVersion last, std::string_view reason,
               std::initializer_list<a64::Cube> cubes) {
    for (const a64::Cube& words : cubes) {
      gaps_.push_back({oracle_, first, last, words, GapKind::kAccepts, reason});
    }
  }
  void refuses(OracleVersion first, OracleVersion last, std::string_view reason, a64::Cube words,
               GapCondition condition) {
    gaps_.push_back({oracle_, first, last, words, GapKind::kDecodesNothing, reason, condition});
  }

 private:
  std::vector<KnownGap>& gaps_;
  OracleKind oracle_;
};

constexpr std::string_view kUnpredictable =
    "refuses operands that are CONSTRAINED UNPREDICTABLE, or bits that should be ones";
constexpr std::string_view kMopsSize31 = "takes register 31 as the size, which is UNDEFINED or NOP";

// Release ranges reach to the last release before the first one that was seen without the gap, so
// that releases in between which have it are covered; where they do not, the gap is reported as
// stale. Seen were Capstone 5.0.7, LLVM 14, 15, 19 and 22, objdump 2.40 and 2.44.
std::vector<KnownGap> make_gaps() {
  std::vector<KnownGap> gaps;

  constexpr OracleVersion capstone_first{5, 0, 0};
  constexpr OracleVersion capstone_last{5, kAny, kAny};
  Gaps capstone(gaps, OracleKind::kCapstone);
  capstone.lacks(capstone_first, capstone_last,
                 {kLse128, kThe, kLrcpc3, kGcs, kLsui, kLsfe, kLscp, kMopsGo, kMteTc, kStgp});
  capstone.accepts(capstone_first, capstone_last, kMopsSize31, {{0xfb200fe0, 0x190007e0}});
  capstone.refuses(capstone_first, capstone_last, kUnpredictable, {0x3f000000, 0x08000000},
                   GapCondition::kConstrained);

  // LLVM's C API turns what is decoded with a warning into a failure.
  constexpr OracleVersion llvm_first{14, 0, 0};
  constexpr OracleVersion llvm_open{kAny, kAny, kAny};
  Gaps llvm(gaps, OracleKind::kLlvm);
  llvm.lacks(llvm_first, {18, kAny, kAny}, {kLse128, kThe, kLrcpc3, kGcs});
  llvm.lacks(llvm_first, {21, kAny, kAny}, {kLsui, kLsfe, kLscp, kMopsGo, kMteTc});
  llvm.accepts(llvm_first, llvm_open, kMopsSize31, {{0xfb200fe0, 0x190007e0}});
  llvm.accepts({22, 0, 0}, llvm_open, kMopsSize31, {{0xffff0fe0, 0x1ddf03e0}});
  llvm.refuses(llvm_first, llvm_open, kUnpredictable, {0x3f000000, 0x08000000},
               GapCondition::kConstrained);
  llvm.refuses({22, 0, 0}, llvm_open, kUnpredictable, {0xbf000000, 0x89000000},
               GapCondition::kConstrained);
  llvm.refuses(llvm_first, llvm_open, "refuses STGP with write-back to a register it stores",
               {0xfec00000, 0x68800000}, GapCondition::kPairOverlapsBase);

  constexpr OracleVersion objdump_first{0, 0, 0};
  constexpr OracleVersion objdump_open{kAny, kAny, kAny};
  Gaps objdump(gaps, OracleKind::kObjdump);
  objdump.lacks(objdump_first, {2, 43, kAny}, {kLse128, kThe, kLrcpc3, kGcs});
  objdump.lacks(objdump_first, objdump_open, {kLsui, kLsfe, kLscp, kMopsGo, kMteTc});
  objdump.accepts(objdump_first, objdump_open, "takes registers that 64 bytes cannot begin at",
                  {{0xffe0ec01, 0xf820a001},
                   {0xffe0ec18, 0xf820a018},
                   {0xffffbc01, 0xf83f9001},
                   {0xffffbc18, 0xf83f9018}});
  objdump.accepts({2, 44, 0}, objdump_open, "takes register 31 for a half of 128 bits",
                  {{0xbf200c1f, 0x1920001f}, {0xbf3f0c00, 0x193f0000}});
  objdump.accepts({2, 44, 0}, objdump_open, "takes the size bits that are UNALLOCATED",
                  {{0xbfbffc00, 0x19800800}, {0xbfa0ec00, 0x19000800}});
  objdump.refuses(objdump_first, objdump_open, kUnpredictable, {0x3fe08000, 0x08c08000},
                  GapCondition::kConstrained);
  return gaps;
}

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
  static const std::vector<KnownGap> gaps = make_gaps();
  return gaps;
}

}  // namespace touchstone::arch::opcheck
