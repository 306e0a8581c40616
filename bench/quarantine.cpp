// SPDX-License-Identifier: MIT
// What does it cost to make a freed block inaccessible, and usable again? Seed 000: mprotect(NONE)
// and back, for an allocator that wants to catch uses after free of large blocks.
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/quarantine.h>
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
using heap::MemoryRange;
using heap::QuarantineMechanism;

/// What a program does in each iteration before the block is taken away and given back.
enum class Touch : unsigned char { kAll, kNothing, kOnePage, kBytePerPage };

struct Program {
  const char* name;
  Touch touch;
  std::size_t size;
  /// Of the seed, ns an iteration; 0: not in it.
  double before;
  double after;
};

// The seed gives seconds for 100,000 iterations, but nanoseconds for Scudo's loop.
constexpr Program kPrograms[] = {
    {"memset of all", Touch::kAll, std::size_t{128} << 10U, 29400, 6600},
    {"nothing touched", Touch::kNothing, std::size_t{128} << 10U, 3302.60, 3388.36},
    {"one page touched", Touch::kOnePage, std::size_t{128} << 10U, 4380.48, 3556.61},
    {"memset of all", Touch::kAll, std::size_t{1} << 20U, 0, 0},
    {"nothing touched", Touch::kNothing, std::size_t{1} << 20U, 14289.88, 15120.16},
    {"one page touched", Touch::kOnePage, std::size_t{1} << 20U, 15185.59, 15244.17},
    {"allocator's loop", Touch::kBytePerPage, std::size_t{128} << 10U, 27450, 6010},
};

/// Takes a block away and gives it back.
enum class Cycle : unsigned char {
  kCalls,        // mprotect twice, as the seed's programs do.
  kFree,         // The same with MADV_FREE in between: the memory may go meanwhile.
  kHeapProtect,  // heap::Quarantine by mprotect.
  kHeapGuard,    // heap::Quarantine by guard regions.
};
constexpr std::size_t kCycles = 4;

struct Sample {
  double time = 0;    // An iteration.
  double faults = 0;  // An iteration, the first left out.
};

class Runner {
 public:
  Runner(SeedRun& run, std::size_t page) : run_(run), page_(page) {
    for (const auto& [slot, mechanism] : {std::pair{&protect_, QuarantineMechanism::kProtect},
                                          std::pair{&guard_, QuarantineMechanism::kGuard}}) {
      auto made = heap::Quarantine::create({.mechanism = mechanism});
      if (made) *slot = std::move(*made);
    }
    if (guard_ == nullptr) {
      run.missing(
          {"guard regions", "the kernel refuses MADV_GUARD_INSTALL", "Linux 6.13 brings it"});
    }
  }

  [[nodiscard]] bool can(Cycle cycle) const { return cycle != Cycle::kHeapGuard || guard_; }

