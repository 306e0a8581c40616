// SPDX-License-Identifier: MIT
#include "interval_set.h"

#include <bitset>
#include <random>

#include <gtest/gtest.h>

namespace touchstone::heap {
namespace {

constexpr std::size_t kUniverse = 64;

/// The maximal runs of a bit set: what the interval set must hold.
std::vector<Interval> runs_of(const std::bitset<kUniverse>& bits) {
  std::vector<Interval> runs;
  for (std::size_t i = 0; i < kUniverse; ++i) {
    if (!bits[i]) continue;
    if (!runs.empty() && runs.back().end == i) {
      ++runs.back().end;
    } else {
      runs.push_back({i, i + 1});
    }
  }
  return runs;
}

TEST(IntervalSet, AgreesWithABitSetUnderRandomChanges) {
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same changes each run.
  IntervalSet set;
  std::bitset<kUniverse> model;
  for (int step = 0; step < 20000; ++step) {
    const std::size_t begin = random() % kUniverse;
    const std::size_t end = begin + random() % (kUniverse - begin + 1);
    const bool add = random() % 2 == 0;
    ASSERT_TRUE(set.claim());
    if (add) {
      set.insert({begin, end});
    } else {
      set.erase({begin, end});
    }
    for (std::size_t i = begin; i < end; ++i) model[i] = add;
    ASSERT_EQ(set.intervals(), runs_of(model)) << "step " << step;
    ASSERT_EQ(set.total(), model.count());

    const std::size_t from = random() % kUniverse;
    const std::size_t to = from + 1 + random() % (kUniverse - from);
    bool any = false;
    bool all = true;
    for (std::size_t i = from; i < to; ++i) {
      any = any || model[i];
      all = all && model[i];
    }
    ASSERT_EQ(set.intersects({from, to}), any) << "step " << step;
    ASSERT_EQ(set.contains({from, to}), all) << "step " << step;
  }
}

TEST(IntervalSet, ClaimedChangesDoNotAllocate) {
  IntervalSet set;
  // As many claims in flight as threads may have; none of the changes may move the storage.
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(set.claim());
  const std::size_t capacity = set.intervals().capacity();
  for (std::uintptr_t i = 0; i < 50; ++i) set.insert({i * 4, i * 4 + 3});
  for (std::uintptr_t i = 0; i < 50; ++i) set.erase({i * 4 + 1, i * 4 + 2});
  EXPECT_EQ(set.intervals().size(), 100U);
  EXPECT_EQ(set.intervals().capacity(), capacity);
}

}  // namespace
}  // namespace touchstone::heap
