// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_A64_CLASSIFY_H_
#define TOUCHSTONE_ARCH_A64_CLASSIFY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <touchstone/arch/a64/encodings.h>

/// What one A64 instruction word does to memory. Everything here is constexpr, allocates nothing,
/// never fails and is safe from any thread.
namespace touchstone::arch::a64 {

/// What the first data abort of an instruction tells the kernel, and what the kernel makes of it.
enum class FirstFault : std::uint8_t {
  kNotListed,     ///< Not an instruction of the table.
  kForcedWrite,   ///< Reports a read although the instruction writes: worth forcing a write.
  kRead,          ///< Reports a read, and only reads.
  kWrite,         ///< Reports a write.
  kReadThenStxr,  ///< Reports a read; the store-exclusive that follows reports a write.
  kPerAccess,     ///< Reads report reads, writes report writes.
  kGcs,           ///< Marked by ISS2.GCS, which the kernel treats as a write without decoding.
};

/// One line for a person. Thread-safe.
[[nodiscard]] constexpr std::string_view to_string(FirstFault fault) noexcept {
  switch (fault) {
    case FirstFault::kNotListed:
      return "not a listed memory access";
    case FirstFault::kForcedWrite:
      return "forced write";
    case FirstFault::kRead:
      return "read";
    case FirstFault::kWrite:
      return "already a write";
    case FirstFault::kReadThenStxr:
      return "read, then STXR writes";
    case FirstFault::kPerAccess:
      return "read for the source, write for the destination";
    case FirstFault::kGcs:
      return "marked as a GCS access";
  }
  return "unknown";
}

/// The classification of one word. False in a boolean context where the word is not of the table.
struct MemoryAccess {
  /// The row, or null.
  const Encoding* encoding = nullptr;
  /// Bytes accessed as one unit, or 0 where a register or DCZID_EL0 gives it.
  std::uint8_t width = 0;
  Order order = Order::kRelaxed;
  FirstFault first_fault = FirstFault::kNotListed;
  /// The read value is discarded (the ST<op> forms).
  bool discards = false;
  /// The operands make the word CONSTRAINED UNPREDICTABLE, and it may still access memory.
  bool constrained = false;

