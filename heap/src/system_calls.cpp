// SPDX-License-Identifier: MIT
#include <atomic>

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <touchstone/heap/system_calls.h>

// Numbers and constants that older C libraries lack; they are the same on arm64 and x86-64.
#ifndef SYS_mseal
#define SYS_mseal 462
#endif
static_assert(SYS_mseal == 462);
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
static_assert(SYS_process_madvise == 440);
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif
#ifndef PR_SET_VMA_ANON_NAME
#define PR_SET_VMA_ANON_NAME 0
#endif
static_assert(PR_SET_VMA == 0x53564d41 && PR_SET_VMA_ANON_NAME == 0);

namespace touchstone::heap {
namespace {

constexpr SystemCalls kKernel{
    .mmap = ::mmap,
    .munmap = ::munmap,
    .mprotect = ::mprotect,
    .madvise = ::madvise,
    .process_madvise = [](int pidfd, const iovec* ranges, std::size_t count, int advice,
                          unsigned int flags) -> ssize_t {
      return ::syscall(SYS_process_madvise, pidfd, ranges, count, advice, flags);
    },
    .pidfd_open = [](pid_t pid, unsigned int flags) -> int {
      return static_cast<int>(::syscall(SYS_pidfd_open, pid, flags));
    },
    .mseal = [](void* address, std::size_t length, unsigned long flags) -> int {
      return static_cast<int>(::syscall(SYS_mseal, address, length, flags));
    },
    .set_vma_name = [](void* address, std::size_t length, const char* name) -> int {
      return ::prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, address, length, name);
    },
    .memfd_create = ::memfd_create,
    .ftruncate = ::ftruncate,
    .membarrier = [](int command, unsigned int flags, int cpu) -> int {
      return static_cast<int>(::syscall(SYS_membarrier, command, flags, cpu));
    },
    .open = [](const char* path, int flags) -> int { return ::open(path, flags); },
    .read = ::read,
    .write = ::write,
    .pread = ::pread,
    .close = ::close,
    .ioctl = [](int fd, unsigned long request, void* argument) -> int {
      return ::ioctl(fd, request, argument);
    },
    .userfaultfd = [](int flags) -> int {
      return static_cast<int>(::syscall(SYS_userfaultfd, flags));
    },
    .getrlimit = [](int resource, rlimit* limit) -> int {
      return ::getrlimit(static_cast<__rlimit_resource_t>(resource), limit);
    },
    .getrusage = [](int who, rusage* usage) -> int {
      return ::getrusage(static_cast<__rusage_who_t>(who), usage);
    },
    .mincore = ::mincore,
    .create_thread = ::pthread_create,
    .get_affinity = [](std::size_t size, unsigned long* mask) -> int {
      // The system call returns the bytes it wrote.
      return ::syscall(SYS_sched_getaffinity, 0, size, mask) < 0 ? -1 : 0;
    },
    .set_affinity = [](std::size_t size, const unsigned long* mask) -> int {
      return static_cast<int>(::syscall(SYS_sched_setaffinity, 0, size, mask));
    },
    .sigaction = ::sigaction,
    .sigaltstack = ::sigaltstack,
};

constinit std::atomic<const SystemCalls*> in_force{&kKernel};

}  // namespace

const SystemCalls& kernel_calls() noexcept {
  return kKernel;
}

const SystemCalls& system_calls() noexcept {
  return *in_force.load(std::memory_order_acquire);
}

const SystemCalls* replace_system_calls(const SystemCalls* table) noexcept {
  return in_force.exchange(table != nullptr ? table : &kKernel, std::memory_order_acq_rel);
}

}  // namespace touchstone::heap
