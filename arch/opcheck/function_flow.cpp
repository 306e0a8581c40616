// SPDX-License-Identifier: MIT
#include "function_flow.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace touchstone::arch::opcheck {
namespace {

// Bounds on recursion through operands, so that long chains (checksums, ciphers) stay cheap.
constexpr unsigned kMaxDepth = 64;
// Visits of a block, on average. Reducible code settles in a few more than its loop depth.
constexpr std::size_t kMaxVisits = 24;
// Edges from unresolved indirect jumps to blocks that nothing else leads to.
constexpr std::size_t kMaxJumpTableEdges = 100'000;
// A function whose values need more than this is given up.
constexpr std::size_t kMaxValues = 2'000'000;

// RET, RETAA, RETAB.
constexpr bool is_return(std::uint32_t word) noexcept {
  return (word & 0xffe00000) == 0xd6400000;
}

constexpr std::uint64_t magnitude(std::int64_t value) noexcept {
  return value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
}

// Rewrites values of a callee as values of its caller at a call.
class Translator {
 public:
  Translator(const ValueTable& from, FlowMachine& machine, const FlowState& state,
             std::uint64_t call_pc)
      : from_(from), machine_(machine), state_(state), call_pc_(call_pc) {}

  [[nodiscard]] ValueId translate(ValueId value, unsigned depth = 0) {
    if (const auto known = done_.find(value); known != done_.end()) return known->second;
    ValueTable& to = machine_.values();
    const LinearValue linear = from_.linear(value);
    ValueId sum = to.constant(linear.constant);
    for (std::uint32_t i = 0; i < linear.count; ++i) {
      sum = to.add(sum, to.scale(atom(linear.atoms[i], depth), linear.coefficients[i]));
    }
    done_.emplace(value, sum);
    return sum;
  }

 private:
  [[nodiscard]] ValueId atom(AtomId id, unsigned depth) {
    ValueTable& to = machine_.values();
    const Atom atom = from_.atom_at(id);
    const ValueId opaque = to.atom({.kind = AtomKind::kSite, .key = call_pc_, .x = 0x10000U + id});
    if (depth > kMaxDepth) return opaque;
    switch (atom.kind) {
      case AtomKind::kEntryRegister:
        return state_.registers[atom.key & 31];
      case AtomKind::kLoad:
        return machine_
            .peek(state_, translate(atom.x, depth + 1), static_cast<std::uint32_t>(atom.key))
            .value_or(opaque);
      case AtomKind::kExclusive:
        return to.atom(atom);
      case AtomKind::kOperation: {
        const ValueId x = translate(atom.x, depth + 1);
        const ValueId y = translate(atom.y, depth + 1);
        if (atom.key > static_cast<std::uint64_t>(Operation::kZeroExtend)) return to.add(x, y);
        return to.operation(static_cast<Operation>(atom.key), x, y);
      }
      case AtomKind::kPhi:
      case AtomKind::kSite:
        break;
    }
    return opaque;
  }

  const ValueTable& from_;
  FlowMachine& machine_;
  const FlowState& state_;
  std::uint64_t call_pc_;
  std::unordered_map<ValueId, ValueId> done_;
};

}  // namespace

FunctionFlow::FunctionFlow(const CodeImage& image, SummaryLookup summaries, std::uint64_t start,
                           std::uint64_t end)
    : image_(image),
      summaries_(std::move(summaries)),
      values_(std::make_shared<ValueTable>()),
      machine_(*values_, image.got) {
  read_words(start, end);
  if (words_.empty() || words_.size() > kMaxInstructions) return;
  build_blocks();
  order_blocks();
  find_dominators();
  find_loops();
}

void FunctionFlow::read_words(std::uint64_t start, std::uint64_t end) {
  auto range = std::lower_bound(
      image_.ranges.begin(), image_.ranges.end(), start,
      [](const CodeRange& candidate, std::uint64_t value) { return candidate.end() <= value; });
  for (; range != image_.ranges.end() && range->address < end; ++range) {
    const std::uint64_t first = std::max(range->address, start);
    const std::uint64_t last = std::min(range->end(), end);
    for (std::uint64_t pc = first; pc + 4 <= last; pc += 4) {
      words_.push_back(
          {pc, load_word(range->bytes, static_cast<std::size_t>(pc - range->address))});
      if (words_.size() > kMaxInstructions) return;
    }
  }
}

std::uint64_t FunctionFlow::direct_target(const Branch& branch, std::uint64_t pc) const {
  return follow(image_.branch_links, pc).value_or(branch.target);
}

