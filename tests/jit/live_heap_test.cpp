// SPDX-License-Identifier: MIT
// The emitted fast paths on the mutators of a live, verifying heap, with collections in between.
// The thread sanitizer does not see emitted accesses and has to be told what emitted atomics order.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <asmjit/arm/a64assembler.h>
#include <asmjit/core.h>
#include <asmjit/x86.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/heap/heap.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/fast_paths.h>
#include <touchstone/jit/rmw_function.h>

#include "../heap/collector_fixture.h"
#include "../heap/result_assertions.h"

namespace touchstone::jit {
namespace {

using heap::CollectionKind;
using heap::FastPathLayout;
using heap::GlobalRoot;
using heap::HeapOptions;
using heap::Local;
using heap::Mutator;
using heap::MutatorPointer;
using heap::ObjectHeader;
using heap::testing::kPair;
using heap::testing::Pair;
using heap::testing::Recorder;
using heap::testing::Table;
using heap::testing::TestHeap;
using ::testing::IsEmpty;
using touchstone::testing::fails_with;
using touchstone::testing::ok;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

#if defined(__aarch64__)
using HostAssembler = asmjit::a64::Assembler;
constexpr asmjit::Arch kHostArch = asmjit::Arch::kAArch64;
/// (mutator, input, length) of a C function, and what it may spoil.
constexpr FastPathRegisters kArguments{
    .mutator = 0, .input = 1, .length = 2, .result = kNoRegister, .scratch = {3, 4, 5}};
void emit_entry(HostAssembler& assembler) {
  ASSERT_EQ(assembler.embedUInt32(0xd503245f), asmjit::kErrorOk);  // BTI c
}
void emit_return(HostAssembler& assembler) {
  ASSERT_EQ(assembler.ret(asmjit::a64::x30), asmjit::kErrorOk);
}
#else
using HostAssembler = asmjit::x86::Assembler;
constexpr asmjit::Arch kHostArch = asmjit::Arch::kX64;
constexpr FastPathRegisters kArguments{
    .mutator = asmjit::x86::Gp::kIdDi,
    .input = asmjit::x86::Gp::kIdSi,
    .length = asmjit::x86::Gp::kIdDx,
    .result = kNoRegister,
    .scratch = {asmjit::x86::Gp::kIdCx, asmjit::x86::Gp::kIdAx, kNoRegister}};
void emit_entry(HostAssembler& /*assembler*/) {}
void emit_return(HostAssembler& assembler) {
  ASSERT_EQ(assembler.ret(), asmjit::kErrorOk);
}
#endif

// What an emitted acquire-release atomic on a slot orders, for the thread sanitizer.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
extern "C" void __tsan_release(void*);  // NOLINT(bugprone-reserved-identifier)
extern "C" void __tsan_acquire(void*);  // NOLINT(bugprone-reserved-identifier)
void tell_release(void* slot) {
  __tsan_release(slot);
}
void tell_acquire(void* slot) {
  __tsan_acquire(slot);
}
#else
void tell_release(void* /*slot*/) {}
void tell_acquire(void* /*slot*/) {}
#endif
#else
void tell_release(void* /*slot*/) {}
void tell_acquire(void* /*slot*/) {}
#endif

class LiveHeap : public heap::testing::HeapFixture<::testing::TestWithParam<unsigned>> {
 protected:
  void make(HeapOptions options = {}) {
    options.max_size = 64 * kMiB;
    HeapFixture::make(options);
    if (HasFatalFailure()) return;
    block_ = mutator_->block();
    layout_ = heap_->fast_path_layout();
    ASSERT_TRUE(ok(layout_.check()));
    auto cache = CodeCache::create({.capacity = std::size_t{1} << 18U});
    ASSERT_TRUE(ok(cache));
    cache_ = std::move(*cache);
    auto paths = FastPaths::create(
        *cache_, layout_,
        {.allocate = &Mutator::allocate_slow_path, .safepoint = &Mutator::poll_slow_path});
    ASSERT_TRUE(ok(paths));
    paths_.emplace(std::move(*paths));
  }

