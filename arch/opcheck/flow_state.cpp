// SPDX-License-Identifier: MIT
#include "flow_state.h"

#include <algorithm>
#include <bit>

namespace touchstone::arch::opcheck {
namespace {

constexpr std::size_t kMaxMemoryEntries = 512;
constexpr unsigned kZeroRegister = 31;

constexpr std::uint32_t bits(std::uint32_t word, unsigned high, unsigned low) noexcept {
  return (word >> low) & ((1U << (high - low + 1)) - 1);
}

constexpr bool bit(std::uint32_t word, unsigned index) noexcept {
  return (word >> index & 1) != 0;
}

constexpr std::uint64_t sign_extend(std::uint64_t value, unsigned from_bits) noexcept {
  const std::uint64_t sign = 1ULL << (from_bits - 1);
  const std::uint64_t low = from_bits == 64 ? value : value & ((1ULL << from_bits) - 1);
  return (low ^ sign) - sign;
}

constexpr std::uint64_t mask_of(unsigned width_bits) noexcept {
  return width_bits >= 64 ? ~0ULL : (1ULL << width_bits) - 1;
}

// DecodeBitMasks of the Arm ARM (logical immediates), or nothing where the encoding is reserved.
std::optional<std::uint64_t> logical_immediate(std::uint32_t word) noexcept {
  const std::uint32_t n = bits(word, 22, 22);
  const std::uint32_t immr = bits(word, 21, 16);
  const std::uint32_t imms = bits(word, 15, 10);
  const std::uint32_t selector = n << 6 | (~imms & 0x3f);
  if (selector < 2) return std::nullopt;
  const unsigned size = 1U << (std::bit_width(selector) - 1);
  const unsigned ones = (imms & (size - 1)) + 1;
  const unsigned rotate = immr & (size - 1);
  if (ones == size) return std::nullopt;
  std::uint64_t element = mask_of(ones);
  if (rotate != 0) {
    element = (element >> rotate | element << (size - rotate)) & mask_of(size);
  }
  std::uint64_t mask = element;
  for (unsigned have = size; have < 64; have *= 2) mask |= mask << have;
  return bit(word, 31) ? mask : mask & 0xffffffff;
}

bool entry_before(const MemoryEntry& entry, ValueId base, std::int64_t offset) noexcept {
  return entry.base != base ? entry.base < base : entry.offset < offset;
}

constexpr bool overlap(std::int64_t a, std::uint32_t a_size, std::int64_t b,
                       std::uint32_t b_size) noexcept {
  // Offsets are arbitrary 64-bit values: compare distances, which cannot overflow.
  return a <= b ? static_cast<std::uint64_t>(b) - static_cast<std::uint64_t>(a) < a_size
                : static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b) < b_size;
}

// The operand that leaves the value as it was, for all kinds but compare-and-swap and exclusives.
std::uint64_t identity_of(RmwKind kind, unsigned width_bits) noexcept {
  switch (kind) {
    case RmwKind::kSignedMax:
      return 1ULL << (width_bits - 1);
    case RmwKind::kSignedMin:
      return mask_of(width_bits) >> 1;
    case RmwKind::kUnsignedMin:
      return mask_of(width_bits);
    default:
      return 0;
  }
}

}  // namespace

bool preserves_value(const AtomicEffect& effect, ValueTable& values) {
  const unsigned width_bits = effect.width * 8U;
  for (std::size_t i = 0; i < effect.elements; ++i) {
    const ValueId first = values.low_bits_of(effect.first[i], width_bits);
    if (effect.kind == RmwKind::kCompareSwap || effect.kind == RmwKind::kExclusive) {
      const ValueId second = values.low_bits_of(effect.second[i], width_bits);
      if (first == second) continue;
      if (effect.kind == RmwKind::kCompareSwap) return false;
      // A compare-and-swap loop: what is stored was compared equal to what was loaded.
      const ValueId a = values.low_bits_of(effect.proven_equal.a, width_bits);
      const ValueId b = values.low_bits_of(effect.proven_equal.b, width_bits);
      if (effect.elements == 1 && ((a == first && b == second) || (a == second && b == first))) {
        continue;
      }
      return false;
    }
    const auto operand = values.as_constant(first);
    if (!operand || *operand != identity_of(effect.kind, width_bits)) return false;
  }
  return true;
}

