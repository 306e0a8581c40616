// SPDX-License-Identifier: MIT
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include <sched.h>
#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/quarantine.h>
#include <touchstone/heap/reservation.h>
#include <touchstone/heap/system_calls.h>

#include "address_range.h"

// include/uapi/asm-generic/mman-common.h, Linux 6.13; 22 is of 5.14.
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
static_assert(MADV_GUARD_INSTALL == 102 && MADV_GUARD_REMOVE == 103);
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
static_assert(MADV_POPULATE_READ == 22);

namespace touchstone::heap {
namespace {

constexpr const char* kPut = "quarantine";
constexpr const char* kRelease = "release from quarantine";

Prefix protect(MemoryRange range, int protection) noexcept {
  return exact_prefix(range.data(), range.size(), arch::base_page_size(),
                      [protection](std::byte* start, std::size_t length) {
                        return system_calls().mprotect(start, length, protection);
                      });
}

Prefix advise(MemoryRange range, int advice) noexcept {
  return exact_prefix(range.data(), range.size(), arch::base_page_size(),
                      [advice](std::byte* start, std::size_t length) {
                        return system_calls().madvise(start, length, advice);
                      });
}

/// Makes a range inaccessible; how much of it is.
Prefix revoke(QuarantineMechanism mechanism, MemoryRange range) noexcept {
  switch (mechanism) {
    case QuarantineMechanism::kProtect:
      return protect(range, PROT_NONE);
    case QuarantineMechanism::kGuard:
      return advise(range, MADV_GUARD_INSTALL);
    case QuarantineMechanism::kRemap:
      break;
  }
  const int error = retried([&] {
    const void* const mapped =
        system_calls().mmap(range.data(), range.size(), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return mapped == MAP_FAILED ? -1 : 0;
  });
  return {.done = error == 0 ? range.size() : 0, .error = error};
}

/// Makes it accessible again; how much of it is.
Prefix restore(QuarantineMechanism mechanism, MemoryRange range) noexcept {
  if (mechanism == QuarantineMechanism::kGuard) return advise(range, MADV_GUARD_REMOVE);
  return protect(range, PROT_READ | PROT_WRITE);
}

/// Whether guard regions do what they should to a page of one's own.
bool guards_work() noexcept {
  const SystemCalls& calls = system_calls();
  const std::size_t page = arch::base_page_size();
  void* const mapped =
      calls.mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  auto* const bytes = static_cast<volatile unsigned char*>(mapped);
  bytes[0] = 1;
  bytes[page] = 2;
  // Populating a guarded page is EFAULT, and nothing else here is.
  const bool installed =
      retried([&] { return calls.madvise(mapped, page, MADV_GUARD_INSTALL); }) == 0;
  const bool guarded = installed && retried([&] {
                                      return calls.madvise(mapped, page, MADV_POPULATE_READ);
                                    }) == EFAULT;
  const bool removed =
      guarded && retried([&] { return calls.madvise(mapped, page, MADV_GUARD_REMOVE); }) == 0;
  // The content is only looked at where populating shows that it can be.
  const bool works =
      removed && retried([&] { return calls.madvise(mapped, page, MADV_POPULATE_READ); }) == 0 &&
      bytes[0] == 0 && bytes[page] == 2;
  // The second time is for an ENOMEM that passed; after that a spare page is all that is lost.
  if (retried([&] { return calls.munmap(mapped, 2 * page); }) != 0) {
    (void)calls.munmap(mapped, 2 * page);
  }
  return works;
}

/// A block as a signal handler may see it while others change it: a sequence lock whose fields are
/// atomics themselves.
class Slot {
 public:
  struct Content {
    std::uintptr_t begin = 0;  // 0: empty.
    std::size_t size = 0;
    std::uint64_t tag = 0;
    std::uint64_t epoch = 0;
  };

  /// One writer at a time. A reader that sees any of the new fields sees the odd version before
  /// them.
  void write(const Content& content) noexcept {
    const std::uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    begin_.store(content.begin, std::memory_order_release);
    size_.store(content.size, std::memory_order_release);
    tag_.store(content.tag, std::memory_order_release);
    epoch_.store(content.epoch, std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

  /// Nothing if the slot is empty, or changes all the time, or a handler has interrupted its
  /// writer.
  [[nodiscard]] std::optional<Content> read() const noexcept {
    constexpr int kTries = 100;
    for (int i = 0; i < kTries; ++i) {
      const std::uint32_t before = version_.load(std::memory_order_acquire);
      if (before % 2 != 0) continue;
      const Content content{.begin = begin_.load(std::memory_order_acquire),
                            .size = size_.load(std::memory_order_acquire),
                            .tag = tag_.load(std::memory_order_acquire),
                            .epoch = epoch_.load(std::memory_order_acquire)};
      if (version_.load(std::memory_order_relaxed) != before) continue;
      if (content.begin == 0) return std::nullopt;
      return content;
    }
    return std::nullopt;
  }

 private:
  std::atomic<std::uint32_t> version_{0};
  std::atomic<std::uintptr_t> begin_{0};
  std::atomic<std::size_t> size_{0};
  std::atomic<std::uint64_t> tag_{0};
  std::atomic<std::uint64_t> epoch_{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Writes text and numbers into a buffer of fixed size without the C library.
class Line {
 public:
  explicit Line(std::span<char> buffer) noexcept : buffer_(buffer) {}

  Line& text(std::string_view text) noexcept {
    for (const char c : text) put(c);
    return *this;
  }
  Line& number(std::uint64_t value, unsigned base = 10) noexcept {
    char digits[20];
    std::size_t count = 0;
    do {
      digits[count++] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    if (base == 16) text("0x");
    while (count != 0) put(digits[--count]);
    return *this;
  }
  /// Ends the line, by a newline even where it was cut.
  [[nodiscard]] std::size_t end() noexcept {
    if (buffer_.empty()) return 0;
    if (used_ == buffer_.size()) --used_;
    put('\n');
    return used_;
  }

 private:
  void put(char c) noexcept {
    if (used_ < buffer_.size()) buffer_[used_++] = c;
  }

  std::span<char> buffer_;
  std::size_t used_ = 0;
};

}  // namespace

const char* to_string(QuarantineMechanism mechanism) noexcept {
  switch (mechanism) {
    case QuarantineMechanism::kProtect:
      return "protect";
    case QuarantineMechanism::kGuard:
      return "guard";
    case QuarantineMechanism::kRemap:
      return "remap";
  }
  return "unknown";
}

std::size_t FaultExplanation::describe(std::span<char> line) const noexcept {
  return Line(line)
      .text("touchstone: use after free: address ")
      .number(address, 16)
      .text(" is ")
      .number(offset)
      .text(" bytes into a block of ")
      .number(block_size)
      .text(" bytes at ")
      .number(block, 16)
      .text(", freed in collection ")
      .number(freed_epoch)
      .text(", ")
      .number(age)
      .text(" ago, tag ")
      .number(tag, 16)
      .end();
}

struct Quarantine::State {
  std::uint64_t epochs = 0;
  std::size_t max_bytes = 0;
  std::size_t max_blocks = 0;
  std::unique_ptr<Slot[]> slots;  // A ring: `count` blocks from `first` on, oldest first.
  std::atomic<std::uint64_t> epoch{0};

  mutable std::mutex mutex;  // Guards what follows, and writing to slots.
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t bytes = 0;
  IntervalSet held;

  // The list of all quarantines, for signal handlers to walk.
  std::atomic<Quarantine*> next{nullptr};
};

/// All quarantines of the process. Handlers walk it without a lock; who leaves it waits until none
/// is within.
struct Quarantine::Registry {
  static constinit std::mutex changing;
  static constinit std::atomic<Quarantine*> head;
  static constinit std::atomic<int> readers;

  static void add(Quarantine* quarantine) noexcept {
    const std::lock_guard lock(changing);
    quarantine->state_->next.store(head.load());
    head.store(quarantine);
  }

  static void remove(const Quarantine* quarantine) noexcept {
    {
      const std::lock_guard lock(changing);
      std::atomic<Quarantine*>* link = &head;
      while (link->load() != quarantine) link = &link->load()->state_->next;
      link->store(quarantine->state_->next.load());
    }
    while (readers.load() != 0) sched_yield();
  }
};

constinit std::mutex Quarantine::Registry::changing;
constinit std::atomic<Quarantine*> Quarantine::Registry::head{nullptr};
constinit std::atomic<int> Quarantine::Registry::readers{0};

std::optional<FaultExplanation> explain_fault(const siginfo_t& info) noexcept {
  if ((info.si_signo != SIGSEGV && info.si_signo != SIGBUS) || info.si_code <= 0) {
    return std::nullopt;
  }
  using Registry = Quarantine::Registry;
  std::optional<FaultExplanation> found;
  Registry::readers.fetch_add(1);
  for (const Quarantine* each = Registry::head.load(); each != nullptr && !found;
       each = each->state_->next.load()) {
    found = each->explain(address_of(info.si_addr));
  }
  Registry::readers.fetch_sub(1);
  return found;
}

Quarantine::Quarantine(QuarantineMechanism mechanism, std::unique_ptr<State> state) noexcept
    : mechanism_(mechanism), state_(std::move(state)) {
  Registry::add(this);
}

Quarantine::~Quarantine() {
  Registry::remove(this);
}

bool Quarantine::available(QuarantineMechanism mechanism) noexcept {
  return mechanism != QuarantineMechanism::kGuard || guards_work();
}

std::size_t Quarantine::mappings_per_block(QuarantineMechanism mechanism) noexcept {
  return mechanism == QuarantineMechanism::kGuard ? 0 : 2;
}

Result<std::unique_ptr<Quarantine>> Quarantine::create(const QuarantineOptions& options) noexcept {
  constexpr const char* kOperation = "create quarantine";
  if (options.epochs == 0 || options.max_bytes == 0 || options.max_blocks == 0) {
    return std::unexpected(Error{
        .code = ErrorCode::kInvalidArgument, .operation = kOperation, .detail = "a limit is 0"});
  }
  const bool guards = (!options.mechanism || *options.mechanism == QuarantineMechanism::kGuard) &&
                      available(QuarantineMechanism::kGuard);
  if (options.mechanism == QuarantineMechanism::kGuard && !guards) {
    return std::unexpected(Error{.code = ErrorCode::kUnsupported,
                                 .operation = kOperation,
                                 .detail = "guard regions need Linux 6.13"});
  }
  const QuarantineMechanism mechanism = options.mechanism.value_or(
      guards ? QuarantineMechanism::kGuard : QuarantineMechanism::kProtect);
  const Error no_memory{.code = ErrorCode::kOutOfMemory,
                        .operation = kOperation,
                        .detail = "no memory for bookkeeping"};
  std::unique_ptr<State> state(new (std::nothrow) State);
  if (state == nullptr) return std::unexpected(no_memory);
  state->epochs = options.epochs;
  state->max_bytes = options.max_bytes;
  state->max_blocks = options.max_blocks;
  // An array too large for new[] must be an error and not its exception.
  if (options.max_blocks <= Reservation::kMaxSize / sizeof(Slot)) {
    state->slots.reset(new (std::nothrow) Slot[options.max_blocks]);
  }
  if (state->slots == nullptr) return std::unexpected(no_memory);
  std::unique_ptr<Quarantine> made(new (std::nothrow) Quarantine(mechanism, std::move(state)));
  if (made == nullptr) return std::unexpected(no_memory);
  return made;
}

Result<> Quarantine::put(MemoryRange block, std::uint64_t tag) noexcept {
  if (Result<> fine = check_pages(kPut, block, arch::base_page_size()); !fine) return fine;
  const Interval interval = interval_of(block);
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.held.intersects(interval)) {
    return range_failure(ErrorCode::kBusy, kPut, block, 0, 0, "in quarantine already: freed twice");
  }
  if (state.count == state.max_blocks || block.size() > state.max_bytes - state.bytes) {
    return range_failure(ErrorCode::kLimitExceeded, kPut, block, 0, 0,
                         block.size() > state.max_bytes ? "larger than all of the quarantine"
                                                        : "no room: release the oldest first");
  }
  if (!state.held.claim()) return no_bookkeeping(kPut, block);
  // Known before it is inaccessible, so that no fault goes unexplained.
  Slot& slot = state.slots[(state.first + state.count) % state.max_blocks];
  slot.write({.begin = interval.begin,
              .size = block.size(),
              .tag = tag,
              .epoch = state.epoch.load(std::memory_order_relaxed)});
  const Prefix revoked = revoke(mechanism_, block);
  if (revoked.error == 0) {
    ++state.count;
    state.bytes += block.size();
    state.held.insert(interval);
    return {};
  }
  slot.write({});
  state.held.insert({});
  // Back to the caller as it was. A remap that failed may have unmapped what it was to replace.
  const MemoryRange undo =
      mechanism_ == QuarantineMechanism::kRemap ? block : block.first(revoked.done);
  if (!undo.empty() && restore(mechanism_, undo).error != 0) {
    return range_failure(code_of_errno(revoked.error), kPut, block, revoked.error, revoked.done,
                         "the block may be inaccessible or unmapped in part");
  }
  return range_failure(code_of_errno(revoked.error), kPut, block, revoked.error, 0);
}

std::uint64_t Quarantine::advance() noexcept {
  return state_->epoch.fetch_add(1, std::memory_order_relaxed) + 1;
}

Result<std::optional<ReleasedBlock>> Quarantine::release_if(std::size_t room,
                                                            bool whatever_age) noexcept {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.count == 0) return std::nullopt;
  Slot& slot = state.slots[state.first];
  // Not empty, and nobody else writes.
  const Slot::Content oldest = slot.read().value_or(Slot::Content{});
  const bool old_enough =
      state.epoch.load(std::memory_order_relaxed) - oldest.epoch >= state.epochs;
  const bool in_the_way =
      room != 0 && (state.count == state.max_blocks || room > state.max_bytes - state.bytes);
  if (!whatever_age && !old_enough && !in_the_way) return std::nullopt;

  const Interval interval{oldest.begin, oldest.begin + oldest.size};
  // The address is one that put() was given.
  const MemoryRange range(
      reinterpret_cast<std::byte*>(oldest.begin),  // NOLINT(performance-no-int-to-ptr)
      oldest.size);
  if (!state.held.claim()) return no_bookkeeping(kRelease, range);
  const Prefix restored = restore(mechanism_, range);
  if (restored.error != 0) {
    state.held.erase({});
    return range_failure(kRelease, range, restored);
  }
  slot.write({});
  state.first = (state.first + 1) % state.max_blocks;
  --state.count;
  state.bytes -= oldest.size;
  state.held.erase(interval);
  return ReleasedBlock{.range = range,
                       .tag = oldest.tag,
                       .freed_epoch = oldest.epoch,
                       .zeroed = mechanism_ != QuarantineMechanism::kProtect};
}

Result<std::optional<ReleasedBlock>> Quarantine::release(std::size_t room) noexcept {
  return release_if(room, false);
}

Result<std::optional<ReleasedBlock>> Quarantine::release_any() noexcept {
  return release_if(0, true);
}

std::optional<FaultExplanation> Quarantine::explain(std::uintptr_t address) const noexcept {
  for (std::size_t i = 0; i < state_->max_blocks; ++i) {
    const std::optional<Slot::Content> block = state_->slots[i].read();
    if (!block || address - block->begin >= block->size) continue;
    return FaultExplanation{.address = address,
                            .block = block->begin,
                            .block_size = block->size,
                            .offset = address - block->begin,
                            .freed_epoch = block->epoch,
                            .age = state_->epoch.load(std::memory_order_relaxed) - block->epoch,
                            .tag = block->tag};
  }
  return std::nullopt;
}

std::uint64_t Quarantine::epoch() const noexcept {
  return state_->epoch.load(std::memory_order_relaxed);
}

std::size_t Quarantine::held_bytes() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes;
}

std::size_t Quarantine::held_blocks() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->count;
}

}  // namespace touchstone::heap