  /// What `emit` emits as void (mutator, input, length).
  template <typename Emit>
  FastPaths::BulkBarrier function(Emit&& emit) {
    asmjit::CodeHolder code;
    EXPECT_EQ(code.init(asmjit::Environment(kHostArch)), asmjit::kErrorOk);
    HostAssembler assembler;
    EXPECT_EQ(code.attach(&assembler), asmjit::kErrorOk);
    emit_entry(assembler);
    EXPECT_TRUE(ok(emit(assembler)));
    emit_return(assembler);
    const auto text =
        std::as_bytes(std::span(code.textSection()->data(), code.textSection()->buffer().size()));
    const auto entry = cache_->add(text, "test");
    EXPECT_TRUE(ok(entry));
    return std::bit_cast<FastPaths::BulkBarrier>(*entry);
  }

  void* allocate(void* block, std::size_t size) { return paths_->allocate()(block, size); }
  Pair* pair(std::uint64_t number) { return pair(block_, number); }
  Pair* pair(void* block, std::uint64_t number) {
    auto* const fresh = static_cast<Pair*>(allocate(block, sizeof(Pair)));
    if (fresh == nullptr) return nullptr;
    fresh->header = kPair.word();
    fresh->number = number;
    return fresh;
  }
  Table* table(std::size_t length) {
    auto* const fresh = static_cast<Table*>(allocate(block_, 8 + length * 8));
    if (fresh != nullptr) fresh->header = ObjectHeader::array(length).word();
    return fresh;
  }
  void mark_card(void* slot) { paths_->card_barrier()(block_, slot); }
  void collect(CollectionKind kind) { ASSERT_TRUE(ok(heap_->collect(mutator_.get(), kind))); }
  /// An array that is old, with cards that have nothing to remember.
  Table* old_table(std::size_t length) {
    const Local<Table> made(*mutator_, table(length));
    collect(CollectionKind::kFull);
    collect(CollectionKind::kYoung);
    EXPECT_FALSE(heap_->is_young(made.get()));
    EXPECT_EQ(heap_->last_collection().dirty_cards, 0U);
    return made.get();
  }
  /// A collection finds that the slot's card has no mark.
  void expect_missing_mark(void* slot) {
    EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, heap_->collect(mutator_.get())));
    ASSERT_EQ(told_.violations.size(), 1U);
    EXPECT_EQ(told_.violations[0].field, reinterpret_cast<std::uintptr_t>(slot));
    told_.violations.clear();
  }

  std::unique_ptr<CodeCache> cache_;
  heap::MutatorBlock* block_ = nullptr;
  FastPathLayout layout_;
  std::optional<FastPaths> paths_;
};
INSTANTIATE_TEST_SUITE_P(Workers, LiveHeap, ::testing::Values(1U, 2U));

TEST_P(LiveHeap, ListsGrowThroughAllocationBarrierAndPoll) {
  make({.young_size = 2 * kMiB});
  constexpr std::uint64_t length = 40'000;
  // From the front to the back, so that every store but few is from an older to a younger object.
  const Local<Pair> first(*mutator_, pair(0));
  Local<Pair> last(*mutator_, first.get());
  for (std::uint64_t i = 1; i < length; ++i) {
    Pair* const fresh = pair(i);
    ASSERT_NE(fresh, nullptr);
    last->left = fresh;
    mark_card(&last->left);
    last = fresh;
    ASSERT_NE(pair(~i), nullptr);  // Garbage.
    paths_->safepoint_poll()(block_);
    if (i % 7000 == 0) collect(i % 2 == 0 ? CollectionKind::kYoung : CollectionKind::kFull);
  }
  const Pair* at = first.get();
  for (std::uint64_t i = 0; i < length; ++i, at = at->left) ASSERT_EQ(at->number, i);
  EXPECT_EQ(at, nullptr);
  EXPECT_GE(heap_->statistics().young_collections, 2U);
}