bool may_preserve_value(const AtomicEffect& effect, ValueTable& values) {
  if (preserves_value(effect, values)) return true;
  const unsigned width_bits = effect.width * 8U;
  for (std::size_t i = 0; i < effect.elements; ++i) {
    const ValueId first = values.low_bits_of(effect.first[i], width_bits);
    if (effect.kind == RmwKind::kCompareSwap || effect.kind == RmwKind::kExclusive) {
      const ValueId second = values.low_bits_of(effect.second[i], width_bits);
      const auto apart = values.as_constant(values.subtract(first, second));
      if (apart && *apart != 0) return false;
    } else {
      const auto operand = values.as_constant(first);
      if (operand && *operand != identity_of(effect.kind, width_bits)) return false;
    }
  }
  return true;
}

ValueId FlowMachine::read(const FlowState& state, unsigned index) const noexcept {
  return index == kZeroRegister ? ValueTable::kZero : state.registers[index];
}

ValueId FlowMachine::read_sp(const FlowState& state, unsigned index) const noexcept {
  return state.registers[index];
}

void FlowMachine::write(FlowState& state, unsigned index, ValueId value) noexcept {
  if (index != kZeroRegister) state.registers[index] = value;
}

void FlowMachine::write_sp(FlowState& state, unsigned index, ValueId value) noexcept {
  state.registers[index] = value;
}

void FlowMachine::unknown(FlowState& state, std::uint64_t pc, unsigned index) {
  if (index != kZeroRegister) state.registers[index] = values_.site(pc, index);
}

void FlowMachine::clobber_for_call(FlowState& state, std::uint64_t pc, std::uint32_t registers) {
  for (unsigned i = 0; i < kStackPointer; ++i) {
    if (bit(registers, i)) unknown(state, pc, i);
  }
  state.flags = {};
  state.proven_equal = {};
  state.exclusive_open = false;
}

ValueId FlowMachine::add_sub(ValueId a, ValueId b, bool subtract, bool wide) {
  if (!wide) {
    // 0xffffffff added to a 32-bit register is a step of -1.
    if (const auto value = values_.as_constant(b); value && !values_.as_constant(a)) {
      b = values_.constant(sign_extend(*value, 32));
    }
  }
  const ValueId result = subtract ? values_.subtract(a, b) : values_.add(a, b);
  if (const auto value = values_.as_constant(result); value && !wide) {
    return values_.constant(*value & 0xffffffff);
  }
  return result;
}

ValueId FlowMachine::shifted(ValueId a, unsigned type, unsigned amount, bool wide, std::uint64_t pc,
                             unsigned destination) {
  if (amount == 0) return a;
  const auto value = values_.as_constant(a);
  if (type == 0) {
    const ValueId result = values_.operation(Operation::kShiftLeft, a, values_.constant(amount));
    if (const auto folded = values_.as_constant(result); folded && !wide) {
      return values_.constant(*folded & 0xffffffff);
    }
    return result;
  }
  if (type == 1) return values_.operation(Operation::kShiftRight, a, values_.constant(amount));
  if (type == 2 && value) {
    const unsigned width = wide ? 64 : 32;
    const auto shifted_value =
        static_cast<std::uint64_t>(static_cast<std::int64_t>(sign_extend(*value, width)) >> amount);
    return values_.constant(shifted_value & mask_of(width));
  }
  return values_.site(pc, 32 + destination);
}

ValueId FlowMachine::extended(ValueId a, unsigned option, unsigned shift) {
  switch (option) {
    case 0:
      a = values_.zero_extend(a, 8);
      break;
    case 1:
      a = values_.zero_extend(a, 16);
      break;
    case 6:
      if (const auto value = values_.as_constant(a)) a = values_.constant(sign_extend(*value, 32));
      break;
    case 2:
      if (const auto value = values_.as_constant(a)) a = values_.constant(*value & 0xffffffff);
      break;
    default:
      break;  // 64 bits, or signed bytes and halves: as they are
  }
  return values_.operation(Operation::kShiftLeft, a, values_.constant(shift));
}

