// SPDX-License-Identifier: GPL-2.0-only
#include "matrix.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine.h"
#include "report.h"
#include "touch.h"

namespace lab {
namespace {

enum class Memory { kSmallPages, kThp, kPrivateFile, kShared, kForkedSmallPages, kForkedThp };

constexpr std::initializer_list<Memory> kMemories = {Memory::kSmallPages,       Memory::kThp,
                                                     Memory::kPrivateFile,      Memory::kShared,
                                                     Memory::kForkedSmallPages, Memory::kForkedThp};

const char* name_of(Memory memory) {
  switch (memory) {
    case Memory::kSmallPages:
      return "anon";
    case Memory::kThp:
      return "anon-thp";
    case Memory::kPrivateFile:
      return "file-private";
    case Memory::kShared:
      return "shared";
    case Memory::kForkedSmallPages:
      return "anon-forked";
    case Memory::kForkedThp:
      return "anon-thp-forked";
  }
  return "?";
}

bool is_thp(Memory memory) {
  return memory == Memory::kThp || memory == Memory::kForkedThp;
}
bool is_forked(Memory memory) {
  return memory == Memory::kForkedSmallPages || memory == Memory::kForkedThp;
}

// What every word of memory holds before it is touched, where that is not zero, and the operand.
constexpr uint64_t kPattern = 0x0102030405060708;
constexpr uint64_t kOperand = 0x1100ff0000000021;

void fill(std::byte* begin, std::byte* end) {
  auto* const first = reinterpret_cast<uint64_t*>(begin);
  std::fill(first, reinterpret_cast<uint64_t*>(end), kPattern);
}

struct Row {
  const Touch* touch;
  Memory memory;
  LoopPage::Text text;
  unsigned threads;
  size_t bytes;
};

struct Result {
  int64_t minor_faults = 0;
  int64_t major_faults = 0;
  int64_t nanoseconds = 0;
  int error = 0;  // errno of a populate that is refused
};

// Runs the touch over [begin, end) with `threads` threads that each take every `threads`-th page,
// so that all of them are in every huge page at once.
Result touch_all(const Row& row, const LoopPage* page, std::byte* begin, std::byte* end,
                 uint64_t expected) {
  Result result;
  if (row.touch->kind == TouchKind::kPopulate) {
    const int advice =
        row.touch->name == "populate-write" ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    const int64_t before = minor_faults_of_process();
    const int64_t start = now();
    if (madvise(begin, static_cast<size_t>(end - begin), advice) != 0) result.error = errno;
    result.nanoseconds = now() - start;
    result.minor_faults = minor_faults_of_process() - before;
    return result;
  }
  const size_t stride = page_size();
  const auto work = [&](unsigned index) {
    const int64_t minor = minor_faults_of_thread(), major = major_faults_of_thread();
    const int64_t start = now();
    page->loop()(begin + index * stride, end, row.threads * stride, kOperand, expected);
    const int64_t took = now() - start;
    return Result{minor_faults_of_thread() - minor, major_faults_of_thread() - major, took, 0};
  };
  if (row.threads == 1) {
    // Have the counters' own pages in before they are read.
    static_cast<void>(minor_faults_of_thread());
    static_cast<void>(now());
    return work(0);
  }
  std::barrier ready(static_cast<std::ptrdiff_t>(row.threads) + 1);
  std::vector<Result> results(row.threads);
  std::vector<std::thread> workers;
  workers.reserve(row.threads);
  for (unsigned i = 0; i < row.threads; ++i) {
    workers.emplace_back([&, i] {
      static_cast<void>(minor_faults_of_thread());
      static_cast<void>(now());
      ready.arrive_and_wait();
      results[i] = work(i);
    });
  }
  const int64_t start = now();
  ready.arrive_and_wait();
  for (auto& worker : workers) worker.join();
  result.nanoseconds = now() - start;
  for (const Result& r : results) {
    result.minor_faults += r.minor_faults;
    result.major_faults += r.major_faults;
  }
  return result;
}

// Checks the touched word of every page, and two that must not have changed.
bool contents_are(const std::byte* begin, const std::byte* end, uint64_t before, uint64_t after) {
  for (const std::byte* page = begin; page < end; page += page_size()) {
    uint64_t touched = 0, middle = 0, last = 0;
    memcpy(&touched, page, sizeof touched);
    memcpy(&middle, page + page_size() / 2, sizeof middle);
    memcpy(&last, page + page_size() - sizeof last, sizeof last);
    if (touched != after || middle != before || last != before) return false;
  }
  return true;
}

// Measures one row in memory that is ready, and prints it.
void measure(const Row& row, std::byte* begin, std::byte* end, uint64_t initial,
             const MatrixOptions& options) {
  std::optional<LoopPage> page;
  if (row.touch->kind != TouchKind::kPopulate) page.emplace(*row.touch, row.text);
  const ThpEvents before = thp_events();
  const Result result = touch_all(row, page ? &*page : nullptr, begin, end, initial);
  const ThpEvents after = thp_events();
  const int64_t huge = anon_huge_kb(begin, end);
  const uint64_t expected = expected_after(*row.touch, initial, kOperand);
  const bool kept = result.error != 0 || contents_are(begin, end, initial, expected);

  Line line("fault");
  line.add("touch", row.touch->name)
      .add("group", row.touch->group)
      .add("memory", name_of(row.memory))
      .add("text", row.text == LoopPage::Text::kNormal ? "normal" : "execute-only")
      .add("threads", row.threads)
      .add("bytes", uint64_t{row.bytes})
      .add("faults", result.minor_faults)
      .add("major_faults", result.major_faults)
      .add("huge_kb", huge)
      .add("thp_fault_alloc", after.fault_alloc - before.fault_alloc)
      .add("thp_split_pmd", after.split_pmd - before.split_pmd)
      .add("thp_zero_page_alloc", after.zero_page_alloc - before.zero_page_alloc)
      .add("contents", kept ? "as expected" : "wrong");
  if (options.instructions) line.add("instructions", result.nanoseconds);
  if (result.error != 0) line.add("error", strerror(result.error));
  line.print();
  if (!kept)
    report_failure(std::string(row.touch->name) + " left wrong contents in " + name_of(row.memory));
}

// A file in tmpfs that holds the pattern, all of it in the page cache.
int pattern_file(size_t bytes) {
  const int fd = memfd_create("touchstone-lab", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    report_failure("a memfd could not be made");
    _exit(1);
  }
  Mapping whole(bytes, 0, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
  fill(whole.begin(), whole.end());
  return fd;
}

void run_row(const Row& row, const MatrixOptions& options) {
  if (is_thp(row.memory) && pmd_size() == 0) return;
  const size_t alignment = is_thp(row.memory) ? pmd_size() : page_size();
  int fd = -1;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (row.memory == Memory::kShared) flags = MAP_SHARED | MAP_ANONYMOUS;
  if (row.memory == Memory::kPrivateFile) {
    fd = pattern_file(row.bytes);
    flags = MAP_PRIVATE;
  }
  Mapping region(row.bytes, alignment, PROT_READ | PROT_WRITE, flags, fd);
  if (fd < 0 && row.memory != Memory::kShared)
    madvise(region.begin(), region.size(), is_thp(row.memory) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  const bool is_filled = is_forked(row.memory) || row.memory == Memory::kPrivateFile;
  const uint64_t initial = is_filled ? kPattern : 0;

  if (is_forked(row.memory)) {
    fill(region.begin(), region.end());
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      measure(row, region.begin(), region.end(), initial, options);
      _exit(any_failure() ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) report_failure(std::string(row.touch->name) + " failed in a forked child");
    if (!contents_are(region.begin(), region.end(), initial, initial))
      report_failure(std::string(row.touch->name) + " in a child changed its parent's memory");
  } else {
    measure(row, region.begin(), region.end(), initial, options);
  }
  if (fd >= 0) close(fd);
}

}  // namespace

void run_matrix(const MatrixOptions& options) {
  settle();
  std::vector<const Touch*> touches;
  for (const Touch& touch : all_touches()) {
    if (executes(touch)) {
      touches.push_back(&touch);
    } else {
      Line("not executed").add("touch", touch.name).add("group", touch.group).print();
    }
  }
  const std::span<const LoopPage::Text> texts = texts_to_run();
  const auto run = [&](const Touch& touch, Memory memory, size_t bytes, unsigned threads) {
    // A PMD is more than small sizes on kernels with large base pages.
    const size_t unit = is_thp(memory) ? pmd_size() : page_size();
    const size_t whole = std::max(bytes / unit, size_t{1}) * unit;
    for (const LoopPage::Text text : texts) {
      if (touch.kind == TouchKind::kPopulate && (text != LoopPage::Text::kNormal || threads != 1))
        continue;
      run_row(Row{&touch, memory, text, threads, whole}, options);
    }
  };
  for (const Touch* touch : touches) {
    if (!touch->headline) continue;
    run(*touch, Memory::kSmallPages, options.headline_bytes, 1);
    run(*touch, Memory::kThp, options.headline_bytes, 1);
  }
  if (options.cross_bytes == 0) return;
  for (const Touch* touch : touches) {
    for (const Memory memory : kMemories) {
      for (const unsigned threads : {1u, 4u}) run(*touch, memory, options.cross_bytes, threads);
    }
  }
}

}  // namespace lab
