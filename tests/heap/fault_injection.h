// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_HEAP_FAULT_INJECTION_H_
#define TOUCHSTONE_TESTS_HEAP_FAULT_INJECTION_H_

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <touchstone/heap/system_calls.h>

namespace touchstone::heap::testing {

/// The entries of SystemCalls.
enum class Call : std::uint8_t {
  kMmap,
  kMunmap,
  kMprotect,
  kMadvise,
  kProcessMadvise,
  kPidfdOpen,
  kMseal,
  kSetVmaName,
  kMemfdCreate,
  kFtruncate,
  kMembarrier,
  kOpen,
  kRead,
  kPread,
  kClose,
  kIoctl,
  kUserfaultfd,
  kGetrlimit,
  kSigaction,
  kGetrusage,
  kMincore,
  kCreateThread,
  kSigaltstack,
};

/// A call that was made: what the code under test asked for and what it was told.
struct CallRecord {
  Call call = Call::kMmap;
  std::uintptr_t address = 0;  ///< Of the range; for process_madvise of the first one.
  std::size_t length = 0;      ///< Of the range; for process_madvise the sum.
  std::size_t ranges = 1;      ///< For process_madvise, how many.
  long argument = 0;           ///< Advice, protection, flags, command, signal or file descriptor.
  long result = 0;
  int error = 0;       ///< errno that was reported, or 0.
  bool faked = false;  ///< A Fault decided it.
};

/// What happens to calls that match: those of the kind `call` (any, if unset), with this argument
/// (if set), whose range covers `address` (if not 0), from the nth such call on (1-based), `times`
/// times.
struct Fault {
  std::optional<Call> call = std::nullopt;
  std::optional<long> argument = std::nullopt;
  std::uintptr_t address = 0;
  std::size_t nth = 1;
  std::size_t times = SIZE_MAX;
  /// errno to report; 0 reports success, or for process_madvise with `bytes` a short count.
  int error = 0;
  /// How much of the range the kernel really works on first: nothing. With `address`, all before
  /// the page at that address, as the kernel does that stops there; process_madvise then returns
  /// the bytes of the ranges that were complete if there are any.
  std::size_t bytes = 0;
  /// process_madvise counts the part of a range that was done too, as it does where the sum of the
  /// ranges exceeds MAX_RW_COUNT (2 GiB less a page).
  bool count_parts = false;
};

/// Puts itself in the place of the kernel, counts and records every call, lets the scripted ones
/// fail and passes the others on. One at a time; thread-safe. Records allocate, so never use it on
/// code that must not allocate between fork() and exec.
class FaultInjection {
 public:
  FaultInjection() : before_(install(this)) {}
  ~FaultInjection() {
    replace_system_calls(before_);
    active = nullptr;
  }
  FaultInjection(const FaultInjection&) = delete;
  FaultInjection& operator=(const FaultInjection&) = delete;

  void add(const Fault& fault) {
    const std::lock_guard lock(mutex_);
    faults_.push_back({fault, 0});
  }
  /// Every call of a kind fails from now on.
  void fail(Call call, int error) { add({.call = call, .error = error}); }
  /// Every call of a kind reports success and does nothing from now on.
  void pretend(Call call) { add({.call = call}); }
  /// The nth call of any kind from now on fails, once.
  void fail_nth(std::size_t nth, int error) { add({.nth = nth, .times = 1, .error = error}); }
  /// Any call of a kind whose range covers an address works up to it and fails there.
  void fail_at(Call call, const void* address, int error) {
    add({.call = call, .address = reinterpret_cast<std::uintptr_t>(address), .error = error});
  }
  /// process_madvise works as Linux 6.13's does, on any kernel: by madvise. Faults added before
  /// win.
  void emulate_process_madvise() { add({.call = Call::kProcessMadvise, .bytes = SIZE_MAX}); }
  /// Forgets the faults, not the records.
  void clear() {
    const std::lock_guard lock(mutex_);
    faults_.clear();
  }

