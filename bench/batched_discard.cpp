// SPDX-License-Identifier: MIT
// How much faster are many small pieces given back by batched process_madvise than one by one? Seed
// 002: process_madvise that takes its lock once for all ranges of a call.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/discard.h>
#include <touchstone/heap/reservation.h>
#include <touchstone/heap/residency.h>
#include <touchstone/heap/system_calls.h>

#include "seeds/seed_run.h"

namespace {

using namespace touchstone;
using bench::Cell;
using bench::Origin;
using bench::SeedRun;
using bench::Table;
using bench::VerdictKind;
using heap::BatchedDiscard;
using heap::DiscardPolicy;
using heap::HugePages;
using heap::MemoryRange;
using heap::Reservation;

struct InSeed {
  std::size_t ranges;  ///< In a call of process_madvise; 0: madvise.
  double before;       ///< ns for 256 MiB.
  double after;
};
constexpr InSeed kSeed[] = {
    {0, 124062365, 96670188},  {1, 136341258, 113915688}, {2, 105314942, 78898211},
    {4, 82012858, 59778998},   {8, 82562651, 51003069},   {16, 71474930, 47575960},
    {32, 71391211, 42902076},  {64, 68225932, 41337835},  {128, 71053578, 42467240},
    {256, 85094126, 41630463}, {512, 68531628, 44049763}, {1024, 79338892, 43370866},
};

/// One way to give the pieces back, and how long its passes took.
struct Way {
  std::size_t ranges = 0;
  DiscardPolicy policy = DiscardPolicy::kAtOnce;
  std::unique_ptr<BatchedDiscard> batched{};  ///< None: one call a piece.
  std::vector<double> times{};
  double timed = 0;
};

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  __asm__ volatile("yield");
#endif
}

void populate(MemoryRange range) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, for older headers.
  // What was only offered, by MADV_FREE, must be written to be kept.
  if (heap::system_calls().madvise(range.data(), range.size(), kPopulateWrite) != 0) {
    std::memset(range.data(), 1, range.size());
    return;
  }
  const std::size_t page = arch::base_page_size();
  for (std::size_t at = 0; at < range.size(); at += page) {
    *static_cast<volatile std::byte*>(range.data() + at) = std::byte{1};
  }
}

/// One pass; false where the kernel refuses.
bool give_back(Way& way, const std::vector<MemoryRange>& pieces, SeedRun& run) {
  bool fine = true;
  const double start = run.clock();
  if (way.batched != nullptr) {
    fine = way.batched->discard(pieces).has_value() && way.batched->batching();
  } else {
    const int advice = way.policy == DiscardPolicy::kLazily ? MADV_FREE : MADV_DONTNEED;
    for (const MemoryRange& each : pieces) {
      fine &= heap::system_calls().madvise(each.data(), each.size(), advice) == 0;
    }
  }
  const double time = run.clock() - start;
  way.times.push_back(time);
  way.timed += time;
  return fine;
}

/// Takes turns among the ways until each has been timed for `seconds`.
void take_turns(std::vector<Way>& ways, MemoryRange memory, const std::vector<MemoryRange>& pieces,
                SeedRun& run, const std::string& what) {
  const double enough = run.pick(5e9, 0.0, 0.0);
  const std::size_t least = run.pick<std::size_t>(3, 2, 1);
  for (std::size_t round = 0;; ++round) {
    bool all_done = true;
    for (Way& way : ways) {
      if (way.times.size() >= least && way.timed >= enough) continue;
      all_done = false;
      populate(memory);
      if (!give_back(way, pieces, run)) {
        run.missing({what + (way.batched == nullptr ? " one by one" : " in batches"),
                     way.batched == nullptr
                         ? "madvise failed"
                         : "process_madvise refuses such advice on the process itself",
                     "Linux 6.13 brings it, and a seccomp filter may forbid it"});
        // Those of the same kind would fail as well.
        std::erase_if(ways, [&](const Way& each) {
          return (each.batched == nullptr) == (way.batched == nullptr) && each.policy == way.policy;
        });
        all_done = ways.empty();
        break;
      }
      // The first touch of memory that the host has not given yet is slower than any other.
      if (round == 0 && run.effort() != bench::Effort::kCounted) {
        way.times.clear();
        way.timed = 0;
      }
    }
    if (all_done) return;
  }
}

Cell time_of(const std::vector<Way>& ways, std::size_t ranges, DiscardPolicy policy) {
  for (const Way& way : ways) {
    if (way.ranges == ranges && way.policy == policy && !way.times.empty()) {
      return bench::figure_of(way.times);
    }
  }
  return {};
}

