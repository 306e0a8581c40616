// SPDX-License-Identifier: GPL-2.0-only
#include "cost.h"

#include <cstdint>
#include <string_view>

#include <sys/mman.h>

#include "machine.h"
#include "report.h"
#include "touch.h"

namespace lab {
namespace {

constexpr size_t kCostBytes = 64u << 20;

// Several rounds of mmap, one touch a page, munmap; only the touching is counted.
void cost_of(std::string_view touch, const char* protection_name, int protection,
             LoopPage::Text text) {
  constexpr int kRounds = 2;
  const LoopPage page(touch_named(touch), text);
  int64_t instructions = 0, faults = 0;
  for (int round = 0; round < kRounds; ++round) {
    Mapping region(kCostBytes, 0, protection, MAP_PRIVATE | MAP_ANONYMOUS);
    madvise(region.begin(), region.size(), MADV_NOHUGEPAGE);
    static_cast<void>(minor_faults_of_thread());
    const int64_t before = minor_faults_of_thread();
    const int64_t start = now();
    page.loop()(region.begin(), region.end(), page_size(), 0, 0);
    instructions += now() - start;
    faults += minor_faults_of_thread() - before;
  }
  Line("cost")
      .add("touch", touch)
      .add("vma", protection_name)
      .add("text", text == LoopPage::Text::kNormal ? "normal" : "execute-only")
      .add("faults", faults)
      .add("instructions", instructions)
      .print();
}

// A fixed sequence of pseudo-random numbers (a 64-bit LCG, Knuth's MMIX constants).
class Random {
 public:
  uint64_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return state_ >> 24;
  }

 private:
  uint64_t state_ = 42;
};

// What will-it-scale's page_fault1 does, with a read in place of its write: map, read one word of
// every page, unmap; all of it is counted.
void read_faults(LoopPage::Text text) {
  constexpr size_t kBytes = 128u << 20;
  constexpr unsigned kRounds = 3;
  const LoopPage page(touch_named("load"), text);
  static_cast<void>(minor_faults_of_thread());
  const int64_t faults = minor_faults_of_thread();
  const int64_t start = now();
  for (unsigned round = 0; round < kRounds; ++round) {
    void* const memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      report_failure("no memory for the read faults");
      return;
    }
    auto* const begin = static_cast<std::byte*>(memory);
    page.loop()(begin, begin + kBytes, page_size(), 0, 0);
    munmap(memory, kBytes);
  }
  const int64_t end = now();
  Line("read faults")
      .add("text", text == LoopPage::Text::kNormal ? "normal" : "execute-only")
      .add("bytes", uint64_t{kBytes})
      .add("rounds", kRounds)
      .add("faults", minor_faults_of_thread() - faults)
      .add("instructions", end - start)
      .print();
}

void populate_by(std::string_view touch, bool thp, size_t bytes, unsigned rounds) {
  const LoopPage page(touch_named(touch), LoopPage::Text::kNormal);
  Mapping region(bytes, thp ? pmd_size() : page_size(), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS);
  madvise(region.begin(), region.size(), thp ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  const ThpEvents before = thp_events();
  static_cast<void>(minor_faults_of_thread());
  const int64_t faults = minor_faults_of_thread();
  const int64_t start = now();
  page.loop()(region.begin(), region.end(), page_size(), 0, 0);
  const int64_t populated = now();
  const int64_t populate_faults = minor_faults_of_thread() - faults;
  const ThpEvents after = thp_events();
  const int64_t huge = anon_huge_kb(region.begin(), region.end());

  // As many accesses a round as there are pages, every second one a write.
  Random random;
  const size_t accesses = bytes / page_size();
  auto* const words = reinterpret_cast<volatile uint64_t*>(region.begin());
  const size_t count = bytes / sizeof(uint64_t);
  const int64_t random_faults = minor_faults_of_thread();
  const int64_t random_start = now();
  for (unsigned round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < accesses; ++i) {
      volatile uint64_t& word = words[random.next() % count];
      if (i % 2 == 0) {
        word = i;
      } else {
        [[maybe_unused]] const uint64_t value = word;
      }
    }
  }
  const int64_t random_end = now();
  Line("populate")
      .add("touch", touch)
      .add("memory", thp ? "anon-thp" : "anon")
      .add("bytes", uint64_t{bytes})
      .add("faults", populate_faults)
      .add("huge_kb", huge)
      .add("thp_split_pmd", after.split_pmd - before.split_pmd)
      .add("instructions", populated - start)
      .add("random_rounds", rounds)
      .add("random_faults", minor_faults_of_thread() - random_faults)
      .add("random_instructions", random_end - random_start)
      .print();
}

}  // namespace

void run_fault_costs() {
  settle();
  for (const LoopPage::Text text : texts_to_run()) {
    cost_of("load", "read-only", PROT_READ, text);
    cost_of("load", "writable", PROT_READ | PROT_WRITE, text);
    cost_of("store", "writable", PROT_READ | PROT_WRITE, text);
    cost_of("ldadd", "writable", PROT_READ | PROT_WRITE, text);
    cost_of("ldxr-stxr", "writable", PROT_READ | PROT_WRITE, text);
  }
}

void run_populate(size_t bytes, unsigned rounds) {
  settle();
  for (const LoopPage::Text text : texts_to_run()) read_faults(text);
  for (const bool thp : {false, true}) {
    if (thp && pmd_size() == 0) continue;
    for (const std::string_view touch : {"store", "ldadd", "ldxr-stxr"})
      populate_by(touch, thp, bytes, rounds);
  }
}

}  // namespace lab
