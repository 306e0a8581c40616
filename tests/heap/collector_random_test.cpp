// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "random_mutator.h"

namespace touchstone::heap::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

TEST(CollectorRandom, OneMutatorOneWorkerStress) {
  run_random({.max_size = 16 * kMiB, .workers = 1, .stress_interval = 150}, 1, 1,
             {.steps = 12'000});
}

TEST(CollectorRandom, TwoMutatorsThreeWorkersStress) {
  run_random({.max_size = 32 * kMiB, .workers = 3, .stress_interval = 300}, 2, 2, {.steps = 8'000});
}

TEST(CollectorRandom, ThreeMutatorsWithoutStress) {
  run_random({.max_size = 24 * kMiB, .workers = 2}, 3, 3, {.steps = 12'000});
}

TEST(CollectorRandom, TightHeap) {
  run_random({.max_size = 6 * kMiB, .workers = 2}, 4, 1, {.steps = 20'000});
}

TEST(CollectorRandom, OldAge) {
  run_random({.max_size = 24 * kMiB, .young_size = 2 * kMiB, .tenuring_age = 4, .workers = 2}, 5, 2,
             {.steps = 12'000});
}

TEST(CollectorRandom, AmbiguousWords) {
  run_random({.max_size = 24 * kMiB, .young_size = 2 * kMiB, .workers = 2}, 6, 2,
             {.steps = 8'000, .ambiguous = true});
}

TEST(CollectorRandom, AmbiguousWordsStress) {
  run_random({.max_size = 16 * kMiB, .workers = 3, .stress_interval = 200}, 7, 1,
             {.steps = 8'000, .ambiguous = true});
}

TEST(CollectorRandom, MutatorsAttachAndDetachWhileOthersCollect) {
  run_random({.max_size = 24 * kMiB, .young_size = kMiB, .workers = 2}, 8, 4,
             {.steps = 10'000, .lives = 25});
}

TEST(CollectorRandom, AllocationsFailAnywhere) {
  run_random({.max_size = 16 * kMiB, .workers = 2, .stress_interval = 250}, 9, 2,
             {.steps = 10'000, .ambiguous = true, .failures = true});
}

}  // namespace
}  // namespace touchstone::heap::testing
