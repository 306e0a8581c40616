// SPDX-License-Identifier: MIT
// The random mutators of collector_random_test with one seed after the other, for a minute or, in
// --soak, as long as TOUCHSTONE_SOAK_SECONDS says. What fails is repeated by its seed alone.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include <gtest/gtest.h>

#include "random_mutator.h"

namespace touchstone::heap::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

struct Round {
  HeapOptions options;
  unsigned threads;
  RandomBehaviour behaviour;
};

const std::array<Round, 6> kRounds{{
    {{.max_size = 16 * kMiB, .workers = 1, .stress_interval = 61}, 1, {.steps = 5'000}},
    {{.max_size = 16 * kMiB, .workers = 3, .stress_interval = 200},
     2,
     {.steps = 5'000, .ambiguous = true}},
    {{.max_size = 24 * kMiB, .young_size = kMiB, .tenuring_age = 3, .workers = 2},
     3,
     {.steps = 15'000, .lives = 10}},
    {{.max_size = 6 * kMiB, .workers = 2}, 1, {.steps = 20'000}},
    {{.max_size = 12 * kMiB, .region_size = 64 << 10U, .workers = 2},
     2,
     {.steps = 15'000, .ambiguous = true}},
    {{.max_size = 16 * kMiB, .workers = 2, .stress_interval = 150},
     2,
     {.steps = 4'000, .lives = 2, .ambiguous = true, .failures = true}},
}};

std::chrono::seconds time_to_run() {
#if defined(TOUCHSTONE_SOAK)
  const char* const seconds = std::getenv("TOUCHSTONE_SOAK_SECONDS");
  return std::chrono::seconds(seconds != nullptr ? std::atol(seconds) : 600);
#else
  return std::chrono::seconds(60);
#endif
}

TEST(CollectorStress, SeedAfterSeed) {
  const auto end = std::chrono::steady_clock::now() + time_to_run();
  std::uint64_t seed = 1000;
  // Each round at least once, however slow the machine is.
  for (std::size_t i = 0; i < kRounds.size() || std::chrono::steady_clock::now() < end; ++i) {
    const Round& round = kRounds[i % kRounds.size()];
    SCOPED_TRACE(i % kRounds.size());
    run_random(round.options, ++seed, round.threads, round.behaviour);
    if (HasFailure()) break;
  }
  RecordProperty("seeds", static_cast<int>(seed - 1000));
}

}  // namespace
}  // namespace touchstone::heap::testing