  /// Calls so far.
  [[nodiscard]] std::size_t total() const {
    const std::lock_guard lock(mutex_);
    return records_.size();
  }
  [[nodiscard]] std::size_t count(Call call) const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count(records_, call, &CallRecord::call));
  }
  [[nodiscard]] std::vector<CallRecord> records() const {
    const std::lock_guard lock(mutex_);
    return records_;
  }
  /// How many calls a fault decided.
  [[nodiscard]] std::size_t faked() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count(records_, true, &CallRecord::faked));
  }

 private:
  struct Armed {
    Fault fault;
    std::size_t seen = 0;
  };

  static const SystemCalls* install(FaultInjection* self) {
    if (active != nullptr) std::abort();
    active = self;
    static const SystemCalls table = make_table();
    return replace_system_calls(&table);
  }

  /// The kernel's table with every entry replaced that has a Call.
  static SystemCalls make_table() {
    SystemCalls table = kernel_calls();
    table.mmap = [](void* address, std::size_t length, int protection, int flags, int fd,
                    off_t offset) -> void* {
      void* mapped = MAP_FAILED;
      (void)active->run({.call = Call::kMmap,
                         .address = number(address),
                         .length = length,
                         .argument = protection},
                        [&](std::size_t bytes) {
                          mapped =
                              kernel_calls().mmap(address, bytes, protection, flags, fd, offset);
                          return static_cast<long>(number(mapped));
                        });
      return mapped;
    };
    table.munmap = [](void* address, std::size_t length) -> int {
      return static_cast<int>(active->run(
          {.call = Call::kMunmap, .address = number(address), .length = length},
          [&](std::size_t bytes) -> long { return kernel_calls().munmap(address, bytes); }));
    };
    table.mprotect = [](void* address, std::size_t length, int protection) -> int {
      return static_cast<int>(active->run({.call = Call::kMprotect,
                                           .address = number(address),
                                           .length = length,
                                           .argument = protection},
                                          [&](std::size_t bytes) -> long {
                                            return kernel_calls().mprotect(address, bytes,
                                                                           protection);
                                          }));
    };
    table.madvise = [](void* address, std::size_t length, int advice) -> int {
      return static_cast<int>(active->run({.call = Call::kMadvise,
                                           .address = number(address),
                                           .length = length,
                                           .argument = advice},
                                          [&](std::size_t bytes) -> long {
                                            return kernel_calls().madvise(address, bytes, advice);
                                          }));
    };
    table.process_madvise = [](int pidfd, const iovec* ranges, std::size_t count, int advice,
                               unsigned int flags) -> ssize_t {
      return active->run_process_madvise(pidfd, ranges, count, advice, flags);
    };
    table.pidfd_open = [](pid_t pid, unsigned int flags) -> int {
      return static_cast<int>(
          active->run({.call = Call::kPidfdOpen, .argument = pid},
                      [&](std::size_t) -> long { return kernel_calls().pidfd_open(pid, flags); }));
    };
    table.mseal = [](void* address, std::size_t length, unsigned long flags) -> int {
      return static_cast<int>(active->run(
          {.call = Call::kMseal, .address = number(address), .length = length},
          [&](std::size_t bytes) -> long { return kernel_calls().mseal(address, bytes, flags); }));
    };
    table.set_vma_name = [](void* address, std::size_t length, const char* name) -> int {
      return static_cast<int>(
          active->run({.call = Call::kSetVmaName, .address = number(address), .length = length},
                      [&](std::size_t bytes) -> long {
                        return kernel_calls().set_vma_name(address, bytes, name);
                      }));
    };
    table.memfd_create = [](const char* name, unsigned int flags) -> int {
      return static_cast<int>(active->run(
          {.call = Call::kMemfdCreate, .argument = static_cast<long>(flags)},
          [&](std::size_t) -> long { return kernel_calls().memfd_create(name, flags); }));
    };
    table.ftruncate = [](int fd, off_t length) -> int {
      return static_cast<int>(
          active->run({.call = Call::kFtruncate, .argument = fd},
                      [&](std::size_t) -> long { return kernel_calls().ftruncate(fd, length); }));
    };
    table.membarrier = [](int command, unsigned int flags, int cpu) -> int {
      return static_cast<int>(active->run(
          {.call = Call::kMembarrier, .argument = command},
          [&](std::size_t) -> long { return kernel_calls().membarrier(command, flags, cpu); }));
    };
    table.open = [](const char* path, int flags) -> int {
      return static_cast<int>(
          active->run({.call = Call::kOpen, .argument = flags},
                      [&](std::size_t) -> long { return kernel_calls().open(path, flags); }));
    };
    table.read = [](int fd, void* buffer, std::size_t size) -> ssize_t {
      return active->run({.call = Call::kRead, .argument = fd}, [&](std::size_t) -> long {
        return kernel_calls().read(fd, buffer, size);
      });
    };
    table.pread = [](int fd, void* buffer, std::size_t size, off_t offset) -> ssize_t {
      return active->run({.call = Call::kPread, .argument = fd}, [&](std::size_t) -> long {
        return kernel_calls().pread(fd, buffer, size, offset);
      });
    };
    table.close = [](int fd) -> int {
      return static_cast<int>(
          active->run({.call = Call::kClose, .argument = fd},
                      [&](std::size_t) -> long { return kernel_calls().close(fd); }));
    };
    table.ioctl = [](int fd, unsigned long request, void* argument) -> int {
      return static_cast<int>(active->run(
          {.call = Call::kIoctl, .argument = static_cast<long>(request)},
          [&](std::size_t) -> long { return kernel_calls().ioctl(fd, request, argument); }));
    };
    table.userfaultfd = [](int flags) -> int {
      return static_cast<int>(
          active->run({.call = Call::kUserfaultfd, .argument = flags},
                      [&](std::size_t) -> long { return kernel_calls().userfaultfd(flags); }));
    };
    table.getrlimit = [](int resource, rlimit* limit) -> int {
      return static_cast<int>(active->run(
          {.call = Call::kGetrlimit, .argument = resource},
          [&](std::size_t) -> long { return kernel_calls().getrlimit(resource, limit); }));
    };
    table.sigaction = [](int signal, const struct ::sigaction* action,
                         struct ::sigaction* old_action) -> int {
      return static_cast<int>(
          active->run({.call = Call::kSigaction, .argument = signal}, [&](std::size_t) -> long {
            return kernel_calls().sigaction(signal, action, old_action);
          }));
    };
    table.getrusage = [](int who, rusage* usage) -> int {
      return static_cast<int>(
          active->run({.call = Call::kGetrusage, .argument = who},
                      [&](std::size_t) -> long { return kernel_calls().getrusage(who, usage); }));
    };
    table.mincore = [](void* address, std::size_t length, unsigned char* pages) -> int {
      return static_cast<int>(
          active->run({.call = Call::kMincore, .address = number(address), .length = length},
                      [&](std::size_t bytes) -> long {
                        return kernel_calls().mincore(address, bytes, pages);
                      }));
    };
    // Reports the error itself instead of -1 and errno, as pthread_create does.
    table.create_thread = [](pthread_t* thread, const pthread_attr_t* attributes,
                             void* (*body)(void*), void* argument) -> int {
      const long result = active->run({.call = Call::kCreateThread}, [&](std::size_t) -> long {
        const int error = kernel_calls().create_thread(thread, attributes, body, argument);
        if (error != 0) errno = error;
        return error != 0 ? -1 : 0;
      });
      return result == 0 ? 0 : errno;
    };
    table.sigaltstack = [](const stack_t* stack, stack_t* old_stack) -> int {
      return static_cast<int>(active->run({.call = Call::kSigaltstack}, [&](std::size_t) -> long {
        return kernel_calls().sigaltstack(stack, old_stack);
      }));
    };
    return table;
  }

  static std::uintptr_t number(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  }

  static bool covers(std::uintptr_t start, std::size_t length, std::uintptr_t address) {
    return address - start < length;
  }

  /// The fault that decides a call, if any. `covered` tells whether the call's ranges hold an
  /// address.
  template <typename Covered>
  std::optional<Fault> decide(const CallRecord& record, Covered covered) {
    std::optional<Fault> decided;
    for (Armed& each : faults_) {
      const Fault& fault = each.fault;
      if (fault.call && *fault.call != record.call) continue;
      if (fault.argument && *fault.argument != record.argument) continue;
      if (fault.address != 0 && !covered(fault.address)) continue;
      ++each.seen;
      if (each.seen < fault.nth || each.seen - fault.nth >= fault.times) continue;
      if (!decided) decided = fault;
    }
    return decided;
  }

  long finish(CallRecord record, long result, int error) {
    record.result = result;
    record.error = error;
    {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
    }
    if (error != 0) errno = error;
    return result;
  }

  template <typename Real>
  long run(CallRecord record, Real real) {
    std::optional<Fault> fault;
    {
      const std::lock_guard lock(mutex_);
      fault = decide(record, [&](std::uintptr_t address) {
        return covers(record.address, record.length, address);
      });
    }
    if (!fault) {
      const long result = real(record.length);
      return finish(record, result, result == -1 ? errno : 0);
    }
    record.faked = true;
    const std::size_t applied = worked_on(*fault, record.address, record.length);
    if (applied != 0 && record.call != Call::kMmap) (void)real(applied);
    return finish(record, fault->error != 0 ? -1 : 0, fault->error);
  }

  /// How much of a range the kernel is to work on before the fault.
  static std::size_t worked_on(const Fault& fault, std::uintptr_t start, std::size_t length) {
    if (fault.address == 0) return std::min(fault.bytes, length);
    if (!covers(start, length, fault.address)) return length;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return (fault.address - start) / page * page;
  }

  ssize_t run_process_madvise(int pidfd, const iovec* ranges, std::size_t count, int advice,
                              unsigned int flags) {
    CallRecord record{.call = Call::kProcessMadvise,
                      .address = count != 0 ? number(ranges[0].iov_base) : 0,
                      .ranges = count,
                      .argument = advice};
    for (std::size_t i = 0; i < count; ++i) record.length += ranges[i].iov_len;
    std::optional<Fault> fault;
    {
      const std::lock_guard lock(mutex_);
      fault = decide(record, [&](std::uintptr_t address) {
        return std::any_of(ranges, ranges + count, [&](const iovec& each) {
          return covers(number(each.iov_base), each.iov_len, address);
        });
      });
    }
    if (!fault) {
      const ssize_t result = kernel_calls().process_madvise(pidfd, ranges, count, advice, flags);
      return finish(record, result, result == -1 ? errno : 0);
    }
    record.faked = true;
    if (fault->error == 0 && fault->bytes == 0 && fault->address == 0) {
      return finish(record, static_cast<long>(record.length), 0);
    }
    // As the kernel: whole ranges count, the one that failed does not, whatever was done of it.
    std::size_t complete = 0;
    std::size_t left = fault->bytes;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t length = ranges[i].iov_len;
      const std::size_t applied = fault->address != 0
                                      ? worked_on(*fault, number(ranges[i].iov_base), length)
                                      : std::min(left, length);
      if (applied != 0) (void)kernel_calls().madvise(ranges[i].iov_base, applied, advice);
      left -= std::min(left, applied);
      if (applied != length) {
        if (fault->count_parts) complete += applied;
        break;
      }
      complete += length;
    }
    if (complete != 0) return finish(record, static_cast<long>(complete), 0);
    if (fault->error != 0) return finish(record, -1, fault->error);
    return finish(record, 0, 0);
  }

  inline static FaultInjection* active = nullptr;

  mutable std::mutex mutex_;
  std::vector<Armed> faults_;
  std::vector<CallRecord> records_;
  const SystemCalls* before_;
};

}  // namespace touchstone::heap::testing

#endif  // TOUCHSTONE_TESTS_HEAP_FAULT_INJECTION_H_