  [[nodiscard]] constexpr explicit operator bool() const noexcept { return encoding != nullptr; }
  [[nodiscard]] constexpr bool reads() const noexcept {
    return encoding != nullptr && a64::reads(encoding->kind);
  }
  [[nodiscard]] constexpr bool writes() const noexcept {
    return encoding != nullptr && a64::writes(encoding->kind);
  }
};

namespace detail {

/// The bits that tell rows apart within the load/store space (bit 27 set, bit 25 clear): 31:28, 26,
/// 24:21 and 15:10.
inline constexpr unsigned kKeyBits = 15;

[[nodiscard]] constexpr std::uint32_t key_of(std::uint32_t word) noexcept {
  return ((word >> 10U) & 0x3fU) | ((word >> 15U) & 0x3c0U) | ((word >> 16U) & 0x400U) |
         ((word >> 17U) & 0x7800U);
}
[[nodiscard]] constexpr bool in_load_store_space(std::uint32_t word) noexcept {
  return (word & 0x0a000000U) == 0x08000000U;
}
/// System instructions that access memory: SYS #3, C7.
[[nodiscard]] constexpr bool in_system_space(std::uint32_t word) noexcept {
  return (word & 0xffdff000U) == 0xd50b7000U;
}

/// Row numbers plus one; 0 ends a list.
struct Dispatch {
  std::array<std::uint8_t, std::size_t{1} << kKeyBits> first{};
  std::array<std::uint8_t, kEncodings.size() + 1> next{};
  std::uint8_t first_system = 0;
};
static_assert(kEncodings.size() < 255);

/// Enters each row under every key that its words can have. A row may enter a key that another row
/// has entered (they then differ in register fields): the later row is put at the head, its own
/// list continuing with the earlier ones.
inline constexpr Dispatch kDispatch = [] {
  Dispatch table;
  for (std::size_t row = 0; row < kEncodings.size(); ++row) {
    const Cube cube = kEncodings[row].cube;
    const auto number = static_cast<std::uint8_t>(row + 1);
    if (in_system_space(cube.value)) {
      table.next[number] = table.first_system;
      table.first_system = number;
      continue;
    }
    const std::uint32_t fixed = key_of(cube.mask);
    const std::uint32_t value = key_of(cube.value);
    const std::uint32_t free = ~fixed & ((1U << kKeyBits) - 1);
    std::uint32_t part = 0;
    do {
      std::uint8_t& head = table.first[value | part];
      if (head != 0) table.next[number] = head;
      head = number;
      part = (part - free) & free;
    } while (part != 0);
  }
  return table;
}();

/// The row of a word, operands included, or null.
[[nodiscard]] constexpr const Encoding* find(std::uint32_t word) noexcept {
  std::uint8_t number = 0;
  if (in_load_store_space(word)) {
    number = kDispatch.first[key_of(word)];
  } else if (in_system_space(word)) {
    number = kDispatch.first_system;
  }
  for (; number != 0; number = kDispatch.next[number]) {
    const Encoding& row = kEncodings[number - 1U];
    if (row.cube.matches(word) && !holds(row.excluded, word)) return &row;
  }
  return nullptr;
}

[[nodiscard]] constexpr std::uint8_t width_of(WidthRule rule, std::uint32_t word) noexcept {
  switch (rule) {
    case WidthRule::k2:
      return 2;
    case WidthRule::k8:
      return 8;
    case WidthRule::k16:
      return 16;
    case WidthRule::k32:
      return 32;
    case WidthRule::k64:
      return 64;
    case WidthRule::kSize:
      return static_cast<std::uint8_t>(1U << (word >> 30U));
    case WidthRule::kWordDouble:
      return static_cast<std::uint8_t>(4U << ((word >> 30U) & 1U));
    case WidthRule::kPair:
      return static_cast<std::uint8_t>(8U << ((word >> 30U) & 1U));
    case WidthRule::kVariable:
      return 0;
  }
  return 0;
}

[[nodiscard]] constexpr Order acquire_release(bool acquire, bool release) noexcept {
  if (acquire) return release ? Order::kAcquireRelease : Order::kAcquire;
  return release ? Order::kRelease : Order::kRelaxed;
}

[[nodiscard]] constexpr Order order_of(OrderRule rule, std::uint32_t word) noexcept {
  const bool bit23 = ((word >> 23U) & 1U) != 0;
  const bool bit22 = ((word >> 22U) & 1U) != 0;
  const bool bit15 = ((word >> 15U) & 1U) != 0;
  switch (rule) {
    case OrderRule::kRelaxed:
      return Order::kRelaxed;
    case OrderRule::kAcquire:
      return Order::kAcquire;
    case OrderRule::kRelease:
      return Order::kRelease;
    case OrderRule::kAcquirePc:
      return Order::kAcquirePc;
    case OrderRule::kAcquireLo:
      return Order::kAcquireLo;
    case OrderRule::kReleaseLo:
      return Order::kReleaseLo;
    case OrderRule::kBits23And22:
      return acquire_release(bit23, bit22);
    case OrderRule::kBits22And15:
      return acquire_release(bit22, bit15);
  }
  return Order::kRelaxed;
}

[[nodiscard]] constexpr FirstFault first_fault_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::kReadModifyWrite:
      return FirstFault::kForcedWrite;
    case Kind::kLoad:
    case Kind::kTagLoad:
      return FirstFault::kRead;
    case Kind::kLoadExclusive:
      return FirstFault::kReadThenStxr;
    case Kind::kStore:
    case Kind::kStoreExclusive:
    case Kind::kSet:
    case Kind::kTagStore:
    case Kind::kZero:
      return FirstFault::kWrite;
    case Kind::kCopy:
      return FirstFault::kPerAccess;
    case Kind::kGcsSwitch:
      return FirstFault::kGcs;
  }
  return FirstFault::kNotListed;
}

/// What rows ask of the registers of a forced write, as a number of three bits: whether Rt or Rs is
/// odd, whether Rt is 31, whether Rs is 31. By register, as Rt and as Rs.
inline constexpr unsigned kRegisterStates = 8;
inline constexpr std::array<std::array<std::uint8_t, 32>, 2> kRegisterState = [] {
  std::array<std::array<std::uint8_t, 32>, 2> states{};
  for (std::uint8_t i = 0; i < 32; ++i) {
    states[0][i] = static_cast<std::uint8_t>((i & 1U) | (i == 31 ? 2U : 0U));
    states[1][i] = static_cast<std::uint8_t>((i & 1U) | (i == 31 ? 4U : 0U));
  }
  return states;
}();
[[nodiscard]] constexpr unsigned register_state(std::uint32_t word) noexcept {
  const unsigned rt = kRegisterState[0][word & 31U];
  const unsigned rs = kRegisterState[1][(word >> 16U) & 31U];
  return rt | rs;
}

