// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_A64_ENCODINGS_H_
#define TOUCHSTONE_ARCH_A64_ENCODINGS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// The one table of A64 instructions that access memory as an atomic, exclusive, ordered or block
/// access. Everything else about A64 in this project is derived from it: classification, the
/// mnemonics, the kernel header, the documentation.
///
/// Source of every row: Arm ARM (DDI 0487), C4.1 "A64 instruction set encoding" for the bits (the
/// decode class is named in `Encoding::section`), C6.2 for the operands, and ESR_EL1 "ISS encoding
/// for an exception from a Data Abort", bit WnR, for what a fault says. Everything here is a
/// constant: any thread may read it at any time.
namespace touchstone::arch::a64 {

/// The words w with (w & mask) == value. A bit of value outside mask makes it match nothing.
struct Cube {
  std::uint32_t mask = 0;
  std::uint32_t value = 0;

  [[nodiscard]] constexpr bool matches(std::uint32_t word) const noexcept {
    return (word & mask) == value;
  }
  friend constexpr bool operator==(const Cube&, const Cube&) = default;
};

/// The architecture feature that brought an instruction in, named as the manual names it without
/// FEAT_.
enum class Feature : std::uint8_t {
  kBase,
  kLor,
  kLse,
  kRcpc,
  kRcpc2,
  kRcpc3,
  kMte,
  kMte2,
  kMteTc,
  kLs64,
  kLs64V,
  kLs64AccData,
  kMops,
  kMopsGo,
  kGcs,
  kLse128,
  kThe,
  kD128The,
  kLsui,
  kLsfe,
  kLscp,
};

/// A family: the unit that reports and statistics count by.
enum class Group : std::uint8_t {
  kLse,             ///< LD<op>, ST<op>: add, clr, eor, set, smax, smin, umax, umin.
  kSwp,             ///< SWP.
  kCas,             ///< CAS.
  kCasp,            ///< CASP.
  kLse128,          ///< LDCLRP, LDSETP, SWPP.
  kRcw,             ///< RCWCLR, RCWSWP, RCWSET and the RCWS forms.
  kRcwCas,          ///< RCWCAS, RCWCASP and the RCWS forms.
  kRcwPair,         ///< RCWCLRP, RCWSWPP, RCWSETP and the RCWS forms.
  kLsui,            ///< LDTADD, LDTCLR, LDTSET, SWPT.
  kLsuiCas,         ///< CAST, CASPT.
  kLsfe,            ///< LDF<op>, LDBF<op>, STF<op>, STBF<op>.
  kExclusive,       ///< LDXR, LDAXR, STXR, STLXR.
  kExclusivePair,   ///< LDXP, LDAXP, STXP, STLXP.
  kLsuiExclusive,   ///< LDTXR, LDATXR, STTXR, STLTXR.
  kOrdered,         ///< LDAR, STLR.
  kLimitedOrdered,  ///< LDLAR, STLLR.
  kRcpc,            ///< LDAPR.
  kRcpcUnscaled,    ///< LDAPUR*, STLUR*.
  kRcpcWriteback,   ///< LDAPR, STLR with write-back; LDIAPP, STILP.
  kRcpcSimd,        ///< LDAP1, STL1, LDAPUR and STLUR of SIMD&FP registers.
  kOrderedPair,     ///< LDAP, LDAPP, STLP.
  kLs64,            ///< LD64B, ST64B, ST64BV, ST64BV0.
  kCopy,            ///< CPYP, CPYM, CPYE and CPYF*, all options.
  kSet,             ///< SETP, SETM, SETE and SETG*, SETGO*, all options.
  kTag,             ///< STG, STZG, ST2G, STZ2G, STGP, STGM, STZGM, LDG, LDGM.
  kZero,            ///< DC ZVA, DC GVA, DC GZVA, DC GBVA, DC ZGBVA.
  kGcs,             ///< GCSSTR, GCSSTTR, GCSSS1, GCSSS2, GCSPUSHM, GCSPOPM.
};
inline constexpr std::size_t kGroupCount = static_cast<std::size_t>(Group::kGcs) + 1;

/// What an instruction does to memory.
enum class Kind : std::uint8_t {
  kReadModifyWrite,  ///< One single-copy atomic read and write of the same bytes.
  kLoad,
  kStore,
  kLoadExclusive,   ///< Reads and sets the monitor; a store-exclusive is expected to write.
  kStoreExclusive,  ///< Writes when the monitor still holds.
  kCopy,            ///< Reads one range, writes another.
  kSet,             ///< Writes a range.
  kTagLoad,         ///< Reads allocation tags.
  kTagStore,        ///< Writes allocation tags, and data where the name says so.
  kZero,            ///< Writes one block, its size given by DCZID_EL0.
  kGcsSwitch,       ///< Reads and writes a guarded control stack.
};

/// Memory order that an instruction imposes.
enum class Order : std::uint8_t {
  kRelaxed,
  kAcquire,
  kRelease,
  kAcquireRelease,
  kAcquirePc,  ///< RCpc acquire (LDAPR and kin).
  kAcquireLo,  ///< LoAcquire (LDLAR).
  kReleaseLo,  ///< LoRelease (STLLR).
};

/// What ESR_EL1.WnR says of a data abort.
enum class Wnr : std::uint8_t {
  kNoFault,    ///< This page state makes no fault for this instruction.
  kRead,       ///< 0.
  kWrite,      ///< 1.
  kPerAccess,  ///< Of whichever of its accesses faulted.
};

/// Where the bytes accessed are found.
enum class WidthRule : std::uint8_t {
  k2,
  k8,
  k16,
  k32,
  k64,
  kSize,        ///< 1 << bits 31:30.
  kWordDouble,  ///< 4, or 8 where bit 30 is set.
  kPair,        ///< 8, or 16 where bit 30 is set.
  kVariable,    ///< Given by a register (MOPS) or by DCZID_EL0; reported as 0.
};

/// Where the memory order is found.
enum class OrderRule : std::uint8_t {
  kRelaxed,
  kAcquire,
  kRelease,
  kAcquirePc,
  kAcquireLo,
  kReleaseLo,
  kBits23And22,  ///< A in bit 23, R in bit 22.
  kBits22And15,  ///< A in bit 22, R in bit 15.
};

/// Conditions on operand fields, as a set of bits. Register fields have the manual's usual places:
/// Rt and Rd in bits 4:0, Rn in 9:5, Rt2 in 14:10, Rs (the second of a 128-bit pair) in 20:16.
enum class Operands : std::uint16_t {
  kNone = 0,
  kRtIs31 = 1U << 0U,
  kRsIs31 = 1U << 1U,
  kRnIs31 = 1U << 2U,
  kRtAbove23 = 1U << 3U,
  kRtIsRt2 = 1U << 4U,
  kRtIsRs = 1U << 5U,
  kRt2IsRs = 1U << 6U,
  kRtIsRn = 1U << 7U,
  kRsIsRn = 1U << 8U,
  kRtIsBase = 1U << 9U,     ///< Rt is Rn, and Rn is not SP.
  kRsIsBase = 1U << 10U,    ///< Rs is Rn, and Rn is not SP.
  kRsNotOnes = 1U << 11U,   ///< Bits 20:16 should be ones and are not.
  kRt2NotOnes = 1U << 12U,  ///< Bits 14:10 should be ones and are not.
};
inline constexpr unsigned kOperandConditionCount = 13;

[[nodiscard]] constexpr Operands operator|(Operands a, Operands b) noexcept {
  return static_cast<Operands>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
[[nodiscard]] constexpr bool contains(Operands set, Operands one) noexcept {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(one)) != 0;
}

/// One row: an instruction with all its sizes, orders and registers.
struct Encoding {
  /// The mnemonic with O for the order letters ("", a, l, al), Z for the size letter (b, h or
  /// nothing), C and S for the options of CPY* and SET*.
  std::string_view pattern = {};
  /// The pattern of the preferred form where Rt is 31 and there is no acquire, or "".
  std::string_view store_pattern = {};
  Group group = Group::kLse;
  Feature feature = Feature::kBase;
  Kind kind = Kind::kLoad;
  WidthRule width = WidthRule::kVariable;
  OrderRule order = OrderRule::kRelaxed;
  /// False where EL0 cannot execute it.
  bool el0 = true;
  /// The words of this row. Registers that must be even have their low bit in the mask.
  Cube cube = {};
  /// Operands that make a word of the cube access no memory: UNDEFINED, or CONSTRAINED
  /// UNPREDICTABLE between UNDEFINED and NOP. Such a word is not this instruction.
  Operands excluded = Operands::kNone;
  /// Operands that make a word CONSTRAINED UNPREDICTABLE and may still let it access memory. Such a
  /// word stays in the row.
  Operands constrained = Operands::kNone;
  /// Decode class of C4.1 that holds the encoding.
  std::string_view section = {};
};

/// True where any condition of the set holds of the word. Constant time.
[[nodiscard]] constexpr bool holds(Operands set, std::uint32_t word) noexcept {
  if (set == Operands::kNone) return false;
  const std::uint32_t rt = word & 31U;
  const std::uint32_t rn = (word >> 5U) & 31U;
  const std::uint32_t rt2 = (word >> 10U) & 31U;
  const std::uint32_t rs = (word >> 16U) & 31U;
  return (contains(set, Operands::kRtIs31) && rt == 31) ||
         (contains(set, Operands::kRsIs31) && rs == 31) ||
         (contains(set, Operands::kRnIs31) && rn == 31) ||
         (contains(set, Operands::kRtAbove23) && rt > 23) ||
         (contains(set, Operands::kRtIsRt2) && rt == rt2) ||
         (contains(set, Operands::kRtIsRs) && rt == rs) ||
         (contains(set, Operands::kRt2IsRs) && rt2 == rs) ||
         (contains(set, Operands::kRtIsRn) && rt == rn) ||
         (contains(set, Operands::kRsIsRn) && rs == rn) ||
         (contains(set, Operands::kRtIsBase) && rt == rn && rn != 31) ||
         (contains(set, Operands::kRsIsBase) && rs == rn && rn != 31) ||
         (contains(set, Operands::kRsNotOnes) && rs != 31) ||
         (contains(set, Operands::kRt2NotOnes) && rt2 != 31);
}

namespace detail {

inline constexpr Operands kNone = Operands::kNone;
inline constexpr Operands kPairNot31 = Operands::kRtIs31 | Operands::kRsIs31;
inline constexpr Operands kShouldBeOnes = Operands::kRsNotOnes | Operands::kRt2NotOnes;
inline constexpr Operands kStatusOverlap =
    Operands::kRtIsRs | Operands::kRsIsBase | Operands::kRt2NotOnes;
inline constexpr Operands kPairStatusOverlap =
    Operands::kRtIsRs | Operands::kRt2IsRs | Operands::kRsIsBase;
inline constexpr Operands kCopyOperands = Operands::kRtIs31 | Operands::kRsIs31 |
                                          Operands::kRnIs31 | Operands::kRtIsRs |
                                          Operands::kRtIsRn | Operands::kRsIsRn;
inline constexpr Operands kSetOperands = Operands::kRtIs31 | Operands::kRnIs31 | Operands::kRtIsRs |
                                         Operands::kRtIsRn | Operands::kRsIsRn;
inline constexpr Operands kSetOnlyOperands =
    Operands::kRtIs31 | Operands::kRnIs31 | Operands::kRtIsRn;

inline constexpr std::string_view kMemop = "Atomic memory operations";
inline constexpr std::string_view kMemop128 = "128-bit atomic memory operations";
inline constexpr std::string_view kMemopUnprivileged = "Atomic memory operations (unprivileged)";
inline constexpr std::string_view kCompareSwap = "Compare and swap";
inline constexpr std::string_view kCompareSwapPair = "Compare and swap pair";
inline constexpr std::string_view kRcwSwap = "RCW compare and swap";
inline constexpr std::string_view kRcwSwapPair = "RCW compare and swap pair";
inline constexpr std::string_view kMopsSection = "Memory Copy and Memory Set";
inline constexpr std::string_view kTags = "Load/store memory tags";
inline constexpr std::string_view kOrderedSection = "Load/store ordered";
inline constexpr std::string_view kExclusiveRegister = "Load/store exclusive register";
inline constexpr std::string_view kExclusivePairSection = "Load/store exclusive pair";
inline constexpr std::string_view kUnscaled = "LDAPR/STLR (unscaled immediate)";
inline constexpr std::string_view kSimdUnscaled = "LDAPR/STLR (SIMD&FP)";
inline constexpr std::string_view kWriteback = "LDAPR/STLR (writeback)";
inline constexpr std::string_view kSystem = "System instructions";

/// A read-modify-write with A in bit 23 and R in bit 22.
[[nodiscard]] constexpr Encoding rmw(std::string_view pattern, std::string_view store_pattern,
                                     Group group, Feature feature, WidthRule width,
                                     std::uint32_t mask, std::uint32_t value, Operands excluded,
                                     Operands constrained, std::string_view section) noexcept {
  return {.pattern = pattern,
          .store_pattern = store_pattern,
          .group = group,
          .feature = feature,
          .kind = Kind::kReadModifyWrite,
          .width = width,
          .order = OrderRule::kBits23And22,
          .cube = {mask, value},
          .excluded = excluded,
          .constrained = constrained,
          .section = section};
}
[[nodiscard]] constexpr Encoding lse(std::string_view pattern, std::string_view store_pattern,
                                     std::uint32_t operation) noexcept {
  return rmw(pattern, store_pattern, Group::kLse, Feature::kLse, WidthRule::kSize, 0x3f20fc00,
             0x38200000 | operation << 12U, kNone, kNone, kMemop);
}
[[nodiscard]] constexpr Encoding lse128(std::string_view pattern, std::uint32_t value) noexcept {
  return rmw(pattern, "", Group::kLse128, Feature::kLse128, WidthRule::k16, 0xff20fc00, value,
             kPairNot31, Operands::kRtIsRs, kMemop128);
}
[[nodiscard]] constexpr Encoding rcw(std::string_view pattern, std::uint32_t value) noexcept {
  return rmw(pattern, "", Group::kRcw, Feature::kThe, WidthRule::k8, 0xff20fc00, value, kNone,
             kNone, kMemop);
}
[[nodiscard]] constexpr Encoding rcw_cas(std::string_view pattern, std::uint32_t value) noexcept {
  return rmw(pattern, "", Group::kRcwCas, Feature::kThe, WidthRule::k8, 0xff20fc00, value, kNone,
             kNone, kRcwSwap);
}
[[nodiscard]] constexpr Encoding rcw_casp(std::string_view pattern, std::uint32_t value) noexcept {
  return rmw(pattern, "", Group::kRcwCas, Feature::kD128The, WidthRule::k16, 0xff21fc01, value,
             kNone, kNone, kRcwSwapPair);
}
[[nodiscard]] constexpr Encoding rcw_pair(std::string_view pattern, std::uint32_t value) noexcept {
  return rmw(pattern, "", Group::kRcwPair, Feature::kD128The, WidthRule::k16, 0xff20fc00, value,
             kPairNot31, Operands::kRtIsRs, kMemop128);
}
[[nodiscard]] constexpr Encoding lsui(std::string_view pattern, std::string_view store_pattern,
                                      std::uint32_t value) noexcept {
  return rmw(pattern, store_pattern, Group::kLsui, Feature::kLsui, WidthRule::kWordDouble,
             0xbf20fc00, value, kNone, kNone, kMemopUnprivileged);
}
/// FEAT_LSFE: half, single and double precision, which differ in bits 31:30 (01, 10, 11).
[[nodiscard]] constexpr Encoding lsfe(std::string_view pattern, std::uint32_t mask,
                                      std::uint32_t value) noexcept {
  return rmw(pattern, "", Group::kLsfe, Feature::kLsfe, WidthRule::kSize, mask, value, kNone, kNone,
             kMemop);
}
/// And BF16, which has 00 there.
[[nodiscard]] constexpr Encoding lsfe_bf16(std::string_view pattern, std::uint32_t mask,
                                           std::uint32_t value) noexcept {
  return rmw(pattern, "", Group::kLsfe, Feature::kLsfe, WidthRule::k2, mask, value, kNone, kNone,
             kMemop);
}
[[nodiscard]] constexpr Encoding cas(std::string_view pattern, Group group, Feature feature,
                                     WidthRule width, std::uint32_t mask, std::uint32_t value,
                                     std::string_view section) noexcept {
  return {.pattern = pattern,
          .group = group,
          .feature = feature,
          .kind = Kind::kReadModifyWrite,
          .width = width,
          .order = OrderRule::kBits22And15,
          .cube = {mask, value},
          .section = section};
}
[[nodiscard]] constexpr Encoding plain(std::string_view pattern, Group group, Feature feature,
                                       Kind kind, WidthRule width, OrderRule order,
                                       std::uint32_t mask, std::uint32_t value, Operands excluded,
                                       Operands constrained, std::string_view section,
                                       bool el0 = true) noexcept {
  return {.pattern = pattern,
          .group = group,
          .feature = feature,
          .kind = kind,
          .width = width,
          .order = order,
          .el0 = el0,
          .cube = {mask, value},
          .excluded = excluded,
          .constrained = constrained,
          .section = section};
}
[[nodiscard]] constexpr Encoding copy(std::string_view pattern, std::uint32_t value) noexcept {
  return plain(pattern, Group::kCopy, Feature::kMops, Kind::kCopy, WidthRule::kVariable,
               OrderRule::kRelaxed, 0xffe00c00, value, kCopyOperands, kNone, kMopsSection);
}
[[nodiscard]] constexpr Encoding set(std::string_view pattern, std::uint32_t value) noexcept {
  return plain(pattern, Group::kSet, Feature::kMops, Kind::kSet, WidthRule::kVariable,
               OrderRule::kRelaxed, 0xffe0cc00, value, kSetOperands, kNone, kMopsSection);
}
[[nodiscard]] constexpr Encoding set_tags(std::string_view pattern, std::uint32_t value) noexcept {
  return plain(pattern, Group::kSet, Feature::kMopsGo, Kind::kSet, WidthRule::kVariable,
               OrderRule::kRelaxed, 0xffffcc00, value, kSetOnlyOperands, kNone, kMopsSection);
}
[[nodiscard]] constexpr Encoding tag_store(std::string_view pattern, WidthRule width,
                                           std::uint32_t mask, std::uint32_t value) noexcept {
  return plain(pattern, Group::kTag, Feature::kMte, Kind::kTagStore, width, OrderRule::kRelaxed,
               mask, value, kNone, kNone, kTags);
}
[[nodiscard]] constexpr Encoding zero(std::string_view pattern, Feature feature,
                                      std::uint32_t value) noexcept {
  return plain(pattern, Group::kZero, feature, Kind::kZero, WidthRule::kVariable,
               OrderRule::kRelaxed, 0xffffffe0, value, kNone, kNone, kSystem);
}

}  // namespace detail

// One row a line reads as a table, wider than the house's 100 columns.
// clang-format off
/// The table. No two rows share a word (checked by a test over all 2^32).
inline constexpr auto kEncodings = [] {
  using namespace detail;  // NOLINT(google-build-using-namespace): the helpers of this table
  using enum WidthRule;
  using F = Feature;
  using G = Group;
  using K = Kind;
  using O = OrderRule;
  return std::to_array<Encoding>({
      // Atomic read-modify-write, FEAT_LSE.
      lse("ldaddOZ", "staddOZ", 0),
      lse("ldclrOZ", "stclrOZ", 1),
      lse("ldeorOZ", "steorOZ", 2),
      lse("ldsetOZ", "stsetOZ", 3),
      lse("ldsmaxOZ", "stsmaxOZ", 4),
      lse("ldsminOZ", "stsminOZ", 5),
      lse("ldumaxOZ", "stumaxOZ", 6),
      lse("lduminOZ", "stuminOZ", 7),
      rmw("swpOZ", "", G::kSwp, F::kLse, kSize, 0x3f20fc00, 0x38208000, kNone, kNone, kMemop),
      cas("casOZ", G::kCas, F::kLse, kSize, 0x3fa07c00, 0x08a07c00, kCompareSwap),
      cas("caspO", G::kCasp, F::kLse, kPair, 0xbfa17c01, 0x08207c00, kCompareSwapPair),
      // 128-bit, FEAT_LSE128.
      lse128("ldclrpO", 0x19201000),
      lse128("ldsetpO", 0x19203000),
      lse128("swppO", 0x19208000),
      // Read-check-write, FEAT_THE, and of pairs FEAT_D128.
      rcw("rcwclrO", 0x38209000),
      rcw("rcwswpO", 0x3820a000),
      rcw("rcwsetO", 0x3820b000),
      rcw("rcwsclrO", 0x78209000),
      rcw("rcwsswpO", 0x7820a000),
      rcw("rcwssetO", 0x7820b000),
      rcw_cas("rcwcasO", 0x19200800),
      rcw_cas("rcwscasO", 0x59200800),
      rcw_casp("rcwcaspO", 0x19200c00),
      rcw_casp("rcwscaspO", 0x59200c00),
      rcw_pair("rcwclrpO", 0x19209000),
      rcw_pair("rcwswppO", 0x1920a000),
      rcw_pair("rcwsetpO", 0x1920b000),
      rcw_pair("rcwsclrpO", 0x59209000),
      rcw_pair("rcwsswppO", 0x5920a000),
      rcw_pair("rcwssetpO", 0x5920b000),
      // Unprivileged, FEAT_LSUI; at EL0 they act as the others do.
      lsui("ldtaddO", "sttaddO", 0x19200400),
      lsui("ldtclrO", "sttclrO", 0x19201400),
      lsui("ldtsetO", "sttsetO", 0x19203400),
      lsui("swptO", "", 0x19208400),
      cas("casOt", G::kLsuiCas, F::kLsui, k8, 0xffa07c00, 0xc9807c00, "Compare and swap (unprivileged)"),
      cas("caspOt", G::kLsuiCas, F::kLsui, k16, 0xffa17c01, 0x49807c00, "Compare and swap pair (unprivileged)"),
      // Floating point, FEAT_LSFE. BF16 has bits 31:30 clear; the others have 01, 10 or 11 there,
      // which takes two cubes.
      lsfe_bf16("ldbfaddO", 0xff20fc00, 0x3c200000),
      lsfe_bf16("ldbfmaxO", 0xff20fc00, 0x3c204000),
      lsfe_bf16("ldbfminO", 0xff20fc00, 0x3c205000),
      lsfe_bf16("ldbfmaxnmO", 0xff20fc00, 0x3c206000),
      lsfe_bf16("ldbfminnmO", 0xff20fc00, 0x3c207000),
      lsfe("ldfaddO", 0x7f20fc00, 0x7c200000),
      lsfe("ldfmaxO", 0x7f20fc00, 0x7c204000),
      lsfe("ldfminO", 0x7f20fc00, 0x7c205000),
      lsfe("ldfmaxnmO", 0x7f20fc00, 0x7c206000),
      lsfe("ldfminnmO", 0x7f20fc00, 0x7c207000),
      lsfe("ldfaddO", 0xff20fc00, 0xbc200000),
      lsfe("ldfmaxO", 0xff20fc00, 0xbc204000),
      lsfe("ldfminO", 0xff20fc00, 0xbc205000),
      lsfe("ldfmaxnmO", 0xff20fc00, 0xbc206000),
      lsfe("ldfminnmO", 0xff20fc00, 0xbc207000),
      lsfe_bf16("stbfaddO", 0xffa0fc1f, 0x3c20801f),
      lsfe_bf16("stbfmaxO", 0xffa0fc1f, 0x3c20c01f),
      lsfe_bf16("stbfminO", 0xffa0fc1f, 0x3c20d01f),
      lsfe_bf16("stbfmaxnmO", 0xffa0fc1f, 0x3c20e01f),
      lsfe_bf16("stbfminnmO", 0xffa0fc1f, 0x3c20f01f),
      lsfe("stfaddO", 0x7fa0fc1f, 0x7c20801f),
      lsfe("stfmaxO", 0x7fa0fc1f, 0x7c20c01f),
      lsfe("stfminO", 0x7fa0fc1f, 0x7c20d01f),
      lsfe("stfmaxnmO", 0x7fa0fc1f, 0x7c20e01f),
      lsfe("stfminnmO", 0x7fa0fc1f, 0x7c20f01f),
      lsfe("stfaddO", 0xffa0fc1f, 0xbc20801f),
      lsfe("stfmaxO", 0xffa0fc1f, 0xbc20c01f),
      lsfe("stfminO", 0xffa0fc1f, 0xbc20d01f),
      lsfe("stfmaxnmO", 0xffa0fc1f, 0xbc20e01f),
      lsfe("stfminnmO", 0xffa0fc1f, 0xbc20f01f),
      // Exclusives.
      plain("ldxrZ", G::kExclusive, F::kBase, K::kLoadExclusive, kSize, O::kRelaxed, 0x3fe08000, 0x08400000, kNone, kShouldBeOnes, kExclusiveRegister),
      plain("ldaxrZ", G::kExclusive, F::kBase, K::kLoadExclusive, kSize, O::kAcquire, 0x3fe08000, 0x08408000, kNone, kShouldBeOnes, kExclusiveRegister),
      plain("stxrZ", G::kExclusive, F::kBase, K::kStoreExclusive, kSize, O::kRelaxed, 0x3fe08000, 0x08000000, kNone, kStatusOverlap, kExclusiveRegister),
      plain("stlxrZ", G::kExclusive, F::kBase, K::kStoreExclusive, kSize, O::kRelease, 0x3fe08000, 0x08008000, kNone, kStatusOverlap, kExclusiveRegister),
      plain("ldxp", G::kExclusivePair, F::kBase, K::kLoadExclusive, kPair, O::kRelaxed, 0xbfe08000, 0x88600000, kNone, Operands::kRtIsRt2 | Operands::kRsNotOnes, kExclusivePairSection),
      plain("ldaxp", G::kExclusivePair, F::kBase, K::kLoadExclusive, kPair, O::kAcquire, 0xbfe08000, 0x88608000, kNone, Operands::kRtIsRt2 | Operands::kRsNotOnes, kExclusivePairSection),
      plain("stxp", G::kExclusivePair, F::kBase, K::kStoreExclusive, kPair, O::kRelaxed, 0xbfe08000, 0x88200000, kNone, kPairStatusOverlap, kExclusivePairSection),
      plain("stlxp", G::kExclusivePair, F::kBase, K::kStoreExclusive, kPair, O::kRelease, 0xbfe08000, 0x88208000, kNone, kPairStatusOverlap, kExclusivePairSection),
      plain("ldtxr", G::kLsuiExclusive, F::kLsui, K::kLoadExclusive, kWordDouble, O::kRelaxed, 0xbfe08000, 0x89400000, kNone, kShouldBeOnes, "Load/store exclusive register (unprivileged)"),
      plain("ldatxr", G::kLsuiExclusive, F::kLsui, K::kLoadExclusive, kWordDouble, O::kAcquire, 0xbfe08000, 0x89408000, kNone, kShouldBeOnes, "Load/store exclusive register (unprivileged)"),
      plain("sttxr", G::kLsuiExclusive, F::kLsui, K::kStoreExclusive, kWordDouble, O::kRelaxed, 0xbfe08000, 0x89000000, kNone, kStatusOverlap, "Load/store exclusive register (unprivileged)"),
      plain("stltxr", G::kLsuiExclusive, F::kLsui, K::kStoreExclusive, kWordDouble, O::kRelease, 0xbfe08000, 0x89008000, kNone, kStatusOverlap, "Load/store exclusive register (unprivileged)"),
      // Ordered.
      plain("ldarZ", G::kOrdered, F::kBase, K::kLoad, kSize, O::kAcquire, 0x3fe08000, 0x08c08000, kNone, kShouldBeOnes, kOrderedSection),
      plain("stlrZ", G::kOrdered, F::kBase, K::kStore, kSize, O::kRelease, 0x3fe08000, 0x08808000, kNone, kShouldBeOnes, kOrderedSection),
      plain("ldlarZ", G::kLimitedOrdered, F::kLor, K::kLoad, kSize, O::kAcquireLo, 0x3fe08000, 0x08c00000, kNone, kShouldBeOnes, kOrderedSection),
      plain("stllrZ", G::kLimitedOrdered, F::kLor, K::kStore, kSize, O::kReleaseLo, 0x3fe08000, 0x08800000, kNone, kShouldBeOnes, kOrderedSection),
      plain("ldaprZ", G::kRcpc, F::kRcpc, K::kLoad, kSize, O::kAcquirePc, 0x3ffffc00, 0x38bfc000, kNone, kNone, kMemop),
      plain("ldapurZ", G::kRcpcUnscaled, F::kRcpc2, K::kLoad, kSize, O::kAcquirePc, 0x3fe00c00, 0x19400000, kNone, kNone, kUnscaled),
      plain("ldapursb", G::kRcpcUnscaled, F::kRcpc2, K::kLoad, kSize, O::kAcquirePc, 0xffa00c00, 0x19800000, kNone, kNone, kUnscaled),
      plain("ldapursh", G::kRcpcUnscaled, F::kRcpc2, K::kLoad, kSize, O::kAcquirePc, 0xffa00c00, 0x59800000, kNone, kNone, kUnscaled),
      plain("ldapursw", G::kRcpcUnscaled, F::kRcpc2, K::kLoad, kSize, O::kAcquirePc, 0xffe00c00, 0x99800000, kNone, kNone, kUnscaled),
      plain("stlurZ", G::kRcpcUnscaled, F::kRcpc2, K::kStore, kSize, O::kRelease, 0x3fe00c00, 0x19000000, kNone, kNone, kUnscaled),
      plain("ldapr", G::kRcpcWriteback, F::kRcpc3, K::kLoad, kWordDouble, O::kAcquirePc, 0xbffffc00, 0x99c00800, kNone, Operands::kRtIsBase, kWriteback),
      plain("stlr", G::kRcpcWriteback, F::kRcpc3, K::kStore, kWordDouble, O::kRelease, 0xbffffc00, 0x99800800, kNone, Operands::kRtIsBase, kWriteback),
      plain("ldiapp", G::kRcpcWriteback, F::kRcpc3, K::kLoad, kPair, O::kAcquirePc, 0xbfe0fc00, 0x99401800, kNone, Operands::kRtIsRs, "LDIAPP/STILP"),
      plain("ldiapp", G::kRcpcWriteback, F::kRcpc3, K::kLoad, kPair, O::kAcquirePc, 0xbfe0fc00, 0x99400800, kNone, Operands::kRtIsRs | Operands::kRtIsBase | Operands::kRsIsBase, "LDIAPP/STILP"),
      plain("stilp", G::kRcpcWriteback, F::kRcpc3, K::kStore, kPair, O::kRelease, 0xbfe0fc00, 0x99001800, kNone, kNone, "LDIAPP/STILP"),
      plain("stilp", G::kRcpcWriteback, F::kRcpc3, K::kStore, kPair, O::kRelease, 0xbfe0fc00, 0x99000800, kNone, Operands::kRtIsBase | Operands::kRsIsBase, "LDIAPP/STILP"),
      plain("ldapur", G::kRcpcSimd, F::kRcpc3, K::kLoad, kSize, O::kAcquirePc, 0x3fe00c00, 0x1d400800, kNone, kNone, kSimdUnscaled),
      plain("ldapur", G::kRcpcSimd, F::kRcpc3, K::kLoad, k16, O::kAcquirePc, 0xffe00c00, 0x1dc00800, kNone, kNone, kSimdUnscaled),
      plain("stlur", G::kRcpcSimd, F::kRcpc3, K::kStore, kSize, O::kRelease, 0x3fe00c00, 0x1d000800, kNone, kNone, kSimdUnscaled),
      plain("stlur", G::kRcpcSimd, F::kRcpc3, K::kStore, k16, O::kRelease, 0xffe00c00, 0x1d800800, kNone, kNone, kSimdUnscaled),
      plain("ldap1", G::kRcpcSimd, F::kRcpc3, K::kLoad, k8, O::kAcquirePc, 0xbffffc00, 0x0d418400, kNone, kNone, "Advanced SIMD load/store single structure"),
      plain("stl1", G::kRcpcSimd, F::kRcpc3, K::kStore, k8, O::kRelease, 0xbffffc00, 0x0d018400, kNone, kNone, "Advanced SIMD load/store single structure"),
      plain("ldap", G::kOrderedPair, F::kLscp, K::kLoad, k16, O::kAcquire, 0xffe0fc00, 0xd9405800, kNone, Operands::kRtIsRs, "LDIAPP/STILP"),
      plain("ldapp", G::kOrderedPair, F::kLscp, K::kLoad, k16, O::kAcquirePc, 0xffe0fc00, 0xd9407800, kNone, Operands::kRtIsRs, "LDIAPP/STILP"),
      plain("stlp", G::kOrderedPair, F::kLscp, K::kStore, k16, O::kRelease, 0xffe0fc00, 0xd9005800, kNone, kNone, "LDIAPP/STILP"),
      // 64 bytes at once. ST64BV and ST64BV0 return a status and do not read memory.
      plain("ld64b", G::kLs64, F::kLs64, K::kLoad, k64, O::kRelaxed, 0xfffffc01, 0xf83fd000, Operands::kRtAbove23, kNone, kMemop),
      plain("st64b", G::kLs64, F::kLs64, K::kStore, k64, O::kRelaxed, 0xfffffc01, 0xf83f9000, Operands::kRtAbove23, kNone, kMemop),
      plain("st64bv", G::kLs64, F::kLs64V, K::kStore, k64, O::kRelaxed, 0xffe0fc01, 0xf820b000, Operands::kRtAbove23, kNone, kMemop),
      plain("st64bv0", G::kLs64, F::kLs64AccData, K::kStore, k64, O::kRelaxed, 0xffe0fc01, 0xf820a000, Operands::kRtAbove23, kNone, kMemop),
      // Memory copy and set.
      copy("cpyfpC", 0x19000400),
      copy("cpyfmC", 0x19400400),
      copy("cpyfeC", 0x19800400),
      copy("cpypC", 0x1d000400),
      copy("cpymC", 0x1d400400),
      copy("cpyeC", 0x1d800400),
      set("setpS", 0x19c00400),
      set("setmS", 0x19c04400),
      set("seteS", 0x19c08400),
      set("setgpS", 0x1dc00400),
      set("setgmS", 0x1dc04400),
      set("setgeS", 0x1dc08400),
      set_tags("setgopS", 0x1ddf0000),
      set_tags("setgomS", 0x1ddf4000),
      set_tags("setgoeS", 0x1ddf8000),
      // Allocation tags. Post-index, offset and pre-index differ in bits 11:10 (01, 10, 11).
      tag_store("stg", k16, 0xffe00400, 0xd9200400),
      tag_store("stg", k16, 0xffe00c00, 0xd9200800),
      tag_store("stzg", k16, 0xffe00400, 0xd9600400),
      tag_store("stzg", k16, 0xffe00c00, 0xd9600800),
      tag_store("st2g", k32, 0xffe00400, 0xd9a00400),
      tag_store("st2g", k32, 0xffe00c00, 0xd9a00800),
      tag_store("stz2g", k32, 0xffe00400, 0xd9e00400),
      tag_store("stz2g", k32, 0xffe00c00, 0xd9e00800),
      tag_store("stgp", k16, 0xff400000, 0x69000000),
      tag_store("stgp", k16, 0xffc00000, 0x68800000),
      plain("ldg", G::kTag, F::kMte, K::kTagLoad, k16, O::kRelaxed, 0xffe00c00, 0xd9600000, kNone, kNone, kTags),
      plain("ldgm", G::kTag, F::kMte2, K::kTagLoad, kVariable, O::kRelaxed, 0xfffffc00, 0xd9e00000, kNone, kNone, kTags, false),
      plain("stgm", G::kTag, F::kMte2, K::kTagStore, kVariable, O::kRelaxed, 0xfffffc00, 0xd9a00000, kNone, kNone, kTags, false),
      plain("stzgm", G::kTag, F::kMte2, K::kTagStore, kVariable, O::kRelaxed, 0xfffffc00, 0xd9200000, kNone, kNone, kTags, false),
      // Blocks of DCZID_EL0 bytes.
      zero("dc zva", F::kBase, 0xd50b7420),
      zero("dc gva", F::kMte, 0xd50b7460),
      zero("dc gzva", F::kMte, 0xd50b7480),
      zero("dc zgbva", F::kMteTc, 0xd50b74a0),
      zero("dc gbva", F::kMteTc, 0xd50b74e0),
      // Guarded control stacks. ESR_ELx.ISS2.GCS marks their faults, so they need no decoding.
      plain("gcsstr", G::kGcs, F::kGcs, K::kStore, k8, O::kRelaxed, 0xfffffc00, 0xd91f0c00, kNone, kNone, "GCS load/store"),
      plain("gcssttr", G::kGcs, F::kGcs, K::kStore, k8, O::kRelaxed, 0xfffffc00, 0xd91f1c00, kNone, kNone, "GCS load/store"),
      plain("gcsss1", G::kGcs, F::kGcs, K::kGcsSwitch, k8, O::kRelaxed, 0xffffffe0, 0xd50b7740, kNone, kNone, kSystem),
      plain("gcsss2", G::kGcs, F::kGcs, K::kGcsSwitch, k8, O::kRelaxed, 0xffffffe0, 0xd52b7760, kNone, kNone, kSystem),
      plain("gcspushm", G::kGcs, F::kGcs, K::kStore, k8, O::kRelaxed, 0xffffffe0, 0xd50b7700, kNone, kNone, kSystem),
      plain("gcspopm", G::kGcs, F::kGcs, K::kLoad, k8, O::kRelaxed, 0xffffffe0, 0xd52b7720, kNone, kNone, kSystem),
  });
}();
// clang-format on

/// A decode class of C4.1 that the table describes in full: whatever is in the cube and in no row
/// is UNALLOCATED.
struct DecodeClass {
  std::string_view name;
  Cube cube;
};

/// The decode classes that hold the read-modify-writes.
inline constexpr auto kReadModifyWriteClasses = std::to_array<DecodeClass>({
    {detail::kMemop, {0x3b200c00, 0x38200000}},
    {detail::kCompareSwap, {0x3fa00000, 0x08a00000}},
    {detail::kCompareSwapPair, {0xbfa00000, 0x08200000}},
    {detail::kMemop128, {0xbf200c00, 0x19200000}},
    {detail::kMemopUnprivileged, {0xbf200c00, 0x19200400}},
    {detail::kRcwSwap, {0xbf200c00, 0x19200800}},
    {detail::kRcwSwapPair, {0xbf200c00, 0x19200c00}},
    {"Compare and swap (unprivileged)", {0xbfa00000, 0x89800000}},
    {"Compare and swap pair (unprivileged)", {0xbfa00000, 0x09800000}},
});

/// Words that cannot raise a data abort at EL0 on any version of the architecture.
struct NeverAborts {
  Cube cube;
  std::string_view reason;
};

/// Allocated words that a decoder of EL0 data aborts never sees.
inline constexpr auto kNeverAborts = std::to_array<NeverAborts>({
    {{0xffff0000, 0x00000000}, "UDF: permanently undefined"},
    {{0xfffffc00, 0xd9200000}, "STZGM: UNDEFINED at EL0"},
    {{0xfffffc00, 0xd9a00000}, "STGM: UNDEFINED at EL0"},
    {{0xfffffc00, 0xd9e00000}, "LDGM: UNDEFINED at EL0"},
    {{0xff000000, 0xd8000000}, "PRFM (literal): a prefetch raises no synchronous abort"},
    {{0xffc00000, 0xf9800000}, "PRFM (immediate): a prefetch raises no synchronous abort"},
    {{0xffe00c00, 0xf8800000}, "PRFUM: a prefetch raises no synchronous abort"},
    {{0xffe04c00, 0xf8a04800}, "PRFM (register), RPRFM: a prefetch raises no synchronous abort"},
});

/// The feature as the manual writes it, such as "FEAT_LSE". Thread-safe.
[[nodiscard]] constexpr std::string_view to_string(Feature feature) noexcept {
  switch (feature) {
    case Feature::kBase:
      return "A64 base";
    case Feature::kLor:
      return "FEAT_LOR";
    case Feature::kLse:
      return "FEAT_LSE";
    case Feature::kRcpc:
      return "FEAT_LRCPC";
    case Feature::kRcpc2:
      return "FEAT_LRCPC2";
    case Feature::kRcpc3:
      return "FEAT_LRCPC3";
    case Feature::kMte:
      return "FEAT_MTE";
    case Feature::kMte2:
      return "FEAT_MTE2";
    case Feature::kMteTc:
      return "FEAT_MTETC";
    case Feature::kLs64:
      return "FEAT_LS64";
    case Feature::kLs64V:
      return "FEAT_LS64_V";
    case Feature::kLs64AccData:
      return "FEAT_LS64_ACCDATA";
    case Feature::kMops:
      return "FEAT_MOPS";
    case Feature::kMopsGo:
      return "FEAT_MOPS_GO";
    case Feature::kGcs:
      return "FEAT_GCS";
    case Feature::kLse128:
      return "FEAT_LSE128";
    case Feature::kThe:
      return "FEAT_THE";
    case Feature::kD128The:
      return "FEAT_D128 and FEAT_THE";
    case Feature::kLsui:
      return "FEAT_LSUI";
    case Feature::kLsfe:
      return "FEAT_LSFE";
    case Feature::kLscp:
      return "FEAT_LSCP";
  }
  return "unknown";
}

/// A short name for a family, such as "lse". Thread-safe.
[[nodiscard]] constexpr std::string_view to_string(Group group) noexcept {
  switch (group) {
    case Group::kLse:
      return "lse";
    case Group::kSwp:
      return "swp";
    case Group::kCas:
      return "cas";
    case Group::kCasp:
      return "casp";
    case Group::kLse128:
      return "lse128";
    case Group::kRcw:
      return "rcw";
    case Group::kRcwCas:
      return "rcw-cas";
    case Group::kRcwPair:
      return "rcw-pair";
    case Group::kLsui:
      return "lsui";
    case Group::kLsuiCas:
      return "lsui-cas";
    case Group::kLsfe:
      return "lsfe";
    case Group::kExclusive:
      return "exclusive";
    case Group::kExclusivePair:
      return "exclusive-pair";
    case Group::kLsuiExclusive:
      return "lsui-exclusive";
    case Group::kOrdered:
      return "ordered";
    case Group::kLimitedOrdered:
      return "limited-ordered";
    case Group::kRcpc:
      return "rcpc";
    case Group::kRcpcUnscaled:
      return "rcpc-unscaled";
    case Group::kRcpcWriteback:
      return "rcpc-writeback";
    case Group::kRcpcSimd:
      return "rcpc-simd";
    case Group::kOrderedPair:
      return "ordered-pair";
    case Group::kLs64:
      return "ls64";
    case Group::kCopy:
      return "mops-copy";
    case Group::kSet:
      return "mops-set";
    case Group::kTag:
      return "mte-tag";
    case Group::kZero:
      return "dc-zero";
    case Group::kGcs:
      return "gcs";
  }
  return "unknown";
}

/// A family as people write it, such as "LD<op>, ST<op>". Thread-safe.
[[nodiscard]] constexpr std::string_view title(Group group) noexcept {
  switch (group) {
    case Group::kLse:
      return "LD<op>, ST<op>";
    case Group::kSwp:
      return "SWP";
    case Group::kCas:
      return "CAS";
    case Group::kCasp:
      return "CASP";
    case Group::kLse128:
      return "LDCLRP, LDSETP, SWPP";
    case Group::kRcw:
      return "RCW[S]CLR, RCW[S]SWP, RCW[S]SET";
    case Group::kRcwCas:
      return "RCW[S]CAS, RCW[S]CASP";
    case Group::kRcwPair:
      return "RCW[S]CLRP, RCW[S]SWPP, RCW[S]SETP";
    case Group::kLsui:
      return "LDT<op>, STT<op>, SWPT";
    case Group::kLsuiCas:
      return "CAST, CASPT";
    case Group::kLsfe:
      return "LD[B]F<op>, ST[B]F<op>";
    case Group::kExclusive:
      return "LDXR, STXR";
    case Group::kExclusivePair:
      return "LDXP, STXP";
    case Group::kLsuiExclusive:
      return "LDTXR, STTXR";
    case Group::kOrdered:
      return "LDAR, STLR";
    case Group::kLimitedOrdered:
      return "LDLAR, STLLR";
    case Group::kRcpc:
      return "LDAPR";
    case Group::kRcpcUnscaled:
      return "LDAPUR, STLUR";
    case Group::kRcpcWriteback:
      return "LDAPR, STLR, LDIAPP, STILP (FEAT_LRCPC3)";
    case Group::kRcpcSimd:
      return "LDAP1, STL1, LDAPUR, STLUR (SIMD&FP)";
    case Group::kOrderedPair:
      return "LDAP, LDAPP, STLP";
    case Group::kLs64:
      return "LD64B, ST64B*";
    case Group::kCopy:
      return "CPY*";
    case Group::kSet:
      return "SET*";
    case Group::kTag:
      return "Allocation tags";
    case Group::kZero:
      return "DC *VA that zero or tag";
    case Group::kGcs:
      return "Guarded control stacks";
  }
  return "unknown";
}

/// What an instruction does, in a word or two. Thread-safe.
[[nodiscard]] constexpr std::string_view to_string(Kind kind) noexcept {
  switch (kind) {
    case Kind::kReadModifyWrite:
      return "read-modify-write";
    case Kind::kLoad:
      return "load";
    case Kind::kStore:
      return "store";
    case Kind::kLoadExclusive:
      return "load-exclusive";
    case Kind::kStoreExclusive:
      return "store-exclusive";
    case Kind::kCopy:
      return "copy";
    case Kind::kSet:
      return "set";
    case Kind::kTagLoad:
      return "tag load";
    case Kind::kTagStore:
      return "tag store";
    case Kind::kZero:
      return "block zero";
    case Kind::kGcsSwitch:
      return "stack switch";
  }
  return "unknown";
}

/// A memory order, such as "acquire". Thread-safe.
[[nodiscard]] constexpr std::string_view to_string(Order order) noexcept {
  switch (order) {
    case Order::kRelaxed:
      return "relaxed";
    case Order::kAcquire:
      return "acquire";
    case Order::kRelease:
      return "release";
    case Order::kAcquireRelease:
      return "acquire-release";
    case Order::kAcquirePc:
      return "acquire (RCpc)";
    case Order::kAcquireLo:
      return "acquire (LORegion)";
    case Order::kReleaseLo:
      return "release (LORegion)";
  }
  return "unknown";
}

/// What WnR says: "R", "W", "per access" or "no fault". Thread-safe.
[[nodiscard]] constexpr std::string_view to_string(Wnr wnr) noexcept {
  switch (wnr) {
    case Wnr::kNoFault:
      return "no fault";
    case Wnr::kRead:
      return "R";
    case Wnr::kWrite:
      return "W";
    case Wnr::kPerAccess:
      return "per access";
  }
  return "unknown";
}

/// True where the instruction reads memory. Thread-safe.
[[nodiscard]] constexpr bool reads(Kind kind) noexcept {
  return kind != Kind::kStore && kind != Kind::kStoreExclusive && kind != Kind::kSet &&
         kind != Kind::kTagStore && kind != Kind::kZero;
}

/// True where the instruction writes memory or allocation tags. Thread-safe.
[[nodiscard]] constexpr bool writes(Kind kind) noexcept {
  return kind != Kind::kLoad && kind != Kind::kLoadExclusive && kind != Kind::kTagLoad;
}

/// WnR of the first data abort on a page that is not mapped. An atomic that reads and writes
/// reports a read wherever a read of the location would also have faulted. Thread-safe.
[[nodiscard]] constexpr Wnr wnr_unmapped(Kind kind) noexcept {
  if (kind == Kind::kCopy) return Wnr::kPerAccess;
  return reads(kind) ? Wnr::kRead : Wnr::kWrite;
}

/// WnR of the data abort on a page that is mapped read-only. Thread-safe.
[[nodiscard]] constexpr Wnr wnr_read_only(Kind kind) noexcept {
  return writes(kind) ? Wnr::kWrite : Wnr::kNoFault;
}

}  // namespace touchstone::arch::a64

#endif  // TOUCHSTONE_ARCH_A64_ENCODINGS_H_
