// SPDX-License-Identifier: MIT
#include <atomic>
#include <cerrno>
#include <utility>

#include <sys/mman.h>
#include <sys/resource.h>

#include <touchstone/heap/residency.h>
#include <touchstone/heap/system_calls.h>

#include "page_probe.h"
#include "proc_file.h"

namespace touchstone::heap {
namespace {

constexpr const char* kSmaps = "read self/smaps";
constexpr const char* kVmstat = "read vmstat";

/// Adds up the mappings of a smaps file that overlap a range.
class SmapsReader {
 public:
  SmapsReader(const void* address, std::size_t length) noexcept
      : begin_(reinterpret_cast<std::uintptr_t>(address)), end_(begin_ + length) {}

  /// Takes one line; false when it lies behind the range and reading can stop.
  [[nodiscard]] Result<bool> take(std::string_view line) {
    const std::string_view key = take_word(line);
    if (key.ends_with(':')) return take_field(key.substr(0, key.size() - 1), line);
    const std::size_t dash = std::min(key.find('-'), key.size());
    const std::optional<std::uint64_t> start = whole_number(key.substr(0, dash), 16);
    const std::optional<std::uint64_t> stop =
        whole_number(key.substr(std::min(dash + 1, key.size())), 16);
    if (!start || !stop || *stop <= *start) return std::unexpected(malformed(kSmaps));
    return take_mapping(*start, *stop);
  }

  [[nodiscard]] Result<Smaps> sum() const {
    if (sum_.mappings == 0) {
      return std::unexpected(Error{.code = ErrorCode::kOutOfRange,
                                   .operation = kSmaps,
                                   .address = begin_,
                                   .length = end_ - begin_,
                                   .detail = "nothing of the range is mapped"});
    }
    // A mapping without its figures is a cut file, not one of nothing.
    if (rss_seen_ != sum_.mappings) return std::unexpected(malformed(kSmaps));
    return sum_;
  }

 private:
  Result<bool> take_mapping(std::uint64_t start, std::uint64_t stop) {
    within_ = start < end_ && stop > begin_;
    if (start >= end_) return false;
    if (!within_) return true;
    const bool whole = start >= begin_ && stop <= end_;
    sum_.exact = whole && (sum_.mappings == 0 || sum_.exact);
    ++sum_.mappings;
    sum_.mapped += std::min<std::uint64_t>(stop, end_) - std::max<std::uint64_t>(start, begin_);
    return true;
  }

  Result<bool> take_field(std::string_view key, std::string_view value) {
    if (!within_) return true;
    if (key == "VmFlags") {
      bool huge = false;
      bool no_huge = false;
      while (!value.empty()) {
        const std::string_view flag = take_word(value);
        huge = huge || flag == "hg";
        no_huge = no_huge || flag == "nh";
      }
      const bool first = !flags_seen_;
      flags_seen_ = true;
      sum_.advised_huge = huge && (first || sum_.advised_huge);
      sum_.advised_no_huge = no_huge && (first || sum_.advised_no_huge);
      return true;
    }
    if (key == "THPeligible") {
      const std::optional<std::uint64_t> number = whole_number(take_word(value));
      if (!number) return std::unexpected(malformed(kSmaps));
      sum_.thp_eligible = *number != 0 && sum_.thp_eligible.value_or(true);
      return true;
    }
    std::size_t* const field = field_of(key);
    if (field == nullptr) return true;
    const std::optional<std::uint64_t> number = whole_number(take_word(value));
    if (!number || value != "kB") return std::unexpected(malformed(kSmaps));
    *field += static_cast<std::size_t>(*number) << 10;
    if (field == &sum_.rss) ++rss_seen_;
    return true;
  }

  std::size_t* field_of(std::string_view key) noexcept {
    const std::pair<std::string_view, std::size_t*> fields[] = {
        {"Size", &sum_.size},
        {"Rss", &sum_.rss},
        {"Pss", &sum_.pss},
        {"Anonymous", &sum_.anonymous},
        {"AnonHugePages", &sum_.anon_huge_pages},
        {"LazyFree", &sum_.lazy_free},
        {"Private_Dirty", &sum_.private_dirty},
        {"Shared_Hugetlb", &sum_.shared_hugetlb},
        {"Private_Hugetlb", &sum_.private_hugetlb},
        {"Swap", &sum_.swap},
        {"Locked", &sum_.locked},
    };
    for (const auto& [name, field] : fields) {
      if (name == key) return field;
    }
    return nullptr;
  }

  std::uintptr_t begin_;
  std::uintptr_t end_;
  Smaps sum_;
  std::size_t rss_seen_ = 0;
  bool within_ = false;
  bool flags_seen_ = false;
};

Result<Smaps> read_smaps(const void* address, std::size_t length, const std::string& path) {
  Result<ProcFile> file = ProcFile::open(path, kSmaps);
  if (!file) return std::unexpected(file.error());
  SmapsReader reader(address, length);
  for (;;) {
    std::string_view line;
    const Result<bool> got = file->next_line(line);
    if (!got) return std::unexpected(got.error());
    if (!*got) break;
    const Result<bool> more = reader.take(line);
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
  }
  return reader.sum();
}

/// User-mode emulators give a smaps of the right form in which every figure is 0.
Result<> check_smaps(const std::string& path) {
  static constinit std::atomic<const SystemCalls*> truthful{nullptr};
  const SystemCalls& calls = system_calls();
  if (truthful.load(std::memory_order_acquire) == &calls) return {};
  const std::size_t size = arch::base_page_size();
  void* const page =
      calls.mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    return std::unexpected(Error{
        .code = code_of_errno(errno), .operation = "mmap", .length = size, .system_errno = errno});
  }
  *static_cast<volatile char*>(page) = 1;
  const Result<Smaps> told = read_smaps(page, size, path);
  calls.munmap(page, size);
  if (!told) return std::unexpected(told.error());
  if (told->rss == 0) {
    return std::unexpected(Error{.code = ErrorCode::kUnavailable,
                                 .operation = kSmaps,
                                 .detail = "says that a touched page is absent"});
  }
  truthful.store(&calls, std::memory_order_release);
  return {};
}

Result<Faults> faults(int who, const char* operation) noexcept {
  rusage usage{};
  if (system_calls().getrusage(who, &usage) != 0) {
    return std::unexpected(
        Error{.code = ErrorCode::kUnavailable, .operation = operation, .system_errno = errno});
  }
  return Faults{static_cast<std::uint64_t>(usage.ru_minflt),
                static_cast<std::uint64_t>(usage.ru_majflt)};
}

Result<> check_smaps_range(const void* address, std::size_t length) noexcept {
  return check_range(kSmaps, address, length, 1);
}

}  // namespace

