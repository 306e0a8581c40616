// SPDX-License-Identifier: MIT
#include "pretouch_choice.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <utility>

#include <sys/mman.h>

#include <touchstone/heap/system_calls.h>

#include "page_probe.h"
#include "pretouch_limits.h"
#include "pretouch_run.h"

namespace touchstone::heap {
namespace {

constexpr const char* kOperation = "choose_pretouch_strategy";
/// Small enough to cost a process start nothing, large enough to hold two huge pages of 2 MiB.
constexpr std::size_t kScratch = std::size_t{4} << 20;
/// The first run warms the memory up; the best of the others counts.
constexpr unsigned kRounds = 3;
/// Huge pages above this size are tried once: clearing them takes long.
constexpr std::size_t kMaxRepeated = std::size_t{16} << 20;
/// A later candidate must be this much faster than an earlier one to be picked, and then also win
/// this many of that many direct matches: on a busy machine the order of two times is a matter of
/// chance.
constexpr double kClearlyFaster = 0.95;
constexpr unsigned kMatches = 9;
constexpr unsigned kWins = 8;

/// A mapping of its own between two guards, so that smaps tells of it alone.
class Scratch {
 public:
  [[nodiscard]] static Result<Scratch> make(std::size_t length, std::size_t alignment,
                                            std::size_t base_page) {
    const SystemCalls& calls = system_calls();
    const std::size_t whole = length + alignment + 2 * base_page;
    void* const mapping =
        calls.mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
      return std::unexpected(Error{.code = code_of_errno(errno),
                                   .operation = "mmap",
                                   .length = whole,
                                   .system_errno = errno});
    }
    Scratch scratch(static_cast<std::byte*>(mapping), whole);
    const auto start = reinterpret_cast<std::uintptr_t>(mapping) + base_page;
    const std::size_t offset = (start + alignment - 1) / alignment * alignment - start + base_page;
    scratch.begin_ = scratch.mapping_ + offset;
    scratch.length_ = length;
    if (calls.mprotect(scratch.begin_, length, PROT_READ | PROT_WRITE) != 0) {
      return std::unexpected(Error{.code = code_of_errno(errno),
                                   .operation = "mprotect",
                                   .length = length,
                                   .system_errno = errno});
    }
    return scratch;
  }
  Scratch(Scratch&& other) noexcept
      : mapping_(std::exchange(other.mapping_, nullptr)),
        whole_(other.whole_),
        begin_(other.begin_),
        length_(other.length_) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    if (mapping_ != nullptr) system_calls().munmap(mapping_, whole_);
  }

  [[nodiscard]] std::byte* begin() const noexcept { return begin_; }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }

 private:
  Scratch(std::byte* mapping, std::size_t whole) noexcept : mapping_(mapping), whole_(whole) {}
  std::byte* mapping_;
  std::size_t whole_;
  std::byte* begin_ = nullptr;
  std::size_t length_ = 0;
};

bool huge_pages_possible(HugePageAdvice advice, const Result<arch::ThpMode>& mode) noexcept {
  if (advice == HugePageAdvice::kNoHuge) return false;
  if (!mode) return advice == HugePageAdvice::kHuge;
  if (*mode == arch::ThpMode::kNever) return false;
  return advice == HugePageAdvice::kHuge || *mode == arch::ThpMode::kAlways;
}