/// The register states that a row allows, a bit each; nullopt where it asks for something else.
[[nodiscard]] constexpr std::optional<unsigned> allowed_register_states(
    const Encoding& row) noexcept {
  constexpr std::uint32_t registers = 0x001f001fU;
  const std::uint32_t mask = row.cube.mask & registers;
  const std::uint32_t value = row.cube.value & registers;
  const bool even = mask == 0x00010001U && value == 0;
  const bool rt_31 = mask == 0x0000001fU && value == 31U;
  const bool no_31 = row.excluded == (Operands::kRtIs31 | Operands::kRsIs31);
  if (mask != 0 && !even && !rt_31) return std::nullopt;
  if (row.excluded != Operands::kNone && !no_31) return std::nullopt;
  unsigned allowed = 0;
  for (unsigned state = 0; state < kRegisterStates; ++state) {
    if (even && (state & 1U) != 0) continue;
    if (rt_31 && (state & 2U) == 0) continue;
    if (no_31 && (state & 6U) != 0) continue;
    allowed |= 1U << state;
  }
  return allowed;
}

/// Calls visit(bits 31:21, bits 15:10) for each that words of `cube` can have.
template <typename Visit>
constexpr void for_each_opcode(Cube cube, Visit&& visit) {
  const std::uint32_t free = ~cube.mask & 0xffe0fc00U;
  std::uint32_t part = 0;
  do {
    const std::uint32_t word = (cube.value & 0xffe0fc00U) | part;
    visit(word >> 21U, (word >> 10U) & 0x3fU);
    part = (part - free) & free;
  } while (part != 0);
}

/// Whether any forced write has these bits 31:21.
inline constexpr auto kForcedWriteTops = [] {
  std::array<bool, std::size_t{1} << 11U> tops{};
  for (const Encoding& row : kEncodings) {
    if (row.kind != Kind::kReadModifyWrite) continue;
    for_each_opcode(row.cube, [&tops](std::uint32_t top, std::uint32_t) { tops[top] = true; });
  }
  return tops;
}();

/// The register states with which a word is a forced write, by bits 31:21 and then 15:10.
struct ForcedWrites {
  static constexpr auto kRows =
      static_cast<std::size_t>(1 + std::ranges::count(kForcedWriteTops, true));
  static_assert(kRows <= 256);
  /// The row for bits 31:21; row 0 is empty.
  std::array<std::uint8_t, kForcedWriteTops.size()> row{};
  std::array<std::array<std::uint8_t, 64>, kRows> states{};
};
inline constexpr ForcedWrites kForcedWrites = [] {
  ForcedWrites table;
  std::uint8_t used = 0;
  for (std::size_t top = 0; top < kForcedWriteTops.size(); ++top) {
    if (kForcedWriteTops[top]) table.row[top] = ++used;
  }
  for (const Encoding& row : kEncodings) {
    if (row.kind != Kind::kReadModifyWrite) continue;
    const auto allowed = static_cast<std::uint8_t>(allowed_register_states(row).value_or(0));
    for_each_opcode(row.cube, [&](std::uint32_t top, std::uint32_t bits) {
      std::uint8_t& states = table.states[table.row[top]][bits];
      states = static_cast<std::uint8_t>(states | allowed);
    });
  }
  return table;
}();
static_assert([] {
  for (const Encoding& row : kEncodings) {
    if (row.kind == Kind::kReadModifyWrite && !allowed_register_states(row)) return false;
  }
  return true;
}());

/// The options of CPY*, by bits 15:12, and of SET*, by bits 13:12.
inline constexpr std::array<std::string_view, 16> kCopyOptions{
    "",   "wt",   "rt",   "t",   "wn", "wtwn", "rtwn", "twn",
    "rn", "wtrn", "rtrn", "trn", "n",  "wtn",  "rtn",  "tn"};
inline constexpr std::array<std::string_view, 4> kSetOptions{"", "t", "n", "tn"};

}  // namespace detail

/// What the word does to memory. Words that are UNALLOCATED, and those that access memory in no way
/// that the table lists, give a MemoryAccess that is false.
[[nodiscard]] constexpr MemoryAccess classify(std::uint32_t word) noexcept {
  const Encoding* row = detail::find(word);
  if (row == nullptr) return {};
  MemoryAccess access;
  access.encoding = row;
  access.width = detail::width_of(row->width, word);
  access.order = detail::order_of(row->order, word);
  access.first_fault =
      row->group == Group::kGcs ? FirstFault::kGcs : detail::first_fault_of(row->kind);
  access.discards = row->kind == Kind::kReadModifyWrite &&
                    ((!row->store_pattern.empty() && (word & 0x0080001fU) == 0x1f) ||
                     row->pattern.starts_with("st"));
  access.constrained = holds(row->constrained, word);
  return access;
}

