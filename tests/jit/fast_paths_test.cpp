// SPDX-License-Identifier: MIT
// Emitted accesses are invisible to the thread sanitizer; threads meet in emitted atomics alone,
// and results are read after joining.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <asmjit/arm/a64assembler.h>
#include <asmjit/core.h>
#include <asmjit/x86.h>
#include <gtest/gtest.h>

#include <touchstone/arch/machine.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/disassembly.h>
#include <touchstone/jit/fast_paths.h>
#include <touchstone/jit/rmw_function.h>

namespace touchstone::jit {
namespace {

using heap::FastPathLayout;

/// A mutator block as a runtime might have it.
struct Mutator {
  std::uint64_t other = 0x1111;
  std::uintptr_t top = 0;
  std::uintptr_t end = 0;
  std::uintptr_t cards = 0;
  std::uintptr_t marks = 0;
  std::uint32_t flags = 0x2222;
  std::uint32_t safepoint = 0;
  unsigned slow_allocations = 0;
  std::size_t slow_size = 0;
  unsigned stops = 0;
};

constexpr FastPathLayout kLayout{.tlab_top_offset = offsetof(Mutator, top),
                                 .card_table_offset = offsetof(Mutator, cards),
                                 .mark_bitmap_offset = offsetof(Mutator, marks),
                                 .safepoint_flag_offset = offsetof(Mutator, safepoint)};
static_assert(kLayout.check());

std::byte slow_object{};
void* slow_allocate(void* mutator, std::size_t size) {
  ++static_cast<Mutator*>(mutator)->slow_allocations;
  static_cast<Mutator*>(mutator)->slow_size = size;
  return &slow_object;
}
void stop(void* mutator) {
  ++static_cast<Mutator*>(mutator)->stops;
}
constexpr SlowPaths kSlow{.allocate = slow_allocate, .safepoint = stop};

class FastPathFunctions : public testing::Test {
 protected:
  FastPaths make(const FastPathLayout& layout = kLayout) {
    return FastPaths::create(*cache_, layout, kSlow).value();
  }
  std::unique_ptr<CodeCache> cache_ = CodeCache::create({.capacity = std::size_t{1} << 18}).value();
};

TEST_F(FastPathFunctions, AllocationBumpsUntilTheBufferIsFull) {
  const FastPaths paths = make();
  std::vector<std::byte> memory(256);
  Mutator mutator;
  mutator.top = reinterpret_cast<std::uintptr_t>(memory.data());
  mutator.end = mutator.top + memory.size();
  const std::uintptr_t start = mutator.top;
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(paths.allocate()(&mutator, 48), memory.data() + 48 * i);
    EXPECT_EQ(mutator.top, start + 48 * (i + 1));
  }
  // 16 bytes are left: 48 do not fit, 16 do, exactly to the end.
  EXPECT_EQ(paths.allocate()(&mutator, 48), &slow_object);
  EXPECT_EQ(mutator.slow_allocations, 1U);
  EXPECT_EQ(mutator.slow_size, 48U);
  EXPECT_EQ(mutator.top, start + 240);
  EXPECT_EQ(paths.allocate()(&mutator, 16), memory.data() + 240);
  EXPECT_EQ(mutator.top, mutator.end);
  EXPECT_EQ(paths.allocate()(&mutator, 16), &slow_object);
  // Sizes that would wrap the sum around go the slow way too.
  for (const std::size_t huge : {~std::size_t{0} & ~std::size_t{15}, std::size_t{1} << 63U,
                                 ~start + 1, (~start & ~std::size_t{15}) + 32}) {
    EXPECT_EQ(paths.allocate()(&mutator, huge), &slow_object) << huge;
    EXPECT_EQ(mutator.slow_size, huge);
  }
  EXPECT_EQ(mutator.top, mutator.end);
  EXPECT_EQ(mutator.other, 0x1111U);
}

TEST_F(FastPathFunctions, TheBarrierDirtiesTheCardAndNoOther) {
  for (const std::uint8_t dirty : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{0xfe}}) {
    FastPathLayout layout = kLayout;
    layout.dirty_card = dirty;
    layout.clean_card = 0x55;
    const FastPaths paths = make(layout);
    alignas(512) static std::array<std::byte, 8 * 512> heap;
    std::array<std::uint8_t, 8> cards{};
    Mutator mutator;
    const auto base = reinterpret_cast<std::uintptr_t>(heap.data());
    mutator.cards = reinterpret_cast<std::uintptr_t>(cards.data()) - (base >> layout.card_shift);
    for (std::size_t i = 0; i < heap.size(); i += 73) {
      cards.fill(layout.clean_card);
      paths.card_barrier()(&mutator, heap.data() + i);
      for (std::size_t card = 0; card < cards.size(); ++card) {
        EXPECT_EQ(cards[card], card == i / 512 ? dirty : layout.clean_card) << i;
      }
    }
  }
}

