// SPDX-License-Identifier: GPL-2.0-only
#include "uffd.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fault_handler.h"
#include "machine.h"
#include "report.h"
#include "touch.h"

namespace lab {
namespace {

constexpr size_t kPages = 64;
constexpr uint64_t kFill = 0x0102030405060708;
constexpr uint64_t kOperand = 0x21;

struct Events {
  int missing_reads = 0;
  int missing_writes = 0;
  int write_protects = 0;
};

// Opens a userfaultfd with the features, or returns -1.
int open_userfaultfd(uint64_t features) {
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  if (fd < 0) return -1;
  uffdio_api api = {};
  api.api = UFFD_API;
  api.features = features;
  if (ioctl(fd, UFFDIO_API, &api) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// Serves events until a byte comes on `stop`.
void serve(int fd, int stop, Events& events) {
  std::vector<std::byte> page(page_size());
  for (size_t i = 0; i < page.size(); i += sizeof kFill) memcpy(&page[i], &kFill, sizeof kFill);
  while (true) {
    pollfd polled[] = {{fd, POLLIN, 0}, {stop, POLLIN, 0}};
    poll(polled, 2, -1);
    if (polled[1].revents != 0) return;
    uffd_msg message = {};
    if (read(fd, &message, sizeof message) != static_cast<ssize_t>(sizeof message)) continue;
    if (message.event != UFFD_EVENT_PAGEFAULT) continue;
    const uint64_t address = message.arg.pagefault.address & ~uint64_t{page_size() - 1};
    if ((message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) != 0) {
      ++events.write_protects;
      uffdio_writeprotect lift = {};
      lift.range = {address, page_size()};
      ioctl(fd, UFFDIO_WRITEPROTECT, &lift);
      continue;
    }
    ++((message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0 ? events.missing_writes
                                                                      : events.missing_reads);
    uffdio_copy copy = {};
    copy.dst = address;
    copy.src = reinterpret_cast<uintptr_t>(page.data());
    copy.len = page_size();
    ioctl(fd, UFFDIO_COPY, &copy);
  }
}

void touch_registered(const Touch& touch, LoopPage::Text text, bool write_protect) {
  const char* mode = write_protect ? "write-protect" : "missing";
  const int fd = open_userfaultfd(write_protect ? uint64_t{UFFD_FEATURE_PAGEFAULT_FLAG_WP} : 0);
  if (fd < 0) {
    Line("skipped")
        .add("what", std::string("userfaultfd ") + mode)
        .add("why", "this kernel does not have it")
        .print();
    return;
  }
  Mapping region(kPages * page_size(), 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  madvise(region.begin(), region.size(), MADV_NOHUGEPAGE);
  if (write_protect) {
    for (size_t i = 0; i < region.size(); i += sizeof kFill)
      memcpy(region.begin() + i, &kFill, sizeof kFill);
  }
  uffdio_register reg = {};
  reg.range = {reinterpret_cast<uintptr_t>(region.begin()), region.size()};
  reg.mode = write_protect ? UFFDIO_REGISTER_MODE_WP : UFFDIO_REGISTER_MODE_MISSING;
  if (ioctl(fd, UFFDIO_REGISTER, &reg) != 0) {
    report_failure("UFFDIO_REGISTER failed");
    close(fd);
    return;
  }
  if (write_protect) {
    uffdio_writeprotect protect = {};
    protect.range = reg.range;
    protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
    if (ioctl(fd, UFFDIO_WRITEPROTECT, &protect) != 0) report_failure("UFFDIO_WRITEPROTECT failed");
  }
  int stop[2] = {};
  if (pipe(stop) != 0) report_failure("pipe failed");
  Events events;
  std::thread server(serve, fd, stop[0], std::ref(events));
  {
    const LoopPage page(touch, text);
    page.loop()(region.begin(), region.end(), page_size(), kOperand, kFill);
  }
  if (write(stop[1], "", 1) != 1) report_failure("the server could not be stopped");
  server.join();
  bool is_right = true;
  for (size_t i = 0; i < kPages; ++i) {
    uint64_t word = 0;
    memcpy(&word, region.begin() + i * page_size(), sizeof word);
    is_right = is_right && word == expected_after(touch, kFill, kOperand);
  }
  if (!is_right) report_failure(std::string(touch.name) + " left wrong contents under userfaultfd");
  Line("userfaultfd")
      .add("mode", mode)
      .add("touch", touch.name)
      .add("text", text == LoopPage::Text::kNormal ? "normal" : "execute-only")
      .add("pages", uint64_t{kPages})
      .add("missing_reads", events.missing_reads)
      .add("missing_writes", events.missing_writes)
      .add("write_protects", events.write_protects)
      .add("contents", is_right ? "as expected" : "wrong")
      .print();
  close(stop[0]);
  close(stop[1]);
  close(fd);
}

sigjmp_buf escape;
siginfo_t seen;

void on_fault(int, siginfo_t* info, void*) {
  seen = *info;
  siglongjmp(escape, 1);
}

// A userfaultfd holds the fault; meanwhile the memory becomes read-only, and only then is there a
// page. The kernel goes on with the fault from where it was, in a VMA that may not be written now.
void touch_while_protected(const Touch& touch, LoopPage::Text text) {
  const int fd = open_userfaultfd(0);
  if (fd < 0) {
    Line("skipped")
        .add("what", "memory that is protected during a fault")
        .add("why", "this kernel has no userfaultfd")
        .print();
    return;
  }
  const LoopPage page(touch, text);
  Mapping region(page_size(), 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  uffdio_register reg = {};
  reg.range = {reinterpret_cast<uintptr_t>(region.begin()), region.size()};
  reg.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (ioctl(fd, UFFDIO_REGISTER, &reg) != 0) report_failure("UFFDIO_REGISTER failed");
  bool as_write = false;
  std::thread server([&] {
    pollfd polled = {fd, POLLIN, 0};
    poll(&polled, 1, -1);
    uffd_msg message = {};
    if (read(fd, &message, sizeof message) != static_cast<ssize_t>(sizeof message))
      report_failure("no userfaultfd event");
    as_write = (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0;
    if (mprotect(region.begin(), region.size(), PROT_READ) != 0) report_failure("mprotect failed");
    uffdio_zeropage zero = {};
    zero.range = reg.range;
    if (ioctl(fd, UFFDIO_ZEROPAGE, &zero) != 0) report_failure("UFFDIO_ZEROPAGE failed");
  });
  seen = {};
  if (sigsetjmp(escape, 1) == 0)
    page.loop()(region.begin(), region.end(), page_size(), kOperand, 0);
  server.join();
  close(fd);
  Line("protected meanwhile")
      .add("touch", touch.name)
      .add("text", text == LoopPage::Text::kNormal ? "normal" : "execute-only")
      .add("as_write", as_write)
      .add("signal", seen.si_signo)
      .add("code", seen.si_code)
      .print();
  if (touch.kind == TouchKind::kRead && seen.si_signo != 0)
    report_failure(std::string(touch.name) + ", which only reads, was signalled");
  if (touch.kind != TouchKind::kRead && seen.si_signo != SIGSEGV)
    report_failure(std::string(touch.name) + " wrote read-only memory");
}

}  // namespace

void run_protected_meanwhile() {
  const std::span<const LoopPage::Text> texts = texts_to_run();
  for (const Touch& touch : all_touches()) {
    if (!touch.headline || touch.kind == TouchKind::kPopulate || !executes(touch)) continue;
    const FaultHandler handler(on_fault);
    for (const LoopPage::Text text : texts) touch_while_protected(touch, text);
  }
}

void run_uffd() {
  const std::span<const LoopPage::Text> texts = texts_to_run();
  for (const Touch& touch : all_touches()) {
    if (!touch.headline || touch.kind == TouchKind::kPopulate || !executes(touch)) continue;
    for (const bool write_protect : {false, true}) {
      for (const LoopPage::Text text : texts) touch_registered(touch, text, write_protect);
    }
  }
}

}  // namespace lab