  /// One run of a program: a fresh mapping, and so many iterations.
  [[nodiscard]] bool sample(const Program& program, Cycle cycle, std::size_t iterations,
                            Sample& out) {
    const heap::SystemCalls& calls = heap::system_calls();
    void* const mapped = calls.mmap(nullptr, program.size, PROT_READ | PROT_WRITE,
                                    MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
    if (mapped == MAP_FAILED) return false;
    const MemoryRange block(static_cast<std::byte*>(mapped), program.size);
    bool fine = true;
    double faults = 0;
    const double start = run_.clock();
    if (program.touch == Touch::kNothing || program.touch == Touch::kOnePage) {
      std::memset(mapped, 1, program.size);
    }
    for (std::size_t i = 0; i < iterations && fine; ++i) {
      if (i == 1) faults = bench::faults_so_far();
      touch(program, block, i);
      fine = turn(cycle, block);
    }
    out.time = (run_.clock() - start) / static_cast<double>(iterations);
    out.faults = (bench::faults_so_far() - faults) / static_cast<double>(iterations - 1);
    calls.munmap(mapped, program.size);
    return fine;
  }

 private:
  void touch(const Program& program, MemoryRange block, std::size_t i) const {
    switch (program.touch) {
      case Touch::kAll:
        std::memset(block.data(), static_cast<int>(i), block.size());
        break;
      case Touch::kNothing:
        break;
      case Touch::kOnePage:
        std::memset(block.data() + i * page_ % block.size(), static_cast<int>(i), page_);
        break;
      case Touch::kBytePerPage:
        for (std::size_t at = 0; at < block.size(); at += page_) {
          *static_cast<volatile std::byte*>(block.data() + at) = static_cast<std::byte>(i);
        }
        break;
    }
  }

  [[nodiscard]] bool turn(Cycle cycle, MemoryRange block) {
    const heap::SystemCalls& calls = heap::system_calls();
    if (cycle == Cycle::kHeapProtect || cycle == Cycle::kHeapGuard) {
      heap::Quarantine& quarantine = cycle == Cycle::kHeapGuard ? *guard_ : *protect_;
      if (!quarantine.put(block, 0)) return false;
      const auto released = quarantine.release_any();
      return released && *released;
    }
    if (calls.mprotect(block.data(), block.size(), PROT_NONE) != 0) return false;
    if (cycle == Cycle::kFree && calls.madvise(block.data(), block.size(), MADV_FREE) != 0) {
      return false;
    }
    return calls.mprotect(block.data(), block.size(), PROT_READ | PROT_WRITE) == 0;
  }

  SeedRun& run_;
  std::size_t page_;
  std::unique_ptr<heap::Quarantine> protect_;
  std::unique_ptr<heap::Quarantine> guard_;
};

struct Samples {
  std::vector<double> times;
  std::vector<double> faults;
};

/// Mappings that quarantining every second of some blocks adds, for each of them.
Cell mappings_per_block(QuarantineMechanism mechanism) {
  constexpr std::size_t kBlocks = 64;
  constexpr std::size_t kSize = std::size_t{128} << 10U;
  auto memory = heap::Reservation::reserve({.size = 2 * kBlocks * kSize});
  if (!memory || !memory->commit(memory->range())) return {};
  auto quarantine = heap::Quarantine::create({.mechanism = mechanism});
  const auto before = heap::smaps(memory->data(), memory->size());
  if (!quarantine || !before) return {};
  for (std::size_t i = 0; i < kBlocks; ++i) {
    // Not the first, which has no neighbour on one side.
    if (!(*quarantine)->put(memory->range().subspan((2 * i + 1) * kSize - kSize / 2, kSize), i)) {
      return {};
    }
  }
  const auto after = heap::smaps(memory->data(), memory->size());
  if (!after) return {};
  return static_cast<double>(after->mappings - before->mappings) / kBlocks;
}

void measure(SeedRun& run) {
  const std::size_t page = arch::base_page_size();
  Runner runner(run, page);
  const std::string unit = run.unit();

  std::vector<std::vector<Samples>> taken(std::size(kPrograms), std::vector<Samples>(kCycles));
  const std::size_t rounds = run.pick<std::size_t>(10, 3, 1);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t p = 0; p < std::size(kPrograms); ++p) {
      const Program& program = kPrograms[p];
      for (std::size_t c = 0; c < kCycles; ++c) {
        const auto cycle = static_cast<Cycle>(c);
        if (!runner.can(cycle)) continue;
        // The seed: 100,000 iterations, the median of 10 runs, or of 100 where little is touched,
        // which are shorter here, as all is told by iteration.
        const bool small = program.size < (std::size_t{1} << 20U);
        const bool whole = program.touch == Touch::kAll && small;
        const bool seeds_own = cycle == Cycle::kCalls;
        const std::size_t runs = seeds_own && !whole ? run.pick<std::size_t>(10, 1, 1) : 1;
        std::size_t full = small ? 2000 : 500;
        if (seeds_own) full = whole ? 100'000 : small ? 10'000 : 1000;
        const std::size_t iterations = run.pick<std::size_t>(full, 300, 200);
        for (std::size_t i = 0; i < runs; ++i) {
          Sample sample;
          if (!runner.sample(program, cycle, iterations, sample)) {
            run.missing({fmt::format("{}, {} KiB", program.name, program.size >> 10U),
                         "a system call failed", "more memory or mappings"});
            continue;
          }
          taken[p][c].times.push_back(sample.time);
          taken[p][c].faults.push_back(sample.faults);
        }
      }
    }
  }

  Table& seeds = run.table(
      {.title = "The seed's programs: touch, mprotect(NONE), mprotect(READ|WRITE)",
       .explanation = "An iteration, and its ratio to one that touches nothing. The allocator's "
                      "loop is Scudo's in the seed and heap::Quarantine's here.",
       .row_labels = {"program", "KiB"},
       .columns = {{"seed_before", "before", "ns", Origin::kSeed},
                   {"seed_after", "after", "ns", Origin::kSeed},
                   {"here", "here", unit},
                   {"faults", "faults", "faults"},
                   {"seed_before_ratio", "before", "ratio", Origin::kSeed},
                   {"seed_after_ratio", "after", "ratio", Origin::kSeed},
                   {"here_ratio", "here", "ratio"}}});
  Table& ways = run.table(
      {.title = "The same programs by other ways to take a block away",
       .explanation = "Guard regions drop the contents, so that every page faults when it is used "
                      "again. Linux 6.1 takes such faults after MADV_FREE too, 6.12 does not. "
                      "Ratios are to the two mprotect calls.",
       .row_labels = {"program", "KiB"},
       .columns = {{"calls", "mprotect", unit},
                   {"calls_faults", "faults", "faults"},
                   {"protect", "heap, mprotect", unit},
                   {"protect_faults", "faults", "faults"},
                   {"protect_ratio", "", "ratio"},
                   {"free", "and MADV_FREE", unit},
                   {"free_faults", "faults", "faults"},
                   {"free_ratio", "", "ratio"},
                   {"guard", "heap, guard", unit},
                   {"guard_faults", "faults", "faults"},
                   {"guard_ratio", "", "ratio"}}});
  const auto cell = [](const std::vector<double>& samples) {
    return samples.empty() ? Cell() : Cell(bench::figure_of(samples));
  };
  const auto in_seed = [](double value) { return value == 0 ? Cell() : Cell(value); };
  for (std::size_t p = 0; p < std::size(kPrograms); ++p) {
    const Program& program = kPrograms[p];
    const std::vector<std::string> labels = {program.name, std::to_string(program.size >> 10U)};
    const bool allocator = program.touch == Touch::kBytePerPage;
    const Samples& shown =
        taken[p][static_cast<std::size_t>(allocator ? Cycle::kHeapProtect : Cycle::kCalls)];
    auto& row = seeds.add(labels).cells;
    row["seed_before"] = in_seed(program.before);
    row["seed_after"] = in_seed(program.after);
    row["here"] = cell(shown.times);
    row["faults"] = cell(shown.faults);
    // Of the same size.
    const std::size_t idle = program.size == kPrograms[1].size ? 1 : 4;
    row["seed_before_ratio"] = bench::ratio(row["seed_before"], kPrograms[idle].before);
    row["seed_after_ratio"] = bench::ratio(row["seed_after"], kPrograms[idle].after);
    row["here_ratio"] = bench::ratio(
        row["here"],
        cell(taken[idle][static_cast<std::size_t>(allocator ? Cycle::kHeapProtect : Cycle::kCalls)]
                 .times));

    auto& way = ways.add(labels).cells;
    constexpr const char* kKeys[kCycles] = {"calls", "free", "protect", "guard"};
    for (std::size_t c = 0; c < kCycles; ++c) {
      const std::string key = kKeys[c];
      way[key] = cell(taken[p][c].times);
      way[key + "_faults"] = cell(taken[p][c].faults);
    }
    for (const char* key : {"free", "protect", "guard"}) {
      way[std::string(key) + "_ratio"] = bench::ratio(way[key], way["calls"]);
    }
  }

  Table& mappings =
      run.table({.title = "Mappings that a block adds",
                 .explanation = "64 blocks between others that are in use. A process "
                                "may have vm.max_map_count mappings, 65530 unless set "
                                "otherwise.",
                 .row_labels = {"mechanism"},
                 .columns = {{"mappings", "mappings", "mappings"}}});
  for (const QuarantineMechanism mechanism :
       {QuarantineMechanism::kProtect, QuarantineMechanism::kGuard, QuarantineMechanism::kRemap}) {
    mappings.add({to_string(mechanism)}).cells["mappings"] = mappings_per_block(mechanism);
  }

  const double faults = bench::middle(seeds.rows[0].cells["faults"]);
  const std::size_t whole_pages = kPrograms[0].size / page;
  const auto pages = static_cast<double>(whole_pages);
  const std::string against = fmt::format(
      "The whole program is {:.3g} times the one that touches nothing; in the seed {:.3g} before "
      "the patch and {:.3g} after.",
      bench::middle(seeds.rows[0].cells["here_ratio"]),
      bench::middle(seeds.rows[0].cells["seed_before_ratio"]),
      bench::middle(seeds.rows[0].cells["seed_after_ratio"]));
  if (faults == 0) {
    run.verdict(VerdictKind::kGood, "Quarantine by mprotect costs no page fault on this kernel.",
                against);
  } else {
    run.verdict(VerdictKind::kBad,
                fmt::format("Quarantine by mprotect costs {:.3g} page faults a block of {} pages "
                            "when it is used again.",
                            faults, pages),
                against + " Linux 6.1 on makes exclusive anonymous pages writable at once.");
  }
  if (runner.can(Cycle::kHeapGuard)) {
    run.verdict(VerdictKind::kNote,
                fmt::format("Guard regions take {:.3g} times as long for a block that is written "
                            "again, {:.3g} times for one that is not.",
                            bench::middle(ways.rows[0].cells["guard_ratio"]),
                            bench::middle(ways.rows[1].cells["guard_ratio"])),
                "They add no mappings and give the memory back meanwhile.");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_seed(
      argc, argv,
      {.seed = "000",
       .name = "quarantine",
       .title = "Quarantine of freed blocks",
       .question = "What does it cost to make a block inaccessible and usable again?"},
      measure);
}
