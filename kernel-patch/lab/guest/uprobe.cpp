// SPDX-License-Identifier: GPL-2.0-only
#include "uprobe.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine.h"
#include "report.h"
#include "touch.h"

namespace lab {
namespace {

constexpr size_t kPages = 64;
constexpr uint64_t kOperand = 0x21;

// Opens a count of the probe at `offset` of the file, in this process; -1 where it is refused.
int open_probe(const std::string& type, int file, size_t offset) {
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  perf_event_attr attributes = {};
  attributes.size = sizeof attributes;
  attributes.type = static_cast<uint32_t>(atoi(type.c_str()));
  attributes.uprobe_path = reinterpret_cast<uintptr_t>(path.c_str());
  attributes.probe_offset = offset;
  return static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

void touch_probed(const Touch& touch, const std::string& type) {
  const LoopPage page(touch, LoopPage::Text::kNormal);
  const int probe = open_probe(type, page.file(), page.offset_of_touch());
  if (probe < 0) {
    report_failure("no uprobe on " + std::string(touch.name) + ": " + strerror(errno));
    return;
  }
  Mapping warm(page_size(), 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  Mapping region(kPages * page_size(), 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  madvise(region.begin(), region.size(), MADV_NOHUGEPAGE);
  // The first hit makes the page of copies.
  page.loop()(warm.begin(), warm.end(), page_size(), kOperand, 0);
  const int64_t before = minor_faults_of_thread();
  page.loop()(region.begin(), region.end(), page_size(), kOperand, 0);
  const int64_t faults = minor_faults_of_thread() - before;
  uint64_t hits = 0;
  if (read(probe, &hits, sizeof hits) != sizeof hits) hits = 0;
  close(probe);
  bool is_right = true;
  for (size_t i = 0; i < kPages; ++i) {
    uint64_t word = 0;
    memcpy(&word, region.begin() + i * page_size(), sizeof word);
    is_right = is_right && word == expected_after(touch, 0, kOperand);
  }
  Line("uprobe")
      .add("touch", touch.name)
      .add("pages", uint64_t{kPages})
      .add("hits", hits)
      .add("faults", faults)
      .add("contents", is_right ? "as expected" : "wrong")
      .print();
  if (hits != kPages + 1) report_failure("a uprobe was not hit once a page");
  if (!is_right) report_failure(std::string(touch.name) + " left wrong contents under a uprobe");
}

}  // namespace

void run_uprobes() {
  const std::string type = read_file("/sys/bus/event_source/devices/uprobe/type");
  if (type.empty()) {
    Line("skipped").add("what", "uprobes").add("why", "this kernel has none").print();
    return;
  }
  // Exclusives and CASP cannot be probed: the kernel refuses to step them.
  for (const std::string_view name : {"load", "store", "ldadd", "stadd", "swp"})
    touch_probed(touch_named(name), type);
}

}  // namespace lab