void FunctionFlow::build_blocks() {
  const auto index_of = [this](std::uint64_t pc) -> std::optional<std::size_t> {
    const auto at =
        std::lower_bound(words_.begin(), words_.end(), pc,
                         [](const Instruction& a, std::uint64_t value) { return a.pc < value; });
    if (at == words_.end() || at->pc != pc) return std::nullopt;
    return static_cast<std::size_t>(at - words_.begin());
  };
  const auto ends_block = [](BranchKind kind) {
    return kind != BranchKind::kNone && kind != BranchKind::kCall &&
           kind != BranchKind::kIndirectCall;
  };
  std::vector<bool> leader(words_.size() + 1, false);
  std::vector<Branch> branches(words_.size());
  std::vector<std::optional<std::size_t>> targets(words_.size());
  leader[0] = true;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const Instruction& instruction = words_[i];
    if (i > 0 && words_[i - 1].pc + 4 != instruction.pc) leader[i] = true;
    branches[i] = decode_branch(instruction.word, instruction.pc);
    const BranchKind kind = branches[i].kind;
    if (!ends_block(kind)) continue;
    leader[i + 1] = true;
    if (kind == BranchKind::kEnd || kind == BranchKind::kIndirectJump) continue;
    const std::optional<std::size_t> target = index_of(direct_target(branches[i], instruction.pc));
    if (target) leader[*target] = true;
    targets[i] = target;
  }

  std::vector<std::size_t> block_of(words_.size());
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if (leader[i]) {
      Block block;
      block.first = i;
      blocks_.push_back(std::move(block));
    }
    blocks_.back().last = i + 1;
    block_of[i] = blocks_.size() - 1;
  }
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    Block& block = blocks_[b];
    const std::size_t last = block.last - 1;
    block.branch = branches[last];
    const BranchKind kind = block.branch.kind;
    const bool falls =
        kind != BranchKind::kJump && kind != BranchKind::kEnd && kind != BranchKind::kIndirectJump;
    if (falls && block.last < words_.size() && words_[last].pc + 4 == words_[block.last].pc) {
      block.next = b + 1;
    }
    if (const auto target = targets[last]) {
      block.taken = block_of[*target];
    } else if (kind == BranchKind::kJump) {
      block.tail_call = true;
    }
  }
  std::vector<bool> has_predecessor(blocks_.size(), false);
  for (const Block& block : blocks_) {
    for_each_successor(block, [&](std::size_t to) { has_predecessor[to] = true; });
  }
  // A jump table may lead to whatever nothing else leads to.
  std::vector<std::size_t> orphans;
  std::size_t jumps = 0;
  for (std::size_t b = 1; b < blocks_.size(); ++b) {
    if (!has_predecessor[b]) orphans.push_back(b);
  }
  for (const Block& block : blocks_) {
    if (block.branch.kind == BranchKind::kIndirectJump) ++jumps;
  }
  if (jumps * orphans.size() <= kMaxJumpTableEdges) {
    for (Block& block : blocks_) {
      if (block.branch.kind == BranchKind::kIndirectJump) block.more = orphans;
    }
  }
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    for_each_successor(blocks_[b], [&](std::size_t to) { blocks_[to].predecessors.push_back(b); });
  }
}

template <typename Visit>
void FunctionFlow::for_each_successor(const Block& block, Visit visit) const {
  if (block.next) visit(*block.next);
  if (block.taken && block.taken != block.next) visit(*block.taken);
  for (const std::size_t to : block.more) visit(to);
}

void FunctionFlow::order_blocks() {
  // Depth-first from the entry, then from every block that is left.
  std::vector<std::uint8_t> state(blocks_.size(), 0);
  std::vector<std::size_t> post;
  post.reserve(blocks_.size());
  std::vector<std::pair<std::size_t, std::vector<std::size_t>>> stack;
  const auto open = [&](std::size_t block) {
    state[block] = 1;
    std::vector<std::size_t> successors;
    for_each_successor(blocks_[block], [&](std::size_t to) { successors.push_back(to); });
    stack.emplace_back(block, std::move(successors));
  };
  const auto visit_from = [&](std::size_t root) {
    if (state[root] != 0) return;
    open(root);
    while (!stack.empty()) {
      auto& [block, successors] = stack.back();
      if (successors.empty()) {
        post.push_back(block);
        stack.pop_back();
        continue;
      }
      const std::size_t to = successors.back();
      successors.pop_back();
      if (state[to] == 0) open(to);
    }
  };
  visit_from(0);
  blocks_[0].is_root = true;
  for (std::size_t b = 1; b < blocks_.size(); ++b) {
    if (state[b] == 0 && blocks_[b].predecessors.empty()) {
      blocks_[b].is_root = true;
      visit_from(b);
    }
  }
  for (std::size_t b = 1; b < blocks_.size(); ++b) {
    if (state[b] == 0) {
      blocks_[b].is_root = true;
      visit_from(b);
    }
  }
  order_.assign(post.rbegin(), post.rend());
  position_.resize(blocks_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) position_[order_[i]] = i;
}

void FunctionFlow::find_dominators() {
  // Cooper, Harvey and Kennedy's iteration; kNone is a root above all roots.
  dominator_.assign(blocks_.size(), kNone);
  std::vector<bool> known(blocks_.size(), false);
  const auto common = [&](std::size_t a, std::size_t b) {
    while (a != b) {
      if (a == kNone || b == kNone) return kNone;
      if (position_[a] > position_[b]) {
        a = dominator_[a];
      } else {
        b = dominator_[b];
      }
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::size_t b : order_) {
      std::size_t above = kNone;
      if (!blocks_[b].is_root) {  // not a root
        bool first = true;
        for (const std::size_t from : blocks_[b].predecessors) {
          if (!known[from]) continue;
          above = first ? from : common(above, from);
          first = false;
        }
      }
      if (!known[b] || dominator_[b] != above) {
        known[b] = true;
        dominator_[b] = above;
        changed = true;
      }
    }
  }
}

