// SPDX-License-Identifier: GPL-2.0-only
#include "stress.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault_handler.h"
#include "fault_samples.h"
#include "machine.h"
#include "report.h"
#include "touch.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace lab {
namespace {

thread_local sigjmp_buf escape;
thread_local volatile sig_atomic_t may_fault = 0;
std::atomic<uint64_t> expected_signals{0};
std::atomic<uint64_t> wrong_signals{0};

void on_fault(int, siginfo_t*, void*) {
  if (may_fault == 0) {
    ++wrong_signals;
    _exit(3);
  }
  ++expected_signals;
  siglongjmp(escape, 1);
}

// xorshift64*, one a thread.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u | 1) {}
  uint64_t below(uint64_t bound) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return (state_ * 0x2545f4914f6cdd1du >> 33) % bound;
  }

 private:
  uint64_t state_;
};

struct Loops {
  std::vector<std::unique_ptr<LoopPage>> rmw;   // LSE and exclusive loops that add
  std::vector<std::unique_ptr<LoopPage>> read;  // loads and load-exclusives
};

Loops make_loops() {
  Loops loops;
  for (const Touch& touch : all_touches()) {
    if (!executes(touch)) continue;
    for (const LoopPage::Text text : {LoopPage::Text::kNormal, LoopPage::Text::kExecuteOnly}) {
      if (touch.name == "ldadd" || touch.name == "ldxr-stxr" || touch.name == "ldaddal")
        loops.rmw.push_back(std::make_unique<LoopPage>(touch, text));
      if (touch.name == "load" || touch.name == "ldxr" || touch.name == "ldar")
        loops.read.push_back(std::make_unique<LoopPage>(touch, text));
    }
  }
  return loops;
}

// Runs the loop where it may be signalled.
[[gnu::noinline]] void touch_wild(const LoopPage& page, std::byte* begin, std::byte* end) {
  may_fault = 1;
  if (sigsetjmp(escape, 1) == 0) page.loop()(begin, end, page_size(), 1, 0);
  may_fault = 0;
}

struct Shared {
  std::byte* wild = nullptr;     // protected, unmapped, collapsed and forked over: may signal
  std::byte* legal = nullptr;    // always readable, sometimes not writable: reads never signal
  std::byte* counted = nullptr;  // always writable: every addition counts
  size_t bytes = 0;
  Loops loops;
  std::atomic<uint64_t> rounds{0};
  std::atomic<uint64_t> additions{0};
  std::atomic<uint64_t> forced_pages{0};
  std::atomic<uint64_t> twice_pages{0};
  std::atomic<uint64_t> fresh_pages{0};
};

