// SPDX-License-Identifier: MIT
// Symbolic values of registers and memory: linear sums over atoms, each stored once, so that
// equal ids mean equal values.
#ifndef TOUCHSTONE_ARCH_OPCHECK_VALUE_TABLE_H_
#define TOUCHSTONE_ARCH_OPCHECK_VALUE_TABLE_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace touchstone::arch::opcheck {

/// Index of a value in its table. The same value has the same id.
using ValueId = std::uint32_t;
/// Index of an atom in its table.
using AtomId = std::uint32_t;

/// What an atom stands for.
enum class AtomKind : std::uint8_t {
  kEntryRegister,  ///< What register `key` holds where the function starts.
  kPhi,            ///< What location `x` holds where block `key` starts, and paths disagree.
  kLoad,           ///< The `key` bytes at address `x`, as no store of this function left them.
  kSite,           ///< Whatever the instruction at `key` leaves in location `x`.
  kExclusive,      ///< What the load-exclusive at `key` reads.
  kOperation,      ///< The pure operation `key` of values `x` and `y`.
};

/// Pure operations that are not linear. Their operands are in `x` and `y`.
enum class Operation : std::uint8_t {
  kMultiply,
  kAnd,
  kOr,
  kXor,
  kNot,
  kShiftLeft,
  kShiftRight,
  kZeroExtend,  ///< The low `y` (a constant) bits of `x`.
};

struct Atom {
  AtomKind kind = AtomKind::kSite;
  std::uint64_t key = 0;
  ValueId x = 0;
  ValueId y = 0;

  friend bool operator==(const Atom&, const Atom&) = default;
};

/// constant + sum of coefficient * atom, modulo 2^64. Terms are sorted by atom.
struct LinearValue {
  static constexpr std::size_t kMaxTerms = 4;
  std::uint64_t constant = 0;
  std::uint32_t count = 0;
  std::array<AtomId, kMaxTerms> atoms{};
  std::array<std::uint64_t, kMaxTerms> coefficients{};

  friend bool operator==(const LinearValue&, const LinearValue&) = default;
};

/// Makes and keeps values. Not thread-safe; ids are of use with the table that gave them only.
///
/// Sums of 32-bit registers are kept as if they did not wrap (the index of a loop that compilers
/// emit does not); constants are exact.
class ValueTable {
 public:
  ValueTable();

  /// The value 0 has id 0.
  static constexpr ValueId kZero = 0;

  [[nodiscard]] ValueId constant(std::uint64_t value);
  [[nodiscard]] ValueId atom(const Atom& atom);
  [[nodiscard]] ValueId entry_register(unsigned index);
  [[nodiscard]] ValueId site(std::uint64_t pc, std::uint32_t location);

  [[nodiscard]] ValueId add(ValueId a, ValueId b);
  [[nodiscard]] ValueId add_constant(ValueId a, std::uint64_t value);
  [[nodiscard]] ValueId subtract(ValueId a, ValueId b);
  [[nodiscard]] ValueId scale(ValueId a, std::uint64_t factor);
  /// Folds constants and identities; otherwise an atom.
  [[nodiscard]] ValueId operation(Operation operation, ValueId a, ValueId b);
  /// The low `bits` bits of a, the rest zero.
  [[nodiscard]] ValueId zero_extend(ValueId a, unsigned bits);

  /// Without what cannot change the low `bits` bits: masks and extensions, and, for a constant,
  /// the bits above.
  [[nodiscard]] ValueId low_bits_of(ValueId a, unsigned bits);

  [[nodiscard]] std::optional<std::uint64_t> as_constant(ValueId a) const noexcept;
  /// The atom, where the value is one atom and nothing else.
  [[nodiscard]] std::optional<AtomId> as_atom(ValueId a) const noexcept;
  [[nodiscard]] const LinearValue& linear(ValueId a) const noexcept { return values_[a]; }
  [[nodiscard]] const Atom& atom_at(AtomId a) const noexcept { return atoms_[a]; }
  /// Number of values and atoms held.
  [[nodiscard]] std::size_t size() const noexcept { return values_.size() + atoms_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const LinearValue& value) const noexcept;
    std::size_t operator()(const Atom& atom) const noexcept;
  };
  [[nodiscard]] ValueId intern(const LinearValue& value);
  [[nodiscard]] ValueId combine(ValueId a, ValueId b, std::uint64_t factor);

  std::vector<LinearValue> values_;
  std::vector<Atom> atoms_;
  std::vector<ValueId> atom_values_;  ///< Each atom as a value.
  std::unordered_map<LinearValue, ValueId, Hash> value_ids_;
  std::unordered_map<Atom, AtomId, Hash> atom_ids_;
};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_VALUE_TABLE_H_
