// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/reservation.h>
#include <touchstone/heap/system_calls.h>

#include "address_range.h"

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
static_assert(MAP_HUGE_SHIFT == 26);

namespace touchstone::heap {
namespace {

constexpr std::size_t kLongestName = 79;  // Documentation/filesystems/proc.rst: 80 with the NUL.

int flags_of(Protection protection) noexcept {
  switch (protection) {
    case Protection::kNone:
      return PROT_NONE;
    case Protection::kRead:
      return PROT_READ;
    case Protection::kReadWrite:
      return PROT_READ | PROT_WRITE;
  }
  return PROT_NONE;
}

/// The characters and the length that the kernel accepts (kernel/sys.c, prctl_set_vma).
bool acceptable_name(const char* name) noexcept {
  std::size_t length = 0;
  for (; name[length] != '\0'; ++length) {
    const char c = name[length];
    if (length == kLongestName || c < ' ' || c > '~' || std::strchr("\\`$[]", c) != nullptr) {
      return false;
    }
  }
  return true;
}

/// The options with the zeros filled in, or why they are refused. Makes no system call.
Result<ReservationOptions> checked(ReservationOptions options) noexcept {
  const auto refuse = [&](ErrorCode code, const char* detail) {
    return std::unexpected(
        Error{.code = code, .operation = "reserve", .length = options.size, .detail = detail});
  };
  const std::size_t machine_page = arch::base_page_size();
  if (options.size == 0) return refuse(ErrorCode::kInvalidArgument, "size is 0");
  if (options.hugetlb_page != 0) {
    if (!std::has_single_bit(options.hugetlb_page) || options.hugetlb_page <= machine_page) {
      return refuse(ErrorCode::kInvalidArgument,
                    "hugetlb page size is not a power of two above the base page");
    }
    if (options.page_size == 0) options.page_size = options.hugetlb_page;
    if (options.page_size < options.hugetlb_page) {
      return refuse(ErrorCode::kInvalidArgument, "page size is smaller than the hugetlb page");
    }
  }
  if (options.page_size == 0) options.page_size = machine_page;
  if (!std::has_single_bit(options.page_size) || options.page_size < machine_page) {
    return refuse(ErrorCode::kInvalidArgument,
                  "page size is not a power of two of at least the machine's");
  }
  if (options.alignment == 0) options.alignment = options.page_size;
  if (!std::has_single_bit(options.alignment) || options.alignment < options.page_size) {
    return refuse(ErrorCode::kInvalidArgument,
                  "alignment is not a power of two of at least the page size");
  }
  if (options.size % options.page_size != 0) {
    return refuse(ErrorCode::kMisaligned, "size is not a multiple of the page size");
  }
  if (options.size + options.alignment < options.size) {
    return refuse(ErrorCode::kOverflow, "size plus alignment wraps");
  }
  if (options.size > Reservation::kMaxSize || options.alignment > Reservation::kMaxSize) {
    return refuse(ErrorCode::kLimitExceeded, "more than 2^47 bytes");
  }
  if (options.name != nullptr && !acceptable_name(options.name)) {
    return refuse(ErrorCode::kInvalidArgument,
                  "name is longer than 79 or has a character that the kernel refuses");
  }
  return options;
}

/// The error for an mmap that failed: tells limits apart from the rest.
std::unexpected<Error> map_failure(std::size_t length, int system_errno,
                                   std::size_t hugetlb_page) noexcept {
  ErrorCode code = code_of_errno(system_errno);
  const char* detail = "";
  rlimit limit{};
  if (system_errno == ENOMEM) {
    const bool limited =
        system_calls().getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    if (limited && length > limit.rlim_cur) {
      code = ErrorCode::kLimitExceeded;
      detail = "RLIMIT_AS allows less";
    } else if (hugetlb_page != 0) {
      code = ErrorCode::kPoolEmpty;
      detail = "too few free pages; see /sys/kernel/mm/hugepages";
    } else if (limited) {
      detail = "RLIMIT_AS or vm.max_map_count reached";
    } else {
      detail = "no address space, or vm.max_map_count reached";
    }
  } else if (system_errno == EINVAL && hugetlb_page != 0) {
    code = ErrorCode::kUnsupported;
    detail = "no hugetlb pages of this size";
  }
  return std::unexpected(Error{.code = code,
                               .operation = "mmap",
                               .length = length,
                               .system_errno = system_errno,
                               .detail = detail});
}

/// Inaccessible addresses of the given size and alignment.
Result<MemoryRange> map_aligned(std::size_t size, std::size_t alignment) noexcept {
  const SystemCalls& calls = system_calls();
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  // Often the first answer is aligned, and a limited address space has no room for the slack.
  void* mapped = calls.mmap(nullptr, size, PROT_NONE, kFlags, -1, 0);
  if (mapped == MAP_FAILED) return map_failure(size, errno, 0);
  if (address_of(mapped) % alignment == 0)
    return MemoryRange(static_cast<std::byte*>(mapped), size);
  const auto unmapped = [&](MemoryRange range) -> Result<> {
    if (range.empty()) return {};
    // ENOMEM (vm.max_map_count) may have passed the second time; otherwise the addresses would
    // leak.
    int error = retried([&] { return calls.munmap(range.data(), range.size()); });
    if (error != 0) error = retried([&] { return calls.munmap(range.data(), range.size()); });
    if (error == 0) return {};
    return range_failure(code_of_errno(error), "munmap", range, error, 0, "stays mapped");
  };
  if (Result<> gone = unmapped({static_cast<std::byte*>(mapped), size}); !gone) {
    return std::unexpected(gone.error());
  }
  const std::size_t padded = size + alignment;
  mapped = calls.mmap(nullptr, padded, PROT_NONE, kFlags, -1, 0);
  if (mapped == MAP_FAILED) return map_failure(padded, errno, 0);
  auto* const start = static_cast<std::byte*>(mapped);
  const std::size_t before = (alignment - address_of(start) % alignment) % alignment;
  const MemoryRange kept(start + before, size);
  const MemoryRange tail(kept.data() + size, padded - before - size);
  if (Result<> gone = unmapped(tail); !gone) {
    // Without the cut the whole is still one mapping, which can go.
    if (Result<> all = unmapped({start, padded}); !all) return std::unexpected(all.error());
    return std::unexpected(gone.error());
  }
  if (Result<> gone = unmapped({start, before}); !gone) {
    if (Result<> all = unmapped({start, before + size}); !all) return std::unexpected(all.error());
    return std::unexpected(gone.error());
  }
  return kept;
}

void write_abandoned(const Error& error) noexcept {
  char line[256];
  const int length =
      std::snprintf(line, sizeof line, "touchstone: %s at 0x%zx + %zu bytes: stays mapped (%s)\n",
                    error.operation, error.address, error.length,
                    *error.detail != '\0' ? error.detail : to_string(error.code));
  if (length > 0) {
    // Nobody is left to tell if standard error is closed.
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, line,
                std::min<std::size_t>(static_cast<std::size_t>(length), sizeof line - 1));
  }
}

}  // namespace

