// SPDX-License-Identifier: MIT
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/heap/heap.h>
#include <touchstone/heap/object_header.h>

#include "collector_fixture.h"
#include "fault_injection.h"
#include "result_assertions.h"

namespace touchstone::heap::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using touchstone::testing::fails_with;
using touchstone::testing::ok;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

class CollectorTest : public HeapFixture<::testing::TestWithParam<unsigned>> {
 protected:
  static bool is_list(const Pair* head, std::uint64_t length) {
    for (std::uint64_t i = length; i-- > 0; head = head->left) {
      if (head == nullptr || head->number != i) return false;
    }
    return head == nullptr;
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, CollectorTest, ::testing::Values(1U, 3U));

TEST_P(CollectorTest, KeepsWhatIsReachableAndItsContents) {
  make({.max_size = 32 * kMiB});
  Local<Pair> kept(*mutator_, list(20'000));
  ASSERT_TRUE(kept);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(list(50'000) != nullptr);
    collect(CollectionKind::kYoung);
    EXPECT_TRUE(is_list(kept.get(), 20'000));
  }
  EXPECT_FALSE(heap_->is_young(kept.get()));
  collect(CollectionKind::kFull);
  EXPECT_TRUE(is_list(kept.get(), 20'000));
  const auto report = heap_->last_collection();
  EXPECT_EQ(report.marked, 20'000 * sizeof(Pair));
  kept = nullptr;
  collect(CollectionKind::kFull);
  EXPECT_EQ(heap_->last_collection().marked, 0U);
  EXPECT_EQ(heap_->statistics().old_regions, 0U);
}

TEST_P(CollectorTest, PointersThatAreKeptFollowTheirObjects) {
  make({.max_size = 16 * kMiB});
  Pair* first = pair(1);
  Pair* second = pair(2);
  const Pair* const before = first;
  while (heap_->last_collection().number == 0) {
    std::byte* const memory = heap_->allocate_keeping(*mutator_, sizeof(Pair), first, second);
    ASSERT_NE(memory, nullptr);
    reinterpret_cast<Pair*>(memory)->header = kPair.word();
  }
  EXPECT_NE(first, before);
  EXPECT_EQ(first->number, 1U);
  EXPECT_EQ(second->number, 2U);
}

TEST_P(CollectorTest, AgesBeforeItPromotes) {
  make({.max_size = 16 * kMiB, .tenuring_age = 3});
  const Local<Pair> object(*mutator_, pair(5));
  for (unsigned age = 1; age <= 3; ++age) {
    collect(CollectionKind::kYoung);
    EXPECT_TRUE(heap_->is_young(object.get())) << age;
  }
  collect(CollectionKind::kYoung);
  EXPECT_FALSE(heap_->is_young(object.get()));
  EXPECT_EQ(object->number, 5U);
}

TEST_P(CollectorTest, CardsRememberReferencesFromOldToYoung) {
  make({.max_size = 32 * kMiB});
  const Local<Pair> old(*mutator_, list(1000));
  collect(CollectionKind::kFull);
  ASSERT_FALSE(heap_->is_young(old.get()));
  mutator_->write(old->right, pair(77));
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().dirty_cards, 1U);
  ASSERT_TRUE(heap_->is_young(old->right));
  EXPECT_EQ(old->right->number, 77U);
  // The card is still needed, and not any more once its object is old.
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().dirty_cards, 1U);
  EXPECT_FALSE(heap_->is_young(old->right));
  collect(CollectionKind::kYoung);
  EXPECT_LE(heap_->last_collection().dirty_cards, 1U);
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().dirty_cards, 0U);
  EXPECT_EQ(old->right->number, 77U);
}

TEST_P(CollectorTest, VerificationFindsAMissingBarrier) {
  make({.max_size = 32 * kMiB});
  const Local<Pair> old(*mutator_, pair(1));
  collect(CollectionKind::kFull);
  Pair* const young = pair(2);
  old->right = young;  // No barrier.
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, heap_->collect(mutator_.get())));
  ASSERT_EQ(told_.violations.size(), 1U);
  EXPECT_EQ(told_.violations[0].object, reinterpret_cast<std::uintptr_t>(old.get()));
  EXPECT_EQ(told_.violations[0].field, reinterpret_cast<std::uintptr_t>(&old->right));
  EXPECT_EQ(told_.violations[0].value, reinterpret_cast<std::uintptr_t>(young));
  told_.violations.clear();
  mutator_->write_barrier(&old->right);
  collect(CollectionKind::kFull);
  EXPECT_EQ(old->right->number, 2U);
}

TEST_P(CollectorTest, VerificationNamesBadReferences) {
  make({.max_size = 32 * kMiB});
  const Local<Pair> object(*mutator_, pair(1));
  Pair outside{};
  for (Pair* const bad :
       {&outside, reinterpret_cast<Pair*>(reinterpret_cast<std::uintptr_t>(object.get()) + 8),
        reinterpret_cast<Pair*>(reinterpret_cast<std::uintptr_t>(object.get()) + 3)}) {
    object->left = bad;
    EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, heap_->collect(mutator_.get())));
    ASSERT_FALSE(told_.violations.empty());
    EXPECT_EQ(told_.violations[0].field, reinterpret_cast<std::uintptr_t>(&object->left));
    told_.violations.clear();
  }
  object->left = nullptr;
  collect(CollectionKind::kFull);
}

TEST_P(CollectorTest, LargeObjectsStayWhereTheyAreAndAreFreedThere) {
  make({.max_size = 64 * kMiB});
  constexpr std::size_t length = 400'000;
  Local<Table> table(*mutator_, make_table(*heap_, *mutator_, length));
  ASSERT_TRUE(table);
  const Table* const place = table.get();
  for (std::size_t i = 0; i < length; i += 1000) {
    Pair* const fresh = pair(i);
    mutator_->write((*table)[i], fresh);
  }
  collect(CollectionKind::kYoung);
  collect(CollectionKind::kFull);
  EXPECT_EQ(table.get(), place);
  for (std::size_t i = 0; i < length; i += 1000) EXPECT_EQ((*table)[i]->number, i);
  EXPECT_NE(heap_->statistics().large_regions, 0U);
  table = nullptr;
  collect(CollectionKind::kFull);
  EXPECT_EQ(heap_->statistics().large_regions, 0U);
  EXPECT_EQ(heap_->last_collection().freed_large, 8 + length * 8);
}

TEST_P(CollectorTest, SparseRegionsAreEvacuated) {
  make({.max_size = 32 * kMiB});
  constexpr std::size_t count = 100'000;
  const Local<Table> table(*mutator_, make_table(*heap_, *mutator_, count));
  for (std::size_t i = 0; i < count; ++i) {
    Pair* const fresh = pair(i);
    mutator_->write((*table)[i], fresh);
  }
  collect(CollectionKind::kFull);
  const std::size_t before = heap_->statistics().old_regions;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 8 != 0) (*table)[i] = nullptr;
  }
  collect(CollectionKind::kFull);
  EXPECT_GE(heap_->last_collection().compacted, count / 8 * sizeof(Pair) / 2);
  EXPECT_LT(heap_->statistics().old_regions, before / 3);
  for (std::size_t i = 0; i < count; i += 8) ASSERT_EQ((*table)[i]->number, i);
}

