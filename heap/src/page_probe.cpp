// SPDX-License-Identifier: MIT
#include "page_probe.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/system_calls.h>

#include "pagemap_scan.h"
#include "retries.h"

namespace touchstone::heap {
namespace {

constexpr const char* kScan = "ioctl(PAGEMAP_SCAN)";
constexpr const char* kPagemap = "read /proc/self/pagemap";
constexpr const char* kMincore = "mincore";

Error failed(const char* operation, std::uintptr_t begin, std::uintptr_t end, int system_errno) {
  return {.code = code_of_errno(system_errno),
          .operation = operation,
          .address = begin,
          .length = end - begin,
          .system_errno = system_errno};
}

void* at(std::uintptr_t address) noexcept {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// Hands out runs, with what no source mentioned in between as absent.
class Runs {
 public:
  Runs(std::uintptr_t begin, const PageProbe::Visit& visit) noexcept
      : next_(begin), visit_(visit) {}

  [[nodiscard]] bool gap_until(std::uintptr_t address) {
    const std::uintptr_t from = std::exchange(next_, std::max(next_, address));
    return from >= address || visit_(address - from, PageState{});
  }
  [[nodiscard]] bool run_until(std::uintptr_t address, PageState state) {
    const std::uintptr_t from = std::exchange(next_, address);
    return from == address || visit_(address - from, state);
  }

  [[nodiscard]] std::uintptr_t next() const noexcept { return next_; }

 private:
  std::uintptr_t next_;
  const PageProbe::Visit& visit_;
};

}  // namespace

Result<> check_range(const char* operation, const void* address, std::size_t length,
                     std::size_t base_page) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  Error error{.operation = operation, .address = begin, .length = length};
  if (length == 0) {
    error.code = ErrorCode::kInvalidArgument;
    error.detail = "length is 0";
  } else if (begin > UINTPTR_MAX - length) {
    error.code = ErrorCode::kOverflow;
    error.detail = "address + length wraps";
  } else if (begin % base_page != 0 || length % base_page != 0) {
    error.code = ErrorCode::kMisaligned;
    error.detail = "address and length must be multiples of the base page";
  } else {
    return {};
  }
  return std::unexpected(error);
}

PageProbe::PageProbe(ResidencySource source, std::optional<ProcFile> file) noexcept
    : source_(source),
      file_(std::move(file)),
      descriptor_(file_ ? file_->descriptor() : -1),
      base_page_(arch::base_page_size()),
      pmd_(0) {}

Result<PageProbe> PageProbe::open(ResidencySource source) {
  std::optional<ProcFile> file;
  if (source != ResidencySource::kMincore) {
    Result<ProcFile> opened = ProcFile::open("/proc/self/pagemap", "open /proc/self/pagemap");
    if (!opened) return std::unexpected(opened.error());
    file = std::move(*opened);
  }
  PageProbe probe(source, std::move(file));
  if (source == ResidencySource::kPagemapScan) probe.pmd_ = arch::geometry().pmd;
  const Result<> checked = probe.check();
  if (!checked) return std::unexpected(checked.error());
  return probe;
}

Result<PageProbe> PageProbe::open_best() {
  for (const ResidencySource source : {ResidencySource::kPagemapScan, ResidencySource::kPagemap}) {
    Result<PageProbe> probe = open(source);
    if (probe) return probe;
  }
  Result<PageProbe> probe = open(ResidencySource::kMincore);
  if (!probe) probe.error().code = ErrorCode::kUnavailable;
  return probe;
}

Result<> PageProbe::check() const {
  const SystemCalls& calls = system_calls();
  const std::size_t size = 2 * base_page_;
  void* const pages =
      calls.mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return std::unexpected(failed("mmap", 0, size, errno));
  *static_cast<volatile char*>(pages) = 1;
  std::array<bool, 2> present{};
  std::size_t offset = 0;
  const Result<> walked = walk(pages, size, [&](std::size_t bytes, PageState state) {
    for (const std::size_t end = offset + bytes; offset < end; offset += base_page_) {
      present[offset / base_page_] = state.populated();
    }
    return true;
  });
  calls.munmap(pages, size);
  if (!walked) return walked;
  // The second page may be there too: with multi-size THP one fault brings several.
  if (!present[0]) {
    return std::unexpected(Error{.code = ErrorCode::kUnavailable,
                                 .operation = to_string(source_),
                                 .detail = "says that a touched page is absent"});
  }
  void* const untouched =
      calls.mmap(nullptr, base_page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (untouched == MAP_FAILED) return std::unexpected(failed("mmap", 0, base_page_, errno));
  bool absent = false;
  const Result<> again = walk(untouched, base_page_, [&](std::size_t, PageState state) {
    absent = !state.populated();
    return true;
  });
  calls.munmap(untouched, base_page_);
  if (!again) return again;
  if (!absent) {
    return std::unexpected(Error{.code = ErrorCode::kUnavailable,
                                 .operation = to_string(source_),
                                 .detail = "says that an untouched page is present"});
  }
  return {};
}

Result<> PageProbe::walk(const void* address, std::size_t length, const Visit& visit) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  switch (source_) {
    case ResidencySource::kPagemapScan:
      return walk_scan(begin, begin + length, visit);
    case ResidencySource::kPagemap:
      return walk_pagemap(begin, begin + length, visit);
    case ResidencySource::kMincore:
      break;
  }
  return walk_mincore(begin, begin + length, visit);
}

Result<bool> PageProbe::visit_huge(std::uintptr_t begin, std::uintptr_t end,
                                   const Visit& visit) const {
  // Before Linux 6.10 or so PAGEMAP_SCAN does not call the huge zero page PFNZERO. The pagemap
  // entry of anonymous memory calls it "file", which no anonymous page is.
  Runs runs(begin, visit);
  Retries retries;
  PageState run{.present = true, .huge = true};
  for (std::uintptr_t page = begin; page < end; page = std::min(end, (page | (pmd_ - 1)) + 1)) {
    std::uint64_t entry = 0;
    const auto offset = static_cast<off_t>(page / base_page_ * sizeof entry);
    ssize_t got = -1;
    do {
      got = system_calls().pread(descriptor_, &entry, sizeof entry, offset);
    } while (got < 0 && retries.again());
    if (got != sizeof entry) {
      return std::unexpected(failed(kPagemap, begin, end, got < 0 ? errno : EIO));
    }
    const bool zero = (entry & kEntryFile) != 0;
    if (zero != run.zero && !runs.run_until(page, run)) return false;
    run.zero = zero;
  }
  return runs.run_until(end, run);
}

Result<> PageProbe::walk_scan(std::uintptr_t begin, std::uintptr_t end, const Visit& visit) const {
  std::array<ScanRegion, 128> regions;
  Retries retries;
  Runs runs(begin, visit);
  std::uintptr_t next = begin;
  while (next < end) {
    ScanArgument argument{};
    argument.size = sizeof argument;
    argument.start = next;
    argument.end = end;
    argument.regions = reinterpret_cast<std::uintptr_t>(regions.data());
    argument.region_count = regions.size();
    argument.category_anyof_mask = kPageIsPresent | kPageIsSwapped;
    argument.return_mask =
        kPageIsFile | kPageIsPresent | kPageIsSwapped | kPageIsZero | kPageIsHuge;
    const int count = system_calls().ioctl(descriptor_, kPagemapScan, &argument);
    if (count < 0 && retries.again()) continue;
    if (count < 0) {
      Error error = failed(kScan, begin, end, errno);
      if (errno == ENOTTY || errno == EINVAL) error.code = ErrorCode::kUnsupported;
      return std::unexpected(error);
    }
    if (argument.walk_end <= next || argument.walk_end > end ||
        static_cast<std::size_t>(count) > regions.size()) {
      return std::unexpected(Error{.code = ErrorCode::kUnavailable,
                                   .operation = kScan,
                                   .address = begin,
                                   .length = end - begin,
                                   .detail = "gave an impossible answer"});
    }
    for (const ScanRegion& region : std::span(regions).first(static_cast<std::size_t>(count))) {
      if (!runs.gap_until(region.start)) return {};
      const PageState state{.present = (region.categories & kPageIsPresent) != 0,
                            .zero = (region.categories & kPageIsZero) != 0,
                            .swapped = (region.categories & kPageIsSwapped) != 0,
                            .huge = (region.categories & kPageIsHuge) != 0};
      const bool anonymous_huge =
          state.present && state.huge && !state.zero && (region.categories & kPageIsFile) == 0;
      if (!anonymous_huge) {
        if (!runs.run_until(region.end, state)) return {};
        continue;
      }
      const Result<bool> more =
          visit_huge(region.start, region.end, [&](std::size_t bytes, PageState part) {
            return runs.run_until(runs.next() + bytes, part);
          });
      if (!more) return std::unexpected(more.error());
      if (!*more) return {};
    }
    next = argument.walk_end;
  }
  static_cast<void>(runs.gap_until(end));
  return {};
}

Result<> PageProbe::walk_pagemap(std::uintptr_t begin, std::uintptr_t end,
                                 const Visit& visit) const {
  std::array<std::uint64_t, 1024> entries;
  Retries retries;
  Runs runs(begin, visit);
  std::uintptr_t next = begin;
  PageState run;
  bool open = false;
  while (next < end) {
    const std::size_t wanted = std::min(entries.size(), (end - next) / base_page_);
    const ssize_t got =
        system_calls().pread(descriptor_, entries.data(), wanted * sizeof entries[0],
                             static_cast<off_t>(next / base_page_ * sizeof entries[0]));
    if (got < 0 && retries.again()) continue;
    const std::size_t count = got < 0 ? 0 : static_cast<std::size_t>(got) / sizeof entries[0];
    // A short read that holds no entry lies beyond the address space.
    if (count == 0) return std::unexpected(failed(kPagemap, begin, end, got < 0 ? errno : EFAULT));
    for (const std::uint64_t entry : std::span(entries).first(count)) {
      const PageState state{.present = (entry & kEntryPresent) != 0,
                            .swapped = (entry & kEntrySwapped) != 0};
      const bool same = state.present == run.present && state.swapped == run.swapped;
      if (open && !same && !runs.run_until(next, run)) return {};
      run = state;
      open = true;
      next += base_page_;
    }
  }
  static_cast<void>(runs.run_until(end, run));
  return {};
}

Result<> PageProbe::walk_mincore(std::uintptr_t begin, std::uintptr_t end,
                                 const Visit& visit) const {
  std::array<unsigned char, 4096> pages;
  std::size_t most = pages.size();
  Retries retries;
  Runs runs(begin, visit);
  std::uintptr_t next = begin;
  PageState run;
  bool open = false;
  while (next < end) {
    const std::size_t wanted = std::min(most, (end - next) / base_page_);
    const int failure = system_calls().mincore(at(next), wanted * base_page_, pages.data());
    if (failure != 0 && retries.again()) continue;
    if (failure != 0 && errno == ENOMEM) {
      // A hole somewhere in there: halve until it is one page, which is then absent.
      if (wanted > 1) {
        most = wanted / 2;
        continue;
      }
      pages[0] = 0;
    } else if (failure != 0) {
      return std::unexpected(failed(kMincore, begin, end, errno));
    }
    most = std::min(pages.size(), most * 2);
    for (const unsigned char page : std::span(pages).first(wanted)) {
      const bool present = (page & 1) != 0;
      if (open && present != run.present && !runs.run_until(next, run)) return {};
      run.present = present;
      open = true;
      next += base_page_;
    }
  }
  static_cast<void>(runs.run_until(end, run));
  return {};
}

Result<Residency> PageProbe::residency(const void* address, std::size_t length) const {
  Residency sum{.source = source_, .length = length};
  const bool knows_all = source_ == ResidencySource::kPagemapScan;
  std::size_t zero = 0;
  std::size_t swapped = 0;
  std::size_t huge = 0;
  const Result<> walked = walk(address, length, [&](std::size_t bytes, PageState state) {
    if (state.present) sum.present += bytes;
    if (state.zero) zero += bytes;
    if (state.swapped) swapped += bytes;
    if (state.present && state.huge && !state.zero) huge += bytes;
    return true;
  });
  if (!walked) return std::unexpected(walked.error());
  if (knows_all) {
    sum.zero = zero;
    sum.huge = huge;
  }
  if (source_ != ResidencySource::kMincore) sum.swapped = swapped;
  return sum;
}

Result<std::size_t> PageProbe::populated_prefix(const void* address, std::size_t length) const {
  std::size_t prefix = 0;
  const Result<> walked = walk(address, length, [&](std::size_t bytes, PageState state) {
    if (state.populated()) prefix += bytes;
    return state.populated();
  });
  if (!walked) return std::unexpected(walked.error());
  return prefix;
}

}  // namespace touchstone::heap