struct Reservation::State {
  std::byte* base = nullptr;
  std::size_t size = 0;
  std::size_t page = 0;
  std::size_t unmapped = 0;  // Bytes from base on that are unmapped or sealed; see unmap().
  ForkBehaviour fork = ForkBehaviour::kInherit;
  pid_t owner = 0;
  bool named = false;
  void (*on_abandoned)(const Error& error) noexcept = nullptr;
  mutable std::mutex mutex;  // Guards the two sets.
  IntervalSet committed;
  IntervalSet sealed;

  [[nodiscard]] MemoryRange range() const noexcept { return {base, size}; }

  /// Whether this is a child that has nothing, or something else, at these addresses.
  [[nodiscard]] bool foreign() const noexcept {
    return fork == ForkBehaviour::kOmit && ::getpid() != owner;
  }

  [[nodiscard]] MemoryRange range_of(const Interval& each) const noexcept {
    return {base + (each.begin - address_of(base)), each.end - each.begin};
  }

  /// Whether a verb may work on the range.
  [[nodiscard]] Result<> check(const char* operation, MemoryRange given) const noexcept {
    if (Result<> fine = check_pages(operation, given, page); !fine) return fine;
    const std::uintptr_t begin = address_of(given.data());
    if (begin < address_of(base) + unmapped || begin + given.size() > address_of(base) + size) {
      return range_failure(ErrorCode::kOutOfRange, operation, given, 0, 0,
                           "not within the reservation");
    }
    if (foreign()) {
      return range_failure(ErrorCode::kFrozen, operation, given, 0, 0,
                           "the child has no part in this reservation");
    }
    return {};
  }