/// One strategy on fresh scratch memory.
PretouchTrial try_once(PretouchStrategy strategy, HugePageAdvice advice, std::size_t length,
                       arch::Geometry geometry, const TouchKernel& kernel, const PageProbe* probe) {
  PretouchTrial trial{.strategy = strategy, .length = length};
  const Result<Scratch> scratch = Scratch::make(length, geometry.pmd, geometry.base_page);
  if (!scratch) {
    trial.error = scratch.error();
    return trial;
  }
  std::uint64_t retries = 0;
  if (advice != HugePageAdvice::kLeave) {
    const int value = advice == HugePageAdvice::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    // Without THP there is nothing to advise, and the trial shows what there is.
    static_cast<void>(advise_whole(scratch->begin(), length, value, "madvise", retries));
  }
  const Toucher toucher(kernel, geometry, probe, true);
  toucher.warm_up(strategy);
  Toucher::Piece piece{.begin = scratch->begin(), .length = length};
  toucher.touch(strategy, piece, [] { return false; });
  trial.seconds = piece.cpu_seconds;
  trial.error = piece.error;
  trial.minor_faults = piece.faults_known ? piece.faults.minor : 0;
  const Result<Smaps> map = smaps(scratch->begin(), length);
  if (map && map->exact) {
    trial.populated = map->anonymous + map->swap;
    trial.huge = map->anon_huge_pages;
  }
  if (probe != nullptr) {
    const Result<Residency> found = probe->residency(scratch->begin(), length);
    if (found) {
      trial.populated = found->populated();
      if (found->huge) trial.huge = found->huge;
    }
  }
  // By the machine's own sizes: an injected geometry changes neither pages nor faults.
  const arch::Geometry real = arch::geometry();
  const std::size_t huge = std::min(trial.huge.value_or(0), trial.populated);
  trial.expected_faults = huge / real.pmd + (trial.populated - huge) / real.base_page;
  return trial;
}

/// A touch that faults twice takes twice the faults. A few more are the process's own: a page of
/// its stack, of a library, or of a sanitizer.
bool faulted_once(const PretouchTrial& trial) noexcept {
  return trial.minor_faults <= trial.expected_faults + trial.expected_faults / 2;
}

void judge(std::vector<PretouchTrial>& trials) {
  std::size_t most_huge = 0;
  for (const PretouchTrial& trial : trials) most_huge = std::max(most_huge, trial.huge.value_or(0));
  for (PretouchTrial& trial : trials) {
    trial.sound = !trial.error && trial.populated == trial.length && faulted_once(trial) &&
                  trial.huge.value_or(0) == most_huge;
  }
}

/// Whether `a`, which was tried after `b`, is better.
bool better(const PretouchTrial& a, const PretouchTrial& b) noexcept {
  if (a.sound != b.sound) return a.sound;
  if (!a.sound) {
    if (a.error.has_value() != b.error.has_value()) return !a.error;
    if (a.populated != b.populated) return a.populated > b.populated;
    if (a.huge.value_or(0) != b.huge.value_or(0)) return a.huge.value_or(0) > b.huge.value_or(0);
    if (a.minor_faults != b.minor_faults) return a.minor_faults < b.minor_faults;
  }
  return a.seconds < b.seconds * kClearlyFaster;
}

/// Whether `a` beats `b` in nearly all of some direct matches, each going first in turn.
template <typename Try>
bool wins(PretouchStrategy a, PretouchStrategy b, const Try& again) {
  unsigned won = 0;
  for (unsigned match = 0; match < kMatches; ++match) {
    double seconds_a = 0;
    double seconds_b = 0;
    if (match % 2 == 0) seconds_a = again(a).seconds;
    seconds_b = again(b).seconds;
    if (match % 2 != 0) seconds_a = again(a).seconds;
    if (seconds_a < seconds_b) ++won;
    if (match + 1 - won > kMatches - kWins) return false;
  }
  return won >= kWins;
}

std::string speed(const PretouchTrial& trial) {
  if (trial.seconds <= 0) return "in no time to speak of";
  char text[64];
  std::snprintf(text, sizeof text, "at %.1f GiB/s",
                static_cast<double>(trial.length) / trial.seconds / (1 << 30));
  return text;
}

/// What is wrong with a trial, or how fast it was.
std::string describe(const PretouchTrial& trial, std::size_t most_huge) {
  if (trial.error) return "fails (" + trial.error->message() + ")";
  if (trial.populated < trial.length) return "leaves memory untouched";
  if (!faulted_once(trial)) return "takes double faults";
  if (trial.huge.value_or(0) < most_huge) return "brings fewer huge pages";
  return "works " + speed(trial);
}

