// SPDX-License-Identifier: MIT
// What does memory cost that an atomic touched first, then and later? Seed 004: an arm64 kernel
// that takes the first fault of an atomic for a write, and the objection that it would slow reads
// down.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/residency.h>
#include <touchstone/heap/system_calls.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/rmw_function.h>
#include <touchstone/jit/touch_kernel.h>

#include "seeds/seed_run.h"

namespace {

using namespace touchstone;
using bench::Cell;
using bench::Origin;
using bench::SeedRun;
using bench::Table;
using bench::VerdictKind;
using jit::TouchAccess;

/// A way to touch: an emitted loop.
struct Touch {
  std::string name;
  jit::TouchKernel kernel;
};

struct Samples {
  std::vector<double> populate;
  std::vector<double> user;
  std::vector<double> system;
  std::vector<double> rounds;
  double faults = 0;
  double huge = 0;
  double later_faults = 0;
};

/// A fixed sequence of pseudo-random numbers (a 64-bit LCG, Knuth's MMIX constants).
class Random {
 public:
  std::uint64_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return state_ >> 24U;
  }

 private:
  std::uint64_t state_ = 42;
};

struct Used {
  double user = 0;    // ns
  double system = 0;  // ns
};

Used used() {
  rusage usage{};
  if (heap::system_calls().getrusage(RUSAGE_THREAD, &usage) != 0) return {};
  const auto ns = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_usec) * 1e3;
  };
  return {ns(usage.ru_utime), ns(usage.ru_stime)};
}

/// One mapping: populated by the touch, then used at random. False where memory is short.
bool populate(const SeedRun& run, const Touch& touch, std::size_t size, bool huge, unsigned rounds,
              Samples& samples) {
  const heap::SystemCalls& calls = heap::system_calls();
  const std::size_t page = arch::base_page_size();
  const std::size_t pmd = arch::geometry().pmd;
  void* const mapped = calls.mmap(nullptr, size + pmd, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return false;
  const auto start = reinterpret_cast<std::uintptr_t>(mapped);
  std::byte* const begin =
      static_cast<std::byte*>(mapped) + ((start + pmd - 1) / pmd * pmd - start);
  const bool advised =
      calls.madvise(mapped, size + pmd, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0;
  if (huge && !advised) {
    calls.munmap(mapped, size + pmd);
    return false;
  }
  const Used before = used();
  double faults = bench::faults_so_far();
  double time = run.clock();
  touch.kernel.entry()(begin, begin + size, page);
  samples.populate.push_back(run.clock() - time);
  samples.faults = bench::faults_so_far() - faults;
  const Used after = used();
  samples.user.push_back(after.user - before.user);
  samples.system.push_back(after.system - before.system);
  if (const auto told = heap::residency_of(begin, size); told && told->huge) {
    samples.huge = static_cast<double>(*told->huge >> 20U);
  }
  // As many accesses a round as there are pages, every second one a write.
  Random random;
  auto* const words = reinterpret_cast<volatile std::uint64_t*>(begin);
  const std::size_t count = size / sizeof(std::uint64_t);
  faults = bench::faults_so_far();
  time = run.clock();
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < size / page; ++i) {
      volatile std::uint64_t& word = words[random.next() % count];
      if (i % 2 == 0) {
        word = i;
      } else {
        [[maybe_unused]] const std::uint64_t value = word;
      }
    }
  }
  samples.rounds.push_back((run.clock() - time) / rounds);
  samples.later_faults = bench::faults_so_far() - faults;
  calls.munmap(mapped, size + pmd);
  return true;
}