  [[nodiscard]] Prefix advise(MemoryRange range, int advice) const noexcept {
    return exact_prefix(range.data(), range.size(), page,
                        [advice](std::byte* start, std::size_t length) {
                          return system_calls().madvise(start, length, advice);
                        });
  }

  [[nodiscard]] Prefix set_protection(MemoryRange range, int flags) const noexcept {
    return exact_prefix(range.data(), range.size(), page,
                        [flags](std::byte* start, std::size_t length) {
                          return system_calls().mprotect(start, length, flags);
                        });
  }

  [[nodiscard]] Result<> advise_huge_pages(MemoryRange range, HugePages huge_pages) const noexcept {
    const bool prefer = huge_pages == HugePages::kPrefer;
    const Prefix prefix = advise(range, prefer ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (prefix.error == 0) return {};
    // EINVAL on the first page: no such advice, so no huge pages either.
    const bool unknown = prefix.error == EINVAL && prefix.done == 0;
    if (!prefer && unknown) return {};
    const char* operation = prefer ? "madvise(MADV_HUGEPAGE)" : "madvise(MADV_NOHUGEPAGE)";
    if (unknown) {
      return range_failure(ErrorCode::kUnsupported, operation, range, EINVAL, 0,
                           "no transparent huge pages for this memory");
    }
    return range_failure(operation, range, prefix);
  }

  /// What fork() does with the whole reservation.
  [[nodiscard]] Result<> set_fork_behaviour() const noexcept {
    if (fork == ForkBehaviour::kInherit) return {};
    const bool wipe = fork == ForkBehaviour::kWipe;
    const Prefix prefix = advise(range(), wipe ? MADV_WIPEONFORK : MADV_DONTFORK);
    if (prefix.error == 0) return {};
    const char* operation = wipe ? "madvise(MADV_WIPEONFORK)" : "madvise(MADV_DONTFORK)";
    if (prefix.error == EINVAL) {
      return range_failure(ErrorCode::kUnsupported, operation, range(), EINVAL, prefix.done,
                           "not for this memory on this kernel");
    }
    return range_failure(operation, range(), prefix);
  }

  /// Lays hugetlb pages over the reserved addresses. Their pool must hold all of them now: a touch
  /// that finds it empty would be a SIGBUS.
  [[nodiscard]] Result<> lay_hugetlb(std::size_t hugetlb_page) const noexcept {
    const int shift = std::countr_zero(hugetlb_page);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED |
                      static_cast<int>(static_cast<unsigned>(shift) << MAP_HUGE_SHIFT);
    if (system_calls().mmap(base, size, PROT_NONE, flags, -1, 0) == MAP_FAILED) {
      return map_failure(size, errno, hugetlb_page);
    }
    return {};
  }

  [[nodiscard]] Result<> unmap() noexcept;
};

Result<> Reservation::State::unmap() noexcept {
  constexpr const char* kOperation = "munmap";
  if (size == 0 || foreign()) {
    size = 0;
    sealed.clear();
    return {};
  }
  // Everything but the sealed ranges, from low to high.
  auto next_sealed = sealed.intervals().begin();
  while (unmapped < size) {
    const bool last = next_sealed == sealed.intervals().end();
    const std::size_t gap_end = last ? size : next_sealed->begin - address_of(base);
    if (unmapped < gap_end) {
      const int error =
          retried([&] { return system_calls().munmap(base + unmapped, gap_end - unmapped); });
      if (error != 0) {
        return range_failure(code_of_errno(error), kOperation, range(), error, unmapped,
                             "the rest stays mapped");
      }
    }
    unmapped = last ? size : std::max(unmapped, next_sealed->end - address_of(base));
    if (!last) ++next_sealed;
  }
  size = 0;
  committed.clear();
  if (sealed.intervals().empty()) return {};
  return range_failure(ErrorCode::kNotPermitted, kOperation, range_of(sealed.intervals().front()),
                       0, 0, "sealed: stays mapped until the process ends");
}

Reservation::Reservation() noexcept = default;
Reservation::Reservation(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Reservation::Reservation(Reservation&& other) noexcept = default;

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    abandon();
    state_ = std::move(other.state_);
  }
  return *this;
}

Reservation::~Reservation() {
  abandon();
}

