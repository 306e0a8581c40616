// SPDX-License-Identifier: MIT
// What does mseal cost the calls on memory that is not sealed? Seed 003: the check that mseal adds
// to munmap, mprotect and madvise, and the question it left open: with thousands of mappings.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/reservation.h>
#include <touchstone/heap/system_calls.h>

#include "seeds/seed_run.h"

namespace {

using namespace touchstone;
using bench::Cell;
using bench::Origin;
using bench::SeedRun;
using bench::Table;
using bench::VerdictKind;

enum class Call : unsigned char { kMunmap, kMprotect, kMadvise };
constexpr std::array kCallNames{"munmap", "mprotect", "madvise"};
constexpr std::array<std::size_t, 6> kSpans{1, 2, 4, 8, 16, 32};

/// ns a call of the seed, without and with the check, by call and span.
constexpr double kSeed[3][6][2] = {
    {{909, 944}, {1398, 1502}, {2444, 2594}, {4029, 4323}, {6647, 6935}, {11811, 12398}},
    {{439, 465}, {1659, 1745}, {3747, 3889}, {6755, 6969}, {13748, 14144}, {27827, 28969}},
    {{240, 262}, {366, 442}, {623, 751}, {1110, 1324}, {2127, 2451}, {4109, 4642}},
};

/// What one fresh process measures.
struct Setting {
  Call call = Call::kMunmap;
  std::size_t span = 1;    // Mappings in one call.
  std::size_t others = 0;  // Mappings that have nothing to do with it.
  bool others_sealed = false;
  bool refused = false;  // The range itself is sealed.
};

/// How the child tells that it could not: the step.
enum class Step : int { kDone, kMap, kOthers, kSeal, kCall, kAllowed };

struct Answer {
  double time = 0;  // A call.
  Step step = Step::kMap;
  int error = 0;
};

/// Makes `count` mappings of a page each, by making every second page inaccessible.
std::byte* checkered(std::size_t count, std::size_t page, bool gap) {
  const heap::SystemCalls& calls = heap::system_calls();
  const std::size_t size = (count + (gap ? 1 : 0)) * page;
  void* const mapped =
      calls.mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(mapped);
  // Else the next one would touch this one, and merge with it.
  if (gap && calls.munmap(start + count * page, page) != 0) return nullptr;
  for (std::size_t i = 1; i < count; i += 2) {
    if (calls.mprotect(start + i * page, page, PROT_NONE) != 0) return nullptr;
  }
  return start;
}

int call_on(Call call, std::byte* start, std::size_t size) {
  const heap::SystemCalls& calls = heap::system_calls();
  switch (call) {
    case Call::kMunmap:
      return calls.munmap(start, size);
    case Call::kMprotect:
      return calls.mprotect(start, size, PROT_READ);
    case Call::kMadvise:
      break;
  }
  return calls.madvise(start, size, MADV_DONTNEED);
}

/// In the child.
Answer measure_here(const SeedRun& run, const Setting& setting, std::size_t maps) {
  const heap::SystemCalls& calls = heap::system_calls();
  const std::size_t page = arch::base_page_size();
  const auto failed = [](Step step) { return Answer{.step = step, .error = errno}; };
  if (setting.others != 0) {
    std::byte* const others = checkered(setting.others, page, true);
    if (others == nullptr) return failed(Step::kOthers);
    if (setting.others_sealed && calls.mseal(others, setting.others * page, 0) != 0) {
      return failed(Step::kSeal);
    }
  }
  const std::size_t size = setting.span * page;
  std::vector<std::byte*> starts(maps);
  for (std::byte*& each : starts) {
    each = checkered(setting.span, page, true);
    if (each == nullptr) return failed(Step::kMap);
    if (setting.refused && calls.mseal(each, size, 0) != 0) return failed(Step::kSeal);
  }
  std::size_t refused = 0;
  const double start = run.clock();
  for (std::byte* const each : starts) {
    if (call_on(setting.call, each, size) != 0) ++refused;
  }
  const double time = run.clock() - start;
  if (!setting.refused && refused != 0) return failed(Step::kCall);
  if (setting.refused && refused != maps) return failed(Step::kAllowed);
  return {.time = time / static_cast<double>(maps), .step = Step::kDone};
}

/// In a fresh child, as sealed memory cannot be unmapped.
Answer sample(const SeedRun& run, const Setting& setting, std::size_t maps) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return {.step = Step::kMap, .error = errno};
  const pid_t child = ::fork();
  if (child == 0) {
    const Answer answer = measure_here(run, setting, maps);
    const bool told = ::write(ends[1], &answer, sizeof answer) == sizeof answer;
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  Answer answer{.step = Step::kMap, .error = child < 0 ? errno : 0};
  if (child > 0) {
    if (::read(ends[0], &answer, sizeof answer) != sizeof answer) answer.step = Step::kMap;
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  ::close(ends[0]);
  return answer;
}

/// A mean with its 95 % confidence interval.
struct Interval {
  double mean = 0;
  double low = 0;
  double high = 0;
};

std::optional<Interval> interval_of(const std::vector<double>& samples) {
  if (samples.size() < 2) return std::nullopt;
  // Student's t, two-sided 95 %, by degrees of freedom.
  constexpr double kT[] = {0,     12.71, 4.303, 3.182, 2.776, 2.571, 2.447,
                           2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
                           2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
  const auto count = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
  double squares = 0;
  for (const double each : samples) squares += (each - mean) * (each - mean);
  const std::size_t freedom = samples.size() - 1;
  const double t = freedom < std::size(kT) ? kT[freedom] : 1.96;
  const double half = t * std::sqrt(squares / static_cast<double>(freedom) / count);
  return Interval{mean, mean - half, mean + half};
}

struct Load {
  const char* key;
  std::string label;
  std::size_t others;
  bool sealed;
  bool refused;
};

void measure(SeedRun& run) {
  const bool full = run.effort() == bench::Effort::kFull;
  const std::size_t rounds = run.pick<std::size_t>(12, 2, 1);
  const std::size_t maps = full ? 1000 : 100;
  const std::size_t many = full ? 32000 : 2000;
  std::vector<Load> loads{
      {"alone", "no others", 0, false, false},
      {"some", "1000 others", 1000, false, false},
      {"many", fmt::format("{} others", many), many, false, false},
      {"some_sealed", "1000 sealed", 1000, true, false},
      {"many_sealed", fmt::format("{} sealed", many), many, true, false},
      {"refused", "refused", 0, false, true},
  };
  const std::size_t needed = many + 33 * maps + 200;
  const auto most = arch::max_map_count();
  if (most && *most < needed) {
    run.missing({fmt::format("{} other mappings", many),
                 fmt::format("vm.max_map_count is {}", *most),
                 fmt::format("sysctl vm.max_map_count={}", needed)});
    std::erase_if(loads, [&](const Load& each) { return each.others == many; });
  }
  {
    // By the heap's own layer, whether there is anything to ask.
    auto memory = heap::Reservation::reserve(
        {.size = arch::base_page_size(), .on_abandoned = [](const Error&) noexcept {}});
    const Result<> sealed =
        memory ? memory->seal(memory->range()) : std::unexpected(memory.error());
    if (!sealed) {
      run.missing({"sealed mappings, and what being refused costs", sealed.error().message(),
                   "Linux 6.10 brings mseal, on 64-bit architectures"});
      std::erase_if(loads, [](const Load& each) { return each.sealed || each.refused; });
    }
  }

  // times[load][call][span] over the rounds.
  using Samples = std::vector<double>;
  std::vector<std::array<std::array<Samples, kSpans.size()>, 3>> times(loads.size());
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t s = 0; s < kSpans.size(); ++s) {
        for (std::size_t l = 0; l < loads.size(); ++l) {
          const Load& load = loads[l];
          const auto call = static_cast<Call>(c);
          // DONTNEED is refused only where anonymous memory is not writable.
          if (load.refused && call == Call::kMadvise && kSpans[s] == 1) continue;
          const Answer answer = sample(run,
                                       {.call = call,
                                        .span = kSpans[s],
                                        .others = load.others,
                                        .others_sealed = load.sealed,
                                        .refused = load.refused},
                                       maps);
          if (answer.step == Step::kDone) {
            times[l][c][s].push_back(answer.time);
          } else {
            run.missing(
                {fmt::format("{} over {} mappings, {}", kCallNames[c], kSpans[s], load.label),
                 answer.step == Step::kAllowed
                     ? std::string("a sealed range was not refused")
                     : fmt::format("{} failed (errno {})",
                                   answer.step == Step::kSeal ? "mseal" : "a call", answer.error),
                 "more memory or mappings"});
          }
        }
      }
    }
  }

