// SPDX-License-Identifier: GPL-2.0-only
// Page faults as the kernel's own event samples them.
#ifndef TOUCHSTONE_LAB_FAULT_SAMPLES_H
#define TOUCHSTONE_LAB_FAULT_SAMPLES_H

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <linux/perf_event.h>
#include <sys/types.h>

namespace lab {

// Samples the page faults that user space takes. Not for use by several threads.
class FaultSamples {
 public:
  enum class What { kInstruction, kAddress };
  enum class Whose {
    kThread,  // of this thread
    kChild,   // of a child and its threads, from its exec on; the guest must have one CPU only
  };

  // Every `period`-th fault of the calling thread, or of `child`.
  FaultSamples(What what, Whose whose, unsigned period, size_t ring_pages, pid_t child = 0);
  ~FaultSamples();
  FaultSamples(const FaultSamples&) = delete;
  FaultSamples& operator=(const FaultSamples&) = delete;

  // Whether the kernel has the event.
  [[nodiscard]] bool works() const { return control_ != nullptr; }

  // Whether samples did not fit in the ring since they were last taken out.
  [[nodiscard]] bool lost() const { return lost_; }

  // Takes out what was sampled: each(address of the instruction, or of what it touched).
  template <typename Each>
  void drain(Each each) {
    const uint64_t head =
        std::atomic_ref<__u64>(control_->data_head).load(std::memory_order_acquire);
    uint64_t at = control_->data_tail;
    while (at < head) {
      perf_event_header header = {};
      copy(at, &header, sizeof header);
      if (header.size == 0) break;
      if (header.type == PERF_RECORD_SAMPLE) {
        uint64_t sampled = 0;
        copy(at + sizeof header, &sampled, sizeof sampled);
        each(sampled);
      } else if (header.type == PERF_RECORD_LOST) {
        lost_ = true;
      }
      at += header.size;
    }
    std::atomic_ref<__u64>(control_->data_tail).store(at, std::memory_order_release);
  }

 private:
  void copy(uint64_t from, void* to, size_t size) const;

  int fd_ = -1;
  size_t ring_bytes_ = 0;
  perf_event_mmap_page* control_ = nullptr;
  std::byte* records_ = nullptr;
  bool lost_ = false;
};

}  // namespace lab

#endif  // TOUCHSTONE_LAB_FAULT_SAMPLES_H
