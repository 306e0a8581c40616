// SPDX-License-Identifier: MIT
#include "sweep.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comparer.h"

namespace touchstone::arch::opcheck {
namespace {

// Words that the oracles are given at a time: enough for a child process to be worth its start.
constexpr std::size_t kBatch = std::size_t{1} << 16;

// What the threads of a sweep share.
class Work {
 public:
  Work(const SweepPlan& plan, SweepResult start, const SweepHooks& hooks)
      : plan_(plan), hooks_(hooks), result_(std::move(start)) {
    result_.done.resize(plan.space->chunk_count());
    result_.gaps.resize(plan.gaps.size());
    for (std::size_t chunk = 0; chunk < result_.done.size(); ++chunk) {
      if (!result_.done[chunk]) chunks_.push_back(chunk);
    }
  }

  // Works on chunks until none is left.
  void run() {
    std::vector<std::unique_ptr<Oracle>> oracles;
    for (const OracleSource* const source : plan_.oracles) {
      auto oracle = source->open();
      if (!oracle) return fail(std::move(oracle.error()));
      oracles.push_back(std::move(*oracle));
    }
    Comparer comparer(plan_);
    std::vector<std::uint32_t> words;
    std::vector<std::vector<const Reading*>> readings(oracles.size());
    while (!stopped()) {
      const std::size_t next = next_.fetch_add(1, std::memory_order_relaxed);
      if (next >= chunks_.size()) return;
      plan_.space->fill(chunks_[next], words);
      std::span<const std::uint32_t> rest(words);
      while (!rest.empty()) {
        // What a stopped chunk has counted so far is dropped with the comparer.
        if (stopped()) return;
        const auto batch = rest.first(std::min(rest.size(), kBatch));
        for (std::size_t i = 0; i < oracles.size(); ++i) {
          readings[i].resize(batch.size());
          if (auto done = oracles[i]->decode(batch, readings[i]); !done) {
            return fail(std::move(done.error()));
          }
        }
        comparer.compare(batch, readings);
        if (hooks_.on_words) hooks_.on_words(batch.size());
        rest = rest.subspan(batch.size());
      }
      finish(chunks_[next], comparer.take());
    }
  }

  std::expected<SweepResult, std::string> take() {
    const std::scoped_lock lock(mutex_);
    if (!error_.empty()) return std::unexpected(error_);
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool stopped() const {
    return failed_.load(std::memory_order_relaxed) ||
           (hooks_.stop != nullptr && hooks_.stop->load(std::memory_order_relaxed));
  }

  void fail(std::string error) {
    const std::scoped_lock lock(mutex_);
    if (error_.empty()) error_ = std::move(error);
    failed_.store(true, std::memory_order_relaxed);
  }

  void finish(std::size_t chunk, const SweepResult& counted) {
    const std::scoped_lock lock(mutex_);
    result_.merge(counted);
    result_.done[chunk] = true;
    if (hooks_.on_chunk) hooks_.on_chunk(result_);
  }

  const SweepPlan& plan_;
  const SweepHooks& hooks_;
  std::vector<std::size_t> chunks_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  SweepResult result_;
  std::string error_;
};

}  // namespace

std::expected<SweepResult, std::string> run_sweep(const SweepPlan& plan, SweepResult start,
                                                  const SweepHooks& hooks) {
  Work work(plan, std::move(start), hooks);
  {
    std::vector<std::jthread> threads;
    for (unsigned job = 1; job < plan.jobs; ++job) threads.emplace_back([&work] { work.run(); });
    work.run();
  }
  return work.take();
}

}  // namespace touchstone::arch::opcheck