TEST_P(LiveHeap, EveryAllocationMayCollect) {
  make({.stress_interval = 3});
  const Local<Pair> root(*mutator_, pair(0));
  for (std::uint64_t i = 1; i < 300; ++i) {
    const Local<Pair> fresh(*mutator_, pair(i));
    root->right = fresh.get();
    mark_card(&root->right);
    Pair* const next = pair(1000 + i);
    root->right->left = next;
    mark_card(&root->right->left);
    ASSERT_EQ(root->right->number, i);
    ASSERT_EQ(root->right->left->number, 1000 + i);
  }
  EXPECT_GE(heap_->statistics().full_collections, 90U);
}

TEST_P(LiveHeap, AllSizesAreAllocated) {
  make();
  const Local<Table> kept(*mutator_, table(8));
  std::size_t place = 0;
  for (const std::size_t size :
       {std::size_t{16}, std::size_t{layout_.max_tlab_object},
        std::size_t{layout_.max_tlab_object} + 8, std::size_t{layout_.max_young_object},
        std::size_t{layout_.max_young_object} + 8, std::size_t{3} << 20U}) {
    auto* const object = static_cast<std::uint64_t*>(allocate(block_, size));
    ASSERT_NE(object, nullptr);
    for (std::size_t i = 0; i < size / 8; ++i) ASSERT_EQ(object[i], 0U) << size;
    object[0] = ObjectHeader::record(size, 0).word();
    object[size / 8 - 1] = size;
    (*kept)[place] = reinterpret_cast<Pair*>(object);
    mark_card(&(*kept)[place++]);
    collect(CollectionKind::kYoung);
  }
  for (std::size_t i = 0; i < place; ++i) {
    const auto* const words = reinterpret_cast<const std::uint64_t*>((*kept)[i]);
    const std::size_t size = ObjectHeader(words[0]).size();
    EXPECT_EQ(words[size / 8 - 1], size);
  }
  // More than there is: null, and the error says why.
  EXPECT_EQ(allocate(block_, 128 * kMiB), nullptr);
  EXPECT_EQ(mutator_->error().code, ErrorCode::kOutOfMemory);
}

