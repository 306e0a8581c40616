// SPDX-License-Identifier: MIT
// Holds rules against oracles over a space of words.
#ifndef TOUCHSTONE_ARCH_OPCHECK_SWEEP_H_
#define TOUCHSTONE_ARCH_OPCHECK_SWEEP_H_

#include <atomic>
#include <cstdint>
#include <expected>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "known_gaps.h"
#include "oracle.h"
#include "rules.h"
#include "sweep_result.h"
#include "word_space.h"

namespace touchstone::arch::opcheck {

/// What to compare. What it points to outlives the sweep.
struct SweepPlan {
  const Rules* rules = &kFullRules;
  const WordSpace* space = nullptr;
  /// One to kMostOracles of them.
  std::vector<const OracleSource*> oracles;
  std::span<const KnownGap> gaps = known_gaps();
  /// Threads that work at the same time, at least 1.
  unsigned jobs = 1;
};

/// What a sweep tells while it runs. All may be left empty.
struct SweepHooks {
  /// Where true, the sweep ends as soon as it can and gives what is done.
  const std::atomic<bool>* stop = nullptr;
  /// Called from any thread with how many words more have been looked at.
  std::function<void(std::uint64_t words)> on_words;
  /// Called after each chunk with all that is done, by one thread at a time.
  std::function<void(const SweepResult& result)> on_chunk;
};

/// Goes through the chunks that `start` does not hold yet (an empty one holds none) and adds them
/// to it. The result does not depend on the number of threads, nor on where a sweep was stopped
/// and taken up again. The error is an oracle that broke down.
[[nodiscard]] std::expected<SweepResult, std::string> run_sweep(const SweepPlan& plan,
                                                                SweepResult start,
                                                                const SweepHooks& hooks);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_SWEEP_H_
