// SPDX-License-Identifier: MIT
#include <array>
#include <atomic>
#include <cerrno>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/system_calls.h>

#include "address_range.h"
#include "pagemap_scan.h"
#include "proc_file.h"
#include "retries.h"
#include "write_trackers.h"

// include/uapi/linux/userfaultfd.h: 5.11, 6.4 and 6.7; mman-common.h: 5.14.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
static_assert(MADV_POPULATE_READ == 22 && UFFD_USER_MODE_ONLY == 1 &&
              UFFD_FEATURE_WP_UNPOPULATED == 1 << 13 && UFFD_FEATURE_WP_ASYNC == 1 << 15);

namespace touchstone::heap {
namespace {

constexpr const char* kOpen = "userfaultfd";
constexpr const char* kApi = "ioctl(UFFDIO_API)";
constexpr const char* kRegister = "ioctl(UFFDIO_REGISTER)";
constexpr const char* kProtect = "ioctl(UFFDIO_WRITEPROTECT)";
constexpr const char* kScan = "ioctl(PAGEMAP_SCAN)";

std::unexpected<Error> failed(const char* operation, MemoryRange range, int error,
                              const char* detail = "") noexcept {
  return range_failure(code_of_errno(error), operation, range, error, 0, detail);
}

/// A userfaultfd that protects from writing.
class Userfaultfd {
 public:
  Userfaultfd() noexcept = default;
  Userfaultfd(Userfaultfd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Userfaultfd& operator=(Userfaultfd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Userfaultfd(const Userfaultfd&) = delete;
  Userfaultfd& operator=(const Userfaultfd&) = delete;
  ~Userfaultfd() {
    if (fd_ >= 0) (void)system_calls().close(fd_);
  }

  /// Without privilege only faults of user mode can be had, except by /dev/userfaultfd where that
  /// is given.
  [[nodiscard]] static Result<Userfaultfd> open(MemoryRange range,
                                                std::uint64_t features) noexcept {
    const SystemCalls& calls = system_calls();
    Userfaultfd made;
    made.fd_ = calls.userfaultfd(O_CLOEXEC);
    if (made.fd_ < 0 && errno == EPERM) {
      const int device = calls.open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
      if (device >= 0) {
        // The flags are the argument itself.
        made.fd_ = calls.ioctl(device, USERFAULTFD_IOC_NEW,
                               reinterpret_cast<void*>(std::uintptr_t{O_CLOEXEC}));  // NOLINT
        (void)calls.close(device);
      }
      if (made.fd_ < 0) made.fd_ = calls.userfaultfd(O_CLOEXEC | UFFD_USER_MODE_ONLY);
    }
    if (made.fd_ < 0) return failed(kOpen, range, errno);
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = features;
    if (calls.ioctl(made.fd_, UFFDIO_API, &api) != 0) {
      if (errno != EINVAL) return failed(kApi, range, errno);
      return range_failure(ErrorCode::kUnsupported, kApi, range, EINVAL, 0,
                           (features & UFFD_FEATURE_WP_ASYNC) != 0
                               ? "WP_ASYNC needs Linux 6.7, on arm64 6.10"
                               : "write protection needs Linux 5.7, on arm64 6.10");
    }
    return made;
  }

  [[nodiscard]] Result<> watch(MemoryRange range) const noexcept {
    uffdio_register argument{};
    argument.range = {address_of(range.data()), range.size()};
    argument.mode = UFFDIO_REGISTER_MODE_WP;
    if (system_calls().ioctl(fd_, UFFDIO_REGISTER, &argument) == 0) {
      if ((argument.ioctls & (std::uint64_t{1} << _UFFDIO_WRITEPROTECT)) != 0) return {};
      return range_failure(ErrorCode::kUnsupported, kRegister, range, 0, 0,
                           "this memory cannot be write-protected");
    }
    if (errno == EBUSY) {
      return range_failure(ErrorCode::kBusy, kRegister, range, errno, 0, "tracked already");
    }
    return failed(kRegister, range, errno);
  }

  void unwatch(MemoryRange range) const noexcept {
    uffdio_range argument = {address_of(range.data()), range.size()};
    (void)retried([&] { return system_calls().ioctl(fd_, UFFDIO_UNREGISTER, &argument); });
    // That wakes those who wait for missing pages alone (fs/userfaultfd.c).
    (void)retried([&] { return system_calls().ioctl(fd_, UFFDIO_WAKE, &argument); });
  }

  /// errno, or 0. Lifting wakes who waits.
  [[nodiscard]] int protect(MemoryRange range, bool on) const noexcept {
    uffdio_writeprotect argument{};
    argument.range = {address_of(range.data()), range.size()};
    argument.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0;
    return retried([&] { return system_calls().ioctl(fd_, UFFDIO_WRITEPROTECT, &argument); });
  }

  [[nodiscard]] int descriptor() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

/// A thread reads the faults and lifts the protection.
class UserfaultfdTracker final : public WriteTracker {
 public:
  UserfaultfdTracker(MemoryRange range, std::size_t granule, Userfaultfd events,
                     bool populate) noexcept
      : WriteTracker(WriteTrackingMethod::kUserfaultfd, range, granule),
        events_(std::move(events)),
        populate_(populate) {}

  ~UserfaultfdTracker() override {
    if (watching_) events_.unwatch(range());
    if (running_) {
      // A write to a page of its own is how the thread is told.
      stopping_.store(true, std::memory_order_release);
      *static_cast<volatile std::byte*>(bell_.data()) = std::byte{1};
      ::pthread_join(thread_, nullptr);
    }
    if (!bell_.empty()) (void)system_calls().munmap(bell_.data(), bell_.size());
  }
  UserfaultfdTracker(const UserfaultfdTracker&) = delete;
  UserfaultfdTracker& operator=(const UserfaultfdTracker&) = delete;

  [[nodiscard]] Result<> start() noexcept {
    const SystemCalls& calls = system_calls();
    if (!bits_.allocate(range().size() / granule())) return no_bookkeeping("track writes", range());
    const std::size_t page = arch::base_page_size();
    void* const mapped =
        calls.mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return failed("mmap", range(), errno);
    bell_ = {static_cast<std::byte*>(mapped), page};
    *static_cast<volatile std::byte*>(bell_.data()) = std::byte{1};
    if (Result<> watched = events_.watch(bell_); !watched) return watched;
    if (const int error = events_.protect(bell_, true); error != 0) {
      return failed(kProtect, bell_, error);
    }
    if (Result<> watched = events_.watch(range()); !watched) return watched;
    watching_ = true;
    if (const int error = calls.create_thread(&thread_, nullptr, &serve, this); error != 0) {
      return failed("pthread_create", range(), error);
    }
    running_ = true;
    return reset();
  }

  [[nodiscard]] Result<> reset() noexcept override {
    if (ended_.load(std::memory_order_acquire)) {
      return range_failure(ErrorCode::kUnavailable, "track writes", range(), 0, 0,
                           "the kernel tells of no faults any more");
    }
    if (unwatched_.load(std::memory_order_acquire)) {
      if (Result<> watched = events_.watch(range()); !watched) return watched;
      unwatched_.store(false, std::memory_order_release);
    }
    if (populate_) {
      const int error = retried([&] {
        return system_calls().madvise(range().data(), range().size(), MADV_POPULATE_READ);
      });
      if (error != 0) return failed("madvise(MADV_POPULATE_READ)", range(), error);
    }
    if (const int error = events_.protect(range(), true); error != 0) {
      return failed(kProtect, range(), error);
    }
    bits_.clear();
    return {};
  }

  [[nodiscard]] std::uint64_t handled_faults() const noexcept override {
    return faults_.load(std::memory_order_relaxed);
  }

 private:
  static void* serve(void* self) noexcept {
    static_cast<UserfaultfdTracker*>(self)->serve();
    return nullptr;
  }

  void serve() noexcept {
    Retries retries;
    for (;;) {
      uffd_msg message{};
      const ssize_t got = system_calls().read(events_.descriptor(), &message, sizeof message);
      if (got < 0 && retries.again()) continue;
      if (got != static_cast<ssize_t>(sizeof message)) {
        // Nothing can be told any more: better that all counts as written than that writers wait.
        ended_.store(true, std::memory_order_release);
        bits_.set_all();
        events_.unwatch(range());
        events_.unwatch(bell_);
        return;
      }
      retries = {};
      if (message.event != UFFD_EVENT_PAGEFAULT) continue;
      const auto address = static_cast<std::uintptr_t>(message.arg.pagefault.address);
      const std::uintptr_t begin = address_of(range().data());
      if (address >= begin && address - begin < range().size()) {
        lift((address - begin) / granule());
      } else if (stopping_.load(std::memory_order_acquire)) {
        if (events_.protect(bell_, false) != 0) events_.unwatch(bell_);  // Either wakes who rang.
        return;
      }
    }
  }

  void lift(std::size_t at) noexcept {
    faults_.fetch_add(1, std::memory_order_relaxed);
    bits_.set(at);
    if (events_.protect(range().subspan(at * granule(), granule()), false) == 0) return;
    // ENOENT: no longer watched, which has woken the writer. Else it must not wait for ever.
    bits_.set_all();
    if (events_.protect(range(), false) == 0) return;
    unwatched_.store(true, std::memory_order_release);
    events_.unwatch(range());
  }

  [[nodiscard]] Result<> collect(Writes& writes) const override {
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      if (bits_.get(i)) writes.add(i * granule(), (i + 1) * granule());
    }
    return {};
  }

  Userfaultfd events_;
  WrittenBits bits_;
  std::atomic<std::uint64_t> faults_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> unwatched_{false};  // The range is not, since a call failed.
  std::atomic<bool> ended_{false};      // Nor will it be: the thread has ended.
  MemoryRange bell_;
  bool populate_;
  pthread_t thread_{};
  bool watching_ = false;
  bool running_ = false;
};

/// The kernel lifts the protection by itself, and is asked afterwards.
class AsyncTracker final : public WriteTracker {
 public:
  AsyncTracker(MemoryRange range, std::size_t granule, Userfaultfd events,
               ProcFile pagemap) noexcept
      : WriteTracker(WriteTrackingMethod::kAsyncWriteProtect, range, granule),
        events_(std::move(events)),
        pagemap_(std::move(pagemap)) {}
  ~AsyncTracker() override {
    if (watching_) events_.unwatch(range());
  }
  AsyncTracker(const AsyncTracker&) = delete;
  AsyncTracker& operator=(const AsyncTracker&) = delete;

  [[nodiscard]] Result<> start() noexcept {
    if (Result<> watched = events_.watch(range()); !watched) return watched;
    watching_ = true;
    // What is not there yet is protected by this as well, so that reading it is no write.
    if (const int error = events_.protect(range(), true); error != 0) {
      return failed(kProtect, range(), error);
    }
    return {};
  }

  [[nodiscard]] Result<> reset() noexcept override {
    return scan(kScanProtect | kScanCheckAsync, {}, [](std::uintptr_t, std::uintptr_t) {});
  }

 private:
  [[nodiscard]] Result<> collect(Writes& writes) const override {
    std::array<ScanRegion, 256> regions;
    const std::uintptr_t begin = address_of(range().data());
    return scan(kScanCheckAsync, regions, [&](std::uintptr_t from, std::uintptr_t to) {
      writes.add(from - begin, to - begin);
    });
  }

  template <typename Found>
  [[nodiscard]] Result<> scan(std::uint64_t flags, std::span<ScanRegion> regions,
                              Found found) const {
    const std::uintptr_t end = address_of(range().data()) + range().size();
    std::uintptr_t next = address_of(range().data());
    Retries retries;
    while (next < end) {
      ScanArgument argument{};
      argument.size = sizeof argument;
      argument.flags = flags;
      argument.start = next;
      argument.end = end;
      argument.regions = reinterpret_cast<std::uintptr_t>(regions.data());
      argument.region_count = regions.size();
      argument.category_mask = kPageIsWritten;
      argument.return_mask = kPageIsWritten;
      const int count = system_calls().ioctl(pagemap_.descriptor(), kPagemapScan, &argument);
      if (count < 0 && retries.again()) continue;
      if (count < 0) {
        const int error = errno;
        return range_failure(error == ENOTTY ? ErrorCode::kUnsupported : code_of_errno(error),
                             kScan, range(), error, 0,
                             error == ENOTTY ? "PAGEMAP_SCAN needs Linux 6.7" : "");
      }
      if (argument.walk_end <= next || argument.walk_end > end ||
          static_cast<std::size_t>(count) > regions.size()) {
        return range_failure(ErrorCode::kUnavailable, kScan, range(), 0, 0,
                             "gave an impossible answer");
      }
      for (const ScanRegion& each : regions.first(static_cast<std::size_t>(count))) {
        found(each.start, each.end);
      }
      next = argument.walk_end;
    }
    return {};
  }

  Userfaultfd events_;
  ProcFile pagemap_;
  bool watching_ = false;
};

template <typename Tracker, typename... More>
WriteTrackerResult start_tracker(MemoryRange range, More&&... more) noexcept {
  std::unique_ptr<Tracker> made(new (std::nothrow) Tracker(range, std::forward<More>(more)...));
  if (made == nullptr) return no_bookkeeping("track writes", range);
  if (Result<> started = made->start(); !started) return std::unexpected(started.error());
  return made;
}

}  // namespace

WriteTrackerResult track_by_userfaultfd(MemoryRange range, std::size_t granule) noexcept {
  Result<Userfaultfd> events =
      Userfaultfd::open(range, UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_UNPOPULATED);
  // Before WP_UNPOPULATED (Linux 6.4) there is nothing to protect where no page is.
  const bool populate = !events;
  if (populate) events = Userfaultfd::open(range, UFFD_FEATURE_PAGEFAULT_FLAG_WP);
  if (!events) return std::unexpected(events.error());
  return start_tracker<UserfaultfdTracker>(range, granule, std::move(*events), populate);
}

WriteTrackerResult track_asynchronously(MemoryRange range, std::size_t granule) noexcept {
  Result<Userfaultfd> events = Userfaultfd::open(
      range, UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC);
  if (!events) return std::unexpected(events.error());
  try {
    Result<ProcFile> pagemap = ProcFile::open("/proc/self/pagemap", "open /proc/self/pagemap");
    if (!pagemap) return std::unexpected(pagemap.error());
    return start_tracker<AsyncTracker>(range, granule, std::move(*events), std::move(*pagemap));
  } catch (const std::bad_alloc&) {
    return no_bookkeeping("track writes", range);
  }
}

}  // namespace touchstone::heap