/// The memory, committed; nothing where there is too little.
std::optional<Reservation> memory_for(SeedRun& run, std::size_t size, HugePages huge,
                                      const std::string& what) {
  if (!run.has_memory(size, what)) return std::nullopt;
  auto memory =
      Reservation::reserve({.size = size, .alignment = arch::geometry().pmd, .huge_pages = huge});
  if (!memory) {
    run.missing({what, memory.error().message(), "more address space, or THP"});
    return std::nullopt;
  }
  if (const auto committed = memory->commit(memory->range()); !committed) {
    run.missing({what, committed.error().message(), "more memory"});
    return std::nullopt;
  }
  return std::move(*memory);
}

void base_pages(SeedRun& run) {
  const std::size_t page = arch::base_page_size();
  const std::size_t size = run.pick<std::size_t>(256, 16, 16) << 20U;
  const std::string what = fmt::format("{} MiB in base pages", size >> 20U);
  std::optional<Reservation> memory = memory_for(run, size, HugePages::kAvoid, what);
  if (!memory) return;
  // No two that follow each other touch, or BatchedDiscard would make one of them.
  std::vector<MemoryRange> pieces;
  for (const std::size_t odd : {0U, 1U}) {
    for (std::size_t i = odd; i < size / page; i += 2) {
      pieces.push_back(memory->range().subspan(i * page, page));
    }
  }
  std::vector<Way> ways;
  for (const InSeed& each : kSeed) {
    ways.push_back({.ranges = each.ranges});
    if (each.ranges != 0) {
      ways.back().batched =
          std::make_unique<BatchedDiscard>(heap::DiscardOptions{.ranges_per_call = each.ranges});
    }
  }
  take_turns(ways, memory->range(), pieces, run, what);
  std::vector<Way> lazy;
  for (const std::size_t ranges : {0U, 1U, 16U, 1024U}) {
    lazy.push_back({.ranges = ranges, .policy = DiscardPolicy::kLazily});
    if (ranges != 0) {
      lazy.back().batched = std::make_unique<BatchedDiscard>(
          heap::DiscardOptions{.policy = DiscardPolicy::kLazily, .ranges_per_call = ranges});
    }
  }
  take_turns(lazy, memory->range(), pieces, run, what + " by MADV_FREE");

  std::vector<Way> beside;
  if (std::thread::hardware_concurrency() > 1 && run.effort() != bench::Effort::kCounted) {
    for (const std::size_t ranges : {0U, 1U, 16U, 1024U}) {
      beside.push_back({.ranges = ranges});
      if (ranges != 0) {
        beside.back().batched =
            std::make_unique<BatchedDiscard>(heap::DiscardOptions{.ranges_per_call = ranges});
      }
    }
    // A mutator, whose CPU has to be told of every page that goes.
    const std::jthread mutator([](const std::stop_token& stop) {
      while (!stop.stop_requested()) pause_cpu();
    });
    take_turns(beside, memory->range(), pieces, run, what + " beside another thread");
  } else {
    run.missing({what + " beside another thread", "there is one CPU", "a second CPU"});
  }

  Table& table = run.table(
      {.title = fmt::format("{} given back a page at a time", what),
       .explanation = "A pass. MADV_DONTNEED, every other page and then those between; 0 ranges is "
                      "one madvise a page, as the seed has it. Gains are over that. Beside a "
                      "thread: another of the process runs meanwhile, so that its CPU is "
                      "interrupted to forget the pages. The seed: 256 MiB, one thread.",
       .row_labels = {"ranges a call"},
       .columns = {{"seed_before", "before", "ns", Origin::kSeed},
                   {"seed_after", "after", "ns", Origin::kSeed},
                   {"here", "here", run.unit()},
                   {"beside", "beside a thread", run.unit()},
                   {"free", "MADV_FREE", run.unit()},
                   {"seed_before_gain", "before", "ratio", Origin::kSeed},
                   {"seed_after_gain", "after", "ratio", Origin::kSeed},
                   {"gain", "here", "ratio"},
                   {"beside_gain", "beside a thread", "ratio"},
                   {"free_gain", "MADV_FREE", "ratio"}}});
  const Cell single = time_of(ways, 0, DiscardPolicy::kAtOnce);
  const Cell single_lazy = time_of(lazy, 0, DiscardPolicy::kLazily);
  const Cell single_beside = time_of(beside, 0, DiscardPolicy::kAtOnce);
  double best = 0;
  double best_beside = 0;
  double best_in_seed = 0;
  std::size_t best_ranges = 0;
  for (const InSeed& each : kSeed) {
    auto& row = table.add({std::to_string(each.ranges)}).cells;
    row["seed_before"] = each.before;
    row["seed_after"] = each.after;
    row["here"] = time_of(ways, each.ranges, DiscardPolicy::kAtOnce);
    row["free"] = time_of(lazy, each.ranges, DiscardPolicy::kLazily);
    row["seed_before_gain"] = kSeed[0].before / each.before;
    row["seed_after_gain"] = kSeed[0].after / each.after;
    row["beside"] = time_of(beside, each.ranges, DiscardPolicy::kAtOnce);
    row["gain"] = bench::ratio(single, row["here"]);
    row["beside_gain"] = bench::ratio(single_beside, row["beside"]);
    if (const double gain = bench::middle(row["beside_gain"]); gain > best_beside) {
      best_beside = gain;
    }
    row["free_gain"] = bench::ratio(single_lazy, row["free"]);
    best_in_seed = std::max(best_in_seed, kSeed[0].after / each.after);
    if (const double gain = bench::middle(row["gain"]); gain > best) {
      best = gain;
      best_ranges = each.ranges;
    }
  }
  if (best_ranges != 0) {
    run.verdict(
        std::max(best, best_beside) >= 3 ? VerdictKind::kGood : VerdictKind::kNote,
        fmt::format("Giving back {} ranges in a call is {:.3g} times as fast as one by one "
                    "here.",
                    best_ranges, best),
        fmt::format(
            "The best batch of the seed gained {:.3g} times with its patch.{}", best_in_seed,
            best_beside == 0
                ? ""
                : fmt::format(" While another thread runs it is {:.3g} times here.", best_beside)));
  }
}