std::optional<ValueId> FlowMachine::peek(const FlowState& state, ValueId address,
                                         std::uint32_t size) {
  const auto offset = static_cast<std::int64_t>(values_.linear(address).constant);
  const ValueId base = values_.add_constant(address, 0 - static_cast<std::uint64_t>(offset));
  auto at = std::lower_bound(state.memory.begin(), state.memory.end(), offset,
                             [base](const MemoryEntry& entry, std::int64_t value) {
                               return entry_before(entry, base, value);
                             });
  if (at != state.memory.end() && at->base == base && at->offset == offset && at->size == size) {
    return at->value;
  }
  for (auto near = at == state.memory.begin() ? at : std::prev(at);
       near != state.memory.end() && near->base <= base; ++near) {
    if (near->base != base) continue;
    if (overlap(near->offset, near->size, offset, size)) return std::nullopt;
    if (near->offset > offset) break;
  }
  if (const auto place = values_.as_constant(address); size == 8 && place) {
    if (const auto known = follow(constants_, *place)) {
      return values_.constant(*known);
    }
  }
  if (state.memory_overflow) return std::nullopt;
  return values_.atom({.kind = AtomKind::kLoad, .key = size, .x = address});
}

ValueId FlowMachine::load(const FlowState& state, ValueId address, std::uint32_t size,
                          std::uint64_t pc, unsigned destination) {
  if (const auto value = peek(state, address, size)) {
    if (const auto number = values_.as_constant(*value)) {
      return values_.constant(*number & mask_of(size * 8));
    }
    return *value;
  }
  return values_.site(pc, destination);
}

void FlowMachine::store(FlowState& state, ValueId address, std::uint32_t size, ValueId value) {
  const auto offset = static_cast<std::int64_t>(values_.linear(address).constant);
  const ValueId base = values_.add_constant(address, 0 - static_cast<std::uint64_t>(offset));
  std::vector<MemoryEntry>& memory = state.memory;
  auto at = std::lower_bound(memory.begin(), memory.end(), offset,
                             [base](const MemoryEntry& entry, std::int64_t value_at) {
                               return entry_before(entry, base, value_at);
                             });
  // Entries do not overlap one another, so one before and those inside are all there can be.
  if (at != memory.begin() && std::prev(at)->base == base &&
      overlap(std::prev(at)->offset, std::prev(at)->size, offset, size)) {
    --at;
  }
  auto last = at;
  while (last != memory.end() && last->base == base &&
         overlap(last->offset, last->size, offset, size)) {
    ++last;
  }
  at = memory.erase(at, last);
  if (memory.size() >= kMaxMemoryEntries) {
    state.memory_overflow = true;
    return;
  }
  memory.insert(at, {.base = base, .offset = offset, .size = size, .value = value});
}

void FlowMachine::step(FlowState& state, std::uint64_t pc, std::uint32_t word,
                       std::vector<AtomicEffect>* effects) {
  const std::uint32_t major = bits(word, 28, 25);
  if ((major & 0xe) == 0x8) {
    step_immediate(state, pc, word);
  } else if ((major & 0x5) == 0x4) {
    step_memory(state, pc, word, effects);
  } else if ((major & 0x7) == 0x5) {
    step_register(state, pc, word);
  } else if ((major & 0x7) == 0x7) {
    step_float(state, pc, word);
  } else if (major == 0x2 || (word & 0xfff00000) == 0xd5300000 ||
             (word & 0xfff80000) == 0xd5280000) {
    // SVE, of which a few forms (INCD, RDVL, CNTD …) write a general register there; MRS; SYSL.
    unknown(state, pc, bits(word, 4, 0));
  }
}

