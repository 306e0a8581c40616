// SPDX-License-Identifier: GPL-2.0-only
#include "runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine.h"
#include "report.h"

namespace lab {
namespace {

constexpr unsigned kPeriod = 61;
constexpr size_t kRingPages = 64;  // a power of two, besides the control page

// The faults of a child and its threads, sampled by the kernel's own event.
class FaultSampler {
 public:
  explicit FaultSampler(pid_t child) : child_(child) {
    perf_event_attr attributes = {};
    attributes.size = sizeof attributes;
    attributes.type = PERF_TYPE_SOFTWARE;
    attributes.config = PERF_COUNT_SW_PAGE_FAULTS;
    attributes.sample_period = kPeriod;
    attributes.sample_type = PERF_SAMPLE_IP;
    attributes.inherit = 1;
    attributes.exclude_kernel = 1;
    attributes.disabled = 1;
    attributes.enable_on_exec = 1;
    // A ring that children inherit belongs to one CPU: the guest has no more.
    fd_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, child, 0, -1, 0));
    if (fd_ < 0) return;
    void* const ring =
        mmap(nullptr, (kRingPages + 1) * page_size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (ring == MAP_FAILED) return;
    control_ = static_cast<perf_event_mmap_page*>(ring);
    records_ = static_cast<std::byte*>(ring) + page_size();
  }
  ~FaultSampler() {
    if (control_ != nullptr) munmap(control_, (kRingPages + 1) * page_size());
    if (fd_ >= 0) close(fd_);
  }
  FaultSampler(const FaultSampler&) = delete;
  FaultSampler& operator=(const FaultSampler&) = delete;

  [[nodiscard]] bool works() const { return control_ != nullptr; }

  // Takes what is there, and reads the words of new addresses while the child still has them.
  void drain() {
    const size_t bytes = kRingPages * page_size();
    const uint64_t head =
        std::atomic_ref<__u64>(control_->data_head).load(std::memory_order_acquire);
    uint64_t at = control_->data_tail;
    const auto copy = [&](uint64_t from, void* to, size_t size) {
      for (size_t i = 0; i < size; ++i)
        static_cast<std::byte*>(to)[i] = records_[(from + i) % bytes];
    };
    while (at < head) {
      perf_event_header header = {};
      copy(at, &header, sizeof header);
      if (header.size == 0) break;
      if (header.type == PERF_RECORD_SAMPLE) {
        uint64_t pc = 0;
        copy(at + sizeof header, &pc, sizeof pc);
        auto [place, is_new] = places_.try_emplace(pc);
        ++place->second.samples;
        if (is_new) place->second.word = word_at(pc);
      }
      at += header.size;
    }
    std::atomic_ref<__u64>(control_->data_tail).store(at, std::memory_order_release);
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

  pid_t child_;
  int fd_ = -1;
  perf_event_mmap_page* control_ = nullptr;
  std::byte* records_ = nullptr;
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
    FaultSampler sampler(child);
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
