// SPDX-License-Identifier: MIT
#include <array>
#include <atomic>
#include <cerrno>
#include <new>

#include <sched.h>
#include <sys/mman.h>

#include <touchstone/heap/system_calls.h>

#include "address_range.h"
#include "write_trackers.h"

namespace touchstone::heap {
namespace {

class ProtectionTracker;

/// Trackers as a signal handler finds them.
constexpr std::size_t kMostTrackers = 64;
constinit std::array<std::atomic<ProtectionTracker*>, kMostTrackers> trackers{};
constinit std::atomic<int> readers{0};

class ProtectionTracker final : public WriteTracker {
 public:
  ProtectionTracker(MemoryRange range, std::size_t granule) noexcept
      : WriteTracker(WriteTrackingMethod::kProtect, range, granule) {}

  ~ProtectionTracker() override {
    if (!registered_) return;
    // Where this fails the range stays as it is, and the next write to it is a fault of the
    // program.
    (void)protect(range(), PROT_READ | PROT_WRITE);
    for (auto& slot : trackers) {
      ProtectionTracker* self = this;
      if (slot.compare_exchange_strong(self, nullptr)) break;
    }
    while (readers.load() != 0) sched_yield();
  }
  ProtectionTracker(const ProtectionTracker&) = delete;
  ProtectionTracker& operator=(const ProtectionTracker&) = delete;

  [[nodiscard]] Result<> start() noexcept {
    if (!bits_.allocate(range().size() / granule())) return no_bookkeeping("track writes", range());
    for (const auto& slot : trackers) {
      const ProtectionTracker* const other = slot.load();
      if (other != nullptr && overlaps(*other)) {
        return range_failure(ErrorCode::kBusy, "track writes", range(), 0, 0, "tracked already");
      }
    }
    for (auto& slot : trackers) {
      ProtectionTracker* none = nullptr;
      if (!slot.compare_exchange_strong(none, this)) continue;
      registered_ = true;
      break;
    }
    if (!registered_) {
      return range_failure(ErrorCode::kLimitExceeded, "track writes", range(), 0, 0,
                           "64 trackers by mprotect are in use");
    }
    return reset();
  }

  [[nodiscard]] Result<> reset() noexcept override {
    const Prefix done = protect(range(), PROT_READ);
    if (done.error != 0) return range_failure("mprotect", range(), done);
    bits_.clear();
    return {};
  }

  [[nodiscard]] std::uint64_t handled_faults() const noexcept override {
    return faults_.load(std::memory_order_relaxed);
  }

  /// In the signal handler.
  [[nodiscard]] bool resolve(std::uintptr_t address) noexcept {
    const std::uintptr_t begin = address_of(range().data());
    if (address < begin || address - begin >= range().size()) return false;
    const std::size_t at = (address - begin) / granule();
    faults_.fetch_add(1, std::memory_order_relaxed);
    // Noted before it can be written, so that nobody sees the write alone.
    bits_.set(at);
    const MemoryRange hit = range().subspan(at * granule(), granule());
    if (protect(hit, PROT_READ | PROT_WRITE).error == 0) return true;
    // No mappings left to split with. As one mapping it can be had.
    bits_.set_all();
    return protect(range(), PROT_READ | PROT_WRITE).error == 0;
  }

 private:
  [[nodiscard]] bool overlaps(const ProtectionTracker& other) const noexcept {
    const Interval mine = interval_of(range());
    const Interval theirs = interval_of(other.range());
    return mine.begin < theirs.end && theirs.begin < mine.end;
  }

  static Prefix protect(MemoryRange range, int protection) noexcept {
    const int error =
        retried([&] { return system_calls().mprotect(range.data(), range.size(), protection); });
    return {.done = error == 0 ? range.size() : 0, .error = error};
  }

  [[nodiscard]] Result<> collect(Writes& writes) const override {
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      if (bits_.get(i)) writes.add(i * granule(), (i + 1) * granule());
    }
    return {};
  }

  WrittenBits bits_;
  std::atomic<std::uint64_t> faults_{0};
  bool registered_ = false;
};

}  // namespace

bool resolve_tracked_write(const siginfo_t& info) noexcept {
  if (info.si_signo != SIGSEGV || info.si_code != SEGV_ACCERR) return false;
  readers.fetch_add(1);
  bool resolved = false;
  for (const auto& slot : trackers) {
    ProtectionTracker* const tracker = slot.load();
    if (tracker == nullptr) continue;
    resolved = tracker->resolve(address_of(info.si_addr));
    if (resolved) break;
  }
  readers.fetch_sub(1);
  return resolved;
}

WriteTrackerResult track_by_protection(MemoryRange range, std::size_t granule) noexcept {
  std::unique_ptr<ProtectionTracker> made(new (std::nothrow) ProtectionTracker(range, granule));
  if (made == nullptr) return no_bookkeeping("track writes", range);
  if (Result<> started = made->start(); !started) return std::unexpected(started.error());
  return made;
}

}  // namespace touchstone::heap
