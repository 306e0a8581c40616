// SPDX-License-Identifier: MIT
#include "experiment.h"

#include <algorithm>
#include <numeric>
#include <system_error>

#include <fmt/format.h>

#include <touchstone/heap/reservation.h>
#include <touchstone/heap/residency.h>

#include "reference.h"

namespace touchstone::shatter {
namespace {

constexpr double kGiB = static_cast<double>(std::size_t{1} << 30U);

std::unexpected<std::string> failed(const Error& error) {
  return std::unexpected(error.message());
}

template <typename Pick>
double median_of(const std::vector<Sample>& samples, Pick pick) {
  std::vector<double> values;
  values.reserve(samples.size());
  for (const Sample& sample : samples) values.push_back(static_cast<double>(pick(sample)));
  return spread_of(std::move(values)).median;
}

}  // namespace

std::vector<Case> cases_of(const Settings& settings) {
  std::vector<Case> cases;
  for (const Pages pages : settings.pages) {
    for (const unsigned threads : settings.threads) {
      for (const heap::PretouchStrategy strategy : settings.strategies) {
        // Base pages cannot be asked for and collapsed as well.
        if (strategy == heap::PretouchStrategy::kCollapse && pages == Pages::kBase) continue;
        cases.push_back({.strategy = strategy, .pages = pages, .threads = threads});
      }
    }
  }
  return cases;
}

std::string pages_name(Pages pages, const arch::Geometry& geometry) {
  if (pages == Pages::kBase) return fmt::format("{}K", geometry.base_page >> 10U);
  return fmt::format("THP {}M", geometry.pmd >> 20U);
}

double seconds_of_all(const Settings& settings, double base_page_rate) {
  double seconds = 0;
  for (const Case& what : cases_of(settings)) {
    if (what.pages != Pages::kBase) continue;
    seconds += static_cast<double>(settings.bytes) / base_page_rate * (settings.repeat + 1);
  }
  return seconds;
}

std::expected<Sample, std::string> run_case(const Case& what, const Settings& settings) {
  const bool huge = what.pages == Pages::kHuge;
  auto reservation = heap::Reservation::reserve(
      {.size = settings.bytes,
       .alignment = settings.geometry.pmd,
       .name = "touchstone-shatter",
       .huge_pages = huge ? heap::HugePages::kPrefer : heap::HugePages::kAvoid});
  if (!reservation) return failed(reservation.error());
  const heap::MemoryRange range = reservation->range();
  if (const auto committed = reservation->commit(range); !committed) {
    return failed(committed.error());
  }

  heap::PretouchOptions options;
  options.strategy = what.strategy;
  options.threads = what.threads;
  options.huge_pages = huge ? heap::HugePageAdvice::kHuge : heap::HugePageAdvice::kNoHuge;
  options.touch_kernel = settings.touch_kernel;
  options.geometry = settings.geometry;
  options.count_system_wide = true;
  const heap::PretouchOutcome outcome = heap::pretouch(range.data(), range.size(), options);
  if (!outcome) return failed(outcome.error().error);

  Sample sample{.seconds = outcome->seconds,
                .bytes = outcome->bytes,
                .used = outcome->strategy,
                .touch_kernel = outcome->touch_kernel,
                .choice = outcome->choice};
  if (!outcome->faults) return failed(outcome->faults.error());
  sample.minor_faults = outcome->faults->minor;
  if (outcome->system_wide && outcome->system_wide->has_value()) {
    const heap::Vmstat& delta = **outcome->system_wide;
    sample.thp_fault_alloc = delta.thp_fault_alloc;
    sample.thp_zero_page_alloc = delta.thp_zero_page_alloc;
    sample.thp_split_pmd = delta.thp_split_pmd;
  }
  if (const auto smaps = heap::smaps(range.data(), range.size())) {
    sample.huge_bytes = smaps->anon_huge_pages;
    sample.rss_bytes = smaps->rss;
  }

  if (what.strategy != heap::PretouchStrategy::kNone) {
    try {
      sample.memset_seconds = time_memset(range.data(), range.size(), what.threads);
      sample.nontemporal_seconds = time_nontemporal(range.data(), range.size(), what.threads);
    } catch (const std::system_error& error) {
      return std::unexpected(fmt::format("thread creation: {}", error.what()));
    }
  }
  if (const auto destroyed = reservation->destroy(); !destroyed) return failed(destroyed.error());
  return sample;
}

Row summarise(const Case& what, const Settings& settings,
              const std::vector<std::expected<Sample, std::string>>& rounds) {
  Row row{.what = what};
  std::vector<Sample> samples;
  for (const auto& round : rounds) {
    if (!round) {
      row.error = round.error();
      return row;
    }
    samples.push_back(*round);
  }
  if (samples.empty()) {
    row.error = "no round was run";
    return row;
  }
  row.rounds = samples.size();
  row.last = samples.back();
  std::vector<double> seconds;
  seconds.reserve(samples.size());
  for (const Sample& sample : samples) seconds.push_back(sample.seconds);
  row.seconds = spread_of(std::move(seconds));
  if (row.seconds.median > 0) {
    row.gib_per_second = static_cast<double>(row.last.bytes) / kGiB / row.seconds.median;
  }
  const auto relative = [](double reference, double own) { return own > 0 ? reference / own : 0; };
  row.relative_to_memset =
      median_of(samples, [&](const Sample& s) { return relative(s.memset_seconds, s.seconds); });
  row.relative_to_nontemporal = median_of(
      samples, [&](const Sample& s) { return relative(s.nontemporal_seconds, s.seconds); });
  row.minor_faults = static_cast<std::uint64_t>(
      median_of(samples, [](const Sample& s) { return s.minor_faults; }));
  if (const std::size_t pages = row.last.bytes / settings.geometry.base_page; pages > 0) {
    row.faults_per_page = static_cast<double>(row.minor_faults) / static_cast<double>(pages);
  }
  row.huge_bytes = row.last.huge_bytes;
  for (const Sample& sample : samples) row.huge_bytes = std::min(row.huge_bytes, sample.huge_bytes);
  return row;
}

std::vector<Row> run_all(const Settings& settings,
                         const std::function<void(const Case&)>& before_each) {
  const std::vector<Case> cases = cases_of(settings);
  std::vector<std::vector<std::expected<Sample, std::string>>> rounds(cases.size());
  std::vector<bool> given_up(cases.size(), false);
  for (unsigned round = 0; round <= settings.repeat; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      before_each(cases[i]);
      if (given_up[i]) continue;
      auto sample = run_case(cases[i], settings);
      given_up[i] = !sample.has_value();
      const bool warm_up = round == 0;
      if (!warm_up || given_up[i]) rounds[i].push_back(std::move(sample));
    }
  }
  std::vector<Row> rows;
  rows.reserve(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    rows.push_back(summarise(cases[i], settings, rounds[i]));
  }
  return rows;
}

}  // namespace touchstone::shatter