// Touches fresh memory of its own, and counts the faults of every page: one where the kernel knew
// the instruction, two where it took the first for a read, as it must when the text is gone.
void count_forced(Shared& shared, Random& random) {
  constexpr size_t kPages = 32;
  Mapping fresh(kPages * page_size(), 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  madvise(fresh.begin(), fresh.size(), MADV_NOHUGEPAGE);
  const auto& page = *shared.loops.rmw[random.below(shared.loops.rmw.size())];
  FaultSamples samples(FaultSamples::What::kAddress, FaultSamples::Whose::kThread, 1, 4);
  page.loop()(fresh.begin(), fresh.end(), page_size(), 1, 0);
  if (!samples.works()) return;
  std::array<unsigned, kPages> faults = {};
  const auto begin = reinterpret_cast<uint64_t>(fresh.begin());
  samples.drain([&](uint64_t address) {
    if (address >= begin && address - begin < fresh.size())
      ++faults[(address - begin) / page_size()];
  });
  if (samples.lost()) return;
  shared.fresh_pages += kPages;
  shared.forced_pages += static_cast<uint64_t>(std::ranges::count(faults, 1u));
  shared.twice_pages += static_cast<uint64_t>(std::ranges::count(faults, 2u));
}

void work(Shared& shared, unsigned index, int64_t end) {
  Random random(index + 1);
  while (now() < end) {
    ++shared.rounds;
    const size_t pages = shared.bytes / page_size();
    const size_t first = random.below(pages);
    const size_t count = 1 + random.below(pages - first);
    std::byte* const wild = shared.wild + first * page_size();
    std::byte* const wild_end = wild + count * page_size();
    std::byte* const legal = shared.legal + first * page_size();
    std::byte* const legal_end = legal + count * page_size();
    switch (random.below(13)) {
      case 0:
        mprotect(wild, count * page_size(), PROT_READ);
        break;
      case 1:
        mprotect(wild, count * page_size(), PROT_NONE);
        break;
      case 2:
        mprotect(wild, count * page_size(), PROT_READ | PROT_WRITE);
        break;
      case 3:
        mmap(wild, count * page_size(), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        break;
      case 4:
        madvise(shared.wild, shared.bytes, MADV_COLLAPSE);
        break;
      case 5: {
        const pid_t child = fork();
        if (child == 0) {
          touch_wild(*shared.loops.rmw[0], shared.wild, shared.wild + shared.bytes);
          _exit(0);
        }
        int status = 0;
        if (child > 0) waitpid(child, &status, 0);
        if (status != 0) ++wrong_signals;
        break;
      }
      case 6:
        mprotect(legal, count * page_size(),
                 random.below(2) == 0 ? PROT_READ : PROT_READ | PROT_WRITE);
        break;
      case 7:
        madvise(legal, count * page_size(), MADV_DONTNEED);
        break;
      case 8: {
        // Reads of what is always readable: a signal here ends the test.
        const auto& page = *shared.loops.read[random.below(shared.loops.read.size())];
        page.loop()(legal, legal_end, page_size(), 0, 0);
        break;
      }
      case 9: {
        const auto& page = *shared.loops.rmw[random.below(shared.loops.rmw.size())];
        page.loop()(shared.counted, shared.counted + shared.bytes, page_size(), 1, 0);
        ++shared.additions;
        break;
      }
      case 10:
        count_forced(shared, random);
        break;
      case 11: {
        // Text that is not there when the kernel looks at it must do no harm.
        auto& loops = random.below(2) == 0 ? shared.loops.rmw : shared.loops.read;
        for (const auto& page : loops) page->evict();
        break;
      }
      default: {
        touch_wild(*shared.loops.rmw[random.below(shared.loops.rmw.size())], wild, wild_end);
        break;
      }
    }
  }
}

}  // namespace

void run_stress(const StressOptions& options, bool expect_forced) {
  settle();
  Shared shared;
  shared.bytes = 2 * std::max(pmd_size(), size_t{1} << 21);
  const size_t alignment = std::max(pmd_size(), page_size());
  Mapping wild(shared.bytes, alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  Mapping legal(shared.bytes, alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  Mapping counted(shared.bytes, alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  for (Mapping* mapping : {&wild, &legal, &counted})
    madvise(mapping->begin(), mapping->size(), MADV_HUGEPAGE);
  shared.wild = wild.begin();
  shared.legal = legal.begin();
  shared.counted = counted.begin();
  shared.loops = make_loops();
  const FaultHandler handler(on_fault);

  const int64_t end = now() + int64_t{options.seconds} * 1'000'000'000;
  std::vector<std::thread> threads;
  threads.reserve(options.threads);
  for (unsigned i = 0; i < options.threads; ++i)
    threads.emplace_back(work, std::ref(shared), i, end);
  for (auto& thread : threads) thread.join();

  bool additions_kept = true;
  for (size_t at = 0; at < shared.bytes; at += page_size()) {
    if (*reinterpret_cast<uint64_t*>(shared.counted + at) != shared.additions)
      additions_kept = false;
  }
  Line("stress")
      .add("threads", options.threads)
      .add("seconds", options.seconds)
      .add("rounds", shared.rounds.load())
      .add("fresh_pages", shared.fresh_pages.load())
      .add("forced_pages", shared.forced_pages.load())
      .add("twice_pages", shared.twice_pages.load())
      .add("additions", shared.additions.load())
      .add("additions_kept", additions_kept)
      .add("expected_signals", expected_signals.load())
      .add("wrong_signals", wrong_signals.load())
      .print();
  if (!additions_kept) report_failure("an atomic addition was lost");
  if (wrong_signals != 0) report_failure("a legal access was signalled");
  if (shared.fresh_pages == 0) report_failure("no fresh page was looked at");
  if (expect_forced && shared.forced_pages == 0) report_failure("no fault was handled as a write");
  if (!expect_forced && shared.forced_pages != 0)
    report_failure("a fault was handled as a write by a kernel that does not look");
}

}  // namespace lab