std::string explain(const std::vector<PretouchTrial>& trials, const PretouchTrial& chosen) {
  std::size_t most_huge = 0;
  for (const PretouchTrial& trial : trials) most_huge = std::max(most_huge, trial.huge.value_or(0));
  std::string text = std::string("tried on scratch memory, ") + to_string(chosen.strategy);
  if (chosen.error) {
    text += " " + describe(chosen, most_huge);
  } else {
    text += " gave " + std::to_string(chosen.populated >> 20) + " of " +
            std::to_string(chosen.length >> 20) + " MiB by " + std::to_string(chosen.minor_faults) +
            " faults";
    if (chosen.huge) text += ", " + std::to_string(*chosen.huge >> 20) + " MiB in huge pages";
    text += ", " + speed(chosen);
  }
  for (const PretouchTrial& trial : trials) {
    if (&trial == &chosen) continue;
    text += std::string("; ") + to_string(trial.strategy) + " " + describe(trial, most_huge);
  }
  const bool faster = std::ranges::any_of(trials, [&chosen](const PretouchTrial& trial) {
    return trial.sound && chosen.sound && trial.seconds < chosen.seconds;
  });
  if (faster) text += "; none was faster in nearly all direct matches";
  if (!chosen.sound) text += "; none left the memory whole without double faults";
  return text;
}

PretouchChoice without_scratch(bool memory_in_use, const std::string& why) {
  return {.strategy = memory_in_use ? PretouchStrategy::kAtomicRmw : PretouchStrategy::kStore,
          .reason = "nothing could be tried (" + why + "), and this works everywhere"};
}

PretouchChoice choose(const PretouchOptions& options, arch::Geometry geometry,
                      const Result<arch::ThpMode>& mode, const TouchKernel& kernel) {
  const bool huge = huge_pages_possible(options.huge_pages, mode);
  const std::size_t length = huge ? std::max(kScratch, geometry.pmd) : kScratch;
  const PretouchLimits limits = read_limits(options.roots);
  if (memory_headroom(limits, length, geometry, 1) < 2 * length) {
    return without_scratch(options.memory_in_use, "the memory limits leave no room for a trial");
  }
  const Result<PageProbe> probe = PageProbe::open_best();
  const PageProbe* const source = probe ? &*probe : nullptr;

  std::vector<PretouchStrategy> candidates{PretouchStrategy::kPopulateWrite};
  if (!options.memory_in_use) candidates.push_back(PretouchStrategy::kStore);
  if (!options.memory_in_use || kernel.value_preserving) {
    candidates.push_back(PretouchStrategy::kAtomicRmw);
  }
  const auto again = [&](PretouchStrategy strategy) {
    return try_once(strategy, options.huge_pages, length, geometry, kernel, source);
  };
  const unsigned rounds = length <= kMaxRepeated ? kRounds : 1;
  std::vector<PretouchTrial> trials;
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < candidates.size(); ++turn) {
      const std::size_t i = (turn + round) % candidates.size();
      PretouchTrial trial = again(candidates[i]);
      if (round == 0) {
        trials.push_back(trial);
      } else {
        // The counts of one round must hold in all; the time is the best.
        trial.minor_faults = std::max(trial.minor_faults, trials[i].minor_faults);
        trial.seconds = std::min(trial.seconds, round == 1 ? trial.seconds : trials[i].seconds);
        if (trials[i].error) trial.error = trials[i].error;
        trials[i] = trial;
      }
    }
  }
  judge(trials);
  const bool any_whole = std::ranges::any_of(trials, [](const PretouchTrial& trial) {
    return trial.sound && trial.huge.value_or(0) == trial.length;
  });
  if (huge && options.huge_pages == HugePageAdvice::kHuge && !any_whole) {
    trials.push_back(again(PretouchStrategy::kCollapse));
    judge(trials);
  }
  if (std::ranges::all_of(trials,
                          [](const PretouchTrial& trial) { return trial.populated == 0; })) {
    const std::optional<Error>& error = trials.front().error;
    return without_scratch(options.memory_in_use,
                           error ? error->message() : "no source tells residency");
  }
  const PretouchTrial* best = &trials.front();
  for (const PretouchTrial& trial : trials) {
    if (!better(trial, *best)) continue;
    const bool by_time_alone = best->sound && trial.sound;
    if (by_time_alone && length <= kMaxRepeated && !wins(trial.strategy, best->strategy, again)) {
      continue;
    }
    best = &trial;
  }
  return {.strategy = best->strategy, .reason = explain(trials, *best), .trials = trials};
}

