// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <new>

#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/system_calls.h>
#include <touchstone/heap/write_tracking.h>

#include "address_range.h"
#include "write_trackers.h"

namespace touchstone::heap {
namespace {

constexpr const char* kOperation = "track writes";

WriteTrackerResult track_by(WriteTrackingMethod method, MemoryRange range,
                            std::size_t granule) noexcept {
  switch (method) {
    case WriteTrackingMethod::kAsyncWriteProtect:
      return track_asynchronously(range, granule);
    case WriteTrackingMethod::kSoftDirty:
      return track_by_soft_dirty(range, granule);
    case WriteTrackingMethod::kUserfaultfd:
      return track_by_userfaultfd(range, granule);
    case WriteTrackingMethod::kProtect:
      break;
  }
  return track_by_protection(range, granule);
}

/// Pages to try a method on.
class TrialPages {
 public:
  static constexpr std::size_t kCount = 4;
  TrialPages() noexcept
      : size_(kCount * arch::base_page_size()),
        start_(system_calls().mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~TrialPages() {
    if (start_ == MAP_FAILED) return;
    // The second time is for an ENOMEM that passed; after that spare pages are all that is lost.
    if (system_calls().munmap(start_, size_) != 0) (void)system_calls().munmap(start_, size_);
  }
  TrialPages(const TrialPages&) = delete;
  TrialPages& operator=(const TrialPages&) = delete;
  [[nodiscard]] MemoryRange range() const noexcept {
    if (start_ == MAP_FAILED) return {};
    return {static_cast<std::byte*>(start_), size_};
  }

 private:
  std::size_t size_;
  void* start_;
};

void write_to(std::byte* address, std::byte value) noexcept {
  *static_cast<volatile std::byte*>(address) = value;
}

}  // namespace

const char* to_string(WriteTrackingMethod method) noexcept {
  switch (method) {
    case WriteTrackingMethod::kAsyncWriteProtect:
      return "async write-protect";
    case WriteTrackingMethod::kSoftDirty:
      return "soft-dirty";
    case WriteTrackingMethod::kProtect:
      return "mprotect";
    case WriteTrackingMethod::kUserfaultfd:
      return "userfaultfd";
  }
  return "unknown";
}

void WriteTracker::Writes::add(std::size_t begin, std::size_t end) {
  const std::size_t from = begin / granule_ * granule_;
  const std::size_t to = (end + granule_ - 1) / granule_ * granule_;
  if (!found_.empty()) {
    MemoryRange& last = found_.back();
    const auto last_end = static_cast<std::size_t>(last.data() + last.size() - range_.data());
    if (from <= last_end) {
      last = {last.data(), last.size() + (std::max(to, last_end) - last_end)};
      return;
    }
  }
  found_.push_back(range_.subspan(from, to - from));
}

Result<> WriteTracker::check(WriteTrackingMethod method) noexcept {
  if (method == WriteTrackingMethod::kProtect) return {};
  const TrialPages pages;
  const MemoryRange range = pages.range();
  if (range.empty()) {
    return range_failure(code_of_errno(errno), "mmap", range, errno, 0, "no pages to try");
  }
  const std::size_t page = arch::base_page_size();
  for (std::size_t at = 0; at < range.size(); at += page) write_to(range.data() + at, std::byte{1});
  const WriteTrackerResult tracker = track_by(method, range, page);
  if (!tracker) return std::unexpected(tracker.error());
  write_to(range.data() + page, std::byte{2});
  const Result<std::vector<MemoryRange>> told = (*tracker)->written();
  if (!told) return std::unexpected(told.error());
  const bool right = told->size() == 1 && told->front().data() == range.data() + page &&
                     told->front().size() == page;
  if (!right) {
    return range_failure(ErrorCode::kIneffective, to_string(method), range, 0, 0,
                         "does not tell the page that was written");
  }
  return {};
}

Result<std::unique_ptr<WriteTracker>> WriteTracker::create(
    MemoryRange range, const WriteTrackingOptions& options) noexcept {
  const std::size_t page = arch::base_page_size();
  const std::size_t granule = options.granule == 0 ? page : options.granule;
  if (!std::has_single_bit(granule) || granule < page) {
    return range_failure(ErrorCode::kInvalidArgument, kOperation, range, 0, 0,
                         "the granule is no power of two of at least the base page");
  }
  if (Result<> fine = check_pages(kOperation, range, granule); !fine) {
    return std::unexpected(fine.error());
  }
  if (options.method) {
    if (*options.method == WriteTrackingMethod::kProtect && !options.handles_faults) {
      return range_failure(ErrorCode::kInvalidArgument, kOperation, range, 0, 0,
                           "mprotect needs a SIGSEGV handler: see handles_faults");
    }
    if (Result<> works = check(*options.method); !works) return std::unexpected(works.error());
    return track_by(*options.method, range, granule);
  }
  using enum WriteTrackingMethod;
  constexpr std::array kByPage{kAsyncWriteProtect, kSoftDirty, kProtect, kUserfaultfd};
  // A signal for a huge page costs less than to split it and fault on 512 pages.
  constexpr std::array kByHugePage{kSoftDirty, kProtect, kUserfaultfd, kAsyncWriteProtect};
  Error last;
  for (const WriteTrackingMethod method : granule >= arch::geometry().pmd ? kByHugePage : kByPage) {
    if (method == WriteTrackingMethod::kProtect && !options.handles_faults) continue;
    if (Result<> works = check(method); !works) {
      last = works.error();
      continue;
    }
    WriteTrackerResult made = track_by(method, range, granule);
    if (made) return made;
    last = made.error();
  }
  return std::unexpected(last);
}

Result<std::vector<MemoryRange>> WriteTracker::written() const noexcept {
  try {
    Writes writes(range_, granule_);
    if (Result<> done = collect(writes); !done) return std::unexpected(done.error());
    return std::move(writes).take();
  } catch (const std::bad_alloc&) {
    return no_bookkeeping("list what was written", range_);
  }
}

bool WrittenBits::allocate(std::size_t granules) noexcept {
  words_.reset(new (std::nothrow) std::atomic<std::uint64_t>[(granules + 63) / 64]);
  granules_ = granules;
  if (words_ == nullptr) return false;
  clear();
  return true;
}

void WrittenBits::set_all() noexcept {
  for (std::size_t i = 0; i < (granules_ + 63) / 64; ++i) {
    words_[i].store(~std::uint64_t{0}, std::memory_order_release);
  }
}

void WrittenBits::clear() noexcept {
  for (std::size_t i = 0; i < (granules_ + 63) / 64; ++i) {
    words_[i].store(0, std::memory_order_release);
  }
}

}  // namespace touchstone::heap