const char* to_string(ResidencySource source) noexcept {
  switch (source) {
    case ResidencySource::kPagemapScan:
      return "PAGEMAP_SCAN";
    case ResidencySource::kPagemap:
      return "pagemap";
    case ResidencySource::kMincore:
      return "mincore";
  }
  return "unknown";
}

Result<Residency> residency_of(const void* address, std::size_t length) {
  const Result<> range = check_range("residency_of", address, length, arch::base_page_size());
  if (!range) return std::unexpected(range.error());
  const Result<PageProbe> probe = PageProbe::open_best();
  if (!probe) return std::unexpected(probe.error());
  return probe->residency(address, length);
}

Result<Residency> residency_by(ResidencySource source, const void* address, std::size_t length) {
  const Result<> range = check_range("residency_by", address, length, arch::base_page_size());
  if (!range) return std::unexpected(range.error());
  const Result<PageProbe> probe = PageProbe::open(source);
  if (!probe) return std::unexpected(probe.error());
  return probe->residency(address, length);
}

Result<std::size_t> populated_prefix(const void* address, std::size_t length) {
  const Result<> range = check_range("populated_prefix", address, length, arch::base_page_size());
  if (!range) return std::unexpected(range.error());
  const Result<PageProbe> probe = PageProbe::open_best();
  if (!probe) return std::unexpected(probe.error());
  return probe->populated_prefix(address, length);
}

Result<Smaps> smaps(const void* address, std::size_t length, const arch::SystemRoots& roots) {
  const Result<> range = check_smaps_range(address, length);
  if (!range) return std::unexpected(range.error());
  const std::string path = roots.proc + "/self/smaps";
  if (roots.proc == arch::SystemRoots{}.proc) {
    const Result<> checked = check_smaps(path);
    if (!checked) return std::unexpected(checked.error());
  }
  return read_smaps(address, length, path);
}

Result<Smaps> parse_smaps(std::string_view text, const void* address, std::size_t length) {
  const Result<> range = check_smaps_range(address, length);
  if (!range) return std::unexpected(range.error());
  SmapsReader reader(address, length);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const Result<bool> more = reader.take(text.substr(0, end));
    if (!more) return std::unexpected(more.error());
    if (!*more || end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return reader.sum();
}

namespace {

struct Counter {
  std::string_view name;
  std::optional<std::uint64_t> Vmstat::* field;
};

constexpr Counter kCounters[] = {
    {"thp_fault_alloc", &Vmstat::thp_fault_alloc},
    {"thp_fault_fallback", &Vmstat::thp_fault_fallback},
    {"thp_collapse_alloc", &Vmstat::thp_collapse_alloc},
    {"thp_zero_page_alloc", &Vmstat::thp_zero_page_alloc},
    {"thp_split_page", &Vmstat::thp_split_page},
    {"thp_split_pmd", &Vmstat::thp_split_pmd},
    {"pgfault", &Vmstat::pgfault},
    {"pgmajfault", &Vmstat::pgmajfault},
};

}  // namespace

Vmstat Vmstat::since(const Vmstat& before) const noexcept {
  Vmstat delta;
  for (const Counter& counter : kCounters) {
    const std::optional<std::uint64_t> now = this->*counter.field;
    const std::optional<std::uint64_t> then = before.*counter.field;
    if (now && then) delta.*counter.field = *now - *then;
  }
  return delta;
}

Result<Vmstat> vmstat(const arch::SystemRoots& roots) {
  Result<ProcFile> file = ProcFile::open(roots.proc + "/vmstat", kVmstat);
  if (!file) return std::unexpected(file.error());
  Vmstat counters;
  bool any = false;
  for (;;) {
    std::string_view rest;
    const Result<bool> got = file->next_line(rest);
    if (!got) return std::unexpected(got.error());
    if (!*got) break;
    const std::string_view name = take_word(rest);
    const std::optional<std::uint64_t> value = whole_number(rest);
    if (!value) return std::unexpected(malformed(kVmstat));
    any = true;
    for (const Counter& counter : kCounters) {
      if (counter.name == name) counters.*counter.field = value;
    }
  }
  if (!any) return std::unexpected(malformed(kVmstat));
  return counters;
}

Result<Faults> thread_faults() noexcept {
  return faults(RUSAGE_THREAD, "getrusage(RUSAGE_THREAD)");
}

Result<Faults> process_faults() noexcept {
  return faults(RUSAGE_SELF, "getrusage(RUSAGE_SELF)");
}

}  // namespace touchstone::heap