/// True exactly for the allocated words whose first data abort on an unmapped page reports a read
/// although the instruction writes: LSE, SWP, CAS, CASP, LSE128, RCW*, LSUI's and LSFE's
/// read-modify-writes. Unallocated words are false; words that are CONSTRAINED UNPREDICTABLE but
/// may access memory are true.
[[nodiscard]] constexpr bool is_forced_write(std::uint32_t word) noexcept {
  const auto& states = detail::kForcedWrites.states[detail::kForcedWrites.row[word >> 21U]];
  const unsigned allowed = states[(word >> 10U) & 0x3fU];
  return ((allowed >> detail::register_state(word)) & 1U) != 0;
}

/// True for the load-exclusives (LDXR, LDAXR, LDXP, LDAXP, LDTXR, LDATXR): the read that a
/// store-exclusive to the same location follows.
[[nodiscard]] constexpr bool is_load_exclusive(std::uint32_t word) noexcept {
  const Encoding* row = detail::find(word);
  return row != nullptr && row->kind == Kind::kLoadExclusive;
}

/// A mnemonic in a fixed buffer.
struct Mnemonic {
  std::array<char, 16> text{};
  std::uint8_t size = 0;

  [[nodiscard]] constexpr std::string_view view() const noexcept { return {text.data(), size}; }
  constexpr void append(std::string_view part) noexcept {
    for (const char c : part) text[size++] = c;
  }
};

/// The architectural mnemonic with its suffixes, in lower case, in the form the manual prefers
/// (such as "ldaddalb", "stclr", "casplal", "cpyfprtn"); empty for a word that is not of the table.
[[nodiscard]] constexpr Mnemonic format_mnemonic(std::uint32_t word) noexcept {
  Mnemonic mnemonic;
  const Encoding* row = detail::find(word);
  if (row == nullptr) return mnemonic;
  const bool store_form = !row->store_pattern.empty() && (word & 0x0080001fU) == 0x1f;
  for (const char c : store_form ? row->store_pattern : row->pattern) {
    switch (c) {
      case 'O':
        switch (detail::order_of(row->order, word)) {
          case Order::kAcquire:
            mnemonic.append("a");
            break;
          case Order::kRelease:
            mnemonic.append("l");
            break;
          case Order::kAcquireRelease:
            mnemonic.append("al");
            break;
          default:
            break;
        }
        break;
      case 'Z':
        if ((word >> 30U) == 0) mnemonic.append("b");
        if ((word >> 30U) == 1) mnemonic.append("h");
        break;
      case 'C':
        mnemonic.append(detail::kCopyOptions[(word >> 12U) & 15U]);
        break;
      case 'S':
        mnemonic.append(detail::kSetOptions[(word >> 12U) & 3U]);
        break;
      default:
        mnemonic.append(std::string_view(&c, 1));
        break;
    }
  }
  return mnemonic;
}

/// The masks of the patch "arm64: mm: force write fault for atomic RMW instructions", version 5
/// (linux-arm-kernel, 26 June 2024, 20240626191830.3819324-1), for comparison.
namespace v5 {

/// Its instruction classes.
inline constexpr Cube kClassAtomic{0x3b200c00, 0x38200000};
inline constexpr Cube kClassCas{0x3fa07c00, 0x08a07c00};
inline constexpr Cube kClassCasp{0xbfa07c00, 0x08207c00};
/// What it takes, of the words of a class, to have write permission checked.
inline constexpr std::array<Cube, 4> kHasWritePermission{{
    {0x3f207c00, 0x38200000},
    {0x3f208c00, 0x38200000},
    {0x7fe06c00, 0x78202000},
    {0xbf204c00, 0x38200000},
}};

/// Compares a word goes through that matches nothing but the last.
inline constexpr unsigned kCompares = 3 + static_cast<unsigned>(kHasWritePermission.size());

/// What that patch forces a write fault for.
[[nodiscard]] constexpr bool is_forced_write(std::uint32_t word) noexcept {
  if (kClassCas.matches(word) || kClassCasp.matches(word)) return true;
  if (!kClassAtomic.matches(word)) return false;
  for (const Cube& cube : kHasWritePermission) {
    if (cube.matches(word)) return true;
  }
  return false;
}

}  // namespace v5

}  // namespace touchstone::arch::a64

#endif  // TOUCHSTONE_ARCH_A64_CLASSIFY_H_