TEST_P(CollectorTest, OutOfMemoryIsAnErrorAndTheHeapGoesOn) {
  make({.max_size = 8 * kMiB});
  Local<Pair> head(*mutator_);
  std::uint64_t count = 0;
  for (;; ++count) {
    Pair* const fresh = pair(count);
    if (fresh == nullptr) break;
    mutator_->write(fresh->left, head.get());
    head = fresh;
  }
  EXPECT_EQ(mutator_->error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(told_.out_of_memory, ElementsAre(sizeof(Pair)));
  // Most of it was of use.
  EXPECT_GE(count * sizeof(Pair), 6 * kMiB);
  EXPECT_TRUE(is_list(head.get(), count));
  head = nullptr;
  EXPECT_TRUE(list(10'000) != nullptr);
}

TEST_P(CollectorTest, SizesThatCannotBe) {
  make({.max_size = 8 * kMiB});
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, heap_->allocate(*mutator_, 0)));
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX - 7, std::size_t{1} << 63U, 9 * kMiB}) {
    EXPECT_TRUE(fails_with(ErrorCode::kOutOfMemory, heap_->allocate(*mutator_, size))) << size;
  }
  const auto odd = heap_->allocate(*mutator_, 13);
  ASSERT_TRUE(ok(odd));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*odd) % 8, 0U);
  *reinterpret_cast<std::uint64_t*>(*odd) = ObjectHeader::record(16, 0).word();
  collect(CollectionKind::kFull);
}