TEST_P(LiveHeap, TheBarrierIsPreciseToTheSlot) {
  make();
  const auto if_clean = function([&](HostAssembler& assembler) {
    return emit_card_barrier(assembler, layout_, kArguments, CardBarrier::kStoreIfClean);
  });
  for (const std::size_t length : {std::size_t{5000}, std::size_t{400'000}}) {
    const Local<Table> old(*mutator_, old_table(length));
    for (const std::size_t i : {std::size_t{0}, length / 2 + 1, length - 1}) {
      for (const bool looks : {false, true}) {
        (*old)[i] = pair(i);
        if (looks) {
          if_clean(block_, &(*old)[i], 0);
        } else {
          mark_card(&(*old)[i]);
        }
        collect(CollectionKind::kYoung);
        EXPECT_EQ(heap_->last_collection().dirty_cards, 1U);
        EXPECT_EQ((*old)[i]->number, i);
        collect(CollectionKind::kFull);
      }
    }
    // The object's start is not the slot.
    (*old)[length / 2] = pair(1);
    mark_card(old.get());
    expect_missing_mark(&(*old)[length / 2]);
    mark_card(&(*old)[length / 2]);
    collect(CollectionKind::kFull);
  }
}

TEST_P(LiveHeap, AnOmittedMarkIsFoundWhateverTheStore) {
  make();
  const Local<Table> old(*mutator_, old_table(400));
  // The bare atomics, without what marks the card.
  const auto bare = [&](RmwOp op) {
    return RmwFunction::create_for_host(*cache_, {.op = op, .width = 8}).value();
  };
  const RmwFunction swap = bare(RmwOp::kSwap);
  const RmwFunction compare_swap = bare(RmwOp::kCompareSwap);
  const std::array<
      std::pair<const char*, void (*)(const RmwFunction&, const RmwFunction&, Pair**, Pair*)>, 3>
      stores{{{"store", [](const RmwFunction&, const RmwFunction&, Pair** slot,
                           Pair* value) { *slot = value; }},
              {"swap",
               [](const RmwFunction& exchange, const RmwFunction&, Pair** slot, Pair* value) {
                 exchange.entry()(slot, reinterpret_cast<std::uint64_t>(value), 0);
               }},
              {"compare-and-swap",
               [](const RmwFunction&, const RmwFunction& exchange, Pair** slot, Pair* value) {
                 exchange.entry()(slot, reinterpret_cast<std::uint64_t>(value),
                                  reinterpret_cast<std::uint64_t>(*slot));
               }}}};
  for (const auto& [name, store] : stores) {
    SCOPED_TRACE(name);
    Pair** const slot = &(*old)[200];
    store(swap, compare_swap, slot, pair(7));
    expect_missing_mark(slot);
    mark_card(slot);
    collect(CollectionKind::kFull);
    EXPECT_EQ((*old)[200]->number, 7U);
  }
}

TEST_P(LiveHeap, InitialisingStoresNeedTheBarrierInLargeObjectsAlone) {
  make({.tenuring_age = 0});
  const auto barrier = function([&](HostAssembler& assembler) {
    return emit_initialising_barrier(assembler, layout_, kArguments);
  });
  for (const std::size_t size :
       {std::size_t{32}, std::size_t{layout_.max_tlab_object},
        std::size_t{layout_.max_tlab_object} + 8, std::size_t{layout_.max_young_object}}) {
    EXPECT_FALSE(layout_.is_old_at_once(size));
    const Local<Pair> value(*mutator_, pair(size));
    const Local<Table> fresh(*mutator_, table(size / 8 - 1));
    (*fresh)[size / 8 - 2] = value.get();
    collect(CollectionKind::kYoung);
    EXPECT_EQ(heap_->last_collection().dirty_cards, 0U) << size;
    EXPECT_EQ((*fresh)[size / 8 - 2]->number, size);
    // By now it is old, and a late initialisation is a store like others.
    (*fresh)[0] = pair(1);
    expect_missing_mark(&(*fresh)[0]);
    mark_card(&(*fresh)[0]);
    collect(CollectionKind::kFull);
  }
  const std::size_t size = std::size_t{layout_.max_young_object} + 8;
  EXPECT_TRUE(layout_.is_old_at_once(size));
  for (const bool marks : {false, true}) {
    const Local<Table> fresh(*mutator_, table(size / 8 - 1));
    Pair* const value = pair(2);
    for (std::size_t i = 0; i < size / 8 - 1; i += 200) (*fresh)[i] = value;
    if (!marks) {
      EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, heap_->collect(mutator_.get())));
      EXPECT_EQ(told_.violations.size(), (size / 8 - 1 + 199) / 200);
      told_.violations.clear();
    }
    barrier(block_, fresh.get(), size);
    collect(CollectionKind::kYoung);
    EXPECT_EQ(heap_->last_collection().dirty_cards, (size + 511) / 512);
    EXPECT_EQ((*fresh)[200]->number, 2U);
  }
  // A small one is left alone.
  const Local<Table> old(*mutator_, old_table(10));
  barrier(block_, old.get(), 88);
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().dirty_cards, 0U);
}

TEST_P(LiveHeap, ABulkBarrierMarksWhatWasCopiedToAndNoMore) {
  make();
  constexpr std::size_t length = 2000;
  const Local<Table> old(*mutator_, old_table(length));
  const auto start_of_card = [&](std::size_t from) {
    while (reinterpret_cast<std::uintptr_t>(&(*old)[from]) % 512 != 0) ++from;
    return from;
  };
  struct Run {
    std::size_t begin, count, cards;
  };
  for (const Run& run : {Run{0, 0, 0}, Run{0, 1, 1}, Run{63, 1, 1}, Run{0, 64, 1}, Run{0, 65, 2},
                         Run{63, 2, 2}, Run{1, 64, 2}, Run{10, 1000, 16}}) {
    const Local<Table> from(*mutator_, table(length));
    for (std::size_t i = 0; i < run.count; ++i) {
      Pair* const fresh = pair(i);
      (*from)[i] = fresh;
    }
    const std::size_t begin = start_of_card(200) + run.begin;
    std::copy_n(&(*from)[0], run.count, &(*old)[begin]);
    if (run.count != 0) {
      EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, heap_->collect(mutator_.get())));
      EXPECT_EQ(told_.violations.size(), run.count);
      told_.violations.clear();
    }
    paths_->bulk_barrier()(block_, &(*old)[begin], run.count * 8);
    collect(CollectionKind::kYoung);
    EXPECT_EQ(heap_->last_collection().dirty_cards, run.cards) << run.begin << ' ' << run.count;
    const std::size_t moved = start_of_card(200) + run.begin;
    for (std::size_t i = 0; i < run.count; ++i) ASSERT_EQ((*old)[moved + i]->number, i);
    collect(CollectionKind::kFull);
  }
}