bool FunctionFlow::dominates(std::size_t a, std::size_t b) const noexcept {
  while (b != kNone && position_[b] > position_[a]) b = dominator_[b];
  return a == b;
}

void FunctionFlow::find_loops() {
  for (const std::size_t header : order_) {
    Loop loop;
    loop.header = header;
    for (const std::size_t from : blocks_[header].predecessors) {
      if (position_[from] >= position_[header] && dominates(header, from)) {
        loop.latches.push_back(from);
      }
    }
    if (loop.latches.empty()) continue;
    blocks_[header].is_loop_header = true;
    loop.body.assign(blocks_.size(), false);
    loop.body[header] = true;
    loop.size = 1;
    std::vector<std::size_t> work = loop.latches;
    while (!work.empty()) {
      const std::size_t block = work.back();
      work.pop_back();
      if (loop.body[block]) continue;
      loop.body[block] = true;
      ++loop.size;
      work.insert(work.end(), blocks_[block].predecessors.begin(),
                  blocks_[block].predecessors.end());
    }
    loops_.push_back(std::move(loop));
  }
  std::sort(loops_.begin(), loops_.end(), [](const Loop& a, const Loop& b) {
    return std::tie(a.size, a.header) < std::tie(b.size, b.header);
  });
}

std::size_t FunctionFlow::block_at(std::uint64_t pc) const noexcept {
  const auto after = std::upper_bound(
      blocks_.begin(), blocks_.end(), pc,
      [this](std::uint64_t value, const Block& block) { return value < words_[block.first].pc; });
  return after == blocks_.begin() ? kNone : static_cast<std::size_t>(after - blocks_.begin()) - 1;
}

bool FunctionFlow::in_loop(std::uint64_t pc) const noexcept {
  const std::size_t block = block_at(pc);
  if (block == kNone) return false;
  return std::any_of(loops_.begin(), loops_.end(),
                     [block](const Loop& loop) { return loop.body[block]; });
}

std::vector<std::uint64_t> FunctionFlow::indirect_calls_in_loops() const {
  std::vector<std::uint64_t> calls;
  for (const Instruction& instruction : words_) {
    if (decode_branch(instruction.word, instruction.pc).kind == BranchKind::kIndirectCall &&
        in_loop(instruction.pc)) {
      calls.push_back(instruction.pc);
    }
  }
  return calls;
}

bool FunctionFlow::may_touch_at(std::uint64_t site) {
  const std::size_t index = block_at(site);
  if (index == kNone) return false;
  // The block alone, from registers that may hold anything. What it shows of the operands holds
  // whatever came before.
  Block& block = blocks_[index];
  block.in = FlowState{};
  for (unsigned i = 0; i < 32; ++i) {
    block.in.registers[i] = values_->site(words_[block.first].pc, 0x2000 + i);
  }
  block.in.memory_overflow = true;
  std::vector<AtomicEffect> effects;
  run_block(block, &effects);
  bool seen = false;
  for (const AtomicEffect& effect : effects) {
    if (effect.site != site) continue;
    if (may_preserve_value(effect, *values_)) return true;
    seen = true;
  }
  return !seen;
}

FlowState FunctionFlow::entry_state() {
  FlowState state;
  for (unsigned i = 0; i < 32; ++i) state.registers[i] = values_->entry_register(i);
  return state;
}

ValuePair FunctionFlow::proven_on_edge(const Block& from, std::size_t to) const {
  const Branch& branch = from.branch;
  if (from.taken == from.next) return from.out.proven_equal;
  const bool is_taken = from.taken == to;
  const bool equal = is_taken ? branch.taken_if_equal : branch.taken_if_different;
  if (!equal) return from.out.proven_equal;
  if (branch.kind == BranchKind::kCondition) {
    return from.out.flags == ValuePair{} ? from.out.proven_equal : from.out.flags;
  }
  if (branch.kind == BranchKind::kCompareZero && branch.register_index != 31) {
    const ValueId value = from.out.registers[branch.register_index];
    if (const auto atom = values_->as_atom(value)) {
      const Atom& found = values_->atom_at(*atom);
      if (found.kind == AtomKind::kOperation &&
          found.key == static_cast<std::uint64_t>(Operation::kXor)) {
        return {found.x, found.y};
      }
    }
    return {value, ValueTable::kZero};
  }
  return from.out.proven_equal;
}

