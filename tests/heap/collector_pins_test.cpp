// SPDX-License-Identifier: MIT
// Ambiguous roots: what they pin, what that costs, and that anything may be in them.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/heap/heap.h>
#include <touchstone/heap/object_header.h>

#include "collector_fixture.h"
#include "result_assertions.h"

namespace touchstone::heap::testing {
namespace {

using ::testing::IsEmpty;
using touchstone::testing::ok;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

class Pins : public HeapFixture<::testing::TestWithParam<unsigned>> {
 protected:
  void make(const HeapOptions& options) {
    HeapFixture::make(options);
    mutator_->add_roots({[](RootVisitor& visitor, void* context) noexcept {
                           const auto& words = *static_cast<std::vector<std::uintptr_t>*>(context);
                           visitor.visit_ambiguous(words.data(), words.data() + words.size());
                         },
                         &words_});
  }

  std::vector<std::uintptr_t> words_;
};
INSTANTIATE_TEST_SUITE_P(Workers, Pins, ::testing::Values(1U, 3U));

TEST_P(Pins, SoManyPinsRetainAtMostSoManyRegions) {
  const auto with = [this](std::size_t pins) {
    make({.max_size = 128 * kMiB, .region_size = 128 << 10U, .young_size = 48 * kMiB});
    // 16 MiB of garbage, with hits spread over all of it.
    Local<Pair> each(*mutator_, list(500'000));
    std::vector<Pair*> hit;
    std::uint64_t at = 0;
    for (const Pair* object = each.get(); object != nullptr; object = object->left, ++at) {
      if (at % (500'000 / pins) != 77) continue;
      words_.push_back(reinterpret_cast<std::uintptr_t>(object) + at % sizeof(Pair));
      hit.push_back(const_cast<Pair*>(object));
    }
    std::vector<std::uint64_t> numbers;
    numbers.reserve(hit.size());
    for (Pair* const object : hit) {
      numbers.push_back(object->number);
      object->left = nullptr;
    }
    each = nullptr;
    for (const CollectionKind kind :
         {CollectionKind::kYoung, CollectionKind::kYoung, CollectionKind::kFull}) {
      const bool first = heap_->statistics().young_collections == 0;
      collect(kind);
      const CollectionReport report = heap_->last_collection();
      if (first || kind == CollectionKind::kFull) {
        EXPECT_EQ(report.pinned_objects, hit.size());
        EXPECT_EQ(report.pinned_bytes, hit.size() * sizeof(Pair));
        EXPECT_GE(report.pinned_regions, 1U);
        EXPECT_LE(report.pinned_regions, hit.size());
        EXPECT_EQ(report.retained_bytes + report.pinned_bytes,
                  report.pinned_regions * heap_->statistics().region_size);
      }
      EXPECT_LE(heap_->statistics().old_regions, hit.size() + 1);
      for (std::size_t i = 0; i < hit.size(); ++i) EXPECT_EQ(hit[i]->number, numbers[i]);
    }
    EXPECT_EQ(heap_->last_collection().marked, hit.size() * sizeof(Pair));
    // Whole free huge pages are given back around them.
    const HeapStatistics before = heap_->statistics();
    const auto trimmed = heap_->trim(mutator_.get());
    ASSERT_TRUE(ok(trimmed));
    EXPECT_GE(*trimmed + (hit.size() + 2) * before.chunk_size, before.committed);
    for (std::size_t i = 0; i < hit.size(); ++i) EXPECT_EQ(hit[i]->number, numbers[i]);
    // And they themselves when nothing hits them any more.
    words_.clear();
    collect(CollectionKind::kFull);
    const CollectionReport report = heap_->last_collection();
    EXPECT_EQ(report.pinned_objects + report.pinned_regions + report.retained_bytes, 0U);
    EXPECT_EQ(heap_->statistics().old_regions, 0U);
  };
  for (const std::size_t pins : {1U, 7U, 40U}) {
    with(pins);
    mutator_.reset();
    heap_.reset();
  }
}

TEST_P(Pins, TheRestOfAPinnedRegionIsEvacuated) {
  make({.max_size = 32 * kMiB, .young_size = 16 * kMiB});
  const Local<Table> kept(*mutator_, make_table(*heap_, *mutator_, 1000));
  for (std::size_t i = 0; i < 1000; ++i) {
    Pair* const fresh = pair(i);
    mutator_->write((*kept)[i], fresh);
  }
  std::array<Pair*, 1000> before{};
  for (std::size_t i = 0; i < 1000; ++i) before[i] = (*kept)[i];
  words_ = {reinterpret_cast<std::uintptr_t>(before[500])};
  collect(CollectionKind::kYoung);
  EXPECT_EQ(heap_->last_collection().pinned_objects, 1U);
  EXPECT_EQ(heap_->last_collection().pinned_regions, 1U);
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ((*kept)[i] == before[i], i == 500) << i;
    EXPECT_EQ((*kept)[i]->number, i);
  }
}

TEST_P(Pins, AWordPinsNothingWhereThereIsNoObject) {
  make({.max_size = 32 * kMiB});
  const Local<Pair> alive(*mutator_, list(1000));
  ASSERT_NE(list(20'000), nullptr);
  collect(CollectionKind::kFull);
  const auto base = reinterpret_cast<std::uintptr_t>(heap_->range().data());
  const HeapStatistics now = heap_->statistics();
  // Every card of what is committed, free regions and those behind the live objects included; and
  // addresses beside the heap.
  for (std::uintptr_t word = base; word < base + now.committed; word += 512) words_.push_back(word);
  words_.insert(words_.end(), {0, 1, base - 8, base + now.committed, base + now.max_size,
                               ~std::uintptr_t{0}, ~std::uintptr_t{7}});
  collect(CollectionKind::kFull);
  // The list takes 32000 bytes, which is 63 cards.
  EXPECT_LE(heap_->last_collection().pinned_objects, 64U);
  EXPECT_EQ(heap_->last_collection().marked, 1000 * sizeof(Pair));
  std::uint64_t number = 1000;
  for (const Pair* object = alive.get(); object != nullptr; object = object->left) {
    ASSERT_EQ(object->number, --number);
  }
}

TEST_P(Pins, AnythingMayBeInAWord) {
  make({.max_size = 32 * kMiB, .region_size = 64 << 10U});
  std::mt19937_64 random(17);
  const auto base = reinterpret_cast<std::uintptr_t>(heap_->range().data());
  Local<Table> roots(*mutator_, make_table(*heap_, *mutator_, 64));
  std::array<std::uint64_t, 64> numbers{};
  for (int round = 0; round < 60; ++round) {
    words_.clear();
    for (int i = 0; i < 400; ++i) {
      const std::uint64_t luck = random() % 5;
      words_.push_back(luck == 0   ? random()
                       : luck == 1 ? random() % 4096
                                   : base + random() % heap_->statistics().committed);
    }
    for (int i = 0; i < 3000; ++i) {
      const std::size_t place = random() % 64;
      const std::size_t length = random() % 100 == 0 ? random() % 12'000 : random() % 20;
      std::byte* const memory = heap_->allocate_or_null(*mutator_, (length + 2) * 8);
      if (memory == nullptr) {
        // False words keep garbage alive: let go of everything.
        words_.clear();
        continue;
      }
      auto* const object = reinterpret_cast<Pair*>(memory);
      object->header = ObjectHeader::record((length + 2) * 8, 1).word();
      Pair* const old = random() % 4 == 0 ? (*roots)[random() % 64] : nullptr;
      mutator_->write(object->left, old);
      if (length != 0) reinterpret_cast<std::uint64_t*>(object)[2] = random();
      numbers[place] = length == 0 ? 0 : reinterpret_cast<std::uint64_t*>(object)[2];
      mutator_->write((*roots)[place], object);
    }
    collect(round % 3 == 0 ? CollectionKind::kFull : CollectionKind::kYoung);
    const CollectionReport report = heap_->last_collection();
    EXPECT_LE(report.pinned_objects, words_.size());
    EXPECT_LE(report.pinned_regions, words_.size());
    for (std::size_t i = 0; i < 64; ++i) {
      if (numbers[i] == 0) continue;
      ASSERT_EQ(reinterpret_cast<std::uint64_t*>((*roots)[i])[2], numbers[i]);
    }
  }
}

/// Only this frame has the address.
[[gnu::noinline]] void collect_with_a_local(TestHeap& heap, Mutator& mutator) {
  Pair* object = make_pair(heap, mutator, 99);
  ASSERT_NE(object, nullptr);
  // By its address, so that the address sanitizer moves the variable to its fake stack if it has
  // one.
  Pair* volatile* const place = const_cast<Pair* volatile*>(&object);
  asm volatile("" : : "r"(place) : "memory");
  const std::uintptr_t was = ~reinterpret_cast<std::uintptr_t>(object);
  for (const CollectionKind kind : {CollectionKind::kYoung, CollectionKind::kFull}) {
    ASSERT_TRUE(ok(heap.collect(&mutator, kind)));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(*place), ~was);
    ASSERT_EQ((*place)->header, kPair.word());
    ASSERT_EQ((*place)->number, 99U);
    ASSERT_GE(heap.last_collection().pinned_objects, 1U);
  }
}

// Once more with the address sanitizer's fake stack, see CMakeLists.txt.
TEST_P(Pins, AStackWithoutMapsIsScanned) {
  make({.max_size = 16 * kMiB});
  mutator_->scan_stack_from(__builtin_frame_address(0));
  collect_with_a_local(*heap_, *mutator_);
  mutator_->scan_stack_from(nullptr);
}

}  // namespace
}  // namespace touchstone::heap::testing
