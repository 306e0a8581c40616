// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_WRITE_TRACKING_H_
#define TOUCHSTONE_HEAP_WRITE_TRACKING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <signal.h>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>
#include <touchstone/heap/memory_range.h>

namespace touchstone::heap {

/// How the kernel is made to tell of writes. All take one fault for each page (or granule) written
/// since the last reset, and none for further writes to it. In order of what that fault costs:
///
/// | | who handles the fault | huge pages | reset | needs |
/// |---|---|---|---|---|
/// | kAsyncWriteProtect | the kernel alone | a write splits one | what was written | Linux 6.7,
/// arm64 6.10 | | kSoftDirty | the kernel alone | stay whole | all of the process |
/// CONFIG_MEM_SOFT_DIRTY | | kProtect | a SIGSEGV handler | by granule | one mprotect | a handler |
/// | kUserfaultfd | a thread of the tracker's | by granule | one ioctl | Linux 5.7, arm64 6.10 |
enum class WriteTrackingMethod : std::uint8_t {
  kAsyncWriteProtect,  ///< userfaultfd write protection that the kernel lifts (WP_ASYNC), read by
                       ///< PAGEMAP_SCAN.
  kSoftDirty,          ///< /proc/self/clear_refs and pagemap. x86-64 has it, arm64 has not.
  kProtect,            ///< mprotect(PROT_READ) and a signal. A system call that is to write into
                       ///< such memory fails with EFAULT. A granule written by itself may add two
                       ///< mappings; where the kernel has none left, all counts as written.
  kUserfaultfd,        ///< userfaultfd write protection that a thread lifts. Writes to a page that
                       ///< was discarded since the last reset are not told.
};
inline constexpr std::size_t kWriteTrackingMethodCount = 4;

/// "async write-protect", "soft-dirty", "mprotect", "userfaultfd". Never null.
[[nodiscard]] TOUCHSTONE_API const char* to_string(WriteTrackingMethod method) noexcept;

struct WriteTrackingOptions {
  /// Unset: the first of the table above that works here; kProtect only with handles_faults. With a
  /// granule of a huge page or more kAsyncWriteProtect is the last, as it splits them.
  std::optional<WriteTrackingMethod> method{};
  /// Bytes in which writes are told: a power of two, at least the base page; 0 means that. With
  /// arch::Geometry::pmd, kProtect and kUserfaultfd leave huge pages whole and take one fault each.
  std::size_t granule = 0;
  /// A FaultHandler is installed as long as the tracker lives, or the program's own SIGSEGV handler
  /// calls resolve_tracked_write(). No handler is installed by the tracker.
  bool handles_faults = false;
};

/// Tells which pages of a range were written since the last reset: for a collector that does
/// without a card-marking barrier, and to find out who writes.
///
/// The range is private anonymous memory, readable and writable, and its protection is the
/// tracker's until it is destroyed. What is read is not written; what the kernel gives anew after a
/// discard may count as written when it is only read.
///
/// Thread safety: any thread may write to the range meanwhile, but not during create(), reset() and
/// destruction, which are for a safepoint; a write at the time of written() is told by that call or
/// the next. In a child made by fork() the object must not be used.
class TOUCHSTONE_API WriteTracker {
 public:
  /// Begins with nothing written.
  ///
  /// Errors: kInvalidArgument (empty, granule no power of two or below the base page; kProtect
  /// named without handles_faults), kMisaligned (the range is no multiple of the granule),
  /// kOverflow, kBusy (the memory, or with kSoftDirty the process, is tracked already),
  /// kUnsupported, kNotPermitted, kUnavailable or kIneffective (the method that was named does not
  /// work here: see check(); of none, that of the last), kOutOfMemory, kLimitExceeded (64 trackers
  /// by kProtect). On error the range is as it was.
  [[nodiscard]] static Result<std::unique_ptr<WriteTracker>> create(
      MemoryRange range, const WriteTrackingOptions& options = {}) noexcept;

  /// Whether a method works here: it is tried on pages of its own, and must tell the one of them
  /// that is written. The error says what is missing. kProtect is taken at its word.
  [[nodiscard]] static Result<> check(WriteTrackingMethod method) noexcept;

  virtual ~WriteTracker() = default;
  WriteTracker(const WriteTracker&) = delete;
  WriteTracker& operator=(const WriteTracker&) = delete;

  /// Lets every page count as not written. On error some may still count as written, none that was
  /// written is lost, and it may be repeated.
  [[nodiscard]] virtual Result<> reset() noexcept = 0;

  /// The granules written since, in order of address, neighbours in one. Errors: kOutOfMemory, or
  /// what the kernel said.
  [[nodiscard]] Result<std::vector<MemoryRange>> written() const noexcept;

  /// Faults that the tracker itself has handled: signals or events. Those that the kernel handles
  /// alone are in heap::thread_faults().
  [[nodiscard]] virtual std::uint64_t handled_faults() const noexcept { return 0; }

  [[nodiscard]] WriteTrackingMethod method() const noexcept { return method_; }
  [[nodiscard]] MemoryRange range() const noexcept { return range_; }
  [[nodiscard]] std::size_t granule() const noexcept { return granule_; }

 protected:
  WriteTracker(WriteTrackingMethod method, MemoryRange range, std::size_t granule) noexcept
      : method_(method), range_(range), granule_(granule) {}

  /// Collects written memory, in order of address; rounds to granules and merges.
  class Writes {
   public:
    Writes(MemoryRange range, std::size_t granule) noexcept : range_(range), granule_(granule) {}
    /// Offsets from the start of the range.
    void add(std::size_t begin, std::size_t end);
    [[nodiscard]] std::vector<MemoryRange> take() && { return std::move(found_); }

   private:
    MemoryRange range_;
    std::size_t granule_;
    std::vector<MemoryRange> found_;
  };
  /// May throw std::bad_alloc.
  [[nodiscard]] virtual Result<> collect(Writes& writes) const = 0;

 private:
  const WriteTrackingMethod method_;
  const MemoryRange range_;
  const std::size_t granule_;
};

/// For a SIGSEGV handler: if the fault is the first write to a granule that a tracker by kProtect
/// looks after, notes it, makes the granule writable and returns true; the handler then returns and
/// the write is repeated. Async-signal-safe and lock-free. FaultHandler calls it.
[[nodiscard]] TOUCHSTONE_API bool resolve_tracked_write(const siginfo_t& info) noexcept;

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_WRITE_TRACKING_H_
