// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_A64_COVERS_H_
#define TOUCHSTONE_ARCH_A64_COVERS_H_

#include <cstdint>
#include <vector>

#include <touchstone/arch/a64/encodings.h>
#include <touchstone/arch/a64/minimise.h>
#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>

/// The smallest decoders of the table's predicates, derived from the table by exact minimisation.
/// Every function derives its cover anew, takes a fraction of a second, fails as minimise() does
/// and is thread-safe.
namespace touchstone::arch::a64 {

/// The fewest compares that are true exactly for the words of is_forced_write(), where a compare
/// may exclude register 31 in Rt or Rs. Unallocated words never match. This is what the kernel
/// header is made of.
[[nodiscard]] TOUCHSTONE_API Result<Cover> exact_cover();

/// The same of plain mask/value compares alone. It is much larger: each "is not 31" takes a compare
/// a bit.
[[nodiscard]] TOUCHSTONE_API Result<Cover> plain_cover();

/// The same as exact_cover() where words of kNeverAborts are free. For comparison: it needs as many
/// compares, so exact_cover() makes no use of them.
[[nodiscard]] TOUCHSTONE_API Result<Cover> never_aborts_cover();

/// The fewest plain compares where the unallocated words of kReadModifyWriteClasses are free. For
/// comparison only: it would swallow whatever is allocated there next.
[[nodiscard]] TOUCHSTONE_API Result<Cover> relaxed_cover();

/// The fewest plain compares that are true exactly for the words of is_load_exclusive().
[[nodiscard]] TOUCHSTONE_API Result<Cover> load_exclusive_cover();

/// A cover arranged for a decoder in a kernel's fault path, where most words are plain loads. One
/// bit tells the class of the LSE atomics, which is also that of most loads, from all others, and a
/// second one turns away the loads with an immediate offset and of pairs. Else, one look at the
/// bits that tell the classes apart. Then one compare that turns away most of the class, and the
/// compares left.
struct DecisionTree {
  struct Branch {
    /// Of the words of this branch, the bits of `selector`.
    std::uint32_t key = 0;
    /// What all terms of the branch have in common. Words that fail it match no term.
    Cube gate;
    std::vector<Term> terms;
  };
  /// What a walk through the tree found, and its length.
  struct Decision {
    bool matches = false;
    /// Comparisons made: the split, the early bit or the look at the selector, the gate, each term,
    /// each excluded register.
    unsigned compares = 0;
  };

  std::uint32_t selector = 0;
  /// The bit of `selector` that the keys of exactly one branch have, or 0 where there is none.
  std::uint32_t split = 0;
  /// Bits of `selector` that this branch lacks and others have.
  std::uint32_t early = 0;
  std::vector<Branch> branches;

  /// Thread-safe.
  [[nodiscard]] TOUCHSTONE_API Decision decide(std::uint32_t word) const noexcept;
};

/// Arranges a cover. The tree matches the same words. Thread-safe.
[[nodiscard]] TOUCHSTONE_API DecisionTree decision_tree(const Cover& cover);

}  // namespace touchstone::arch::a64

#endif  // TOUCHSTONE_ARCH_A64_COVERS_H_