/// What a choice depends on.
struct Key {
  arch::Geometry geometry;
  HugePageAdvice advice;
  bool memory_in_use;
  int thp_mode;
  const TouchKernel* kernel;
  const SystemCalls* calls;
  std::string proc;
  std::string sys;

  friend bool operator==(const Key&, const Key&) = default;
};

struct Kept {
  std::mutex mutex;
  std::vector<std::pair<Key, PretouchChoice>> choices;
};

Kept& kept() {
  static Kept choices;
  return choices;
}

}  // namespace

Result<arch::Geometry> geometry_of(const PretouchOptions& options) {
  if (options.geometry == arch::Geometry{}) return arch::geometry(options.roots);
  // Touching at a smaller stride than the real page would be right, and counted wrong.
  if (options.geometry.valid() && options.geometry.base_page >= arch::base_page_size()) {
    return options.geometry;
  }
  return std::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                               .operation = kOperation,
                               .detail = "geometry: not powers of two, pmd not above base_page, or "
                                         "base_page below the machine's"});
}

std::vector<PretouchStrategy> ranking(const PretouchChoice& choice, bool memory_in_use) {
  std::vector<PretouchStrategy> order{choice.strategy};
  const auto add = [&order](PretouchStrategy strategy) {
    if (std::ranges::find(order, strategy) == order.end()) order.push_back(strategy);
  };
  for (const PretouchTrial& trial : choice.trials) {
    if (trial.sound) add(trial.strategy);
  }
  for (const PretouchTrial& trial : choice.trials) {
    if (!trial.error) add(trial.strategy);
  }
  if (!memory_in_use) add(PretouchStrategy::kStore);
  return order;
}

Result<PretouchChoice> choose_pretouch_strategy(const PretouchOptions& options) {
  const Result<arch::Geometry> geometry = geometry_of(options);
  if (!geometry) return std::unexpected(geometry.error());
  const TouchKernel& kernel =
      options.touch_kernel != nullptr ? *options.touch_kernel : default_touch_kernel();
  if (kernel.touch == nullptr) {
    return std::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                                 .operation = kOperation,
                                 .detail = "the touch kernel has no function"});
  }
  const Result<arch::ThpMode> mode = arch::thp_mode(options.roots);
  Key key{.geometry = *geometry,
          .advice = options.huge_pages,
          .memory_in_use = options.memory_in_use,
          .thp_mode = mode ? static_cast<int>(*mode) : -1,
          .kernel = &kernel,
          .calls = &system_calls(),
          .proc = options.roots.proc,
          .sys = options.roots.sys};
  const std::lock_guard lock(kept().mutex);
  for (const auto& [known, choice] : kept().choices) {
    if (known == key) return choice;
  }
  kept().choices.emplace_back(std::move(key), choose(options, *geometry, mode, kernel));
  return kept().choices.back().second;
}

void forget_pretouch_choices() noexcept {
  const std::lock_guard lock(kept().mutex);
  kept().choices.clear();
}

}  // namespace touchstone::heap
