// SPDX-License-Identifier: MIT
// Ephemerons, weak references and finalizers, and how much of the heap the collector looks at.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
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

using ::testing::IsEmpty;
using touchstone::testing::ok;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

/// How much the collector asked the model.
struct Visits {
  std::atomic<std::uint64_t> objects{0};
  std::atomic<std::uint64_t> slots{0};
};
Visits visits;

/// HeaderModel, counting.
struct CountingModel : HeaderModel<8> {
  template <typename Visitor>
  struct Counting {
    Visitor& visit;
    void operator()(void* slot) const noexcept {
      visits.slots.fetch_add(1, std::memory_order_relaxed);
      visit(slot);
    }
    void weak(void* slot) const noexcept {
      visits.slots.fetch_add(1, std::memory_order_relaxed);
      visit.weak(slot);
    }
    void ephemeron(void* key, void* value) const noexcept {
      visits.slots.fetch_add(2, std::memory_order_relaxed);
      visit.ephemeron(key, value);
    }
  };
  template <typename Visitor>
  void trace(void* object, std::uint64_t header, Visitor&& visit) const noexcept {
    visits.objects.fetch_add(1, std::memory_order_relaxed);
    HeaderModel<8>::trace(object, header, Counting<std::remove_reference_t<Visitor>>{visit});
  }
  template <typename Visitor>
  void trace_range(void* object, std::uint64_t header, void* begin, void* end,
                   Visitor&& visit) const noexcept {
    HeaderModel<8>::trace_range(object, header, begin, end,
                                Counting<std::remove_reference_t<Visitor>>{visit});
  }
};
using CountingHeap = Heap<CountingModel>;

struct Ephemeron {
  std::uint64_t header;
  Pair* key;
  Pair* value;
};

class References : public HeapFixture<::testing::TestWithParam<unsigned>, CountingHeap> {
 protected:
  void* object(ObjectHeader header) {
    std::byte* const memory = heap_->allocate_or_null(*mutator_, header.size());
    if (memory != nullptr) *reinterpret_cast<std::uint64_t*>(memory) = header.word();
    return memory;
  }
  Table* table(std::size_t length) {
    return static_cast<Table*>(object(ObjectHeader::array(length)));
  }
  Ephemeron* ephemeron() {
    return static_cast<Ephemeron*>(
        object(ObjectHeader::make(ObjectHeader::Kind::kEphemeron, sizeof(Ephemeron))));
  }
  static Ephemeron* as_ephemeron(Pair* pair) { return reinterpret_cast<Ephemeron*>(pair); }