FlowState FunctionFlow::join(std::size_t index) {
  const Block& block = blocks_[index];
  const std::uint64_t pc = words_[block.first].pc;
  std::vector<const FlowState*> from;
  std::vector<ValuePair> proven;
  FlowState root;
  const bool is_root = local_root_ == kNone ? block.is_root : index == local_root_;
  if (is_root && (index == 0 || local_root_ != kNone)) {
    root = entry_state();
    from.push_back(&root);
    proven.emplace_back();
  } else if (is_root) {
    for (unsigned i = 0; i < 32; ++i) {
      root.registers[i] = values_->atom({.kind = AtomKind::kSite, .key = pc, .x = 0x1000 + i});
    }
    root.memory_overflow = true;
    from.push_back(&root);
    proven.emplace_back();
  }
  for (const std::size_t before : block.predecessors) {
    if (!blocks_[before].has_run) continue;
    from.push_back(&blocks_[before].out);
    proven.push_back(proven_on_edge(blocks_[before], index));
  }
  FlowState joined = *from.front();
  joined.proven_equal = proven.front();
  if (from.size() == 1) return joined;

  for (unsigned i = 0; i < 32; ++i) {
    const ValueId first = joined.registers[i];
    if (std::all_of(from.begin() + 1, from.end(),
                    [&](const FlowState* state) { return state->registers[i] == first; })) {
      continue;
    }
    const ValueId phi = values_->atom({.kind = AtomKind::kPhi, .key = pc, .x = i});
    ValueId only = phi;
    for (const FlowState* state : from) {
      const ValueId value = state->registers[i];
      if (value == phi || value == only) continue;
      if (only != phi) {
        only = phi;
        break;
      }
      only = value;
    }
    joined.registers[i] = only;
  }
  for (std::size_t i = 1; i < from.size(); ++i) {
    if (from[i]->flags != joined.flags) joined.flags = {};
    if (proven[i] != joined.proven_equal) joined.proven_equal = {};
    if (from[i]->exclusive_open != joined.exclusive_open ||
        from[i]->exclusive_address != joined.exclusive_address ||
        from[i]->exclusive_values != joined.exclusive_values) {
      joined.exclusive_open = false;
    }
    joined.memory_overflow |= from[i]->memory_overflow;
  }
  const bool header = block.is_loop_header;
  if (!header && std::all_of(from.begin() + 1, from.end(), [&](const FlowState* state) {
        return state->memory == joined.memory;
      })) {
    return joined;
  }
  join_memory(joined, from, pc, header);
  return joined;
}

void FunctionFlow::join_memory(FlowState& joined, const std::vector<const FlowState*>& from,
                               std::uint64_t pc, bool header) {
  const auto before = [](const MemoryEntry& a, const MemoryEntry& b) {
    return std::tuple(a.base, a.offset, b.size) < std::tuple(b.base, b.offset, a.size);
  };
  // Each predecessor's entries are sorted: walk them side by side, the least key first.
  std::vector<std::size_t> at(from.size(), 0);
  std::vector<MemoryEntry> memory;
  ValueId stable_base = ValueTable::kZero;
  for (;;) {
    const MemoryEntry* least = nullptr;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (at[i] == from[i]->memory.size()) continue;
      const MemoryEntry& entry = from[i]->memory[at[i]];
      if (least == nullptr || before(entry, *least)) least = &entry;
    }
    if (least == nullptr) break;
    const MemoryEntry key = *least;
    std::size_t have = 0;
    bool same = true;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (at[i] == from[i]->memory.size()) continue;
      const MemoryEntry& entry = from[i]->memory[at[i]];
      if (entry.base != key.base || entry.offset != key.offset || entry.size != key.size) continue;
      same &= entry.value == key.value;
      ++have;
      ++at[i];
    }
    if (!memory.empty() && memory.back().base == key.base &&
        static_cast<std::uint64_t>(key.offset) - static_cast<std::uint64_t>(memory.back().offset) <
            memory.back().size) {
      continue;
    }
    // What the last trip round a loop left at an address that moved with it is another place now.
    if (header && key.base != stable_base) {
      if (!is_stable(key.base, 0)) continue;
      stable_base = key.base;
    }
    if (same && have == from.size()) {
      memory.push_back(key);
      continue;
    }
    const ValueId address = values_->add_constant(key.base, static_cast<std::uint64_t>(key.offset));
    const ValueId phi =
        values_->atom({.kind = AtomKind::kPhi, .key = pc, .x = address, .y = key.size});
    ValueId only = phi;
    for (const FlowState* state : from) {
      const auto value = machine_.peek(*state, address, key.size);
      if (value == phi || value == only) continue;
      if (!value || only != phi) {
        only = phi;
        break;
      }
      only = *value;
    }
    memory.push_back({.base = key.base, .offset = key.offset, .size = key.size, .value = only});
  }
  joined.memory = std::move(memory);
}

std::optional<std::uint64_t> FunctionFlow::indirect_target(ValueId pointer) const {
  if (const auto address = values_->as_constant(pointer)) return address;
  const auto atom = values_->as_atom(pointer);
  if (!atom) return std::nullopt;
  const Atom& load = values_->atom_at(*atom);
  if (load.kind != AtomKind::kLoad || load.key != 8) return std::nullopt;
  const auto slot = values_->as_constant(load.x);
  if (!slot) return std::nullopt;
  return follow(image_.code_pointers, *slot);
}

