// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SYSTEM_CALLS_H_
#define TOUCHSTONE_HEAP_SYSTEM_CALLS_H_

#include <cstddef>
#include <cstdint>

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <touchstone/arch/export.h>

struct rlimit;
struct rusage;

namespace touchstone::heap {

/// Every system call that the heap and the code cache make on memory, as one replaceable table.
///
/// Each entry behaves as the C library's function of its name: -1 (or MAP_FAILED) and errno on
/// failure. Tests replace entries to inject failures; nothing in the library calls the kernel
/// around it.
struct SystemCalls {
  void* (*mmap)(void* address, std::size_t length, int protection, int flags, int fd, off_t offset);
  int (*munmap)(void* address, std::size_t length);
  int (*mprotect)(void* address, std::size_t length, int protection);
  int (*madvise)(void* address, std::size_t length, int advice);
  ssize_t (*process_madvise)(int pidfd, const iovec* ranges, std::size_t count, int advice,
                             unsigned int flags);
  int (*pidfd_open)(pid_t pid, unsigned int flags);
  int (*mseal)(void* address, std::size_t length, unsigned long flags);
  /// prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, address, length, name).
  int (*set_vma_name)(void* address, std::size_t length, const char* name);
  int (*memfd_create)(const char* name, unsigned int flags);
  int (*ftruncate)(int fd, off_t length);
  int (*membarrier)(int command, unsigned int flags, int cpu);
  int (*open)(const char* path, int flags);
  ssize_t (*read)(int fd, void* buffer, std::size_t size);
  ssize_t (*write)(int fd, const void* buffer, std::size_t size);
  ssize_t (*pread)(int fd, void* buffer, std::size_t size, off_t offset);
  int (*close)(int fd);
  int (*ioctl)(int fd, unsigned long request, void* argument);
  int (*userfaultfd)(int flags);
  int (*getrlimit)(int resource, rlimit* limit);
  int (*getrusage)(int who, rusage* usage);
  int (*mincore)(void* address, std::size_t length, unsigned char* pages);
  /// Returns the error number, as pthread_create does.
  int (*create_thread)(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                       void* argument);
  /// Of the calling thread; `mask` has a bit for each CPU. Both return 0 on success.
  int (*get_affinity)(std::size_t size, unsigned long* mask);
  int (*set_affinity)(std::size_t size, const unsigned long* mask);
  int (*sigaction)(int signal, const struct ::sigaction* action, struct ::sigaction* old_action);
  int (*sigaltstack)(const stack_t* stack, stack_t* old_stack);
};

/// The kernel itself. Constant; thread-safe.
[[nodiscard]] TOUCHSTONE_API const SystemCalls& kernel_calls() noexcept;

/// The table in force: kernel_calls() unless a test replaced it. Thread-safe.
[[nodiscard]] TOUCHSTONE_API const SystemCalls& system_calls() noexcept;

/// Replaces the table in force and returns the one before; null restores kernel_calls(). For tests:
/// the table must outlive every call made through it. Thread-safe, and seen by all threads.
TOUCHSTONE_API const SystemCalls* replace_system_calls(const SystemCalls* table) noexcept;

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SYSTEM_CALLS_H_
