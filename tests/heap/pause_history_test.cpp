// SPDX-License-Identifier: MIT
#include <cstdint>
#include <cstdio>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/heap/gc_log.h>
#include <touchstone/heap/pause_history.h>

namespace touchstone::heap::testing {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

PauseHistory three_pauses() {
  PauseHistory history;
  history.add(10 * kMs, 2 * kMs);
  history.add(14 * kMs, 4 * kMs);
  history.add(90 * kMs, 1 * kMs);
  return history;
}

TEST(PauseHistory, UtilisationIsThatOfTheWorstWindow) {
  const PauseHistory history = three_pauses();
  EXPECT_DOUBLE_EQ(history.mmu(1 * kMs, 0, 100 * kMs), 0);
  EXPECT_DOUBLE_EQ(history.mmu(4 * kMs, 0, 100 * kMs), 0);
  EXPECT_DOUBLE_EQ(history.mmu(5 * kMs, 0, 100 * kMs), 1 - 4.0 / 5);
  // 10 to 18: both pauses.
  EXPECT_DOUBLE_EQ(history.mmu(8 * kMs, 0, 100 * kMs), 1 - 6.0 / 8);
  EXPECT_DOUBLE_EQ(history.mmu(20 * kMs, 0, 100 * kMs), 1 - 6.0 / 20);
  // Longer than there was time: all of it.
  EXPECT_DOUBLE_EQ(history.mmu(1000 * kMs, 0, 100 * kMs), 1 - 7.0 / 100);
  EXPECT_DOUBLE_EQ(PauseHistory().mmu(kMs, 0, 100 * kMs), 1);
}

TEST(PauseHistory, HistogramCountsByPowersOfTwo) {
  PauseHistory history;
  for (const std::uint64_t pause : {100U, 127U, 128U, 1000U})
    history.add(history.count() * kMs, pause);
  const auto buckets = history.histogram();
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[0].below_ns, 128U);
  EXPECT_EQ(buckets[0].count, 2U);
  EXPECT_EQ(buckets[1].count, 1U);
  EXPECT_EQ(buckets[2].count, 0U);
  EXPECT_EQ(buckets[3].below_ns, 1024U);
  EXPECT_EQ(buckets[3].count, 1U);
  EXPECT_EQ(history.quantile(0.5), 128U);
  EXPECT_EQ(history.quantile(1), 1000U);
  EXPECT_TRUE(PauseHistory().histogram().empty());
}

TEST(PauseHistory, JsonHasEveryWindow) {
  const std::string json = three_pauses().to_json(0, 100 * kMs);
  EXPECT_THAT(json, ::testing::HasSubstr("\"count\": 3"));
  EXPECT_THAT(json, ::testing::HasSubstr("{\"window_ns\": 20000000, \"utilisation\": 0.700000}"));
}

TEST(GcLog, LineIsTheJvms) {
  CollectionReport report{.number = 4,
                          .kind = CollectionKind::kYoung,
                          .cause = CollectionCause::kAllocation,
                          .start_ns = 140'690'000,
                          .pause_ns = 1'310'000,
                          .used_before = std::size_t{24} << 20U,
                          .used_after = std::size_t{4} << 20U,
                          .committed = std::size_t{64} << 20U};
  EXPECT_EQ(gc_log_line(report),
            "[0.142s][info][gc] GC(3) Pause Young (allocation) 24M->4M(64M) 1.310ms");
  report.kind = CollectionKind::kFull;
  report.cause = CollectionCause::kNoRoom;
  EXPECT_EQ(gc_log_line(report),
            "[0.142s][info][gc] GC(3) Pause Full (no room) 24M->4M(64M) 1.310ms");
}

}  // namespace
}  // namespace touchstone::heap::testing