void FunctionFlow::add_effects(const FunctionSummary& summary, const FlowState& state,
                               std::uint64_t pc, std::uint64_t target, bool indirect,
                               std::vector<AtomicEffect>& effects) {
  Translator translator(*summary.values, machine_, state, pc);
  for (AtomicEffect effect : summary.effects) {
    effect.site = pc;
    effect.callee = target;
    effect.indirect |= indirect;
    effect.address = translator.translate(effect.address);
    for (ValueId& value : effect.first) value = translator.translate(value);
    for (ValueId& value : effect.second) value = translator.translate(value);
    effect.proven_equal = {translator.translate(effect.proven_equal.a),
                           translator.translate(effect.proven_equal.b)};
    effects.push_back(effect);
  }
}

void FunctionFlow::call(FlowState& state, std::uint64_t pc, std::uint64_t target, bool indirect,
                        std::vector<AtomicEffect>* effects) {
  const FunctionSummary* const summary = summaries_(target);
  if (summary == nullptr) {
    machine_.clobber_for_call(state, pc, kCallChanges);
    return;
  }
  if (effects != nullptr) add_effects(*summary, state, pc, target, indirect, *effects);
  Translator translator(*summary->values, machine_, state, pc);
  std::vector<std::tuple<ValueId, std::uint32_t, ValueId>> stores;
  for (const MemoryEntry& entry : summary->stores) {
    const ValueId address = machine_.values().add_constant(
        translator.translate(entry.base), static_cast<std::uint64_t>(entry.offset));
    stores.emplace_back(address, entry.size, translator.translate(entry.value));
  }
  std::optional<ValueId> result;
  if (summary->result) result = translator.translate(*summary->result);
  machine_.clobber_for_call(state, pc, summary->changed_registers);
  for (const auto& [address, size, value] : stores) machine_.store(state, address, size, value);
  if (result) state.registers[0] = *result;
}

void FunctionFlow::run_block(Block& block, std::vector<AtomicEffect>* effects) {
  block.out = block.in;
  for (std::size_t i = block.first; i < block.last; ++i) {
    const auto [pc, word] = words_[i];
    if ((word >> 26 & 7) == 5) {
      const Branch branch = decode_branch(word, pc);
      if (branch.kind == BranchKind::kCall ||
          (branch.kind == BranchKind::kJump && block.tail_call)) {
        call(block.out, pc, direct_target(branch, pc), false, effects);
        continue;
      }
      if (branch.kind == BranchKind::kIndirectCall || branch.kind == BranchKind::kIndirectJump) {
        const ValueId pointer = block.out.registers[branch.register_index & 31];
        const auto target = branch.register_index == 31 ? std::nullopt : indirect_target(pointer);
        if (target) {
          call(block.out, pc, *target, !values_->as_constant(pointer), effects);
        } else if (branch.kind == BranchKind::kIndirectCall) {
          std::uint32_t changes = kCallChanges;
          if (pointees_ != nullptr && may_be_pointee(pointer)) {
            for (const FunctionSummary* pointee : *pointees_) {
              changes &= pointee->changed_registers;
              if (effects != nullptr) add_effects(*pointee, block.out, pc, 0, true, *effects);
            }
          }
          machine_.clobber_for_call(block.out, pc, changes);
        }
        continue;
      }
      if (branch.kind != BranchKind::kNone) continue;
    }
    machine_.step(block.out, pc, word, effects);
  }
}

void FunctionFlow::settle(const Loop* loop) {
  for (Block& block : blocks_) block.has_run = false;
  local_root_ = loop != nullptr ? loop->header : kNone;
  // Always the first in order of those that need it, so that an inner loop has settled before the
  // loop around it goes round again: otherwise the two can disagree for ever.
  std::set<std::size_t> work;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    if (loop == nullptr || loop->body[order_[i]]) work.insert(work.end(), i);
  }
  std::size_t budget = work.size() * kMaxVisits;
  while (!work.empty() && budget-- > 0) {
    Block& block = blocks_[order_[*work.begin()]];
    FlowState in = join(order_[*work.begin()]);
    work.erase(work.begin());
    if (block.has_run && in == block.in) continue;
    block.in = std::move(in);
    run_block(block, nullptr);
    block.has_run = true;
    for_each_successor(block, [&](std::size_t to) {
      if (loop == nullptr || loop->body[to]) work.insert(position_[to]);
    });
    if (values_->size() > kMaxValues) return;
  }
}

FunctionFlow::Stepping FunctionFlow::stepping_in(const Loop& loop, std::uint64_t site,
                                                 std::uint64_t min_stride) {
  std::vector<AtomicEffect> effects;
  run_block(blocks_[block_at(site)], &effects);
  Stepping result = Stepping::kNo;
  for (const AtomicEffect& effect : effects) {
    if (effect.site != site || !may_preserve_value(effect, *values_)) continue;
    if (comes_from_callee(effect)) return Stepping::kMay;
    bool steps = true;
    bool moves = false;
    for (const std::size_t latch : loop.latches) {
      const auto step = change(effect.address, loop, blocks_[latch], 0);
      const auto constant = step ? values_->as_constant(*step) : std::nullopt;
      steps &= step && (!constant || *constant == 0 ||
                        magnitude(static_cast<std::int64_t>(*constant)) >= min_stride);
      moves |= step && *step != ValueTable::kZero;
    }
    if (steps && moves) return Stepping::kMay;
    if (steps) result = Stepping::kStays;
  }
  return result;
}