  /// A table of so many ephemerons, each of which has the next one's key as its value; `first` is
  /// the first's key, and nothing else refers to the keys. The order in the table is that of the
  /// chain or the reverse. False: no memory, and the table is shorter.
  bool chain(Local<Table>& all, Local<Pair>& first, std::size_t length, bool reversed) {
    Local<Pair> key(*mutator_, pair(0));
    first = key.get();
    for (std::size_t i = 0; i < length; ++i) {
      Local<Ephemeron> link(*mutator_, ephemeron());
      if (!link) return false;
      mutator_->write((*all)[reversed ? length - 1 - i : i], reinterpret_cast<Pair*>(link.get()));
      mutator_->write(link->key, key.get());
      Pair* const next = pair(i + 1);
      if (next == nullptr) return false;
      mutator_->write(link->value, next);
      key = next;
    }
    return true;
  }
  void expect_chain(Local<Table>& all, Local<Pair>& first, std::size_t length, bool reversed) {
    Pair* key = first.get();
    for (std::size_t i = 0; i < length; ++i) {
      const Ephemeron* const link = as_ephemeron((*all)[reversed ? length - 1 - i : i]);
      ASSERT_EQ(link->key, key) << i;
      ASSERT_NE(link->value, nullptr) << i;
      ASSERT_EQ(link->value->number, i + 1);
      key = link->value;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, References, ::testing::Values(1U, 3U));

TEST_P(References, ChainsOfEphemeronsTakeLinearTime) {
  for (const bool reversed : {false, true}) {
    for (const CollectionKind kind : {CollectionKind::kYoung, CollectionKind::kFull}) {
      std::array<std::uint64_t, 2> counts{};
      for (const std::size_t i : {0U, 1U}) {
        const std::size_t length = i == 0 ? 2'000 : 32'000;
        // Verification looks at everything too, which is not to be counted.
        make({.max_size = 64 * kMiB, .young_size = 32 * kMiB}, false);
        Local<Table> all(*mutator_, table(length));
        Local<Pair> first(*mutator_);
        ASSERT_TRUE(chain(all, first, length, reversed));
        const std::uint64_t before = visits.slots + visits.objects;
        collect(kind);
        counts[i] = visits.slots + visits.objects - before;
        expect_chain(all, first, length, reversed);
        // Without the first key the whole chain goes.
        first = nullptr;
        collect(CollectionKind::kFull);
        for (std::size_t link = 0; link < length; ++link) {
          ASSERT_EQ(as_ephemeron((*all)[link])->key, nullptr);
          ASSERT_EQ(as_ephemeron((*all)[link])->value, nullptr);
        }
      }
      EXPECT_GE(counts[0], 2'000U);
      EXPECT_LE(counts[1], counts[0] * 17) << "16 times as many links";
    }
  }
}

TEST_P(References, AnEphemeronOnTwoCardsIsTreatedOnce) {
  make({.max_size = 32 * kMiB});
  // 24 bytes each: many of them lie across the border of two cards.
  constexpr std::size_t count = 2'000;
  const Local<Table> all(*mutator_, table(count));
  const Local<Table> keys(*mutator_, table(count));
  for (std::size_t i = 0; i < count; ++i) {
    Ephemeron* const fresh = ephemeron();
    mutator_->write((*all)[i], reinterpret_cast<Pair*>(fresh));
  }
  collect(CollectionKind::kFull);
  for (std::size_t i = 0; i < count; ++i) {
    Pair* const key = pair(i);
    mutator_->write((*keys)[i], key);
    Pair* const value = pair(10 * i);
    mutator_->write(as_ephemeron((*all)[i])->key, (*keys)[i]);
    mutator_->write(as_ephemeron((*all)[i])->value, value);
  }
  for (int round = 0; round < 3; ++round) {
    collect(CollectionKind::kYoung);
    for (std::size_t i = 0; i < count; ++i) {
      const Ephemeron* const each = as_ephemeron((*all)[i]);
      ASSERT_EQ(each->key, (*keys)[i]);
      ASSERT_NE(each->value, nullptr);
      ASSERT_EQ(each->value->number, 10 * i);
    }
  }
}

TEST_P(References, AChainIsFollowedWhereThereIsNoRoomToMoveIt) {
  make({.max_size = 64 * kMiB, .initial_size = 48 * kMiB});
  constexpr std::size_t length = 400'000;
  Local<Table> all(*mutator_, table(length));
  Local<Pair> first(*mutator_);
  {
    FaultInjection faults;
    faults.fail(Call::kMprotect, ENOMEM);
    EXPECT_FALSE(chain(all, first, length, false));
  }
  EXPECT_NE(heap_->statistics().kept_regions, 0U);
  std::size_t links = 0;
  while (links < length && (*all)[links] != nullptr) ++links;
  EXPECT_GE(links, 1'000U);
  expect_chain(all, first, links - 1, false);
}

TEST_P(References, ACardOfALongArrayIsScannedFromItsMiddle) {
  make({.max_size = 64 * kMiB}, false);
  for (const std::size_t length : {std::size_t{5'000}, std::size_t{400'000}}) {
    const Local<Table> array(*mutator_, table(length));
    collect(CollectionKind::kFull);
    collect(CollectionKind::kYoung);
    for (const std::size_t i : {std::size_t{0}, std::size_t{77}, length / 2, length - 1}) {
      Pair* const fresh = pair(i);
      mutator_->write((*array)[i], fresh);
      const std::uint64_t before = visits.slots;
      collect(CollectionKind::kYoung);
      EXPECT_EQ(heap_->last_collection().dirty_cards, 1U);
      // A card has 64 words; the pair that is copied has two slots.
      EXPECT_LE(visits.slots - before, 64U + 2U) << length << ' ' << i;
      EXPECT_EQ((*array)[i]->number, i);
      collect(CollectionKind::kFull);
    }
  }
}

TEST_P(References, FinalizersBringBackByPriorityAfterReferencesAreCleared) {
  make({.max_size = 16 * kMiB});
  std::vector<std::unique_ptr<WeakRoot<Pair>>> weak;
  // 0 refers to 1, that to 2; all are finalizable, the last one first.
  Local<Pair> chain(*mutator_);
  const Local<Ephemeron> outside(*mutator_, ephemeron());
  for (std::uint32_t i = 3; i-- > 0;) {
    Pair* const object = pair(i);
    object->left = chain.get();
    chain = object;
    weak.push_back(std::make_unique<WeakRoot<Pair>>(*heap_, object));
    ASSERT_TRUE(ok(heap_->add_finalizer(object, 2 - i)));
  }
  mutator_->write(outside->key, chain.get());
  Pair* const value = pair(50);
  mutator_->write(outside->value, value);
  chain = nullptr;
  collect(CollectionKind::kYoung);
  // All weak references and ephemerons from what is alive are cleared although all comes back.
  for (const auto& each : weak) EXPECT_EQ(each->get(), nullptr);
  EXPECT_EQ(outside->key, nullptr);
  EXPECT_EQ(outside->value, nullptr);
  ASSERT_EQ(heap_->finalizable_count(), 3U);
  Local<Pair> back(*mutator_);
  for (std::uint64_t i = 3; i-- > 0;) {
    const auto next = heap_->next_finalizable();
    ASSERT_TRUE(next);
    back = static_cast<Pair*>(next->object);
    EXPECT_EQ(back->number, i);
    collect(i % 2 == 0 ? CollectionKind::kYoung : CollectionKind::kFull);
    if (i < 2) {
      ASSERT_NE(back->left, nullptr);
      EXPECT_EQ(back->left->number, i + 1);
    }
  }
  EXPECT_FALSE(heap_->next_finalizable());
  // Alive for good, until it is registered again and dropped again.
  collect(CollectionKind::kFull);
  EXPECT_EQ(heap_->finalizable_count(), 0U);
  EXPECT_EQ(back->left->left->number, 2U);
  ASSERT_TRUE(ok(heap_->add_finalizer(back.get())));
  back = nullptr;
  collect(CollectionKind::kFull);
  EXPECT_EQ(heap_->finalizable_count(), 1U);
}

}  // namespace
}  // namespace touchstone::heap::testing
