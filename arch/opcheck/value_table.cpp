// SPDX-License-Identifier: MIT
#include "value_table.h"

namespace touchstone::arch::opcheck {
namespace {

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

constexpr std::uint64_t mask_of(std::uint64_t bits) noexcept {
  return bits >= 64 ? ~0ULL : (1ULL << bits) - 1;
}

constexpr std::uint64_t fold(Operation operation, std::uint64_t a, std::uint64_t b) noexcept {
  switch (operation) {
    case Operation::kMultiply:
      return a * b;
    case Operation::kAnd:
      return a & b;
    case Operation::kOr:
      return a | b;
    case Operation::kXor:
      return a ^ b;
    case Operation::kNot:
      return ~a;
    case Operation::kShiftLeft:
      return b > 63 ? 0 : a << b;
    case Operation::kShiftRight:
      return b > 63 ? 0 : a >> b;
    case Operation::kZeroExtend:
      return a & mask_of(b);
  }
  return 0;
}

}  // namespace

std::size_t ValueTable::Hash::operator()(const LinearValue& value) const noexcept {
  std::uint64_t hash = mix(value.count, value.constant);
  for (std::uint32_t i = 0; i < value.count; ++i) {
    hash = mix(mix(hash, value.atoms[i]), value.coefficients[i]);
  }
  return hash;
}

std::size_t ValueTable::Hash::operator()(const Atom& atom) const noexcept {
  return mix(mix(mix(static_cast<std::uint64_t>(atom.kind), atom.key), atom.x), atom.y);
}

ValueTable::ValueTable() {
  static_cast<void>(intern(LinearValue{}));
}

ValueId ValueTable::intern(const LinearValue& value) {
  const auto [where, is_new] = value_ids_.try_emplace(value, static_cast<ValueId>(values_.size()));
  if (is_new) values_.push_back(value);
  return where->second;
}

ValueId ValueTable::constant(std::uint64_t value) {
  return intern(LinearValue{.constant = value});
}

ValueId ValueTable::atom(const Atom& atom) {
  const auto [where, is_new] = atom_ids_.try_emplace(atom, static_cast<AtomId>(atoms_.size()));
  if (!is_new) return atom_values_[where->second];
  atoms_.push_back(atom);
  LinearValue value;
  value.count = 1;
  value.atoms[0] = where->second;
  value.coefficients[0] = 1;
  return atom_values_.emplace_back(intern(value));
}

ValueId ValueTable::entry_register(unsigned index) {
  return atom({.kind = AtomKind::kEntryRegister, .key = index});
}

ValueId ValueTable::site(std::uint64_t pc, std::uint32_t location) {
  return atom({.kind = AtomKind::kSite, .key = pc, .x = location});
}

ValueId ValueTable::combine(ValueId a, ValueId b, std::uint64_t factor) {
  const LinearValue left = values_[a];
  const LinearValue right = values_[b];
  LinearValue sum;
  sum.constant = left.constant + right.constant * factor;
  std::uint32_t i = 0;
  std::uint32_t j = 0;
  while (i < left.count || j < right.count) {
    AtomId next = 0;
    std::uint64_t coefficient = 0;
    if (j == right.count || (i < left.count && left.atoms[i] < right.atoms[j])) {
      next = left.atoms[i];
      coefficient = left.coefficients[i++];
    } else if (i == left.count || right.atoms[j] < left.atoms[i]) {
      next = right.atoms[j];
      coefficient = right.coefficients[j++] * factor;
    } else {
      next = left.atoms[i];
      coefficient = left.coefficients[i++] + right.coefficients[j++] * factor;
    }
    if (coefficient == 0) continue;
    if (sum.count == LinearValue::kMaxTerms) {
      // Too long to be an address a loop walks by: an opaque function of both operands.
      const ValueId scaled = operation(Operation::kMultiply, b, constant(factor));
      return atom({.kind = AtomKind::kOperation, .key = ~0ULL, .x = a, .y = scaled});
    }
    sum.atoms[sum.count] = next;
    sum.coefficients[sum.count++] = coefficient;
  }
  return intern(sum);
}

ValueId ValueTable::add(ValueId a, ValueId b) {
  return combine(a, b, 1);
}

ValueId ValueTable::add_constant(ValueId a, std::uint64_t value) {
  if (value == 0) return a;
  LinearValue sum = values_[a];
  sum.constant += value;
  return intern(sum);
}

ValueId ValueTable::subtract(ValueId a, ValueId b) {
  return combine(a, b, ~0ULL);
}

ValueId ValueTable::scale(ValueId a, std::uint64_t factor) {
  LinearValue product;
  const LinearValue from = values_[a];
  product.constant = from.constant * factor;
  for (std::uint32_t i = 0; i < from.count; ++i) {
    const std::uint64_t coefficient = from.coefficients[i] * factor;
    if (coefficient == 0) continue;
    product.atoms[product.count] = from.atoms[i];
    product.coefficients[product.count++] = coefficient;
  }
  return intern(product);
}

ValueId ValueTable::operation(Operation operation, ValueId a, ValueId b) {
  const auto left = as_constant(a);
  const auto right = as_constant(b);
  if (left && right) return constant(fold(operation, *left, *right));
  switch (operation) {
    case Operation::kMultiply:
      if (right) return scale(a, *right);
      if (left) return scale(b, *left);
      break;
    case Operation::kAnd:
      if (left == 0U || right == 0U) return kZero;
      if (right == ~0ULL || a == b) return a;
      if (left == ~0ULL) return b;
      break;
    case Operation::kOr:
      if (right == 0U || a == b) return a;
      if (left == 0U) return b;
      break;
    case Operation::kXor:
      if (right == 0U) return a;
      if (left == 0U) return b;
      if (a == b) return kZero;
      break;
    case Operation::kShiftLeft:
      if (right) return *right > 63 ? kZero : scale(a, 1ULL << *right);
      break;
    case Operation::kShiftRight:
      if (right == 0U) return a;
      break;
    case Operation::kZeroExtend:
    case Operation::kNot:
      break;
  }
  const bool commutes = operation == Operation::kMultiply || operation == Operation::kAnd ||
                        operation == Operation::kOr || operation == Operation::kXor;
  if (commutes && b < a) std::swap(a, b);
  return atom(
      {.kind = AtomKind::kOperation, .key = static_cast<std::uint64_t>(operation), .x = a, .y = b});
}

ValueId ValueTable::zero_extend(ValueId a, unsigned bits) {
  if (const auto value = as_constant(a)) return constant(*value & mask_of(bits));
  if (bits >= 64) return a;
  if (const auto only = as_atom(a)) {
    const Atom& source = atoms_[*only];
    if (source.kind == AtomKind::kLoad && source.key * 8 <= bits) return a;
  }
  return operation(Operation::kZeroExtend, a, constant(bits));
}

ValueId ValueTable::low_bits_of(ValueId a, unsigned bits) {
  for (;;) {
    if (const auto value = as_constant(a)) return constant(*value & mask_of(bits));
    const auto only = as_atom(a);
    if (!only) return a;
    const Atom source = atoms_[*only];
    if (source.kind != AtomKind::kOperation) return a;
    const auto right = as_constant(source.y);
    const auto left = as_constant(source.x);
    const auto keeps = [bits](std::optional<std::uint64_t> mask) {
      return mask && (*mask & mask_of(bits)) == mask_of(bits);
    };
    const auto operation = static_cast<Operation>(source.key);
    if ((operation == Operation::kZeroExtend && right >= bits) ||
        (operation == Operation::kAnd && keeps(right))) {
      a = source.x;
    } else if (operation == Operation::kAnd && keeps(left)) {
      a = source.y;
    } else {
      return a;
    }
  }
}

std::optional<std::uint64_t> ValueTable::as_constant(ValueId a) const noexcept {
  const LinearValue& value = values_[a];
  if (value.count != 0) return std::nullopt;
  return value.constant;
}

std::optional<AtomId> ValueTable::as_atom(ValueId a) const noexcept {
  const LinearValue& value = values_[a];
  if (value.count != 1 || value.constant != 0 || value.coefficients[0] != 1) return std::nullopt;
  return value.atoms[0];
}

}  // namespace touchstone::arch::opcheck