void Reservation::abandon() noexcept {
  if (state_ == nullptr) return;
  const auto tell = state_->on_abandoned != nullptr ? state_->on_abandoned : &write_abandoned;
  if (const Result<> gone = destroy(); !gone) tell(gone.error());
}

Result<Reservation> Reservation::reserve(const ReservationOptions& requested) noexcept {
  const Result<ReservationOptions> options = checked(requested);
  if (!options) return std::unexpected(options.error());

  std::unique_ptr<State> state(new (std::nothrow) State);
  if (state == nullptr) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfMemory,
                                 .operation = "reserve",
                                 .length = options->size,
                                 .detail = "no memory for bookkeeping"});
  }
  const Result<MemoryRange> mapped = map_aligned(options->size, options->alignment);
  if (!mapped) return std::unexpected(mapped.error());
  state->base = mapped->data();
  state->size = mapped->size();
  state->page = options->page_size;
  state->owner = ::getpid();
  state->on_abandoned = options->on_abandoned;

  Result<> made;
  if (options->hugetlb_page != 0) made = state->lay_hugetlb(options->hugetlb_page);
  if (made && options->huge_pages != HugePages::kDefault) {
    made = state->advise_huge_pages(state->range(), options->huge_pages);
  }
  if (made) {
    state->fork = options->fork;
    made = state->set_fork_behaviour();
  }
  if (!made) {
    // The first cause is what the caller needs, unless the addresses leak as well.
    if (Result<> gone = state->unmap(); !gone) return std::unexpected(gone.error());
    return std::unexpected(made.error());
  }
  // A help for people who read maps, never a reason to have no heap; named() tells.
  state->named = options->name != nullptr &&
                 system_calls().set_vma_name(state->base, state->size, options->name) == 0;
  return Reservation(std::move(state));
}

Result<Commitment> Reservation::commit(MemoryRange given) noexcept {
  constexpr const char* kOperation = "mprotect(commit)";
  if (Result<> fine = check(kOperation, given); !fine) return std::unexpected(fine.error());
  const Interval interval = interval_of(given);
  bool zeroed = false;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->committed.claim()) return no_bookkeeping(kOperation, given);
    zeroed = !state_->committed.intersects(interval);
  }
  const Prefix prefix = state_->set_protection(given, PROT_READ | PROT_WRITE);
  {
    const std::lock_guard lock(state_->mutex);
    state_->committed.insert({interval.begin, interval.begin + prefix.done});
  }
  if (prefix.error != 0) return range_failure(kOperation, given, prefix);
  return Commitment{.zeroed = zeroed};
}

Result<> Reservation::uncommit(MemoryRange given) noexcept {
  constexpr const char* kGiveBack = "madvise(MADV_DONTNEED)";
  constexpr const char* kRevoke = "mprotect(PROT_NONE)";
  if (Result<> fine = check("uncommit", given); !fine) return fine;
  const Interval interval = interval_of(given);
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->committed.claim()) return no_bookkeeping("uncommit", given);
  }
  // Memory first: where vm.max_map_count forbids to revoke access, it is still given back.
  const Prefix given_back = state_->advise(given, MADV_DONTNEED);
  Prefix revoked;
  if (given_back.done != 0) {
    revoked = state_->set_protection(given.first(given_back.done), PROT_NONE);
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->committed.erase({interval.begin, interval.begin + revoked.done});
  }
  if (revoked.error != 0) {
    return range_failure(kRevoke, given, revoked, "the rest is given back but still accessible");
  }
  if (given_back.error != 0) return range_failure(kGiveBack, given, given_back);
  return {};
}

Result<> Reservation::discard(MemoryRange given, DiscardPolicy policy) noexcept {
  if (Result<> fine = check("discard", given); !fine) return fine;
  std::size_t done = 0;
  if (policy == DiscardPolicy::kLazily) {
    const Prefix lazily = state_->advise(given, MADV_FREE);
    if (lazily.error == 0) return {};
    if (lazily.error != EINVAL) return range_failure("madvise(MADV_FREE)", given, lazily);
    done = lazily.done;
  }
  Prefix at_once = state_->advise(given.subspan(done), MADV_DONTNEED);
  if (at_once.error == 0) return {};
  at_once.done += done;
  return range_failure("madvise(MADV_DONTNEED)", given, at_once);
}