TEST_P(LiveHeap, CopiesSwapsAndComparesOfTheMutatorMarkToo) {
  make();
  const Local<Table> old(*mutator_, old_table(2000));
  const Local<Table> from(*mutator_, table(100));
  for (std::size_t i = 0; i < 100; ++i) {
    Pair* const fresh = pair(i);
    (*from)[i] = fresh;
  }
  mutator_->copy(&(*old)[1000], &(*from)[0], 100);
  collect(CollectionKind::kYoung);
  for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ((*old)[1000 + i]->number, i);
  // Overlapping, both ways.
  mutator_->copy(&(*old)[1010], &(*old)[1000], 100);
  for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ((*old)[1010 + i]->number, i);
  mutator_->copy(&(*old)[1005], &(*old)[1010], 100);
  for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ((*old)[1005 + i]->number, i);
  collect(CollectionKind::kFull);
  EXPECT_EQ(mutator_->exchange((*old)[3], pair(3)), nullptr);
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().dirty_cards, 1U);
  collect(CollectionKind::kFull);
  Pair* expected = nullptr;
  EXPECT_FALSE(mutator_->compare_exchange((*old)[3], expected, pair(4)));
  EXPECT_EQ(expected->number, 3U);
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().dirty_cards, 0U);
  expected = (*old)[3];
  EXPECT_TRUE(mutator_->compare_exchange((*old)[3], expected, pair(5)));
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().dirty_cards, 1U);
  EXPECT_EQ((*old)[3]->number, 5U);
}

TEST_P(LiveHeap, SwapsMarkAndComparesMarkOnSuccess) {
  make();
  const Local<Table> old(*mutator_, old_table(100));
  void* const before = paths_->reference_swap()(block_, &(*old)[50], pair(1));
  EXPECT_EQ(before, nullptr);
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().dirty_cards, 1U);
  EXPECT_EQ((*old)[50]->number, 1U);
  collect(CollectionKind::kFull);
  Pair* const there = (*old)[50];
  EXPECT_EQ(paths_->reference_swap()(block_, &(*old)[50], there), there);
  collect(CollectionKind::kFull);
  EXPECT_FALSE(paths_->reference_compare_swap()(block_, &(*old)[50], nullptr, pair(2)));
  EXPECT_EQ((*old)[50]->number, 1U);
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().dirty_cards, 0U);
  Pair* const fresh = pair(3);
  EXPECT_TRUE(paths_->reference_compare_swap()(block_, &(*old)[50], (*old)[50], fresh));
  EXPECT_EQ((*old)[50], fresh);
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().dirty_cards, 1U);
  EXPECT_EQ((*old)[50]->number, 3U);
}

