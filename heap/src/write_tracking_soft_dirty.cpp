// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include <fcntl.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/system_calls.h>

#include "address_range.h"
#include "pagemap_scan.h"
#include "proc_file.h"
#include "retries.h"
#include "write_trackers.h"

namespace touchstone::heap {
namespace {

constexpr const char* kClear = "write /proc/self/clear_refs";
constexpr const char* kPagemap = "read /proc/self/pagemap";

/// Clearing is for the whole process, so that a second tracker would lose what the first has not
/// read.
constinit std::atomic<bool> taken{false};

class SoftDirtyTracker final : public WriteTracker {
 public:
  SoftDirtyTracker(MemoryRange range, std::size_t granule, ProcFile pagemap) noexcept
      : WriteTracker(WriteTrackingMethod::kSoftDirty, range, granule),
        pagemap_(std::move(pagemap)) {}
  ~SoftDirtyTracker() override {
    if (clear_refs_ >= 0) (void)system_calls().close(clear_refs_);
    if (taken_) taken.store(false);
  }
  SoftDirtyTracker(const SoftDirtyTracker&) = delete;
  SoftDirtyTracker& operator=(const SoftDirtyTracker&) = delete;

  [[nodiscard]] Result<> start() noexcept {
    if (taken.exchange(true)) {
      return range_failure(ErrorCode::kBusy, "track writes", range(), 0, 0,
                           "soft-dirty bits are for one tracker in a process");
    }
    taken_ = true;
    clear_refs_ = system_calls().open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (clear_refs_ < 0) {
      return range_failure(ErrorCode::kUnavailable, "open /proc/self/clear_refs", range(), errno,
                           0);
    }
    return reset();
  }

  [[nodiscard]] Result<> reset() noexcept override {
    Retries retries;
    ssize_t done = -1;
    do {
      done = system_calls().write(clear_refs_, "4", 1);
    } while (done < 0 && retries.again());
    if (done == 1) return {};
    return range_failure(code_of_errno(done < 0 ? errno : EIO), kClear, range(),
                         done < 0 ? errno : EIO, 0);
  }

 private:
  [[nodiscard]] Result<> collect(Writes& writes) const override {
    const std::size_t page = arch::base_page_size();
    const std::uintptr_t begin = address_of(range().data());
    std::array<std::uint64_t, 1024> entries;
    Retries retries;
    for (std::size_t at = 0; at < range().size();) {
      const std::size_t wanted = std::min(entries.size(), (range().size() - at) / page);
      const ssize_t got =
          system_calls().pread(pagemap_.descriptor(), entries.data(), wanted * sizeof entries[0],
                               static_cast<off_t>((begin + at) / page * sizeof entries[0]));
      if (got < 0 && retries.again()) continue;
      const std::size_t count = got < 0 ? 0 : static_cast<std::size_t>(got) / sizeof entries[0];
      if (count == 0) {
        return range_failure(ErrorCode::kUnavailable, kPagemap, range(), got < 0 ? errno : EFAULT,
                             at);
      }
      for (const std::uint64_t entry : std::span(entries).first(count)) {
        const bool there = (entry & (kEntryPresent | kEntrySwapped)) != 0;
        if (there && (entry & kEntrySoftDirty) != 0) writes.add(at, at + page);
        at += page;
      }
    }
    return {};
  }

  ProcFile pagemap_;
  int clear_refs_ = -1;
  bool taken_ = false;
};

}  // namespace

WriteTrackerResult track_by_soft_dirty(MemoryRange range, std::size_t granule) noexcept {
  std::optional<ProcFile> pagemap;
  try {
    Result<ProcFile> opened = ProcFile::open("/proc/self/pagemap", kPagemap);
    if (!opened) return std::unexpected(opened.error());
    pagemap = std::move(*opened);
  } catch (const std::bad_alloc&) {
    return no_bookkeeping("track writes", range);
  }
  std::unique_ptr<SoftDirtyTracker> made(new (std::nothrow)
                                             SoftDirtyTracker(range, granule, std::move(*pagemap)));
  if (made == nullptr) return no_bookkeeping("track writes", range);
  if (Result<> started = made->start(); !started) return std::unexpected(started.error());
  return made;
}

}  // namespace touchstone::heap