void FlowMachine::step_immediate(FlowState& state, std::uint64_t pc, std::uint32_t word) {
  const unsigned rd = bits(word, 4, 0);
  const unsigned rn = bits(word, 9, 5);
  const bool wide = bit(word, 31);
  switch (bits(word, 25, 23)) {
    case 0:
    case 1: {
      const std::uint64_t immediate =
          sign_extend(static_cast<std::uint64_t>(bits(word, 23, 5)) << 2 | bits(word, 30, 29), 21);
      write(state, rd,
            values_.constant(wide ? (pc & ~0xfffULL) + (immediate << 12) : pc + immediate));
      return;
    }
    case 2: {
      const std::uint64_t immediate = static_cast<std::uint64_t>(bits(word, 21, 10))
                                      << (bit(word, 22) ? 12 : 0);
      const ValueId left = read_sp(state, rn);
      const ValueId right = values_.constant(immediate);
      const ValueId result = add_sub(left, right, bit(word, 30), wide);
      if (bit(word, 29)) {
        state.flags = bit(word, 30) ? ValuePair{left, right} : ValuePair{};
        write(state, rd, result);
      } else {
        write_sp(state, rd, result);
      }
      return;
    }
    case 4: {
      const auto immediate = logical_immediate(word);
      const unsigned opc = bits(word, 30, 29);
      if (!immediate) {
        unknown(state, pc, rd);
        return;
      }
      constexpr Operation kOperations[] = {Operation::kAnd, Operation::kOr, Operation::kXor,
                                           Operation::kAnd};
      const ValueId result =
          values_.operation(kOperations[opc], read(state, rn), values_.constant(*immediate));
      if (opc == 3) {
        state.flags = {result, ValueTable::kZero};
        write(state, rd, result);
      } else {
        write_sp(state, rd, result);
      }
      return;
    }
    case 5: {
      const unsigned shift = bits(word, 22, 21) * 16;
      const std::uint64_t immediate = static_cast<std::uint64_t>(bits(word, 20, 5)) << shift;
      const std::uint64_t limit = wide ? ~0ULL : 0xffffffffULL;
      switch (bits(word, 30, 29)) {
        case 0:
          write(state, rd, values_.constant(~immediate & limit));
          return;
        case 2:
          write(state, rd, values_.constant(immediate & limit));
          return;
        default:
          if (const auto old = values_.as_constant(read(state, rd))) {
            write(state, rd, values_.constant((*old & ~(0xffffULL << shift)) | immediate));
          } else {
            unknown(state, pc, rd);
          }
          return;
      }
    }
    case 6:
      step_bitfield(state, pc, word);
      return;
    case 7:
      if (rn == bits(word, 20, 16) && bits(word, 15, 10) == 0) {
        write(state, rd, read(state, rn));
      } else {
        unknown(state, pc, rd);
      }
      return;
    default:
      unknown(state, pc, rd);
      return;
  }
}

void FlowMachine::step_bitfield(FlowState& state, std::uint64_t pc, std::uint32_t word) {
  const unsigned rd = bits(word, 4, 0);
  const bool wide = bit(word, 31);
  const unsigned width = wide ? 64 : 32;
  const unsigned immr = bits(word, 21, 16);
  const unsigned imms = bits(word, 15, 10);
  const unsigned opc = bits(word, 30, 29);
  const ValueId source = read(state, bits(word, 9, 5));
  if (opc == 1 || opc == 3 || immr >= width || imms >= width) {
    unknown(state, pc, rd);
    return;
  }
  const bool is_signed = opc == 0;
  if (immr > imms) {  // LSL, UBFIZ, SBFIZ: imms + 1 bits, moved up by width - immr
    const unsigned taken = imms + 1;
    const unsigned up = width - immr;
    ValueId field = source;
    // A plain shift keeps all that fits; an index of 32 bits is taken not to wrap.
    if (taken < 32 && taken + up != width) field = values_.zero_extend(source, taken);
    if (const auto value = values_.as_constant(source)) {
      field = values_.constant(is_signed ? sign_extend(*value, taken) : *value & mask_of(taken));
    }
    write(state, rd, shifted(field, 0, up, wide, pc, rd));
    return;
  }
  const unsigned taken = imms - immr + 1;
  if (const auto value = values_.as_constant(source)) {
    std::uint64_t field = *value >> immr & mask_of(taken);
    if (is_signed) field = sign_extend(field, taken) & mask_of(width);
    write(state, rd, values_.constant(field));
  } else if (immr == 0 && taken >= 32) {
    write(state, rd, source);  // SXTW, UXTW
  } else if (immr == 0) {
    write(state, rd, values_.zero_extend(source, taken));
  } else if (!is_signed && imms + 1 == width) {
    write(state, rd, values_.operation(Operation::kShiftRight, source, values_.constant(immr)));
  } else {
    unknown(state, pc, rd);
  }
}