bool FunctionFlow::may_step(std::vector<std::uint64_t> sites, std::uint64_t min_stride,
                            const std::vector<const FunctionSummary*>& pointees) {
  pointees_ = &pointees;
  bool found = false;
  // From the smallest loop outwards: a site is done with once it moves, or once what it does is
  // known not to be a step.
  for (const Loop& loop : loops_) {
    std::vector<std::uint64_t> inside;
    std::vector<std::uint64_t> rest;
    for (const std::uint64_t site : sites) {
      const std::size_t block = block_at(site);
      (block != kNone && loop.body[block] ? inside : rest).push_back(site);
    }
    if (inside.empty()) continue;
    settle(&loop);
    for (const std::uint64_t site : inside) {
      const Stepping stepping = stepping_in(loop, site, min_stride);
      found |= stepping == Stepping::kMay;
      if (stepping == Stepping::kStays) rest.push_back(site);
    }
    sites = std::move(rest);
    if (found || sites.empty()) break;
  }
  pointees_ = nullptr;
  return found;
}

bool FunctionFlow::may_be_pointee(ValueId pointer) const {
  const auto atom = values_->as_atom(pointer);
  if (!atom) return false;
  const Atom& found = values_->atom_at(*atom);
  if (found.kind == AtomKind::kEntryRegister) return true;
  if (found.kind != AtomKind::kLoad || found.key != 8) return false;
  const auto slot = values_->as_atom(found.x);
  if (!slot) return false;
  const Atom& base = values_->atom_at(*slot);
  return base.kind == AtomKind::kEntryRegister ||
         (base.kind == AtomKind::kLoad && mentions_stack(base.x, 0));
}

void FunctionFlow::solve() {
  if (blocks_.empty()) return;
  settle(nullptr);
  for (const std::size_t b : order_) run_block(blocks_[b], &effects_);
  std::erase_if(effects_, [this](const AtomicEffect& effect) {
    return !may_preserve_value(effect, *values_);
  });
}

bool FunctionFlow::is_stable(ValueId value, unsigned depth) const {
  if (depth > kMaxDepth) return false;
  const LinearValue& linear = values_->linear(value);
  for (std::uint32_t i = 0; i < linear.count; ++i) {
    const Atom& atom = values_->atom_at(linear.atoms[i]);
    switch (atom.kind) {
      case AtomKind::kEntryRegister:
        break;
      case AtomKind::kLoad:
        if (!is_stable(atom.x, depth + 1)) return false;
        break;
      case AtomKind::kOperation:
        if (!is_stable(atom.x, depth + 1) || !is_stable(atom.y, depth + 1)) return false;
        break;
      default:
        return false;
    }
  }
  return true;
}

bool FunctionFlow::is_decided_by_caller(const AtomicEffect& effect) {
  if (preserves_value(effect, *values_)) return true;
  const unsigned width_bits = effect.width * 8U;
  for (std::size_t i = 0; i < effect.elements; ++i) {
    const ValueId first = values_->low_bits_of(effect.first[i], width_bits);
    if (effect.kind == RmwKind::kCompareSwap) {
      const ValueId second = values_->low_bits_of(effect.second[i], width_bits);
      if (!is_stable(values_->subtract(first, second), 0)) return false;
    } else if (effect.kind != RmwKind::kExclusive) {
      if (!is_stable(first, 0)) return false;
    } else {
      // Loaded plus, or combined with, what the caller gives; or a compare-and-swap.
      const ValueId loaded = effect.second[i];
      const ValueId rest = values_->subtract(first, loaded);
      bool decided = is_stable(rest, 0) && !values_->as_constant(rest);
      if (const auto atom = values_->as_atom(first); atom && !decided) {
        const Atom& operation = values_->atom_at(*atom);
        decided = operation.kind == AtomKind::kOperation &&
                  ((operation.x == loaded && is_stable(operation.y, 0)) ||
                   (operation.y == loaded && is_stable(operation.x, 0)));
      }
      if (!decided) {
        // A compare-and-swap loop: what is stored is what was compared, or that combined with what
        // the caller gives.
        const ValueId a = values_->low_bits_of(effect.proven_equal.a, width_bits);
        const ValueId b = values_->low_bits_of(effect.proven_equal.b, width_bits);
        decided = (a == loaded && is_stable(values_->subtract(first, b), 0)) ||
                  (b == loaded && is_stable(values_->subtract(first, a), 0));
      }
      if (!decided) return false;
    }
  }
  return true;
}

bool FunctionFlow::mentions_stack(ValueId value, unsigned depth) const {
  if (depth > kMaxDepth) return true;
  const LinearValue& linear = values_->linear(value);
  for (std::uint32_t i = 0; i < linear.count; ++i) {
    const Atom& atom = values_->atom_at(linear.atoms[i]);
    if (atom.kind == AtomKind::kEntryRegister && atom.key == kStackPointer) return true;
    if (atom.kind == AtomKind::kLoad && mentions_stack(atom.x, depth + 1)) return true;
    if (atom.kind == AtomKind::kOperation &&
        (mentions_stack(atom.x, depth + 1) || mentions_stack(atom.y, depth + 1))) {
      return true;
    }
  }
  return false;
}