Result<> Reservation::protect(MemoryRange given, Protection protection) noexcept {
  constexpr const char* kOperation = "mprotect(protect)";
  if (Result<> fine = check(kOperation, given); !fine) return fine;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->committed.contains(interval_of(given))) {
      return range_failure(ErrorCode::kInvalidArgument, kOperation, given, 0, 0,
                           "not all is committed");
    }
  }
  const Prefix prefix = state_->set_protection(given, flags_of(protection));
  if (prefix.error != 0) return range_failure(kOperation, given, prefix);
  return {};
}

Result<> Reservation::seal(MemoryRange given) noexcept {
  constexpr const char* kOperation = "mseal";
  if (Result<> fine = check(kOperation, given); !fine) return fine;
  const Interval interval = interval_of(given);
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->sealed.claim()) return no_bookkeeping(kOperation, given);
  }
  const Prefix prefix = exact_prefix(
      given.data(), given.size(), state_->page,
      [](std::byte* start, std::size_t length) { return system_calls().mseal(start, length, 0); });
  {
    const std::lock_guard lock(state_->mutex);
    state_->sealed.insert({interval.begin, interval.begin + prefix.done});
  }
  if (prefix.error == ENOSYS) {
    return range_failure(ErrorCode::kUnsupported, kOperation, given, ENOSYS, prefix.done,
                         "needs Linux 6.10");
  }
  if (prefix.error != 0) return range_failure(kOperation, given, prefix);
  return {};
}

Result<> Reservation::rename(MemoryRange given, const char* name) noexcept {
  constexpr const char* kOperation = "prctl(PR_SET_VMA_ANON_NAME)";
  if (Result<> fine = check(kOperation, given); !fine) return fine;
  if (name != nullptr && !acceptable_name(name)) {
    return range_failure(ErrorCode::kInvalidArgument, kOperation, given, 0, 0,
                         "name is longer than 79 or has a character that the kernel refuses");
  }
  const Prefix prefix = exact_prefix(given.data(), given.size(), state_->page,
                                     [name](std::byte* start, std::size_t length) {
                                       return system_calls().set_vma_name(start, length, name);
                                     });
  if (prefix.error == EINVAL && prefix.done == 0) {
    return range_failure(ErrorCode::kUnsupported, kOperation, given, EINVAL, 0,
                         "needs CONFIG_ANON_VMA_NAME");
  }
  if (prefix.error != 0) return range_failure(kOperation, given, prefix);
  return {};
}

Result<> Reservation::advise_huge_pages(MemoryRange given, HugePages huge_pages) noexcept {
  constexpr const char* kOperation = "advise_huge_pages";
  if (Result<> fine = check(kOperation, given); !fine) return fine;
  if (huge_pages == HugePages::kDefault) {
    return range_failure(ErrorCode::kInvalidArgument, kOperation, given, 0, 0,
                         "the default cannot be had back");
  }
  return state_->advise_huge_pages(given, huge_pages);
}

Result<> Reservation::destroy() noexcept {
  return state_ != nullptr ? state_->unmap() : Result<>{};
}

Result<> Reservation::check(const char* operation, MemoryRange given) const noexcept {
  if (state_ != nullptr) return state_->check(operation, given);
  return range_failure(ErrorCode::kOutOfRange, operation, given, 0, 0, "nothing is reserved");
}

MemoryRange Reservation::range() const noexcept {
  if (state_ == nullptr || state_->size == 0) return {};
  return state_->range();
}

std::size_t Reservation::page_size() const noexcept {
  return range().empty() ? 0 : state_->page;
}

bool Reservation::contains(const void* address) const noexcept {
  const MemoryRange held = range();
  return address_of(address) - address_of(held.data()) < held.size();
}

std::size_t Reservation::committed_bytes() const noexcept {
  if (state_ == nullptr) return 0;
  const std::lock_guard lock(state_->mutex);
  return state_->committed.total();
}

std::vector<MemoryRange> Reservation::sealed_ranges() const {
  std::vector<MemoryRange> ranges;
  if (state_ == nullptr) return ranges;
  const std::lock_guard lock(state_->mutex);
  ranges.reserve(state_->sealed.intervals().size());
  for (const Interval& each : state_->sealed.intervals()) {
    ranges.push_back(state_->range_of(each));
  }
  return ranges;
}

bool Reservation::named() const noexcept {
  return state_ != nullptr && state_->named;
}

}  // namespace touchstone::heap