void FlowMachine::step_register(FlowState& state, std::uint64_t pc, std::uint32_t word) {
  const unsigned rd = bits(word, 4, 0);
  const unsigned rn = bits(word, 9, 5);
  const unsigned rm = bits(word, 20, 16);
  const bool wide = bit(word, 31);
  switch (bits(word, 28, 24)) {
    case 0x0a: {  // AND, ORR, EOR, ANDS and their inverted forms
      ValueId right =
          shifted(read(state, rm), bits(word, 23, 22), bits(word, 15, 10), wide, pc, rd);
      if (bit(word, 21)) {
        right = values_.operation(Operation::kNot, right, ValueTable::kZero);
        if (const auto value = values_.as_constant(right); value && !wide) {
          right = values_.constant(*value & 0xffffffff);
        }
      }
      constexpr Operation kOperations[] = {Operation::kAnd, Operation::kOr, Operation::kXor,
                                           Operation::kAnd};
      const unsigned opc = bits(word, 30, 29);
      const ValueId result = values_.operation(kOperations[opc], read(state, rn), right);
      if (opc == 3) state.flags = {result, ValueTable::kZero};
      write(state, rd, result);
      return;
    }
    case 0x0b: {  // ADD, SUB
      const bool is_extended = bit(word, 21);
      const ValueId left = is_extended ? read_sp(state, rn) : read(state, rn);
      const ValueId right =
          is_extended
              ? extended(read(state, rm), bits(word, 15, 13), bits(word, 12, 10))
              : shifted(read(state, rm), bits(word, 23, 22), bits(word, 15, 10), wide, pc, rd);
      const ValueId result = add_sub(left, right, bit(word, 30), wide);
      if (bit(word, 29)) {
        state.flags = bit(word, 30) ? ValuePair{left, right} : ValuePair{};
        write(state, rd, result);
      } else if (is_extended) {
        write_sp(state, rd, result);
      } else {
        write(state, rd, result);
      }
      return;
    }
    case 0x1a: {
      const unsigned kind = bits(word, 23, 21);
      if (kind == 2) {  // CCMP, CCMN: no destination
        state.flags = {};
        return;
      }
      if (kind == 0) state.flags = {};
      if (kind == 6 && !bit(word, 30) && rm != 0) {
        const unsigned opcode = bits(word, 15, 10);
        if (opcode == 8 || opcode == 9) {  // LSLV, LSRV
          const auto amount = values_.as_constant(read(state, rm));
          const unsigned width = wide ? 64 : 32;
          if (amount) {
            write(state, rd,
                  shifted(read(state, rn), opcode - 8, static_cast<unsigned>(*amount % width), wide,
                          pc, rd));
          } else {
            write(state, rd,
                  values_.operation(opcode == 8 ? Operation::kShiftLeft : Operation::kShiftRight,
                                    read(state, rn), read(state, rm)));
          }
          return;
        }
      }
      if (kind == 4 && rn == rm && bits(word, 11, 10) == 0 && !bit(word, 30)) {
        write(state, rd, read(state, rn));  // CSEL of one register twice
        return;
      }
      unknown(state, pc, rd);
      return;
    }
    case 0x1b: {  // MADD, MSUB and the long forms
      const unsigned kind = bits(word, 23, 21);
      if (kind != 0 && kind != 1 && kind != 5) {
        unknown(state, pc, rd);
        return;
      }
      ValueId left = read(state, rn);
      ValueId right = read(state, rm);
      if (kind != 0) {
        const unsigned option = kind == 1 ? 6 : 2;
        left = extended(left, option, 0);
        right = extended(right, option, 0);
      }
      const ValueId product = values_.operation(Operation::kMultiply, left, right);
      write(state, rd, add_sub(read(state, bits(word, 14, 10)), product, bit(word, 15), wide));
      return;
    }
    default:
      unknown(state, pc, rd);
      return;
  }
}