void populate_by_each(SeedRun& run, const std::vector<Touch>& touches) {
  const std::size_t pmd = arch::geometry().pmd;
  std::size_t size = run.pick<std::size_t>(1024, 16, 16) << 20U;
  size = std::max(size, 2 * pmd);
  const unsigned rounds = run.pick(100U, 2U, 2U);
  const std::size_t turns = run.pick<std::size_t>(2, 1, 1);
  const std::string what = fmt::format("populating {} MiB", size >> 20U);
  if (!run.has_memory(size + pmd, what)) return;
  const auto mode = arch::thp_mode();
  const bool thp = mode && *mode != arch::ThpMode::kNever;
  if (!thp) {
    run.missing({what + " in huge pages", "this kernel has none or is told never to use them",
                 "madvise or always in /sys/kernel/mm/transparent_hugepage/enabled"});
  }
  std::vector<std::vector<Samples>> samples(2, std::vector<Samples>(touches.size()));
  for (std::size_t turn = 0; turn < turns; ++turn) {
    for (std::size_t huge = 0; huge < (thp ? 2U : 1U); ++huge) {
      // The first touch of memory that the host has not given yet is slower than any other, and the
      // first huge pages have to be made of base pages that were given back.
      if (Samples warm; !populate(run, touches.front(), size, huge != 0, 1, warm)) {
        run.missing({what, "mmap or madvise failed", "more address space, or THP"});
        continue;
      }
      for (std::size_t t = 0; t < touches.size(); ++t) {
        if (!populate(run, touches[t], size, huge != 0, rounds, samples[huge][t])) {
          run.missing({fmt::format("{} by {}", what, touches[t].name), "mmap or madvise failed",
                       "more address space"});
        }
      }
    }
  }
  const std::string unit = run.unit();
  Table& table = run.table(
      {.title = fmt::format("{} MiB populated by a touch of each page, then used at random",
                            size >> 20U),
       .explanation = fmt::format(
           "{} rounds of as many accesses as pages, every second one a write; the figure is a "
           "round. Ratios are to the store. On arm64 the seed's patch halves the faults of an "
           "atomic and takes 60 per cent off the system time.",
           rounds),
       .row_labels = {"touch", "pages"},
       .columns = {{"faults", "faults", "faults"},
                   {"huge", "huge", "MiB"},
                   {"populate", "populate", unit},
                   {"user", "of it user", "ns"},
                   {"system", "of it system", "ns"},
                   {"populate_ratio", "populate", "ratio"},
                   {"round", "a round", unit},
                   {"round_faults", "faults later", "faults"},
                   {"round_ratio", "a round", "ratio"}}});
  const auto figure = [](const std::vector<double>& values) {
    return values.empty() ? Cell() : Cell(bench::figure_of(values));
  };
  std::optional<std::size_t> store;
  for (std::size_t t = 0; t < touches.size(); ++t) {
    if (touches[t].kernel.shape().access == TouchAccess::kStore) store = t;
  }
  double most = 1;
  std::string worst;
  for (std::size_t huge = 0; huge < (thp ? 2U : 1U); ++huge) {
    for (std::size_t t = 0; t < touches.size(); ++t) {
      const Samples& each = samples[huge][t];
      auto& row = table.add({touches[t].name, huge != 0 ? "huge" : "base"}).cells;
      if (each.populate.empty()) continue;
      row["faults"] = each.faults;
      row["huge"] = each.huge;
      row["populate"] = figure(each.populate);
      row["user"] = figure(each.user);
      row["system"] = figure(each.system);
      row["round"] = figure(each.rounds);
      row["round_faults"] = each.later_faults;
      if (!store) continue;
      const Samples& by_store = samples[huge][*store];
      row["populate_ratio"] = bench::ratio(row["populate"], figure(by_store.populate));
      row["round_ratio"] = bench::ratio(row["round"], figure(by_store.rounds));
      if (by_store.faults == 0) continue;
      const bool atomic = jit::is_value_preserving(touches[t].kernel.shape().access);
      if (const double more = each.faults / by_store.faults; atomic && more > most * 1.01) {
        most = more;
        worst = fmt::format("{}, {} pages", touches[t].name, huge != 0 ? "huge" : "base");
      }
    }
  }
  if (worst.empty()) {
    run.verdict(VerdictKind::kGood, "No atomic takes more faults than a store here.",
                "On arm64 without the patch each takes two where a store takes one.");
  } else {
    run.verdict(
        VerdictKind::kBad,
        fmt::format("Atomics take up to {:.3g} times the faults of a store ({}).", most, worst),
        "MADV_POPULATE_WRITE, a store, or a patched kernel take one.");
  }
}

/// 128 MiB: map, touch a byte of each page, unmap. Nothing where memory is short.
bool fault_pass(std::size_t size, bool write) {
  const heap::SystemCalls& calls = heap::system_calls();
  const std::size_t page = arch::base_page_size();
  void* const mapped =
      calls.mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  auto* const bytes = static_cast<volatile char*>(mapped);
  for (std::size_t at = 0; at < size; at += page) {
    if (write) {
      bytes[at] = 1;
    } else {
      [[maybe_unused]] const char value = bytes[at];
    }
  }
  calls.munmap(mapped, size);
  return true;
}

