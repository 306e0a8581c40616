// SPDX-License-Identifier: MIT
#include "timeline.h"

#include <algorithm>
#include <condition_variable>
#include <new>
#include <stop_token>

#include <touchstone/heap/residency.h>

namespace touchstone::gc {
namespace {

/// Enough for a chart.
constexpr std::size_t kMostPoints = 2000;

template <typename T, typename Use>
void each_thinned(const std::vector<T>& all, Use&& use) {
  const std::size_t step = all.size() / kMostPoints + 1;
  for (std::size_t i = 0; i < all.size(); i += step) use(all[i]);
}

}  // namespace

double Timeline::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void Timeline::begin(const heap::detail::HeapCore& heap) {
  begin_ = std::chrono::steady_clock::now();
  if (!sampled_) return;
  sampler_ = std::jthread([this, &heap](const std::stop_token& stop) {
    std::mutex waiting;
    std::condition_variable_any wake;
    std::unique_lock lock(waiting);
    do {
      const heap::HeapStatistics s = heap.statistics();
      const auto maps = heap::smaps(heap.range().data(), s.committed);
      const Sample sample{.seconds = seconds(),
                          .used = s.used,
                          .committed = s.committed,
                          .resident = maps ? maps->rss : 0,
                          .huge = maps ? maps->anon_huge_pages : 0};
      {
        const std::lock_guard guard(mutex_);
        samples_.push_back(sample);
      }
      wake.wait_for(lock, stop, std::chrono::milliseconds(20), [] { return false; });
    } while (!stop.stop_requested());
  });
}

void Timeline::end() {
  end_ = std::chrono::steady_clock::now();
  sampler_ = {};
}

void Timeline::on_collection_end(const heap::CollectionReport& report) noexcept {
  const std::lock_guard guard(mutex_);
  try {
    collections_.push_back(report);
  } catch (const std::bad_alloc&) {
    return;  // One that is missing in the picture.
  }
}

tools::Json Timeline::json() const {
  const std::lock_guard guard(mutex_);
  tools::Json collections = tools::Json::array();
  each_thinned(collections_, [&](const heap::CollectionReport& each) {
    collections.push_back(tools::Json::parse(to_json(each)));
  });
  tools::Json samples = tools::Json::array();
  each_thinned(samples_, [&](const Sample& each) {
    samples.push_back({{"seconds", each.seconds},
                       {"used", each.used},
                       {"committed", each.committed},
                       {"resident", each.resident},
                       {"huge", each.huge}});
  });
  return {{"seconds", std::chrono::duration<double>(end_ - begin_).count()},
          {"collections", std::move(collections)},
          {"samples", std::move(samples)}};
}

tools::Json Timeline::pauses() const {
  const std::lock_guard guard(mutex_);
  heap::PauseHistory history;
  for (const heap::CollectionReport& each : collections_) history.add(each.start_ns, each.pause_ns);
  const auto lasted = std::chrono::duration_cast<std::chrono::nanoseconds>(end_ - begin_).count();
  return tools::Json::parse(history.to_json(0, static_cast<std::uint64_t>(lasted)));
}

}  // namespace touchstone::gc