TEST_F(FastPathFunctions, TheBulkBarrierDirtiesTheCardsOfItsRangeAndNoOther) {
  for (const std::uint8_t dirty : {std::uint8_t{0}, std::uint8_t{7}}) {
    FastPathLayout layout = kLayout;
    layout.dirty_card = dirty;
    layout.clean_card = 0x55;
    const FastPaths paths = make(layout);
    alignas(512) static std::array<std::byte, 8 * 512> heap;
    std::array<std::uint8_t, 8> cards{};
    Mutator mutator;
    const auto base = reinterpret_cast<std::uintptr_t>(heap.data());
    mutator.cards = reinterpret_cast<std::uintptr_t>(cards.data()) - (base >> layout.card_shift);
    for (std::size_t begin = 0; begin < heap.size(); begin += 168) {
      for (std::size_t size = 0; begin + size <= heap.size(); size += 56) {
        cards.fill(layout.clean_card);
        paths.bulk_barrier()(&mutator, heap.data() + begin, size);
        for (std::size_t card = 0; card < cards.size(); ++card) {
          const bool hit = size != 0 && card >= begin / 512 && card <= (begin + size - 1) / 512;
          ASSERT_EQ(cards[card], hit ? dirty : layout.clean_card) << begin << ' ' << size;
        }
      }
    }
  }
}

TEST_F(FastPathFunctions, ReferenceAtomicsSwapAndMark) {
  const FastPaths paths = make();
  alignas(512) static std::array<std::uintptr_t, 128> heap;
  std::array<std::uint8_t, 2> cards{};
  Mutator mutator;
  mutator.cards = reinterpret_cast<std::uintptr_t>(cards.data()) -
                  (reinterpret_cast<std::uintptr_t>(heap.data()) >> kLayout.card_shift);
  cards.fill(kLayout.clean_card);
  heap.fill(5);
  const auto reference = [](std::uintptr_t value) { return reinterpret_cast<void*>(value); };
  EXPECT_EQ(paths.reference_swap()(&mutator, &heap[70], reference(6)), reference(5));
  EXPECT_EQ(heap[70], 6U);
  EXPECT_EQ(cards[0], kLayout.clean_card);
  EXPECT_EQ(cards[1], kLayout.dirty_card);
  cards.fill(kLayout.clean_card);
  EXPECT_FALSE(paths.reference_compare_swap()(&mutator, &heap[3], reference(6), reference(9)));
  EXPECT_EQ(heap[3], 5U);
  EXPECT_EQ(cards[0], kLayout.clean_card);
  EXPECT_TRUE(paths.reference_compare_swap()(&mutator, &heap[3], reference(5), reference(9)));
  EXPECT_EQ(heap[3], 9U);
  EXPECT_EQ(cards[0], kLayout.dirty_card);
  EXPECT_EQ(cards[1], kLayout.clean_card);
}

