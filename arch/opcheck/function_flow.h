// SPDX-License-Identifier: MIT
// The control and data flow of one function, and the atomics it performs in loops.
#ifndef TOUCHSTONE_ARCH_OPCHECK_FUNCTION_FLOW_H_
#define TOUCHSTONE_ARCH_OPCHECK_FUNCTION_FLOW_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "branch.h"
#include "code_image.h"
#include "flow_state.h"
#include "value_table.h"

namespace touchstone::arch::opcheck {

/// What a call may change under the procedure call standard: x0 to x18 and x30.
inline constexpr std::uint32_t kCallChanges = 0x4007ffff;

/// What a small function does for those that call it, in terms of its entry registers and of
/// memory as it was on entry.
struct FunctionSummary {
  std::shared_ptr<ValueTable> values;
  /// Atomics at addresses that the caller decides.
  std::vector<AtomicEffect> effects;
  /// Stores to memory that the caller can see.
  std::vector<MemoryEntry> stores;
  /// x0 on return, where all returns agree.
  std::optional<ValueId> result;
  /// Registers that it may leave changed, by bit. Assembly routines may keep more than the
  /// procedure call standard asks for, and their callers may know.
  std::uint32_t changed_registers = kCallChanges;
};

/// Finds the summary of the function at an address, external ones included; nullptr where there
/// is none. What it gives lives as long as the analysis.
using SummaryLookup = std::function<const FunctionSummary*(std::uint64_t)>;

/// An atomic in a loop that goes through memory step by step.
struct SteppingEffect {
  AtomicEffect effect;
  /// Address of the first instruction of the loop.
  std::uint64_t loop = 0;
  /// Bytes from one touch to the next, or nothing where it is the same each time round but known
  /// only at run time.
  std::optional<std::int64_t> stride;
};

/// Analyses one function: blocks, dominators, natural loops, and the value of every register and
/// stored memory word as a sum over what the function started with.
///
/// It is an analysis to find code by, not a proof: stores through one pointer are taken not to
/// change what another points to, callees to follow the procedure call standard, and sums of
/// 32-bit indices not to wrap. Not thread-safe.
class FunctionFlow {
 public:
  /// More instructions than this are not analysed.
  static constexpr std::size_t kMaxInstructions = 20'000;
  /// Functions of up to so many instructions get a summary.
  static constexpr std::size_t kMaxSummaryInstructions = 160;

  /// The function at [start, end). `image` must outlive this.
  FunctionFlow(const CodeImage& image, SummaryLookup summaries, std::uint64_t start,
               std::uint64_t end);

  [[nodiscard]] std::size_t instruction_count() const noexcept { return words_.size(); }
  /// Does the instruction lie in a loop?
  [[nodiscard]] bool in_loop(std::uint64_t pc) const noexcept;
  /// False where the instructions just before the atomic, or the call to one, show that it changes
  /// the value (adds 1, swaps 0 for 1 …). Call before solve() only.
  [[nodiscard]] bool may_touch_at(std::uint64_t site);
  /// Could any of the atomics or calls at `sites` step through memory? Looks at the loops around
  /// them alone, so it is much cheaper than solve() and errs towards true. An indirect call there
  /// is taken to reach any of `pointees`. Call before solve() only.
  [[nodiscard]] bool may_step(std::vector<std::uint64_t> sites, std::uint64_t min_stride,
                              const std::vector<const FunctionSummary*>& pointees);
  /// Indirect calls that lie in loops.
  [[nodiscard]] std::vector<std::uint64_t> indirect_calls_in_loops() const;

  /// Computes the values. Call once, before what follows.
  void solve();

  /// Atomics that keep the value and step through memory by at least `min_stride` bytes, or by a
  /// step that is known at run time only. One entry a site and loop.
  [[nodiscard]] std::vector<SteppingEffect> stepping_effects(std::uint64_t min_stride);

  /// Is there an atomic at an address that a callee returned, or may have left on the stack? Then
  /// summaries of those callees tell more.
  [[nodiscard]] bool depends_on_callees() const;

  /// What the function does for its callers.
  [[nodiscard]] FunctionSummary summary();

