// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>

#include <touchstone/heap/pause_history.h>

namespace touchstone::heap {

void PauseHistory::add(std::uint64_t start_ns, std::uint64_t pause_ns) {
  const std::uint64_t before =
      pauses_.empty() ? 0 : pauses_.back().before + pauses_.back().end - pauses_.back().start;
  pauses_.push_back({.start = start_ns, .end = start_ns + pause_ns, .before = before});
}

std::uint64_t PauseHistory::quantile(double share) const {
  if (pauses_.empty()) return 0;
  std::vector<std::uint64_t> lengths;
  lengths.reserve(pauses_.size());
  for (const Pause& each : pauses_) lengths.push_back(each.end - each.start);
  const auto wanted = static_cast<std::size_t>(share * static_cast<double>(lengths.size()));
  const auto at =
      lengths.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, lengths.size() - 1));
  std::ranges::nth_element(lengths, at);
  return *at;
}

std::vector<PauseHistory::Bucket> PauseHistory::histogram() const {
  std::vector<std::size_t> counts(65);
  std::size_t first = counts.size();
  std::size_t last = 0;
  for (const Pause& each : pauses_) {
    const auto width = static_cast<std::size_t>(std::bit_width(each.end - each.start));
    ++counts[width];
    first = std::min(first, width);
    last = std::max(last, width);
  }
  std::vector<Bucket> buckets;
  for (std::size_t width = first; width <= last && width < 64; ++width) {
    buckets.push_back({.below_ns = std::uint64_t{1} << width, .count = counts[width]});
  }
  return buckets;
}

std::uint64_t PauseHistory::paused_until(std::uint64_t time) const noexcept {
  const auto after = std::ranges::upper_bound(pauses_, time, {}, &Pause::start);
  if (after == pauses_.begin()) return 0;
  const Pause& last = *(after - 1);
  return last.before + std::min(time, last.end) - last.start;
}

double PauseHistory::mmu(std::uint64_t window_ns, std::uint64_t begin_ns,
                         std::uint64_t end_ns) const noexcept {
  if (end_ns <= begin_ns || window_ns == 0) return 1;
  const std::uint64_t window = std::min(window_ns, end_ns - begin_ns);
  std::uint64_t most = 0;
  const auto look = [&](std::uint64_t from) {
    from = std::clamp(from, begin_ns, end_ns - window);
    most = std::max(most, paused_until(from + window) - paused_until(from));
  };
  // The worst window begins with a pause or ends with one.
  look(begin_ns);
  for (const Pause& each : pauses_) {
    look(each.start);
    look(each.end - std::min(each.end, window));
  }
  return 1 - static_cast<double>(most) / static_cast<double>(window);
}

std::string PauseHistory::to_json(std::uint64_t begin_ns, std::uint64_t end_ns) const {
  std::string text = "{\"count\": " + std::to_string(count()) +
                     ", \"p50_ns\": " + std::to_string(quantile(0.5)) +
                     ", \"p99_ns\": " + std::to_string(quantile(0.99)) + ", \"histogram\": [";
  const char* separator = "";
  for (const Bucket& each : histogram()) {
    text += separator + ("{\"below_ns\": " + std::to_string(each.below_ns)) +
            ", \"count\": " + std::to_string(each.count) + "}";
    separator = ", ";
  }
  text += "], \"mmu\": [";
  separator = "";
  for (const std::uint64_t ms : {1U, 2U, 5U, 10U, 20U, 50U, 100U, 200U, 500U, 1000U}) {
    const std::uint64_t window = ms * 1'000'000;
    text += separator + ("{\"window_ns\": " + std::to_string(window)) +
            ", \"utilisation\": " + std::to_string(mmu(window, begin_ns, end_ns)) + "}";
    separator = ", ";
  }
  return text + "]}";
}

}  // namespace touchstone::heap