TEST_P(LiveHeap, ThreadsThatSwapLoseNothing) {
  make({.young_size = 2 * kMiB});
  constexpr std::size_t length = 64;
  constexpr unsigned threads = 3;
  constexpr std::uint64_t rounds = 3000;
  GlobalRoot<Table> shared(*heap_, old_table(length));
  // Every thread swaps pairs of its own in; what comes out is put back in elsewhere, or counted.
  std::array<std::vector<std::uint64_t>, threads> out;
  std::vector<std::thread> running;
  std::atomic<bool> failed = false;
  for (unsigned thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      auto attached = heap_->attach("swapping");
      if (!attached) {
        failed = true;
        return;
      }
      void* const block = (*attached)->block();
      Local<Pair> hand(**attached);
      std::uint64_t state = thread + 1;
      for (std::uint64_t i = 0; i < rounds; ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        const std::size_t place = state >> 33U & (length - 1);
        Pair* const fresh = pair(block, thread * rounds + i);
        if (fresh == nullptr) failed = true;
        if (failed) break;
        hand = fresh;
        Pair** const slot = &(*shared.get())[place];
        tell_release(slot);
        if (i % 2 == 0) {
          hand = static_cast<Pair*>(paths_->reference_swap()(block, slot, hand.get()));
        } else {
          for (;;) {
            Pair* const seen = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
            if (paths_->reference_compare_swap()(block, slot, seen, hand.get())) {
              hand = seen;
              break;
            }
          }
        }
        tell_acquire(slot);
        if (hand) out[thread].push_back(hand->number);
        paths_->safepoint_poll()(block);
      }
    });
  }
  {
    const heap::NativeScope native(*mutator_);
    for (int i = 0; i < 6; ++i) {
      EXPECT_TRUE(
          ok(heap_->collect(nullptr, i % 2 == 0 ? CollectionKind::kYoung : CollectionKind::kFull)));
    }
    for (std::thread& thread : running) thread.join();
  }
  EXPECT_FALSE(failed);
  std::multiset<std::uint64_t> all;
  for (const auto& part : out) all.insert(part.begin(), part.end());
  for (std::size_t i = 0; i < length; ++i) {
    if ((*shared.get())[i] != nullptr) all.insert((*shared.get())[i]->number);
  }
  ASSERT_EQ(all.size(), threads * rounds);
  std::uint64_t expected = 0;
  for (const std::uint64_t number : all) EXPECT_EQ(number, expected++);
}

TEST_P(LiveHeap, ThePollIsWhatACollectionWaitsFor) {
  make();
  std::atomic<int> step = 0;
  std::thread other([&] {
    auto attached = heap_->attach("polling");
    const Local<Pair> kept(**attached, pair((*attached)->block(), 8));
    step = 1;
    while (step != 2) paths_->safepoint_poll()((*attached)->block());
    EXPECT_EQ(kept->number, 8U);
  });
  while (step != 1) std::this_thread::yield();
  for (int i = 0; i < 10; ++i) collect(CollectionKind::kFull);
  step = 2;
  const heap::NativeScope native(*mutator_);
  other.join();
}

TEST_P(LiveHeap, MarkBitsAreThoseOfTheCollector) {
  make();
  const auto mark = [&](void* object) { return paths_->mark()(block_, object); };
  const Local<Table> old(*mutator_, old_table(100));
  for (std::size_t i = 0; i < 100; ++i) {
    Pair* const fresh = pair(i);
    (*old)[i] = fresh;
    mark_card(&(*old)[i]);
  }
  // A young object has no bit; set all the same, it is found.
  Pair* const young = pair(1000);
  const Local<Pair> kept(*mutator_, young);
  EXPECT_FALSE(mark(young));
  EXPECT_TRUE(mark(young));
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, heap_->collect(mutator_.get())));
  ASSERT_EQ(told_.violations.size(), 1U);
  EXPECT_EQ(told_.violations[0].object, reinterpret_cast<std::uintptr_t>(young));
  told_.violations.clear();
  auto* const bits = reinterpret_cast<std::uint64_t*>(block_->mark_bitmap) +
                     (reinterpret_cast<std::uintptr_t>(young) >> (layout_.mark_shift + 6U));
  *bits &=
      ~(std::uint64_t{1} << (reinterpret_cast<std::uintptr_t>(young) >> layout_.mark_shift & 63U));
  // An old one that is alive has its bit, as has a large one from the start.
  collect(CollectionKind::kFull);
  EXPECT_TRUE(mark(old.get()));
  for (std::size_t i = 0; i < 100; ++i) EXPECT_TRUE(mark((*old)[i])) << i;
  EXPECT_TRUE(mark(table(layout_.max_young_object / 8)));
  collect(CollectionKind::kFull);
}

}  // namespace
}  // namespace touchstone::jit