void huge_pages(SeedRun& run) {
  const std::size_t pmd = arch::geometry().pmd;
  const std::size_t size = std::max(run.pick<std::size_t>(256, 16, 16) << 20U, 4 * pmd);
  const std::string what = fmt::format("{} MiB in huge pages", size >> 20U);
  std::optional<Reservation> memory = memory_for(run, size, HugePages::kPrefer, what);
  if (!memory) return;
  populate(memory->range());
  const auto resident = heap::residency_of(memory->data(), memory->size());
  if (!resident || resident->huge.value_or(size) != size) {
    run.missing({what, "the kernel gave none, or not enough of them",
                 "madvise or always in /sys/kernel/mm/transparent_hugepage/enabled"});
    return;
  }
  std::vector<MemoryRange> pieces;
  for (const std::size_t odd : {0U, 1U}) {
    for (std::size_t i = odd; i < size / pmd; i += 2) {
      pieces.push_back(memory->range().subspan(i * pmd, pmd));
    }
  }
  std::vector<Way> ways;
  for (const std::size_t ranges : {0U, 1U, 16U, 1024U}) {
    ways.push_back({.ranges = ranges});
    if (ranges != 0) {
      ways.back().batched = std::make_unique<BatchedDiscard>(
          heap::DiscardOptions{.granule = pmd, .ranges_per_call = ranges});
    }
  }
  const std::size_t passes = run.pick<std::size_t>(20, 2, 1);
  for (std::size_t round = 0; round < passes; ++round) {
    for (Way& way : ways) {
      populate(memory->range());
      if (!give_back(way, pieces, run)) way.times.clear();
    }
  }
  Table& table = run.table({.title = fmt::format("{} given back one at a time", what),
                            .explanation = "A pass, MADV_DONTNEED.",
                            .row_labels = {"ranges a call"},
                            .columns = {{"here", "here", run.unit()}, {"gain", "gain", "ratio"}}});
  const Cell single = time_of(ways, 0, DiscardPolicy::kAtOnce);
  for (const Way& way : ways) {
    auto& row = table.add({std::to_string(way.ranges)}).cells;
    row["here"] = time_of(ways, way.ranges, DiscardPolicy::kAtOnce);
    row["gain"] = bench::ratio(single, row["here"]);
  }
}

void measure(SeedRun& run) {
  base_pages(run);
  huge_pages(run);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_seed(argc, argv,
                         {.seed = "002",
                          .name = "batched_discard",
                          .title = "Giving memory back in batches",
                          .question = "How much faster are many small ranges given back by one "
                                      "system call than by one each?"},
                         measure);
}