void FlowMachine::step_float(FlowState& state, std::uint64_t pc, std::uint32_t word) {
  // Only these write a general register: conversions to integer and FMOV, UMOV and SMOV.
  const unsigned opcode = bits(word, 18, 16);
  const bool to_integer = opcode != 2 && opcode != 3 && opcode != 7;
  if (((word & 0x5f20fc00) == 0x1e200000 && to_integer) || ((word & 0x5f3e0000) == 0x1e180000) ||
      (word & 0xbfe0fc00) == 0x0e003c00 || (word & 0xbfe0fc00) == 0x0e002c00) {
    unknown(state, pc, bits(word, 4, 0));
  }
}

void FlowMachine::step_memory(FlowState& state, std::uint64_t pc, std::uint32_t word,
                              std::vector<AtomicEffect>* effects) {
  const bool is_vector = bit(word, 26);
  switch (bits(word, 29, 28)) {
    case 0:
      if (!is_vector) {
        step_exclusive(state, pc, word, effects);
      } else if (bit(word, 23)) {
        // Structure loads and stores with post-index.
        const unsigned rn = bits(word, 9, 5);
        write_sp(state, rn, values_.site(pc, rn));
      }
      return;
    case 1:
      if (!bit(word, 24)) {  // LDR (literal), PRFM (literal)
        if (!is_vector && bits(word, 31, 30) != 3) unknown(state, pc, bits(word, 4, 0));
      } else {
        step_ordered(state, pc, word, effects);
      }
      return;
    case 2:
      step_pair(state, pc, word);
      return;
    default:
      if (!bit(word, 24) && bit(word, 21) && bits(word, 11, 10) == 0) {
        step_atomic(state, pc, word, effects);
      } else {
        step_single(state, pc, word);
      }
      return;
  }
}

void FlowMachine::step_exclusive(FlowState& state, std::uint64_t pc, std::uint32_t word,
                                 std::vector<AtomicEffect>* effects) {
  const unsigned rt = bits(word, 4, 0);
  const unsigned rn = bits(word, 9, 5);
  const unsigned rt2 = bits(word, 14, 10);
  const unsigned rs = bits(word, 20, 16);
  const unsigned size = bits(word, 31, 30);
  const ValueId address = read_sp(state, rn);
  const bool is_load = bit(word, 22);
  if (bit(word, 23) && bit(word, 21)) {  // CAS, CASA, CASL, CASAL
    if (effects != nullptr) {
      effects->push_back({.pc = pc,
                          .site = pc,
                          .kind = RmwKind::kCompareSwap,
                          .width = static_cast<std::uint8_t>(1U << size),
                          .address = address,
                          .first = {read(state, rs)},
                          .second = {read(state, rt)}});
    }
    store(state, address, 1U << size, values_.site(pc, 64));
    unknown(state, pc, rs);
    return;
  }
  if (bit(word, 23)) {  // LDAR, LDLAR, STLR, STLLR
    transfer(state, pc, address, 1U << size, rt, is_load, false);
    return;
  }
  if (bit(word, 21) && size < 2) {  // CASP: pairs of registers
    const unsigned width = size == 1 ? 8 : 4;
    if (rs % 2 == 0 && rt % 2 == 0) {
      if (effects != nullptr) {
        effects->push_back({.pc = pc,
                            .site = pc,
                            .kind = RmwKind::kCompareSwap,
                            .width = static_cast<std::uint8_t>(width),
                            .elements = 2,
                            .address = address,
                            .first = {read(state, rs), read(state, rs + 1)},
                            .second = {read(state, rt), read(state, rt + 1)}});
      }
      store(state, address, width * 2, values_.site(pc, 64));
      unknown(state, pc, rs + 1);
    }
    unknown(state, pc, rs);
    return;
  }
  const bool is_pair = bit(word, 21);
  const std::uint32_t width = 1U << size;
  if (is_load) {
    const ValueId low = values_.atom({.kind = AtomKind::kExclusive, .key = pc});
    const ValueId high = values_.atom({.kind = AtomKind::kExclusive, .key = pc, .x = 1});
    write(state, rt, low);
    if (is_pair) write(state, rt2, high);
    state.exclusive_open = true;
    state.exclusive_address = address;
    state.exclusive_values = {low, is_pair ? high : ValueTable::kZero};
    return;
  }
  if (state.exclusive_open && state.exclusive_address == address && effects != nullptr) {
    effects->push_back({.pc = pc,
                        .site = pc,
                        .kind = RmwKind::kExclusive,
                        .width = static_cast<std::uint8_t>(width),
                        .elements = static_cast<std::uint8_t>(is_pair ? 2 : 1),
                        .address = address,
                        .first = {read(state, rt), is_pair ? read(state, rt2) : ValueTable::kZero},
                        .second = state.exclusive_values,
                        .proven_equal = state.proven_equal});
  }
  store(state, address, is_pair ? width * 2 : width, values_.site(pc, 64));
  unknown(state, pc, rs);
  state.exclusive_open = false;
}