  Table& table = run.table(
      {.title = "A call that spans mappings which are not sealed",
       .explanation = fmt::format(
           "{} maps of so many one-page mappings, never touched; each sample in a fresh process. "
           "mprotect is to PROT_READ. Others: unrelated mappings of the process. Refused: the "
           "range "
           "itself is sealed, and the call fails.",
           maps),
       .row_labels = {"call", "mappings"},
       .columns = {{"seed_before", "without", "ns", Origin::kSeed},
                   {"seed_after", "with", "ns", Origin::kSeed},
                   {"seed_each", "check, a mapping", "ns", Origin::kSeed},
                   {"seed_ratio", "with / without", "ratio", Origin::kSeed}}});
  for (const Load& each : loads) table.columns.push_back({each.key, each.label, run.unit()});
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t s = 0; s < kSpans.size(); ++s) {
      auto& row = table.add({kCallNames[c], std::to_string(kSpans[s])}).cells;
      const auto& [without, with] = kSeed[c][s];
      row["seed_before"] = without;
      row["seed_after"] = with;
      row["seed_each"] = (with - without) / static_cast<double>(kSpans[s]);
      row["seed_ratio"] = with / without;
      for (std::size_t l = 0; l < loads.size(); ++l) {
        if (!times[l][c][s].empty()) row[loads[l].key] = bench::figure_of(times[l][c][s]);
      }
    }
  }

  // What one load costs more than another, round by round, over all spans.
  Table& growth =
      run.table({.title = "What unrelated mappings, and sealing them, add",
                 .explanation =
                     "Of the rounds: the mean, and its 95 per cent confidence interval. A ratio is "
                     "the mean over all spans.",
                 .row_labels = {"call", "of", "to"},
                 .columns = {{"ratio", "ratio", "ratio"},
                             {"ratio_low", "at least", "ratio"},
                             {"ratio_high", "at most", "ratio"},
                             {"each", "a mapping spanned", run.unit()},
                             {"each_low", "at least", run.unit()},
                             {"each_high", "at most", run.unit()}}});
  const auto find = [&](std::string_view key) -> std::optional<std::size_t> {
    for (std::size_t l = 0; l < loads.size(); ++l) {
      if (key == loads[l].key) return l;
    }
    return std::nullopt;
  };
  double largest = 1;
  std::string grown;
  for (std::size_t c = 0; c < 3; ++c) {
    for (const auto& [of, to] :
         {std::pair{"some", "alone"}, std::pair{"many", "alone"}, std::pair{"some_sealed", "some"},
          std::pair{"many_sealed", "many"}}) {
      const auto a = find(of);
      const auto b = find(to);
      if (!a || !b) continue;
      Samples ratios;
      Samples each;
      for (std::size_t round = 0; round < rounds; ++round) {
        double ratio = 0;
        double more = 0;
        bool complete = true;
        for (std::size_t s = 0; s < kSpans.size(); ++s) {
          const Samples& mine = times[*a][c][s];
          const Samples& theirs = times[*b][c][s];
          complete = complete && mine.size() == rounds && theirs.size() == rounds;
          if (!complete) break;
          ratio += mine[round] / theirs[round];
          more += (mine[round] - theirs[round]) / static_cast<double>(kSpans[s]);
        }
        if (!complete) continue;
        ratios.push_back(ratio / static_cast<double>(kSpans.size()));
        each.push_back(more / static_cast<double>(kSpans.size()));
      }
      if (ratios.empty()) continue;
      auto& row = growth.add({kCallNames[c], loads[*a].label, loads[*b].label}).cells;
      row["ratio"] = bench::figure_of(ratios).mean;
      row["each"] = bench::figure_of(each).mean;
      const auto ratio = interval_of(ratios);
      const auto more = interval_of(each);
      if (!ratio || !more) continue;
      row["ratio_low"] = ratio->low;
      row["ratio_high"] = ratio->high;
      row["each_low"] = more->low;
      row["each_high"] = more->high;
      if (ratio->low > 1.05) {
        grown += fmt::format("{}{}, {} to {}: {:.3g} times ({:.3g} to {:.3g})",
                             grown.empty() ? "" : "; ", kCallNames[c], loads[*a].label,
                             loads[*b].label, ratio->mean, ratio->low, ratio->high);
      }
      largest = std::max(largest, ratio->high);
    }
  }
  if (growth.rows.empty()) return;
  if (run.effort() != bench::Effort::kFull) {
    run.verdict(VerdictKind::kNote, "Too few samples for a verdict on unrelated mappings.",
                "Run it without --quick.");
  } else if (grown.empty()) {
    run.verdict(
        VerdictKind::kGood,
        "No call grows by more than 5 per cent with unrelated mappings, sealed or not.",
        fmt::format("At most {:.3g} times, at the end of the confidence intervals.", largest));
  } else {
    run.verdict(VerdictKind::kBad, "Calls grow with the mappings of the process.", grown + ".");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_seed(argc, argv,
                         {.seed = "003",
                          .name = "sealing",
                          .title = "Sealing, and calls on what is not sealed",
                          .question = "What do munmap, mprotect and madvise cost by the mappings "
                                      "they span, and by those they do not?"},
                         measure);
}