bool FunctionFlow::is_invariant(ValueId value, const Loop& loop, unsigned depth) const {
  if (depth > kMaxDepth) return false;
  const LinearValue& linear = values_->linear(value);
  for (std::uint32_t i = 0; i < linear.count; ++i) {
    const Atom& atom = values_->atom_at(linear.atoms[i]);
    switch (atom.kind) {
      case AtomKind::kEntryRegister:
        break;
      case AtomKind::kLoad:
        if (!is_invariant(atom.x, loop, depth + 1)) return false;
        break;
      case AtomKind::kOperation:
        if (!is_invariant(atom.x, loop, depth + 1) || !is_invariant(atom.y, loop, depth + 1)) {
          return false;
        }
        break;
      case AtomKind::kPhi:
      case AtomKind::kSite:
      case AtomKind::kExclusive: {
        const std::size_t block = block_at(atom.key);
        if (block == kNone || loop.body[block]) return false;
        break;
      }
    }
  }
  return true;
}

std::optional<ValueId> FunctionFlow::change(ValueId value, const Loop& loop, const Block& latch,
                                            unsigned depth) {
  if (depth > kMaxDepth) return std::nullopt;
  const std::uint64_t header_pc = words_[blocks_[loop.header].first].pc;
  const LinearValue linear = values_->linear(value);
  ValueId sum = ValueTable::kZero;
  for (std::uint32_t i = 0; i < linear.count; ++i) {
    const Atom atom = values_->atom_at(linear.atoms[i]);
    const ValueId as_value = values_->atom(atom);
    std::optional<ValueId> part;
    if (is_invariant(as_value, loop, depth)) {
      continue;
    }
    if (atom.kind == AtomKind::kPhi && atom.key == header_pc) {
      const auto after = atom.y == 0 ? std::optional(latch.out.registers[atom.x & 31])
                                     : machine_.peek(latch.out, atom.x, atom.y);
      if (!after) return std::nullopt;
      part = values_->subtract(*after, as_value);
      if (!is_invariant(*part, loop, 0)) return std::nullopt;
    } else if (atom.kind == AtomKind::kOperation) {
      const auto x = change(atom.x, loop, latch, depth + 1);
      const auto y = change(atom.y, loop, latch, depth + 1);
      if (!x || !y) return std::nullopt;
      if (atom.key == static_cast<std::uint64_t>(Operation::kMultiply) && *y == ValueTable::kZero) {
        part = values_->operation(Operation::kMultiply, *x, atom.y);
      } else if (atom.key == static_cast<std::uint64_t>(Operation::kMultiply) &&
                 *x == ValueTable::kZero) {
        part = values_->operation(Operation::kMultiply, atom.x, *y);
      } else if (atom.key == static_cast<std::uint64_t>(Operation::kShiftLeft) &&
                 *y == ValueTable::kZero) {
        part = values_->operation(Operation::kShiftLeft, *x, atom.y);
      } else if (atom.key > static_cast<std::uint64_t>(Operation::kZeroExtend)) {
        part = values_->add(*x, *y);
      }
    }
    if (!part) return std::nullopt;
    sum = values_->add(sum, values_->scale(*part, linear.coefficients[i]));
  }
  return sum;
}

std::optional<SteppingEffect> FunctionFlow::step_of(const AtomicEffect& effect,
                                                    std::uint64_t min_stride) {
  const std::size_t block = block_at(effect.site);
  if (block == kNone) return std::nullopt;
  for (const Loop& loop : loops_) {
    if (!loop.body[block]) continue;
    // A retry loop may share its header with the loop around it: its own way round steps by 0.
    std::vector<ValueId> steps;
    for (const std::size_t latch : loop.latches) {
      const auto step = change(effect.address, loop, blocks_[latch], 0);
      if (!step) return std::nullopt;
      if (*step != ValueTable::kZero) steps.push_back(*step);
    }
    if (steps.empty()) continue;
    SteppingEffect found{
        .effect = effect, .loop = words_[blocks_[loop.header].first].pc, .stride = std::nullopt};
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    for (const ValueId step : steps) {
      const auto constant = values_->as_constant(step);
      if (!constant) {
        if (steps.size() > 1) return std::nullopt;
        return found;
      }
      const auto stride = static_cast<std::int64_t>(*constant);
      if (magnitude(stride) < min_stride) return std::nullopt;
      if (!found.stride || magnitude(stride) < magnitude(*found.stride)) found.stride = stride;
    }
    return found;
  }
  return std::nullopt;
}