TEST_P(CollectorTest, MemoryIsZeroed) {
  make({.max_size = 8 * kMiB});
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t size : {32U, 1000U, 9000U, 40'000U, 300'000U}) {
      for (int i = 0; i < 40; ++i) {
        const auto memory = heap_->allocate(*mutator_, size);
        ASSERT_TRUE(ok(memory));
        const std::size_t rounded = (size + 7) / 8 * 8;
        for (std::size_t j = 0; j < rounded; ++j) ASSERT_EQ((*memory)[j], std::byte{0});
        std::fill_n(*memory, rounded, std::byte{0xff});
        *reinterpret_cast<std::uint64_t*>(*memory) = ObjectHeader::record(rounded, 0).word();
      }
    }
  }
}

TEST_P(CollectorTest, WeakReferencesBecomeNull) {
  make({.max_size = 16 * kMiB});
  for (const CollectionKind kind : {CollectionKind::kYoung, CollectionKind::kFull}) {
    Local<Pair> object(*mutator_, pair(3));
    const WeakRoot<Pair> weak(*heap_, object.get());
    const auto memory = heap_->allocate(*mutator_, 16);
    ASSERT_TRUE(ok(memory));
    struct Weak {
      std::uint64_t header;
      Pair* object;
    };
    const Local<Weak> inside(*mutator_, reinterpret_cast<Weak*>(*memory));
    inside->header = ObjectHeader::make(ObjectHeader::Kind::kWeak, sizeof(Weak)).word();
    mutator_->write(inside->object, object.get());
    collect(kind);
    EXPECT_EQ(weak.get(), object.get());
    EXPECT_EQ(inside->object, object.get());
    object = nullptr;
    collect(CollectionKind::kFull);
    EXPECT_EQ(weak.get(), nullptr);
    EXPECT_EQ(inside->object, nullptr);
  }
}

TEST_P(CollectorTest, FinalizersRunInOrderOfPriorityAndBringBack) {
  make({.max_size = 16 * kMiB});
  std::array<int, 3> contexts{};
  for (std::uint32_t i = 0; i < 3; ++i) {
    Local<Pair> object(*mutator_, pair(i));
    Pair* const child = pair(100 + i);
    mutator_->write(object->left, child);
    ASSERT_TRUE(ok(heap_->add_finalizer(object.get(), 2 - i, &contexts[i])));
    collect(CollectionKind::kYoung);
    // The ones before are found dead by now.
    EXPECT_EQ(heap_->finalizable_count(), i);
  }
  collect(CollectionKind::kFull);
  EXPECT_EQ(heap_->finalizable_count(), 3U);
  collect(CollectionKind::kFull);
  for (std::uint64_t i = 3; i-- > 0;) {
    const auto next = heap_->next_finalizable();
    ASSERT_TRUE(next);
    EXPECT_EQ(static_cast<Pair*>(next->object)->number, i);
    EXPECT_EQ(static_cast<Pair*>(next->object)->left->number, 100 + i);
    EXPECT_EQ(next->context, &contexts[i]);
  }
  EXPECT_FALSE(heap_->next_finalizable());
}