TEST_F(FastPathFunctions, MarksSetTheirBitAndTellWhetherItWasSet) {
  const FastPaths paths = make();
  alignas(1024) static std::array<std::byte, 4096> heap;
  std::array<std::uint64_t, 4> bits{};
  Mutator mutator;
  const auto base = reinterpret_cast<std::uintptr_t>(heap.data());
  mutator.marks = reinterpret_cast<std::uintptr_t>(bits.data()) - (base >> 10U) * 8;
  for (std::size_t i = 0; i < 256; ++i) {
    const auto before = bits;
    EXPECT_FALSE(paths.mark()(&mutator, heap.data() + 16 * i)) << i;
    EXPECT_EQ(bits[i / 64], before[i / 64] | std::uint64_t{1} << (i % 64));
    EXPECT_TRUE(paths.mark()(&mutator, heap.data() + 16 * i)) << i;
    EXPECT_EQ(bits[i / 64], before[i / 64] | std::uint64_t{1} << (i % 64));
  }
  for (const std::uint64_t word : bits) EXPECT_EQ(word, ~std::uint64_t{0});
}

TEST_F(FastPathFunctions, EachObjectIsMarkedByExactlyOneThread) {
  const FastPaths paths = make();
  constexpr std::size_t objects = 1024;
  constexpr unsigned threads = 4;
  alignas(1024) static std::array<std::byte, objects * 16> heap;
  std::array<std::uint64_t, objects / 64> bits{};
  const auto base = reinterpret_cast<std::uintptr_t>(heap.data());
  std::array<std::vector<std::size_t>, threads> won;
  std::vector<std::thread> running;
  std::atomic<unsigned> ready{0};
  for (unsigned thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      Mutator mutator;
      mutator.marks = reinterpret_cast<std::uintptr_t>(bits.data()) - (base >> 10U) * 8;
      ++ready;
      while (ready < threads) std::this_thread::yield();
      for (std::size_t i = 0; i < objects; ++i) {
        if (!paths.mark()(&mutator, heap.data() + 16 * i)) won[thread].push_back(i);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  std::vector<unsigned> times(objects);
  for (const auto& part : won) {
    for (const std::size_t i : part) ++times[i];
  }
  for (std::size_t i = 0; i < objects; ++i) EXPECT_EQ(times[i], 1U) << i;
}

TEST_F(FastPathFunctions, ThePollStopsOnlyWhenAsked) {
  const FastPaths paths = make();
  Mutator mutator;
  paths.safepoint_poll()(&mutator);
  EXPECT_EQ(mutator.stops, 0U);
  mutator.safepoint = 1;
  paths.safepoint_poll()(&mutator);
  EXPECT_EQ(mutator.stops, 1U);
  mutator.safepoint = 0x80000000;
  paths.safepoint_poll()(&mutator);
  EXPECT_EQ(mutator.stops, 2U);
}

// ---- Inline forms, on either host ----

struct Inline {
  asmjit::CodeHolder code;
  asmjit::a64::Assembler arm;
  asmjit::x86::Assembler x86;
  asmjit::Label slow;
  InstructionSet set;

  explicit Inline(InstructionSet given) : set(given) {
    const bool a64 = set == InstructionSet::kA64;
    EXPECT_EQ(code.init(asmjit::Environment(a64 ? asmjit::Arch::kAArch64 : asmjit::Arch::kX64)),
              asmjit::kErrorOk);
    EXPECT_EQ(a64 ? code.attach(&arm) : code.attach(&x86), asmjit::kErrorOk);
    slow = a64 ? arm.newLabel() : x86.newLabel();
  }
  std::vector<DisassembledInstruction> finish() {
    if (set == InstructionSet::kA64) {
      arm.bind(slow);
    } else {
      x86.bind(slow);
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(code.textSection()->data());
    return disassemble(set, std::span(bytes, code.textSection()->bufferSize())).value();
  }
};

constexpr FastPathRegisters kRegisters{.mutator = 7, .input = 6, .result = 0, .scratch = {1, 2, 3}};

TEST(FastPathLength, AllocationIsAsShortAsPromised) {
  for (const std::size_t size : {1U, 16U, 24U, 4080U, 4096U, 4112U, 32768U}) {
    Inline arm(InstructionSet::kA64);
    ASSERT_TRUE(emit_allocate(arm.arm, kLayout, kRegisters, size, arm.slow));
    EXPECT_LE(arm.finish().size(), 6U) << size;
    Inline x86(InstructionSet::kX86_64);
    ASSERT_TRUE(emit_allocate(x86.x86, kLayout, kRegisters, size, x86.slow));
    EXPECT_LE(x86.finish().size(), 5U) << size;
  }
  Inline arm(InstructionSet::kA64);
  ASSERT_TRUE(emit_allocate(arm.arm, kLayout, kRegisters, arm.slow));
  EXPECT_EQ(arm.finish().size(), 6U);
  Inline x86(InstructionSet::kX86_64);
  ASSERT_TRUE(emit_allocate(x86.x86, kLayout, kRegisters, x86.slow));
  EXPECT_EQ(x86.finish().size(), 7U);
}

TEST(FastPathLength, ConstantSizesAreRoundedUp) {
  Inline arm(InstructionSet::kA64);
  ASSERT_TRUE(emit_allocate(arm.arm, kLayout, kRegisters, 17, arm.slow));
  const auto text = arm.finish();
  EXPECT_EQ(text[0].text(), "ldp x0, x1, [x7, #8]");
  EXPECT_EQ(text[1].text(), "add x2, x0, #0x20");
  Inline x86(InstructionSet::kX86_64);
  ASSERT_TRUE(emit_allocate(x86.x86, kLayout, kRegisters, 17, x86.slow));
  EXPECT_EQ(x86.finish()[1].text(), "lea rcx, [rax + 0x20]");
}

TEST(FastPathLength, BarrierMarkAndPollAreWhatTheyShouldBe) {
  const auto texts = [](Inline& inlined) {
    std::vector<std::string> lines;
    for (const auto& instruction : inlined.finish()) lines.push_back(instruction.text());
    return lines;
  };
  using Lines = std::vector<std::string>;
  Inline barrier(InstructionSet::kA64);
  ASSERT_TRUE(emit_card_barrier(barrier.arm, kLayout, kRegisters, CardBarrier::kAlwaysStore));
  EXPECT_EQ(texts(barrier), (Lines{"ldr x1, [x7, #0x18]", "lsr x2, x6, #9", "strb wzr, [x1, x2]"}));
  Inline x86_barrier(InstructionSet::kX86_64);
  ASSERT_TRUE(emit_card_barrier(x86_barrier.x86, kLayout, kRegisters, CardBarrier::kAlwaysStore));
  EXPECT_EQ(texts(x86_barrier), (Lines{"mov rcx, qword ptr [rdi + 0x18]", "mov rdx, rsi",
                                       "shr rdx, 9", "mov byte ptr [rcx + rdx], 0"}));
  Inline looking(InstructionSet::kX86_64);
  ASSERT_TRUE(emit_card_barrier(looking.x86, kLayout, kRegisters, CardBarrier::kStoreIfClean));
  EXPECT_EQ(texts(looking)[3], "cmp byte ptr [rcx + rdx], 0");
  FastPathRegisters run = kRegisters;
  run.length = 5;
  Inline bulk(InstructionSet::kA64);
  ASSERT_TRUE(emit_bulk_barrier(bulk.arm, kLayout, run));
  EXPECT_EQ(texts(bulk),
            (Lines{"cbz x5, #0x28", "ldr x1, [x7, #0x18]", "add x2, x6, x5", "sub x2, x2, #1",
                   "lsr x2, x2, #9", "add x2, x1, x2", "add x1, x1, x6, lsr #9",
                   "strb wzr, [x1], #1", "cmp x1, x2", "b.ls #0x1c"}));
  constexpr ReferenceRmwRegisters reference{
      .mutator = 7, .slot = 6, .value = 5, .expected = 3, .result = 8, .scratch = {1, 2}};
  Inline swap(InstructionSet::kA64);
  ASSERT_TRUE(
      emit_reference_swap(swap.arm, kLayout, reference, RmwOrder::kAcqRel, RmwTarget::kA64Lse));
  EXPECT_EQ(texts(swap), (Lines{"swpal x5, x8, [x6]", "ldr x1, [x7, #0x18]", "lsr x2, x6, #9",
                                "strb wzr, [x1, x2]"}));
  Inline compare(InstructionSet::kA64);
  ASSERT_TRUE(emit_reference_compare_swap(compare.arm, kLayout, reference, RmwOrder::kRelease,
                                          RmwTarget::kA64Lse, compare.slow));
  EXPECT_EQ(texts(compare), (Lines{"mov x8, x3", "casl x8, x5, [x6]", "cmp x8, x3", "b.ne #0x1c",
                                   "ldr x1, [x7, #0x18]", "lsr x2, x6, #9", "strb wzr, [x1, x2]"}));
  Inline mark(InstructionSet::kA64);
  ASSERT_TRUE(emit_mark(mark.arm, kLayout, kRegisters, RmwTarget::kA64Lse));
  EXPECT_EQ(texts(mark)[6], "ldsetal x3, x0, [x1]");
  Inline loop(InstructionSet::kA64);
  ASSERT_TRUE(emit_mark(loop.arm, kLayout, kRegisters, RmwTarget::kA64Llsc));
  const Lines exclusive = texts(loop);
  EXPECT_EQ(exclusive[6], "ldaxr x3, [x1]");
  EXPECT_EQ(exclusive[10], "stlxr w0, x3, [x1]");
  Inline poll(InstructionSet::kA64);
  ASSERT_TRUE(emit_safepoint_poll(poll.arm, kLayout, kRegisters, poll.slow));
  EXPECT_EQ(texts(poll), (Lines{"ldr w1, [x7, #0x2c]", "cbnz w1, #8"}));
  Inline x86_poll(InstructionSet::kX86_64);
  ASSERT_TRUE(emit_safepoint_poll(x86_poll.x86, kLayout, kRegisters, x86_poll.slow));
  EXPECT_EQ(texts(x86_poll)[0], "cmp dword ptr [rdi + 0x2c], 0");
}

TEST(FastPathRefusal, BadLayoutsRegistersAndSizes) {
  const auto code_of = [](const Result<>& result) {
    return result ? std::optional<ErrorCode>{} : result.error().code;
  };
  const auto layout_code = [&](auto change) {
    FastPathLayout layout = kLayout;
    change(layout);
    std::array<std::byte, kMaxFastPathSize> buffer{};
    const auto emitted =
        emit_fast_path_function(FastPath::kAllocate, layout, kSlow, RmwTarget::kA64Lse, buffer);
    return emitted ? std::optional<ErrorCode>{} : emitted.error().code;
  };
  EXPECT_EQ(layout_code([](auto&) {}), std::nullopt);
  EXPECT_EQ(layout_code([](auto& l) { l.tlab_top_offset = 12; }), ErrorCode::kMisaligned);
  EXPECT_EQ(layout_code([](auto& l) { l.safepoint_flag_offset = 2; }), ErrorCode::kMisaligned);
  EXPECT_EQ(layout_code([](auto& l) { l.tlab_top_offset = 512; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(layout_code([](auto& l) { l.object_alignment = 24; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(layout_code([](auto& l) { l.max_tlab_object = 1U << 24U; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(layout_code([](auto& l) { l.max_young_object = 1U << 14U; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(layout_code([](auto& l) { l.max_young_object = 1U << 31U; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(layout_code([](auto& l) { l.card_shift = 64; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(layout_code([](auto& l) { l.dirty_card = l.clean_card; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(layout_code([](auto& l) { l.mark_shift = 2; }), ErrorCode::kOutOfRange);

  for (const InstructionSet set : {InstructionSet::kA64, InstructionSet::kX86_64}) {
    Inline inlined(set);
    const bool a64 = set == InstructionSet::kA64;
    const auto allocate = [&](const FastPathRegisters& registers, std::size_t size) {
      return code_of(a64 ? emit_allocate(inlined.arm, kLayout, registers, size, inlined.slow)
                         : emit_allocate(inlined.x86, kLayout, registers, size, inlined.slow));
    };
    FastPathRegisters bad = kRegisters;
    bad.result = bad.mutator;
    EXPECT_EQ(allocate(bad, 16), ErrorCode::kInvalidArgument);
    bad = kRegisters;
    bad.scratch[0] = kNoRegister;
    EXPECT_EQ(allocate(bad, 16), ErrorCode::kInvalidArgument);
    bad.scratch[0] = a64 ? 31 : 4;
    EXPECT_EQ(allocate(bad, 16), ErrorCode::kInvalidArgument);
    EXPECT_EQ(allocate(kRegisters, 0), ErrorCode::kInvalidArgument);
    EXPECT_EQ(allocate(kRegisters, kLayout.max_tlab_object + 1), ErrorCode::kOutOfRange);
    EXPECT_EQ(allocate(kRegisters, ~std::size_t{0}), ErrorCode::kOutOfRange);
    EXPECT_EQ(inlined.finish().size(), 0U) << "something was emitted all the same";
  }
  Inline arm(InstructionSet::kA64);
  EXPECT_EQ(code_of(emit_mark(arm.arm, kLayout, kRegisters, RmwTarget::kX86_64)),
            ErrorCode::kInvalidArgument);
  // kRegisters has no length.
  EXPECT_EQ(code_of(emit_bulk_barrier(arm.arm, kLayout, kRegisters)), ErrorCode::kInvalidArgument);
  FastPathRegisters only_length = {.length = 4, .scratch = {1, 2, 3}};
  EXPECT_EQ(code_of(emit_initialising_barrier(arm.arm, kLayout, only_length)),
            ErrorCode::kInvalidArgument);
  constexpr ReferenceRmwRegisters reference{
      .mutator = 7, .slot = 6, .value = 5, .expected = 3, .result = 8, .scratch = {1, 2}};
  EXPECT_EQ(code_of(emit_reference_swap(arm.arm, kLayout, reference, RmwOrder::kAcqRel,
                                        RmwTarget::kX86_64)),
            ErrorCode::kInvalidArgument);
  ReferenceRmwRegisters wrong = reference;
  wrong.result = wrong.expected;
  EXPECT_EQ(code_of(emit_reference_compare_swap(arm.arm, kLayout, wrong, RmwOrder::kAcqRel,
                                                RmwTarget::kA64Lse, arm.slow)),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(arm.finish().size(), 0U) << "something was emitted all the same";
  Inline x86(InstructionSet::kX86_64);
  wrong = reference;
  wrong.scratch[0] = 0;
  EXPECT_EQ(code_of(emit_reference_compare_swap(x86.x86, kLayout, wrong, x86.slow)),
            ErrorCode::kInvalidArgument);
  wrong.scratch[0] = 4;
  EXPECT_EQ(code_of(emit_reference_swap(x86.x86, kLayout, wrong)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(x86.finish().size(), 0U) << "something was emitted all the same";

  std::array<std::byte, kMaxFastPathSize> buffer{};
  const auto no_slow =
      emit_fast_path_function(FastPath::kSafepointPoll, kLayout, {}, RmwTarget::kX86_64, buffer);
  ASSERT_FALSE(no_slow);
  EXPECT_EQ(no_slow.error().code, ErrorCode::kInvalidArgument);
  const auto small = emit_fast_path_function(FastPath::kMark, kLayout, {}, RmwTarget::kX86_64,
                                             std::span(buffer).first(3));
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, ErrorCode::kOutOfRange);
  EXPECT_FALSE(emit_fast_path_function(static_cast<FastPath>(9), kLayout, kSlow, RmwTarget::kX86_64,
                                       buffer));
}

}  // namespace
}  // namespace touchstone::jit