std::vector<SteppingEffect> FunctionFlow::stepping_effects(std::uint64_t min_stride) {
  std::vector<SteppingEffect> found;
  for (const AtomicEffect& effect : effects_) {
    if (!preserves_value(effect, *values_)) continue;
    auto step = step_of(effect, min_stride);
    if (!step) continue;
    // An outline helper holds one atomic of each kind: one finding a site, the LSE one first.
    const auto same = std::find_if(found.begin(), found.end(), [&](const SteppingEffect& other) {
      return other.effect.site == effect.site && other.loop == step->loop;
    });
    if (same == found.end()) {
      found.push_back(*step);
    } else if (same->effect.kind == RmwKind::kExclusive && effect.kind != RmwKind::kExclusive) {
      *same = *step;
    }
  }
  tell_unrolled(found);
  std::erase_if(found, [&](const SteppingEffect& step) {
    return step.stride && magnitude(*step.stride) < min_stride;
  });
  return found;
}

void FunctionFlow::tell_unrolled(std::vector<SteppingEffect>& found) {
  // Larger steps cross a whole address space in a few trips; kept out so that nothing overflows.
  constexpr std::uint64_t kMaxTrip = std::uint64_t{1} << 48U;
  struct Touch {
    std::size_t index;
    std::int64_t apart;  // from the first of its group
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::int64_t trip = found[i].stride.value_or(0);
    if (trip == 0 || magnitude(trip) > kMaxTrip) continue;
    std::vector<Touch> group;
    for (std::size_t j = 0; j < found.size(); ++j) {
      if (found[j].loop != found[i].loop || found[j].stride.value_or(0) != trip) continue;
      const auto apart =
          values_->as_constant(values_->subtract(found[j].effect.address, found[i].effect.address));
      if (apart) group.push_back({j, static_cast<std::int64_t>(*apart)});
    }
    const auto count = static_cast<std::int64_t>(group.size());
    if (count < 2 || group.front().index != i || trip % count != 0) continue;
    // Evenly spread over the trip, one in each part of it?
    const std::int64_t each = trip / count;
    std::vector<bool> seen(group.size(), false);
    for (const Touch& touch : group) {
      const std::int64_t place = ((touch.apart % trip) + trip) % trip;
      if (place % each == 0) seen[static_cast<std::size_t>(place / each)] = true;
    }
    if (std::find(seen.begin(), seen.end(), false) != seen.end()) continue;
    for (const Touch& touch : group) found[touch.index].stride = each;
  }
}

bool FunctionFlow::comes_from_callee(const AtomicEffect& effect) const {
  const LinearValue& linear = values_->linear(effect.address);
  for (std::uint32_t i = 0; i < linear.count; ++i) {
    const Atom& atom = values_->atom_at(linear.atoms[i]);
    if (effect.callee != 0 && atom.kind == AtomKind::kLoad && mentions_stack(atom.x, 0)) {
      return true;
    }
    if (atom.kind == AtomKind::kSite && atom.x == 0) {
      const auto word = image_.word_at(atom.key);
      if (word && *word >> 26 == 0x25) return true;  // x0 after BL
    }
  }
  return false;
}

bool FunctionFlow::depends_on_callees() const {
  return std::any_of(effects_.begin(), effects_.end(),
                     [this](const AtomicEffect& effect) { return comes_from_callee(effect); });
}

FunctionSummary FunctionFlow::summary() {
  FunctionSummary summary;
  summary.values = values_;
  for (const AtomicEffect& effect : effects_) {
    const LinearValue& linear = values_->linear(effect.address);
    if (linear.count == 0 || !is_stable(effect.address, 0)) continue;
    // An address on its own stack frame is no business of the caller's.
    bool on_stack = false;
    for (std::uint32_t i = 0; i < linear.count; ++i) {
      const Atom& atom = values_->atom_at(linear.atoms[i]);
      on_stack |= atom.kind == AtomKind::kEntryRegister && atom.key == kStackPointer;
    }
    if (!on_stack && is_decided_by_caller(effect)) summary.effects.push_back(effect);
  }
  std::vector<const Block*> returns;
  for (const Block& block : blocks_) {
    if (!block.has_run) continue;
    if (block.tail_call || is_return(words_[block.last - 1].word)) returns.push_back(&block);
  }
  if (returns.empty()) return summary;
  const Block& first = *returns.front();
  if (std::all_of(returns.begin(), returns.end(), [&](const Block* block) {
        return block->out.registers[0] == first.out.registers[0];
      })) {
    summary.result = first.out.registers[0];
  }
  summary.changed_registers = 0;
  for (unsigned i = 0; i < kStackPointer; ++i) {
    const ValueId kept = values_->entry_register(i);
    if (!std::all_of(returns.begin(), returns.end(),
                     [&](const Block* block) { return block->out.registers[i] == kept; })) {
      summary.changed_registers |= 1U << i;
    }
  }
  for (const MemoryEntry& entry : first.out.memory) {
    if (mentions_stack(entry.base, 0) || !is_stable(entry.base, 0)) continue;
    const ValueId address =
        values_->add_constant(entry.base, static_cast<std::uint64_t>(entry.offset));
    if (std::all_of(returns.begin(), returns.end(), [&](const Block* block) {
          return machine_.peek(block->out, address, entry.size) == entry.value;
        })) {
      summary.stores.push_back(entry);
    }
  }
  return summary;
}

}  // namespace touchstone::arch::opcheck
