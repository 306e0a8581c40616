// SPDX-License-Identifier: GPL-2.0-only
#include "runtime.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault_samples.h"
#include "machine.h"
#include "report.h"

namespace lab {
namespace {

constexpr unsigned kPeriod = 61;
constexpr size_t kRingPages = 64;

// The instructions that take the faults of a child and its threads.
class FaultingInstructions {
 public:
  explicit FaultingInstructions(pid_t child)
      : samples_(FaultSamples::What::kInstruction, FaultSamples::Whose::kChild, kPeriod, kRingPages,
                 child),
        child_(child) {}

  [[nodiscard]] bool works() const { return samples_.works(); }

  // Takes what is there, and reads the words of new addresses while the child still has them.
  void drain() {
    samples_.drain([&](uint64_t pc) {
      auto [place, is_new] = places_.try_emplace(pc);
      ++place->second.samples;
      if (is_new) place->second.word = word_at(pc);
    });
  }

  void print(std::string_view name, size_t count) const {
    struct Instruction {
      uint64_t samples = 0;
      uint32_t word = 0;
    };
    uint64_t all = 0;
    std::vector<Instruction> sorted;
    for (const auto& [pc, place] : places_) {
      all += place.samples;
      sorted.push_back({place.samples, place.word});
    }
    std::ranges::sort(sorted, std::greater{}, &Instruction::samples);
    for (size_t i = 0; i < std::min(count, sorted.size()); ++i) {
      char word[16];
      snprintf(word, sizeof word, "%08x", sorted[i].word);
      Line("faulting instruction")
          .add("what", name)
          .add("word", word)
          .add("samples", sorted[i].samples)
          .add("of", all)
          .print();
    }
  }

 private:
  struct Place {
    uint64_t samples = 0;
    uint32_t word = 0;
  };

  [[nodiscard]] uint32_t word_at(uint64_t pc) const {
    const std::string path = "/proc/" + std::to_string(child_) + "/mem";
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    uint32_t word = 0;
    if (fd < 0 || pread(fd, &word, sizeof word, static_cast<off_t>(pc)) != sizeof word) word = 0;
    if (fd >= 0) close(fd);
    return word;
  }

  FaultSamples samples_;
  pid_t child_;
  std::map<uint64_t, Place> places_;
};

}  // namespace

int run_runtime(std::string_view name, std::span<char*> words, const RuntimeOptions& options) {
  settle(options.thp_always ? ThpMode::kAlways : ThpMode::kMadvise);
  std::vector<char*> arguments(words.begin(), words.end());
  arguments.push_back(nullptr);
  int go[2] = {};
  if (pipe2(go, O_CLOEXEC) != 0) {
    report_failure("pipe failed");
    return 1;
  }
  const ThpEvents before = thp_events();
  fflush(stdout);
  const int64_t start = now();
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(go[1]);
    while (read(go[0], &byte, 1) < 0 && errno == EINTR) {
    }
    execv(arguments[0], arguments.data());
    perror(arguments[0]);
    _exit(127);
  }
  close(go[0]);
  int status = 0;
  rusage usage = {};
  if (options.sample) {
    FaultingInstructions sampler(child);
    if (!sampler.works()) report_failure("the kernel has no sampling of page faults");
    close(go[1]);
    while (wait4(child, &status, WNOHANG, &usage) == 0) {
      if (sampler.works()) sampler.drain();
      usleep(2000);
    }
    if (sampler.works()) {
      sampler.drain();
      sampler.print(name, 4);
    }
  } else {
    close(go[1]);
    while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
    }
  }
  const int64_t took = now() - start;
  const ThpEvents after = thp_events();
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  Line("runtime")
      .add("what", name)
      .add("sampled", options.sample)
      .add("status", code)
      .add("faults", int64_t{usage.ru_minflt})
      .add("major_faults", int64_t{usage.ru_majflt})
      .add("max_rss_kb", int64_t{usage.ru_maxrss})
      .add("thp_fault_alloc", after.fault_alloc - before.fault_alloc)
      .add("thp_split_pmd", after.split_pmd - before.split_pmd)
      .add("instructions", took)
      .print();
  if (code != 0) report_failure(std::string(name) + " ended with " + std::to_string(code));
  return code;
}

}  // namespace lab