TEST_P(CollectorTest, AmbiguousWordsPinWhatTheyHit) {
  make({.max_size = 16 * kMiB});
  struct Words {
    std::array<std::uintptr_t, 4> words{};
  } words;
  const RootCallback callback{[](RootVisitor& visitor, void* context) noexcept {
                                auto& it = *static_cast<Words*>(context);
                                visitor.visit_ambiguous(it.words.data(),
                                                        it.words.data() + it.words.size());
                              },
                              &words};
  ASSERT_TRUE(ok(heap_->add_roots(callback)));
  ASSERT_TRUE(list(1000) != nullptr);
  Pair* const hit = pair(42);
  {
    const Local<Pair> before(*mutator_, hit);
    mutator_->write(hit->left, pair(43));
  }
  const Local<Pair> moves(*mutator_, pair(44));
  const Pair* const was = moves.get();
  // The inside of an object; free memory; what is no address.
  words.words = {
      reinterpret_cast<std::uintptr_t>(hit) + 20,
      reinterpret_cast<std::uintptr_t>(heap_->range().data()) + heap_->range().size() - 8, 12345,
      0};
  for (const CollectionKind kind : {CollectionKind::kYoung, CollectionKind::kFull}) {
    collect(kind);
    EXPECT_EQ(hit->number, 42U);
    ASSERT_NE(hit->left, nullptr);
    EXPECT_EQ(hit->left->number, 43U);
    EXPECT_NE(moves.get(), was);
  }
  EXPECT_LE(heap_->statistics().kept_regions, 1U);
  EXPECT_EQ(heap_->last_collection().marked, 3 * sizeof(Pair));
  words.words = {};
  collect(CollectionKind::kFull);
  EXPECT_EQ(heap_->last_collection().marked, sizeof(Pair));
  EXPECT_TRUE(heap_->remove_roots(callback));
}

TEST_P(CollectorTest, FullWorkStacksLoseNothing) {
  make({.max_size = 64 * kMiB});
  // What is wide fills a stack: an array of arrays of pairs.
  constexpr std::size_t width = 10'000;
  const Local<Table> table(*mutator_, make_table(*heap_, *mutator_, width));
  for (std::size_t i = 0; i < width; ++i) {
    Pair* const head = list(5);
    mutator_->write((*table)[i], head);
  }
  heap_->limit_work_chunks(2 * GetParam() + 1);
  for (const CollectionKind kind :
       {CollectionKind::kYoung, CollectionKind::kFull, CollectionKind::kFull}) {
    collect(kind);
    for (std::size_t i = 0; i < width; ++i) ASSERT_TRUE(is_list((*table)[i], 5));
  }
}

TEST_P(CollectorTest, AMutatorThatIsLateIsNamedAndNothingChanges) {
  make({.max_size = 16 * kMiB, .safepoint_timeout = std::chrono::milliseconds(20)});
  const Local<Pair> object(*mutator_, pair(9));
  const Pair* const was = object.get();
  std::atomic<int> step = 0;
  std::thread other([&] {
    auto late = heap_->attach("the late one");
    step = 1;
    while (step != 2) std::this_thread::yield();
    (*late)->poll();
    step = 3;
    // In a native section it holds up nobody.
    const NativeScope native(**late);
    step = 4;
    while (step != 5) std::this_thread::yield();
  });
  while (step != 1) std::this_thread::yield();
  EXPECT_TRUE(fails_with(ErrorCode::kTimedOut, heap_->collect(mutator_.get())));
  EXPECT_THAT(told_.late_names, ElementsAre("the late one"));
  EXPECT_EQ(object.get(), was);
  step = 2;
  while (step != 4) std::this_thread::yield();
  EXPECT_TRUE(ok(heap_->collect(mutator_.get())));
  step = 5;
  {
    const NativeScope native(*mutator_);
    other.join();
  }
  EXPECT_EQ(object->number, 9U);
}

