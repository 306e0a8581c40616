// SPDX-License-Identifier: MIT
// What does a write cost after mprotect(READ) and back, and what where writes are tracked? Seed
// 001: the patch that spares exclusive anonymous pages the write fault after mprotect.
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/fault_handler.h>
#include <touchstone/heap/system_calls.h>
#include <touchstone/heap/write_tracking.h>

#include "seeds/seed_run.h"

namespace {

using namespace touchstone;
using bench::Cell;
using bench::Origin;
using bench::SeedRun;
using bench::Table;
using bench::VerdictKind;
using heap::MemoryRange;
using heap::WriteTracker;
using heap::WriteTrackingMethod;

constexpr std::array kMethods{WriteTrackingMethod::kAsyncWriteProtect,
                              WriteTrackingMethod::kSoftDirty, WriteTrackingMethod::kProtect,
                              WriteTrackingMethod::kUserfaultfd};
constexpr std::array kMethodKeys{"async", "soft_dirty", "signal", "userfaultfd"};
constexpr std::array kMethodLabels{"WP_ASYNC", "soft-dirty", "signal", "userfaultfd"};
constexpr std::array kRemedies{
    "Linux 6.7 (arm64: 6.10) brings WP_ASYNC and PAGEMAP_SCAN; userfaultfd needs "
    "vm.unprivileged_userfaultfd=1, "
    "CAP_SYS_PTRACE, or /dev/userfaultfd",
    "a kernel with CONFIG_MEM_SOFT_DIRTY", "",
    "Linux 5.7 (arm64: 6.10) brings userfaultfd write protection; it needs "
    "vm.unprivileged_userfaultfd=1, "
    "CAP_SYS_PTRACE, or /dev/userfaultfd"};

/// Average ns of the seed: first, second, after mprotect, after clearing soft-dirty.
struct InSeed {
  std::size_t kib;
  bool whole;  // memset, or a byte of each page.
  std::array<double, 4> average;
};
constexpr InSeed kSeed[] = {
    {4, true, {830, 168, 190, 470}},         {4, false, {784, 137, 155, 432}},
    {16, true, {2143, 260, 300, 1297}},      {16, false, {2008, 142, 166, 1126}},
    {64, true, {7680, 648, 736, 4623}},      {64, false, {7241, 156, 197, 3958}},
    {512, true, {59353, 5318, 6028, 36710}}, {512, false, {54506, 1123, 622, 31229}},
};

/// Private anonymous memory.
class Memory {
 public:
  Memory(std::size_t size, std::size_t alignment, bool huge) : whole_(size + alignment) {
    void* const mapped = heap::system_calls().mmap(nullptr, whole_, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return;
    mapping_ = static_cast<std::byte*>(mapped);
    const auto start = reinterpret_cast<std::uintptr_t>(mapping_);
    range_ = {mapping_ + ((start + alignment - 1) / alignment * alignment - start), size};
    (void)heap::system_calls().madvise(mapping_, whole_, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  ~Memory() {
    if (mapping_ != nullptr) (void)heap::system_calls().munmap(mapping_, whole_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] MemoryRange range() const { return range_; }

 private:
  std::byte* mapping_ = nullptr;
  std::size_t whole_;
  MemoryRange range_;
};

void write_to(MemoryRange range, bool whole, std::size_t page, int value) {
  if (whole) {
    std::memset(range.data(), value, range.size());
    return;
  }
  for (std::size_t at = 0; at < range.size(); at += page) {
    *static_cast<volatile std::byte*>(range.data() + at) = static_cast<std::byte>(value);
  }
}

struct Samples {
  std::vector<double> times;
  double faults = 0;

  [[nodiscard]] Cell time() const { return times.empty() ? Cell() : Cell(bench::figure_of(times)); }
  /// A pass.
  [[nodiscard]] Cell faults_each() const {
    return times.empty() ? Cell() : Cell(faults / static_cast<double>(times.size()));
  }
};

struct Passes {
  Samples first;
  Samples second;
  Samples protect;
  std::array<Samples, kMethods.size()> tracked;
  std::array<Samples, kMethods.size()> reset;
};

/// Times one pass of writing, with the faults it takes, a tracker's own included.
void pass(Samples& samples, MemoryRange range, bool whole, std::size_t page, int value,
          const WriteTracker* tracker = nullptr) {
  const auto all_faults = [&] {
    const bool signals = tracker != nullptr && tracker->method() == WriteTrackingMethod::kProtect;
    return bench::faults_so_far() + (signals ? static_cast<double>(tracker->handled_faults()) : 0);
  };
  const double faults = all_faults();
  const double start = bench::now();
  write_to(range, whole, page, value);
  const double time = bench::now() - start;
  samples.faults += all_faults() - faults;
  samples.times.push_back(time);
}

/// One size and way of writing, so many times; nothing where memory is short.
std::optional<Passes> measure_writes(SeedRun& run, std::size_t size, bool whole, bool huge) {
  const std::size_t page = arch::base_page_size();
  const std::size_t unit = huge ? arch::geometry().pmd : page;
  const std::size_t iterations = run.pick<std::size_t>(huge ? 200 : 1000, huge ? 3 : 20, 3);
  const std::string what = fmt::format("{} of {} KiB{}", whole ? "memset" : "a byte a page",
                                       size >> 10U, huge ? " in huge pages" : "");
  Passes passes;
  struct Tracked {
    std::unique_ptr<Memory> memory;
    std::unique_ptr<WriteTracker> tracker;
  };
  std::array<Tracked, kMethods.size()> tracked;
  for (std::size_t m = 0; m < kMethods.size(); ++m) {
    auto memory = std::make_unique<Memory>(size, unit, huge);
    if (memory->range().empty()) {
      run.missing({what, "mmap failed", "more memory"});
      return std::nullopt;
    }
    write_to(memory->range(), true, page, 1);
    auto made = WriteTracker::create(
        memory->range(), {.method = kMethods[m], .granule = unit, .handles_faults = true});
    if (!made) {
      run.missing({fmt::format("writes tracked by {}", kMethodLabels[m]), made.error().message(),
                   kRemedies[m]});
      continue;
    }
    tracked[m] = {.memory = std::move(memory), .tracker = std::move(*made)};
  }
  const heap::SystemCalls& calls = heap::system_calls();
  for (std::size_t i = 0; i <= iterations; ++i) {
    if (i == 1) passes = {};  // The first warms up.
    const int value = static_cast<int>(i);
    const Memory fresh(size, unit, huge);
    const MemoryRange range = fresh.range();
    if (range.empty()) {
      run.missing({what, "mmap failed", "more memory"});
      return std::nullopt;
    }
    pass(passes.first, range, whole, page, value);
    pass(passes.second, range, whole, page, value);
    if (calls.mprotect(range.data(), size, PROT_READ) != 0 ||
        calls.mprotect(range.data(), size, PROT_READ | PROT_WRITE) != 0) {
      run.missing({what, "mprotect failed", "more memory"});
      return std::nullopt;
    }
    pass(passes.protect, range, whole, page, value);
    for (std::size_t m = 0; m < kMethods.size(); ++m) {
      if (tracked[m].tracker == nullptr) continue;
      const double start = bench::now();
      const Result<> reset = tracked[m].tracker->reset();
      passes.reset[m].times.push_back(bench::now() - start);
      if (!reset) {
        run.missing({fmt::format("{} tracked by {}", what, kMethodLabels[m]),
                     reset.error().message(), kRemedies[m]});
        tracked[m].tracker.reset();
        continue;
      }
      pass(passes.tracked[m], tracked[m].memory->range(), whole, page, value,
           tracked[m].tracker.get());
    }
  }
  return passes;
}

const char* way(bool whole) {
  return whole ? "memset" : "byte per page";
}

void measure(SeedRun& run) {
  const auto handler = heap::FaultHandler::install();
  if (!handler) {
    run.missing({"everything", handler.error().message(), "a signal handler"});
    return;
  }
  const std::string unit = run.unit();
  Table& times = run.table(
      {.title = "A pass of writing",
       .explanation = "After mprotect(READ) and mprotect(READ|WRITE), and after each way to track "
                      "writes was reset. The seed gives averages, this run medians.",
       .row_labels = {"write", "KiB"},
       .columns = {{"seed_first", "first", "ns", Origin::kSeed},
                   {"seed_second", "second", "ns", Origin::kSeed},
                   {"seed_protect", "R, RW", "ns", Origin::kSeed},
                   {"seed_soft_dirty", "soft-dirty", "ns", Origin::kSeed},
                   {"first", "first", unit},
                   {"second", "second", unit},
                   {"protect", "R, RW", unit}}});
  Table& ratios = run.table(
      {.title = "Ratios of these passes",
       .explanation = "The seed's own two, and each tracked pass to the second.",
       .row_labels = {"write", "KiB"},
       .columns = {{"seed_to_second", "R,RW / second", "ratio", Origin::kSeed},
                   {"to_second", "R,RW / second", "ratio"},
                   {"seed_to_tracked", "R,RW / soft-dirty", "ratio", Origin::kSeed},
                   {"to_tracked", "R,RW / tracked", "ratio"},
                   {"seed_soft_dirty_to_second", "soft-dirty / second", "ratio", Origin::kSeed}}});
  Table& faults = run.table(
      {.title = "Page faults of a pass, and what the reset before it takes",
       .explanation =
           "Signals count as faults. In huge pages WP_ASYNC splits them at the first write.",
       .row_labels = {"write", "KiB"},
       .columns = {{"pages", "pages", "pages"},
                   {"first", "first", "faults"},
                   {"second", "second", "faults"},
                   {"protect", "R, RW", "faults"}}});
  for (std::size_t m = 0; m < kMethods.size(); ++m) {
    times.columns.push_back({kMethodKeys[m], kMethodLabels[m], unit});
    ratios.columns.push_back(
        {kMethodKeys[m], fmt::format("{} / second", kMethodLabels[m]), "ratio"});
    faults.columns.push_back({kMethodKeys[m], kMethodLabels[m], "faults"});
  }
  for (std::size_t m = 0; m < kMethods.size(); ++m) {
    faults.columns.push_back(
        {std::string(kMethodKeys[m]) + "_reset", fmt::format("{} reset", kMethodLabels[m]), unit});
  }

  double after_protect = 0;
  double after_protect_pages = 0;
  std::optional<std::size_t> cheapest;
  const auto fill = [&](std::size_t size, bool whole, bool huge, const InSeed* seed) {
    const std::optional<Passes> passes = measure_writes(run, size, whole, huge);
    if (!passes) return;
    const std::vector<std::string> labels = {
        fmt::format("{}{}", way(whole), huge ? ", huge pages" : ""), std::to_string(size >> 10U)};
    auto& row = times.add(labels).cells;
    auto& quotient = ratios.add(labels).cells;
    auto& count = faults.add(labels).cells;
    row["first"] = passes->first.time();
    row["second"] = passes->second.time();
    row["protect"] = passes->protect.time();
    quotient["to_second"] = bench::ratio(row["protect"], row["second"]);
    const std::size_t units = size / (huge ? arch::geometry().pmd : arch::base_page_size());
    count["pages"] = static_cast<double>(units);
    count["first"] = passes->first.faults_each();
    count["second"] = passes->second.faults_each();
    count["protect"] = passes->protect.faults_each();
    after_protect += bench::middle(count["protect"]);
    after_protect_pages += bench::middle(count["pages"]);
    std::optional<std::size_t> best;
    for (std::size_t m = 0; m < kMethods.size(); ++m) {
      row[kMethodKeys[m]] = passes->tracked[m].time();
      quotient[kMethodKeys[m]] = bench::ratio(row[kMethodKeys[m]], row["second"]);
      count[kMethodKeys[m]] = passes->tracked[m].faults_each();
      count[std::string(kMethodKeys[m]) + "_reset"] = passes->reset[m].time();
      if (passes->tracked[m].times.empty()) continue;
      if (!best || bench::middle(row[kMethodKeys[m]]) < bench::middle(row[kMethodKeys[*best]])) {
        best = m;
      }
    }
    // The seed compares with soft-dirty; without it, the cheapest stands in.
    constexpr std::size_t kSoftDirty = 1;
    const std::optional<std::size_t> stands =
        passes->tracked[kSoftDirty].times.empty() ? best : std::optional(kSoftDirty);
    if (stands) {
      quotient["to_tracked"] = bench::ratio(row["protect"], row[kMethodKeys[*stands]]);
    }
    if (!huge) cheapest = best;
    if (seed == nullptr) return;
    row["seed_first"] = seed->average[0];
    row["seed_second"] = seed->average[1];
    row["seed_protect"] = seed->average[2];
    row["seed_soft_dirty"] = seed->average[3];
    quotient["seed_to_second"] = bench::ratio(row["seed_protect"], row["seed_second"]);
    quotient["seed_to_tracked"] = bench::ratio(row["seed_protect"], row["seed_soft_dirty"]);
    quotient["seed_soft_dirty_to_second"] =
        bench::ratio(row["seed_soft_dirty"], row["seed_second"]);
  };
  for (const InSeed& seed : kSeed) fill(seed.kib << 10U, seed.whole, false, &seed);
  const std::size_t pmd = arch::geometry().pmd;
  const auto mode = arch::thp_mode();
  if (!mode || *mode == arch::ThpMode::kNever) {
    run.missing({"huge pages", "this kernel has none or is told never to use them",
                 "madvise or always in /sys/kernel/mm/transparent_hugepage/enabled"});
  } else if (run.has_memory(8 * pmd, "huge pages")) {
    for (const bool whole : {true, false}) fill(pmd, whole, true, nullptr);
  }
  if (times.rows.empty()) return;
  if (after_protect == 0) {
    run.verdict(VerdictKind::kGood,
                "A write after mprotect(READ) and back takes no page fault on this kernel.",
                "In the seed it is 1.13 to 1.26 times a second write, save one case at 0.55.");
  } else {
    run.verdict(VerdictKind::kBad,
                fmt::format("{:.3g} of 100 pages take a fault after mprotect(READ) and back.",
                            100 * after_protect / after_protect_pages),
                "Linux 6.1 spares exclusive anonymous base pages that, 6.12 huge pages as well.");
  }
  if (cheapest) {
    run.verdict(VerdictKind::kNote,
                fmt::format("Tracking writes is cheapest by {} here.", kMethodLabels[*cheapest]),
                fmt::format("The first write to each of 128 pages is {:.3g} times one that is not "
                            "tracked.",
                            bench::middle(
                                ratios.rows[std::size(kSeed) - 1].cells[kMethodKeys[*cheapest]])));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_seed(argc, argv,
                         {.seed = "001",
                          .name = "write_tracking",
                          .title = "Write faults and write tracking",
                          .question = "What does the first write to a page cost after its "
                                      "protection changed, and where writes are tracked?"},
                         measure);
}