void FlowMachine::step_atomic(FlowState& state, std::uint64_t pc, std::uint32_t word,
                              std::vector<AtomicEffect>* effects) {
  const unsigned rt = bits(word, 4, 0);
  const ValueId address = read_sp(state, bits(word, 9, 5));
  const std::uint32_t width = 1U << bits(word, 31, 30);
  const unsigned opc = bits(word, 14, 12);
  const bool is_vector = bit(word, 26);
  if (!is_vector && !bit(word, 15)) {
    if (effects != nullptr) {
      effects->push_back({.pc = pc,
                          .site = pc,
                          .kind = opc == 0   ? RmwKind::kAdd
                                  : opc == 1 ? RmwKind::kClear
                                  : opc == 2 ? RmwKind::kEor
                                  : opc == 3 ? RmwKind::kSet
                                  : opc == 4 ? RmwKind::kSignedMax
                                  : opc == 5 ? RmwKind::kSignedMin
                                  : opc == 6 ? RmwKind::kUnsignedMax
                                             : RmwKind::kUnsignedMin,
                          .width = static_cast<std::uint8_t>(width),
                          .address = address,
                          .first = {read(state, bits(word, 20, 16))}});
    }
  } else if (!is_vector && opc == 4) {  // LDAPR
    transfer(state, pc, address, width, rt, true, false);
    return;
  }
  store(state, address, width, values_.site(pc, 64));
  if (!is_vector) unknown(state, pc, rt);
}

void FlowMachine::step_ordered(FlowState& state, std::uint64_t pc, std::uint32_t word,
                               std::vector<AtomicEffect>* effects) {
  const unsigned rt = bits(word, 4, 0);
  const unsigned rn = bits(word, 9, 5);
  const unsigned rs = bits(word, 20, 16);
  const bool is_vector = bit(word, 26);
  if (!is_vector && (word & 0xbf208c00) == 0x19200400) {  // LDTADD, LDTCLR, LDTSET, SWPT
    const unsigned opc = bits(word, 14, 12);
    const std::uint32_t width = bit(word, 30) ? 8 : 4;
    const ValueId address = read_sp(state, rn);
    if (effects != nullptr && (opc == 0 || opc == 1 || opc == 3)) {
      effects->push_back({.pc = pc,
                          .site = pc,
                          .kind = opc == 0   ? RmwKind::kAdd
                                  : opc == 1 ? RmwKind::kClear
                                             : RmwKind::kSet,
                          .width = static_cast<std::uint8_t>(width),
                          .address = address,
                          .first = {read(state, rs)}});
    }
    store(state, address, width, values_.site(pc, 64));
    unknown(state, pc, rt);
    return;
  }
  if (!is_vector && (word & 0xff20dc00) == 0x19201000) {  // LDCLRP, LDSETP
    const ValueId address = read_sp(state, rn);
    if (effects != nullptr) {
      effects->push_back({.pc = pc,
                          .site = pc,
                          .kind = bit(word, 13) ? RmwKind::kSet : RmwKind::kClear,
                          .width = 8,
                          .elements = 2,
                          .address = address,
                          .first = {read(state, rt), read(state, rs)}});
    }
    store(state, address, 16, values_.site(pc, 64));
    unknown(state, pc, rt);
    unknown(state, pc, rs);
    return;
  }
  if (!is_vector && !bit(word, 21) && bits(word, 11, 10) == 0 && bits(word, 31, 24) != 0xd9) {
    // LDAPUR, STLUR: a signed 9-bit offset
    const ValueId address =
        values_.add_constant(read_sp(state, rn), sign_extend(bits(word, 20, 12), 9));
    transfer(state, pc, address, 1U << bits(word, 31, 30), rt, bits(word, 23, 22) != 0, false);
    return;
  }
  // Memory copies, tags, ordered pairs and what else is here may change any of their registers.
  unknown(state, pc, rt);
  write_sp(state, rn, values_.site(pc, rn));
  unknown(state, pc, rs);
}

