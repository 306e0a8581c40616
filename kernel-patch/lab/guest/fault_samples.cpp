// SPDX-License-Identifier: GPL-2.0-only
#include "fault_samples.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine.h"

namespace lab {

FaultSamples::FaultSamples(What what, Whose whose, unsigned period, size_t ring_pages, pid_t child)
    : ring_bytes_(ring_pages * page_size()) {
  perf_event_attr attributes = {};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.config = PERF_COUNT_SW_PAGE_FAULTS;
  attributes.sample_period = period;
  attributes.sample_type = what == What::kInstruction ? PERF_SAMPLE_IP : PERF_SAMPLE_ADDR;
  attributes.exclude_kernel = 1;
  int cpu = -1;
  if (whose == Whose::kChild) {
    attributes.inherit = 1;
    attributes.disabled = 1;
    attributes.enable_on_exec = 1;
    // A ring that children inherit belongs to one CPU.
    cpu = 0;
  }
  fd_ = static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, child, cpu, -1, PERF_FLAG_FD_CLOEXEC));
  if (fd_ < 0) return;
  void* const ring =
      mmap(nullptr, page_size() + ring_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (ring == MAP_FAILED) return;
  control_ = static_cast<perf_event_mmap_page*>(ring);
  records_ = static_cast<std::byte*>(ring) + page_size();
}

FaultSamples::~FaultSamples() {
  if (control_ != nullptr) munmap(control_, page_size() + ring_bytes_);
  if (fd_ >= 0) close(fd_);
}

void FaultSamples::copy(uint64_t from, void* to, size_t size) const {
  for (size_t i = 0; i < size; ++i)
    static_cast<std::byte*>(to)[i] = records_[(from + i) % ring_bytes_];
}

}  // namespace lab