 private:
  struct Instruction {
    std::uint64_t pc = 0;
    std::uint32_t word = 0;
  };
  struct Block {
    std::size_t first = 0;  ///< Index of its first instruction.
    std::size_t last = 0;   ///< One past its last.
    Branch branch;
    std::optional<std::size_t> taken;
    std::optional<std::size_t> next;
    std::vector<std::size_t> more;  ///< Where an indirect jump may lead.
    std::vector<std::size_t> predecessors;
    bool tail_call = false;
    FlowState in;
    FlowState out;
    bool is_root = false;  ///< Nothing known leads to it.
    bool is_loop_header = false;
    bool has_run = false;
  };
  struct Loop {
    std::size_t header = 0;
    std::vector<std::size_t> latches;  ///< Blocks that jump back to the header.
    std::vector<bool> body;            ///< By block.
    std::size_t size = 0;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void read_words(std::uint64_t start, std::uint64_t end);
  void build_blocks();
  void order_blocks();
  void find_dominators();
  void find_loops();
  [[nodiscard]] std::size_t block_at(std::uint64_t pc) const noexcept;
  [[nodiscard]] bool dominates(std::size_t a, std::size_t b) const noexcept;
  template <typename Visit>
  void for_each_successor(const Block& block, Visit visit) const;

  enum class Stepping : std::uint8_t { kNo, kStays, kMay };
  /// What the effects at a site do as the loop goes round, after settle(&loop).
  [[nodiscard]] Stepping stepping_in(const Loop& loop, std::uint64_t site,
                                     std::uint64_t min_stride);
  [[nodiscard]] bool comes_from_callee(const AtomicEffect& effect) const;
  /// Could the value be a function pointer read from a slot whose address is kept in a register?
  [[nodiscard]] bool may_be_pointee(ValueId pointer) const;
  /// Runs the blocks of one loop, or all of them, until nothing changes.
  void settle(const Loop* loop);
  [[nodiscard]] FlowState entry_state();
  [[nodiscard]] FlowState join(std::size_t block);
  void join_memory(FlowState& joined, const std::vector<const FlowState*>& from, std::uint64_t pc,
                   bool header);
  [[nodiscard]] ValuePair proven_on_edge(const Block& from, std::size_t to) const;
  void run_block(Block& block, std::vector<AtomicEffect>* effects);
  void call(FlowState& state, std::uint64_t pc, std::uint64_t target, bool indirect,
            std::vector<AtomicEffect>* effects);
  /// Appends what a callee does when called in this state.
  void add_effects(const FunctionSummary& summary, const FlowState& state, std::uint64_t pc,
                   std::uint64_t target, bool indirect, std::vector<AtomicEffect>& effects);
  [[nodiscard]] std::uint64_t direct_target(const Branch& branch, std::uint64_t pc) const;
  [[nodiscard]] std::optional<std::uint64_t> indirect_target(ValueId pointer) const;

  [[nodiscard]] bool is_stable(ValueId value, unsigned depth) const;
  [[nodiscard]] bool is_invariant(ValueId value, const Loop& loop, unsigned depth) const;
  /// Does the atomic keep the value, or could it with the right arguments?
  [[nodiscard]] bool is_decided_by_caller(const AtomicEffect& effect);
  [[nodiscard]] bool mentions_stack(ValueId value, unsigned depth) const;
  /// What one trip round the loop by way of `latch` adds to a value.
  [[nodiscard]] std::optional<ValueId> change(ValueId value, const Loop& loop, const Block& latch,
                                              unsigned depth);
  /// An unrolled loop touches several times a trip: what counts is the distance between touches.
  void tell_unrolled(std::vector<SteppingEffect>& found);
  [[nodiscard]] std::optional<SteppingEffect> step_of(const AtomicEffect& effect,
                                                      std::uint64_t min_stride);

  const CodeImage& image_;
  SummaryLookup summaries_;
  std::shared_ptr<ValueTable> values_;
  FlowMachine machine_;
  std::vector<Instruction> words_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> order_;      ///< Reachable blocks in reverse post-order.
  std::vector<std::size_t> position_;   ///< Of each block in order_.
  std::vector<std::size_t> dominator_;  ///< Immediate dominator, kNone for a root.
  std::vector<Loop> loops_;             ///< Smallest first.
  std::vector<AtomicEffect> effects_;
  /// Where settle() starts instead of at the entry, or kNone.
  std::size_t local_root_ = kNone;
  const std::vector<const FunctionSummary*>* pointees_ = nullptr;
};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_FUNCTION_FLOW_H_