TEST_P(CollectorTest, DetachingWithLocalsIsRefused) {
  make({.max_size = 16 * kMiB});
  auto other = heap_->attach("other");
  ASSERT_TRUE(ok(other));
  {
    const Local<Pair> local(**other);
    EXPECT_TRUE(fails_with(ErrorCode::kBusy, Mutator::detach(*other)));
    ASSERT_TRUE(*other);
  }
  EXPECT_TRUE(ok(Mutator::detach(*other)));
  EXPECT_FALSE(*other);
  EXPECT_EQ(heap_->statistics().mutators, 1U);
}

TEST_P(CollectorTest, CollectingInANativeSectionIsRefused) {
  make({.max_size = 16 * kMiB});
  const NativeScope native(*mutator_);
  EXPECT_TRUE(fails_with(ErrorCode::kBusy, heap_->collect(mutator_.get())));
  EXPECT_TRUE(ok(heap_->collect(nullptr)));
}

TEST_P(CollectorTest, TrimGivesBackWholeChunks) {
  make({.max_size = 64 * kMiB});
  ASSERT_TRUE(list(400'000) != nullptr);
  const auto trimmed = heap_->trim(mutator_.get());
  ASSERT_TRUE(ok(trimmed));
  EXPECT_GE(*trimmed, 8 * kMiB);
  EXPECT_EQ(*trimmed % heap_->statistics().chunk_size, 0U);
  const Local<Pair> again(*mutator_, list(100'000));
  EXPECT_TRUE(is_list(again.get(), 100'000));
}

TEST_P(CollectorTest, GrowthThatFailsKeepsObjectsInPlace) {
  make({.max_size = 64 * kMiB, .initial_size = 48 * kMiB});
  Local<Pair> head(*mutator_);
  std::uint64_t count = 0;
  {
    FaultInjection faults;
    faults.fail(Call::kMprotect, ENOMEM);
    for (;; ++count) {
      Pair* const fresh = pair(count);
      if (fresh == nullptr) break;
      mutator_->write(fresh->left, head.get());
      head = fresh;
    }
    EXPECT_EQ(mutator_->error().code, ErrorCode::kOutOfMemory);
    EXPECT_TRUE(is_list(head.get(), count));
  }
  EXPECT_NE(heap_->statistics().kept_regions, 0U);
  // The kernel has memory again, and so has the heap.
  ASSERT_TRUE(pair(0) != nullptr);
  EXPECT_TRUE(is_list(head.get(), count));
}

TEST_P(CollectorTest, EveryFailingCallOfCreationIsAnError) {
  for (std::size_t nth = 1;; ++nth) {
    FaultInjection faults;
    faults.fail_nth(nth, ENOMEM);
    const auto heap = TestHeap::create({.max_size = 16 * kMiB, .workers = GetParam()});
    if (faults.faked() == 0) {
      EXPECT_TRUE(ok(heap));
      break;
    }
    if (!heap) {
      EXPECT_NE(heap.error().code, ErrorCode::kInvalidArgument) << nth;
    }
  }
}

TEST_P(CollectorTest, WithoutThreadsOneWorkerDoesAll) {
  FaultInjection faults;
  faults.fail(Call::kCreateThread, EAGAIN);
  make({.max_size = 16 * kMiB});
  const Local<Pair> kept(*mutator_, list(10'000));
  collect(CollectionKind::kFull);
  EXPECT_EQ(heap_->last_collection().workers, 1U);
  EXPECT_TRUE(is_list(kept.get(), 10'000));
}

TEST_P(CollectorTest, AnAllocationFailsWhenAsked) {
  make({.max_size = 16 * kMiB});
  const Local<Pair> first(*mutator_, pair(1));
  heap_->fail_allocation(1);
  std::size_t failures = 0;
  for (int i = 0; i < 10'000; ++i) failures += pair(2) == nullptr ? 1U : 0U;
  EXPECT_EQ(failures, 1U);
  EXPECT_EQ(first->number, 1U);
}

TEST_P(CollectorTest, MutatorsComeAndGoWhileOthersCollect) {
  make({.max_size = 32 * kMiB});
  std::atomic<bool> wrong = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        auto mutator = heap_->attach("short-lived");
        if (!mutator) {
          wrong = true;
          return;
        }
        Local<Pair> head(**mutator);
        for (std::uint64_t j = 0; j < 2000; ++j) {
          Pair* const fresh = make_pair(*heap_, **mutator, j);
          if (fresh == nullptr) break;
          (*mutator)->write(fresh->left, head.get());
          head = fresh;
          if (t == 0 && j % 1000 == 500) {
            if (!heap_->collect(mutator->get(), CollectionKind::kYoung)) wrong = true;
          }
          (*mutator)->poll();
        }
        if (!is_list(head.get(), 2000)) wrong = true;
      }
    });
  }
  {
    const NativeScope native(*mutator_);
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_FALSE(wrong);
  EXPECT_EQ(heap_->statistics().mutators, 1U);
}

TEST(Collector, ATerabyteStartsSmall) {
  const auto heap = TestHeap::create({.max_size = std::size_t{1} << 40U});
  ASSERT_TRUE(ok(heap));
  const HeapStatistics statistics = (*heap)->statistics();
  // Nothing is touched but the first pages of the tables.
  EXPECT_LE(statistics.side_tables * 100, statistics.committed * 3);
}

TEST(Collector, OptionsThatContradictEachOther) {
  const auto refused = [](const HeapOptions& options) {
    return fails_with(ErrorCode::kInvalidArgument, TestHeap::create(options));
  };
  EXPECT_TRUE(refused({.max_size = 1000}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .soft_max_size = 64 * kMiB}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .soft_max_size = 8 * kMiB, .min_size = 16 * kMiB}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .min_size = 16 * kMiB, .initial_size = 8 * kMiB}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .initial_size = 64 * kMiB}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .region_size = 100'000}));
  EXPECT_TRUE(refused({.max_size = 2 * kMiB, .region_size = kMiB}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .young_size = 31 * kMiB}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .tenuring_age = kMaxTenuringAge + 1}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .workers = 1000}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .overhead_goal = 0}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .evacuation_threshold = 2}));
  EXPECT_TRUE(refused({.max_size = 32 * kMiB, .geometry = {.base_page = 3, .pmd = 5}}));
}

TEST(Collector, OtherGeometries) {
  for (const arch::Geometry& geometry :
       {arch::kGeometry4K, arch::kGeometry16K, arch::kGeometry64K}) {
    auto heap = TestHeap::create({.max_size = 64 * kMiB, .geometry = geometry});
    ASSERT_TRUE(ok(heap));
    const auto mutator = (*heap)->attach();
    ASSERT_TRUE(ok(mutator));
    for (int i = 0; i < 100'000; ++i) ASSERT_NE(make_pair(**heap, **mutator, 1), nullptr);
    EXPECT_TRUE(ok((*heap)->trim(mutator->get())));
  }
}

TEST(Collector, PublishesALayoutForEmittedCode) {
  auto heap = TestHeap::create({.max_size = 16 * kMiB});
  ASSERT_TRUE(ok(heap));
  const FastPathLayout layout = (*heap)->fast_path_layout();
  EXPECT_TRUE(ok(layout.check()));
  const auto mutator = (*heap)->attach();
  ASSERT_TRUE(ok(mutator));
  EXPECT_EQ(&Mutator::of((*mutator)->block()), mutator->get());
  const Pair* const pair = make_pair(**heap, **mutator, 1);
  ASSERT_NE(pair, nullptr);
  const auto* const block = reinterpret_cast<const std::byte*>((*mutator)->block());
  const auto top = *reinterpret_cast<const std::uintptr_t*>(block + layout.tlab_top_offset);
  EXPECT_EQ(top, reinterpret_cast<std::uintptr_t>(pair + 1));
  const auto cards = *reinterpret_cast<const std::uintptr_t*>(block + layout.card_table_offset);
  (*mutator)->write_barrier(&pair->left);
  EXPECT_EQ(*reinterpret_cast<const std::uint8_t*>(
                cards + (reinterpret_cast<std::uintptr_t>(&pair->left) >> layout.card_shift)),
            layout.dirty_card);
}

}  // namespace
}  // namespace touchstone::heap::testing