void FlowMachine::transfer(FlowState& state, std::uint64_t pc, ValueId address, std::uint32_t size,
                           unsigned target, bool is_load, bool is_vector) {
  if (!is_load) {
    store(state, address, size, is_vector ? values_.site(pc, 96 + target) : read(state, target));
  } else if (!is_vector) {
    write(state, target, load(state, address, size, pc, target));
  }
}

void FlowMachine::step_pair(FlowState& state, std::uint64_t pc, std::uint32_t word) {
  const unsigned rt = bits(word, 4, 0);
  const unsigned rn = bits(word, 9, 5);
  const unsigned rt2 = bits(word, 14, 10);
  const bool is_vector = bit(word, 26);
  const unsigned opc = bits(word, 31, 30);
  const std::uint32_t size = is_vector ? 4U << opc : opc == 2 ? 8 : 4;
  const std::uint64_t offset = sign_extend(bits(word, 21, 15), 7) * size;
  const unsigned mode = bits(word, 24, 23);  // 1 post-index, 3 pre-index
  const ValueId start = read_sp(state, rn);
  const ValueId moved = values_.add_constant(start, offset);
  const ValueId address = mode == 1 ? start : moved;
  const bool is_load = bit(word, 22);
  const ValueId second_address = values_.add_constant(address, size);
  if (is_load && !is_vector) {
    const ValueId first = load(state, address, size, pc, rt);
    const ValueId second = load(state, second_address, size, pc, rt2);
    write(state, rt, first);
    write(state, rt2, second);
  } else {
    transfer(state, pc, address, size, rt, is_load, is_vector);
    transfer(state, pc, second_address, size, rt2, is_load, is_vector);
  }
  if (mode == 1 || mode == 3) write_sp(state, rn, moved);
}

void FlowMachine::step_single(FlowState& state, std::uint64_t pc, std::uint32_t word) {
  const unsigned rt = bits(word, 4, 0);
  const unsigned rn = bits(word, 9, 5);
  const bool is_vector = bit(word, 26);
  const unsigned size_field = bits(word, 31, 30);
  const unsigned opc = bits(word, 23, 22);
  const std::uint32_t size = is_vector && opc >= 2 ? 16 : 1U << size_field;
  const bool is_prefetch = !is_vector && size_field == 3 && opc == 2;
  const bool is_load = is_vector ? bit(word, 22) : opc != 0;
  const ValueId start = read_sp(state, rn);
  ValueId address = start;
  bool writes_back = false;
  ValueId moved = start;
  if (bit(word, 24)) {
    address = values_.add_constant(start, static_cast<std::uint64_t>(bits(word, 21, 10)) * size);
  } else if (!bit(word, 21)) {
    moved = values_.add_constant(start, sign_extend(bits(word, 20, 12), 9));
    const unsigned mode = bits(word, 11, 10);
    if (mode != 1) address = moved;
    writes_back = mode == 1 || mode == 3;
  } else if (bits(word, 11, 10) == 2) {
    const unsigned shift = bit(word, 12) ? static_cast<unsigned>(std::countr_zero(size)) : 0;
    address =
        values_.add(start, extended(read(state, bits(word, 20, 16)), bits(word, 15, 13), shift));
  } else {  // LDRAA, LDRAB: an authenticated pointer
    unknown(state, pc, rt);
    if (bit(word, 11)) write_sp(state, rn, values_.site(pc, rn));
    return;
  }
  if (!is_prefetch) transfer(state, pc, address, size, rt, is_load, is_vector);
  if (writes_back && !is_prefetch) write_sp(state, rn, moved);
}

}  // namespace touchstone::arch::opcheck