void page_fault1(SeedRun& run) {
  const std::size_t size = run.pick<std::size_t>(128, 8, 8) << 20U;
  const std::size_t passes = run.pick<std::size_t>(10, 2, 1);
  const unsigned most = run.effort() == bench::Effort::kCounted
                            ? 1
                            : std::max(1U, std::thread::hardware_concurrency());
  std::vector<unsigned> counts;
  for (unsigned threads = 1; threads < most; threads *= 2) counts.push_back(threads);
  counts.push_back(most);
  Table& table =
      run.table({.title = fmt::format("page_fault1: {} MiB mapped, a byte of each page, unmapped",
                                      size >> 20U),
                 .explanation =
                     "A pass of each thread on a mapping of its own, by the clock on the wall. The "
                     "seed's worst case is reads on 160 cores from execute-only text: 1.30 times "
                     "with its patch (184471 to 233608 by the median, 1.27).",
                 .row_labels = {"threads"},
                 .columns = {{"write", "writes", run.unit()},
                             {"read", "reads", run.unit()},
                             {"read_ratio", "reads / writes", "ratio"},
                             {"write_growth", "writes to one thread", "ratio"},
                             {"read_growth", "reads to one thread", "ratio"},
                             {"seed_read_ratio", "reads, execute-only", "ratio", Origin::kSeed}}});
  std::optional<std::pair<Cell, Cell>> first;
  for (const unsigned threads : counts) {
    if (!run.has_memory(threads * size, fmt::format("page_fault1 with {} threads", threads))) break;
    std::vector<double> times[2];
    for (std::size_t pass = 0; pass <= passes; ++pass) {
      for (const bool write : {true, false}) {
        std::vector<char> fine(threads, 0);
        const double start = bench::now();
        if (threads == 1) {
          fine[0] = fault_pass(size, write) ? 1 : 0;
        } else {
          std::vector<std::jthread> running;
          running.reserve(threads);
          for (unsigned t = 0; t < threads; ++t) {
            running.emplace_back([&, t] { fine[t] = fault_pass(size, write) ? 1 : 0; });
          }
        }
        const double time = bench::now() - start;
        if (std::ranges::count(fine, 0) != 0) {
          run.missing({fmt::format("page_fault1 with {} threads", threads), "mmap failed",
                       "more address space"});
        } else if (pass != 0) {  // The first warms up.
          times[write ? 0 : 1].push_back(time);
        }
      }
    }
    auto& row = table.add({std::to_string(threads)}).cells;
    if (times[0].empty() || times[1].empty()) continue;
    row["write"] = bench::figure_of(times[0]);
    row["read"] = bench::figure_of(times[1]);
    row["read_ratio"] = bench::ratio(row["read"], row["write"]);
    if (!first) first = {row["write"], row["read"]};
    row["write_growth"] = bench::ratio(row["write"], first->first);
    row["read_growth"] = bench::ratio(row["read"], first->second);
  }
  table.add({"160 (seed)"}).cells["seed_read_ratio"] = 233608.0 / 184471.0;
}

void measure(SeedRun& run) {
  const auto cache = jit::CodeCache::create();
  const auto hidden = jit::CodeCache::create({.execute_only = true});
  std::vector<Touch> touches;
  const auto add = [&](const Result<std::unique_ptr<jit::CodeCache>>& in, const std::string& name,
                       TouchAccess access, jit::RmwTarget target) {
    if (!in) {
      run.missing({name, in.error().message(), "executable memory"});
      return;
    }
    auto kernel = jit::TouchKernel::create(
        **in, {.access = access, .width = 8, .target = target, .result = jit::RmwResult::kDiscard});
    if (kernel) {
      touches.push_back({name, std::move(*kernel)});
    } else {
      run.missing({name, kernel.error().message(), "a CPU that has the instruction"});
    }
  };
  const jit::RmwTarget best = jit::best_rmw_target(arch::cpu_features());
  for (const TouchAccess access :
       {TouchAccess::kStore, TouchAccess::kLoadThenStore, TouchAccess::kAdd, TouchAccess::kClear,
        TouchAccess::kSet, TouchAccess::kEor, TouchAccess::kSmax, TouchAccess::kSmin,
        TouchAccess::kUmax, TouchAccess::kUmin, TouchAccess::kCompareSwap, TouchAccess::kSwap}) {
    add(cache, to_string(access), access, best);
  }
  add(hidden, "add, execute-only text", TouchAccess::kAdd, best);
#if defined(__aarch64__)
  add(cache, "add, LL/SC", TouchAccess::kAdd, jit::RmwTarget::kA64Llsc);
  add(cache, "write back, LL/SC", TouchAccess::kWriteBack, jit::RmwTarget::kA64Llsc);
#endif
  if (!touches.empty()) populate_by_each(run, touches);
  page_fault1(run);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_seed(argc, argv,
                         {.seed = "004",
                          .name = "atomic_touch",
                          .title = "Memory touched first by an atomic",
                          .question = "What does it cost to populate memory by each atomic, to use "
                                      "it afterwards, and to fault it in by reads?"},
                         measure);
}
