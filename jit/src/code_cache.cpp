// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/instruction_set.h>

#include "code_mapping.h"
#include "code_space.h"
#include "code_synchroniser.h"
#include "debugger.h"
#include "perf_map.h"

namespace touchstone::jit {
namespace {

constexpr bool kA64 = kHostInstructionSet == InstructionSet::kA64;

/// Fills with instructions that trap: UDF #0 on arm64, INT3 on x86-64.
void fill_with_traps(std::byte* start, std::size_t size) noexcept {
  std::memset(start, kA64 ? 0x00 : 0xcc, size);
}

Error cache_error(ErrorCode code, const char* operation, const void* address, std::size_t length,
                  const char* detail) noexcept {
  return {.code = code,
          .operation = operation,
          .address = reinterpret_cast<std::uintptr_t>(address),
          .length = length,
          .detail = detail};
}

/// Seen by a thread that is offline: it holds back nothing.
constexpr std::uint64_t kOffline = ~std::uint64_t{0};

}  // namespace

/// Written by its thread, read by whoever reclaims. Of its own cache line.
struct alignas(64) CodeThread::Slot {
  /// The epoch in which the thread was last known to hold no code, or kOffline.
  std::atomic<std::uint64_t> seen{0};
};

struct CodeCache::State {
  struct Block {
    std::size_t size = 0;
    std::size_t code_size = 0;
    bool published = false;
    bool publishing = false;
    std::unique_ptr<DebuggerEntry> debugger;
  };
  struct Retired {
    std::uint64_t epoch = 0;
    std::size_t offset = 0;
    std::size_t size = 0;
  };

  State(const CodeCacheOptions& given, CodeMapping mapped, CodeSynchronisation way)
      : options(given),
        mapping(std::move(mapped)),
        synchroniser(given.synchronisation, way),
        space(mapping.capacity()) {
    // The first line stays empty: compilers' checks of indirect calls (-fsanitize=function) read
    // what lies before a function.
    space.take(kCodeAlignment);
  }

  [[nodiscard]] Result<> check_not_forked(const char* operation) const noexcept {
    if (!mapping.is_forked()) return {};
    return std::unexpected(cache_error(ErrorCode::kFrozen, operation, mapping.executable(0),
                                       mapping.capacity(), "the memory is the parent's too"));
  }
  [[nodiscard]] bool contains(const void* address) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto start = reinterpret_cast<std::uintptr_t>(mapping.executable(0));
    return at >= start && at < start + mapping.capacity();
  }
  [[nodiscard]] std::size_t offset_of(const void* address) const noexcept {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - mapping.executable(0));
  }
  /// The block that starts at `address`, or end().
  [[nodiscard]] auto find(const void* address) {
    return contains(address) ? blocks.find(offset_of(address)) : blocks.end();
  }

  /// Flushes what was written, with the pages readable meanwhile where they are not otherwise.
  /// Under `mutex` where code is execute-only, or two publications in one page would undo each
  /// other.
  template <typename Then>
  [[nodiscard]] Result<> flush_then(std::size_t offset, std::size_t size, Then&& then) noexcept {
    const bool toggle = kA64 && options.execute_only;
    if (toggle) {
      if (Result<> opened = mapping.set_readable(offset, size, true); !opened) return opened;
    }
    flush_code(mapping.writable(offset), mapping.executable(offset), size);
    Result<> done = then();
    if (toggle) {
      const Result<> closed = mapping.set_readable(offset, size, false);
      if (done && !closed) done = closed;
    }
    return done;
  }

  std::size_t reclaim() {
    std::uint64_t oldest = kOffline;
    for (const auto& thread : threads) {
      oldest = std::min(oldest, thread->seen.load(std::memory_order_acquire));
    }
    std::size_t freed = 0;
    while (!retired.empty() && retired.front().epoch <= oldest) {
      const Retired block = retired.front();
      retired.pop_front();
      fill_with_traps(mapping.writable(block.offset), block.size);
      if (!options.execute_only) {
        flush_code(mapping.writable(block.offset), mapping.executable(block.offset), block.size);
      }
      space.give(block.offset, block.size);
      retired_bytes -= block.size;
      freed += block.size;
    }
    return freed;
  }

  /// Has a published block reused when every thread has left it.
  [[nodiscard]] Result<> retire(std::map<std::size_t, Block>::iterator found) {
    // Threads that pass a quiescent point from now on see this epoch, and with it whatever the
    // caller did before to make the code unreachable.
    const std::uint64_t now = epoch.fetch_add(1, std::memory_order_acq_rel) + 1;
    try {
      retired.push_back({.epoch = now, .offset = found->first, .size = found->second.size});
    } catch (const std::bad_alloc&) {
      return std::unexpected(
          Error{.code = ErrorCode::kOutOfMemory, .operation = "CodeCache::release"});
    }
    used -= found->second.size;
    retired_bytes += found->second.size;
    blocks.erase(found);
    reclaim();
    return {};
  }

  /// Forgets a block that nothing can have reached.
  void drop(std::size_t offset) {
    const auto found = blocks.find(offset);
    fill_with_traps(mapping.writable(offset), found->second.size);
    space.give(offset, found->second.size);
    used -= found->second.size;
    blocks.erase(found);
  }

  CodeCacheOptions options;
  CodeMapping mapping;
  CodeSynchroniser synchroniser;
  mutable std::mutex mutex;
  CodeSpace space;
  std::map<std::size_t, Block> blocks;
  std::deque<Retired> retired;
  std::vector<std::shared_ptr<CodeThread::Slot>> threads;
  std::atomic<std::uint64_t> epoch{1};
  std::size_t used = 0;
  std::size_t retired_bytes = 0;
  std::size_t high_water = 0;
  std::size_t functions = 0;
  std::uint64_t publications = 0;
};

CodeCache::CodeCache(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
CodeCache::~CodeCache() {
  if (!state_->mapping.is_forked()) return;
  // The debuggers' list is guarded by a lock that another thread of the parent may have held; the
  // entries live as long as the child does.
  for (auto& [offset, block] : state_->blocks) [[maybe_unused]]
    const DebuggerEntry* kept = block.debugger.release();
}

Result<std::unique_ptr<CodeCache>> CodeCache::create(const CodeCacheOptions& options) {
  const Result<CodeSynchronisation> way = CodeSynchroniser::probe(options.synchronisation);
  if (!way) return std::unexpected(way.error());
  Result<CodeMapping> mapping = CodeMapping::create({.capacity = options.capacity,
                                                     .execute_only = options.execute_only,
                                                     .seal = options.seal,
                                                     .huge_pages = options.huge_pages});
  if (!mapping) return std::unexpected(mapping.error());
  try {
    return std::unique_ptr<CodeCache>(
        new CodeCache(std::make_unique<State>(options, *std::move(mapping), *way)));
  } catch (const std::bad_alloc&) {
    return std::unexpected(
        Error{.code = ErrorCode::kOutOfMemory, .operation = "CodeCache::create"});
  }
}

Result<CodePlace> CodeCache::reserve(std::size_t size) {
  State& state = *state_;
  if (Result<> usable = state.check_not_forked("CodeCache::reserve"); !usable) {
    return std::unexpected(usable.error());
  }
  if (size == 0) {
    return std::unexpected(cache_error(ErrorCode::kInvalidArgument, "CodeCache::reserve", nullptr,
                                       0, "no bytes of code are none to reserve"));
  }
  const auto full = [&] {
    return std::unexpected(cache_error(ErrorCode::kOutOfMemory, "CodeCache::reserve",
                                       state.mapping.executable(0), state.mapping.capacity(),
                                       "the code cache is full"));
  };
  if (size > state.mapping.capacity()) return full();
  const std::size_t whole = (size + kCodeAlignment - 1) / kCodeAlignment * kCodeAlignment;
  const std::scoped_lock lock(state.mutex);
  state.reclaim();
  const std::optional<std::size_t> offset = state.space.take(whole);
  if (!offset) return full();
  if (Result<> populated = state.mapping.populate(*offset + whole); !populated) {
    state.space.give(*offset, whole);
    return std::unexpected(populated.error());
  }
  try {
    state.blocks.emplace(*offset, State::Block{.size = whole, .debugger = nullptr});
  } catch (const std::bad_alloc&) {
    state.space.give(*offset, whole);
    return std::unexpected(
        Error{.code = ErrorCode::kOutOfMemory, .operation = "CodeCache::reserve"});
  }
  // Fresh memory reads as zero, which is an instruction on x86-64.
  fill_with_traps(state.mapping.writable(*offset), whole);
  state.used += whole;
  state.high_water = std::max(state.high_water, *offset + whole);
  return CodePlace{.address = state.mapping.executable(*offset), .size = whole};
}

Result<> CodeCache::publish(const CodePlace& place, std::span<const std::byte> code,
                            std::string_view name, std::atomic<const void*>* slot) {
  State& state = *state_;
  if (Result<> usable = state.check_not_forked("CodeCache::publish"); !usable) return usable;
  std::unique_lock lock(state.mutex);
  const auto found = state.find(place.address);
  if (found == state.blocks.end() || found->second.published || found->second.publishing) {
    return std::unexpected(cache_error(ErrorCode::kInvalidArgument, "CodeCache::publish",
                                       place.address, code.size(),
                                       "the place is not reserved, or published already"));
  }
  const std::size_t offset = found->first;
  State::Block& block = found->second;
  if (code.empty() || code.size() > block.size) {
    const Error error =
        cache_error(ErrorCode::kOutOfRange, "CodeCache::publish", place.address, code.size(),
                    code.empty() ? "there is no code" : "the code is longer than its place");
    state.drop(offset);
    return std::unexpected(error);
  }
  block.publishing = true;
  // The slow part leaves the lock to others; `publishing` keeps the block as it is.
  const bool keep_lock = kA64 && state.options.execute_only;
  if (!keep_lock) lock.unlock();

  std::unique_ptr<DebuggerEntry> debugger;
  bool reachable = false;
  const void* before = nullptr;
  Result<> done = [&]() -> Result<> {
    if (state.options.debugger) {
      auto entry = DebuggerEntry::create(place.address, code.size(), name);
      if (!entry) return std::unexpected(entry.error());
      debugger = *std::move(entry);
    }
    if (state.options.perf_map) {
      if (Result<> named = append_to_perf_map(place.address, code.size(), name); !named) {
        return named;
      }
    }
    std::memcpy(state.mapping.writable(offset), code.data(), code.size());
    return state.flush_then(offset, block.size, [&]() -> Result<> {
      if (Result<> seen = state.synchroniser.synchronise(); !seen) return seen;
      if (slot != nullptr) {
        before = slot->exchange(place.address, std::memory_order_acq_rel);
        reachable = true;
      }
      return {};
    });
  }();

  if (!keep_lock) lock.lock();
  if (!done) {
    if (!reachable) {
      state.drop(offset);
      return done;
    }
    // The code is whole and threads may be in it, but its read permission could not be dropped.
    const void* published = place.address;
    slot->compare_exchange_strong(published, before, std::memory_order_acq_rel);
    const Result<> retired = state.retire(state.blocks.find(offset));
    return retired ? done : retired;
  }
  block.publishing = false;
  block.published = true;
  block.code_size = code.size();
  block.debugger = std::move(debugger);
  ++state.functions;
  ++state.publications;
  return {};
}

Result<const void*> CodeCache::add(std::span<const std::byte> code, std::string_view name,
                                   std::atomic<const void*>* slot) {
  const Result<CodePlace> place = reserve(code.size());
  if (!place) return std::unexpected(place.error());
  if (Result<> published = publish(*place, code, name, slot); !published) {
    return std::unexpected(published.error());
  }
  return static_cast<const void*>(place->address);
}

Result<> CodeCache::release(const void* address) {
  State& state = *state_;
  if (Result<> usable = state.check_not_forked("CodeCache::release"); !usable) return usable;
  const std::scoped_lock lock(state.mutex);
  const auto found = state.find(address);
  if (found == state.blocks.end() || found->second.publishing) {
    return std::unexpected(cache_error(ErrorCode::kInvalidArgument, "CodeCache::release", address,
                                       0, "no place of this cache starts at the address"));
  }
  if (!found->second.published) {
    state.drop(found->first);
    return {};
  }
  if (Result<> retired = state.retire(found); !retired) return retired;
  --state.functions;
  return {};
}

Result<std::size_t> CodeCache::reclaim() {
  State& state = *state_;
  if (Result<> usable = state.check_not_forked("CodeCache::reclaim"); !usable) {
    return std::unexpected(usable.error());
  }
  const std::scoped_lock lock(state.mutex);
  return state.reclaim();
}

namespace {

/// x86-64: three bytes of no-operation bring the displacement to a multiple of 4.
constexpr std::size_t kX86JumpSite = 3;

/// A direct branch, and the word that says where to.
struct Branch {
  std::size_t word_offset = 0;
  std::uint32_t word = 0;
};

Result<Branch> encode_branch(const std::byte* site, std::size_t site_offset, std::uint32_t old_word,
                             const void* target) noexcept {
  const auto far = [&] {
    return std::unexpected(cache_error(ErrorCode::kOutOfRange, "CodeCache::patch_branch", site, 0,
                                       "the target is too far for a direct branch"));
  };
  const auto from = reinterpret_cast<std::intptr_t>(site);
  const auto to = reinterpret_cast<std::intptr_t>(target);
  if constexpr (kA64) {
    const std::intptr_t distance = to - from;
    constexpr std::intptr_t kReach = std::intptr_t{1} << 27;
    if (distance < -kReach || distance >= kReach) return far();
    // The opcode stays: B or BL. imm26 counts words.
    const std::uint32_t word =
        (old_word & 0xFC000000U) | (static_cast<std::uint32_t>(distance >> 2) & 0x03FFFFFFU);
    return Branch{.word_offset = site_offset, .word = word};
  }
  const std::intptr_t distance = to - (from + 5);
  if (distance < INT32_MIN || distance > INT32_MAX) return far();
  return Branch{.word_offset = site_offset + 1, .word = static_cast<std::uint32_t>(distance)};
}

}  // namespace

Result<const void*> CodeCache::add_jump(const void* target, std::string_view name) {
  const Result<CodePlace> place = reserve(8);
  if (!place) return std::unexpected(place.error());
  // arm64: BTI c; B. x86-64: NOP of 3 bytes; JMP rel32.
  std::array<std::byte, 8> code{};
  constexpr std::array<std::uint32_t, 2> kA64Words{0xD503245F, 0x14000000};
  constexpr std::array<std::uint8_t, 8> kX86Bytes{0x0f, 0x1f, 0x00, 0xe9, 0, 0, 0, 0};
  if constexpr (kA64) {
    std::memcpy(code.data(), kA64Words.data(), code.size());
  } else {
    std::memcpy(code.data(), kX86Bytes.data(), code.size());
  }
  constexpr std::size_t kSite = kA64 ? 4 : kX86JumpSite;
  const Result<Branch> branch =
      encode_branch(place->address + kSite, kSite, kA64 ? kA64Words[1] : 0U, target);
  if (!branch) {
    const Result<> undone = release(place->address);
    return std::unexpected(undone ? branch.error() : undone.error());
  }
  std::memcpy(code.data() + branch->word_offset, &branch->word, sizeof branch->word);
  if (Result<> published = publish(*place, code, name); !published) {
    return std::unexpected(published.error());
  }
  return static_cast<const void*>(place->address);
}

Result<> CodeCache::patch_branch(const void* site, const void* target) {
  State& state = *state_;
  if (Result<> usable = state.check_not_forked("CodeCache::patch_branch"); !usable) return usable;
  const std::scoped_lock lock(state.mutex);
  const auto invalid = [&](ErrorCode code, const char* detail) {
    return std::unexpected(cache_error(code, "CodeCache::patch_branch", site, 0, detail));
  };
  if (!state.contains(site)) return invalid(ErrorCode::kInvalidArgument, "not in this cache");
  std::size_t offset = state.offset_of(site);
  auto block = state.blocks.upper_bound(offset);
  if (block == state.blocks.begin()) {
    return invalid(ErrorCode::kInvalidArgument, "not in published code");
  }
  --block;
  const std::size_t code_end = block->first + block->second.code_size;
  if (!block->second.published || offset >= code_end) {
    return invalid(ErrorCode::kInvalidArgument, "not in published code");
  }
  if (offset == block->first) {
    // The start of a jump that add_jump() made: the branch follows its landing pad.
    const std::byte* start = state.mapping.writable(offset);
    std::uint32_t head = 0;
    std::memcpy(&head, start, sizeof head);
    if (kA64 ? head == 0xD503245FU : head == 0xE9001F0FU) offset += kA64 ? 4 : kX86JumpSite;
  }
  const std::size_t length = kA64 ? 4 : 5;
  if (offset + length > code_end) return invalid(ErrorCode::kInvalidArgument, "no direct branch");
  std::byte* writable = state.mapping.writable(offset);
  std::uint32_t old_word = 0;
  if constexpr (kA64) {
    if (offset % 4 != 0) return invalid(ErrorCode::kMisaligned, "not at an instruction");
    std::memcpy(&old_word, writable, sizeof old_word);
    if ((old_word & 0x7C000000U) != 0x14000000U) {
      return invalid(ErrorCode::kInvalidArgument, "neither B nor BL");
    }
    if (reinterpret_cast<std::uintptr_t>(target) % 4 != 0) {
      return invalid(ErrorCode::kMisaligned, "the target is not at an instruction");
    }
  } else {
    if (*writable != std::byte{0xe8} && *writable != std::byte{0xe9}) {
      return invalid(ErrorCode::kInvalidArgument,
                     "neither CALL nor JMP with a 32-bit displacement");
    }
    if ((offset + 1) % 4 != 0) {
      return invalid(ErrorCode::kMisaligned, "the displacement is not at a multiple of 4");
    }
  }
  const Result<Branch> branch =
      encode_branch(state.mapping.executable(offset), offset, old_word, target);
  if (!branch) return std::unexpected(branch.error());
  auto* word = reinterpret_cast<std::uint32_t*>(state.mapping.writable(branch->word_offset));
  std::atomic_ref(*word).store(branch->word, std::memory_order_release);
  return state.flush_then(branch->word_offset, sizeof(std::uint32_t),
                          [&] { return state.synchroniser.synchronise(); });
}

bool CodeCache::contains(const void* address) const noexcept {
  return state_->contains(address);
}

Result<std::span<const std::byte>> CodeCache::code_at(const void* address) const {
  State& state = *state_;
  if (state.options.execute_only) {
    return std::unexpected(cache_error(ErrorCode::kNotPermitted, "CodeCache::code_at", address, 0,
                                       "the code is execute-only"));
  }
  if (Result<> usable = state.check_not_forked("CodeCache::code_at"); !usable) {
    return std::unexpected(usable.error());
  }
  const std::scoped_lock lock(state.mutex);
  const auto found = state.find(address);
  if (found == state.blocks.end() || !found->second.published) {
    return std::unexpected(cache_error(ErrorCode::kInvalidArgument, "CodeCache::code_at", address,
                                       0, "no published function starts at the address"));
  }
  return std::span<const std::byte>(state.mapping.executable(found->first),
                                    found->second.code_size);
}

CodeCacheStatistics CodeCache::statistics() const {
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  return {.capacity = state.mapping.capacity(),
          .used = state.used,
          .retired = state.retired_bytes,
          .high_water = state.high_water,
          .huge = state.mapping.huge(),
          .functions = state.functions,
          .publications = state.publications,
          .visits_cpus = state.synchroniser.visits_cpus()};
}

// ---- Threads ----

CodeThread::CodeThread(CodeCache* cache, std::shared_ptr<Slot> slot) noexcept
    : cache_(cache), slot_(std::move(slot)) {}

Result<CodeThread> CodeThread::attach(CodeCache& cache) {
  CodeCache::State& state = *cache.state_;
  if (Result<> usable = state.check_not_forked("CodeThread::attach"); !usable) {
    return std::unexpected(usable.error());
  }
  try {
    auto slot = std::make_shared<Slot>();
    const std::scoped_lock lock(state.mutex);
    slot->seen.store(state.epoch.load(std::memory_order_relaxed), std::memory_order_relaxed);
    state.threads.push_back(slot);
    return CodeThread(&cache, std::move(slot));
  } catch (const std::bad_alloc&) {
    return std::unexpected(
        Error{.code = ErrorCode::kOutOfMemory, .operation = "CodeThread::attach"});
  }
}

CodeThread::CodeThread(CodeThread&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), slot_(std::move(other.slot_)) {}

CodeThread& CodeThread::operator=(CodeThread&& other) noexcept {
  if (this != &other) {
    detach();
    cache_ = std::exchange(other.cache_, nullptr);
    slot_ = std::move(other.slot_);
  }
  return *this;
}

CodeThread::~CodeThread() {
  detach();
}

void CodeThread::detach() noexcept {
  if (cache_ == nullptr) return;
  CodeCache::State& state = *cache_->state_;
  // In a forked child another thread may have held the lock, and nothing is reused there anyway.
  if (!state.mapping.is_forked()) {
    const std::scoped_lock lock(state.mutex);
    std::erase(state.threads, slot_);
  }
  cache_ = nullptr;
}

void CodeThread::quiesce() noexcept {
  // Acquire: slots loaded from here on are those of this epoch or later. Release: the code run
  // before is left before the epoch is seen.
  const std::uint64_t epoch = cache_->state_->epoch.load(std::memory_order_acquire);
  slot_->seen.store(epoch, std::memory_order_release);
}

void CodeThread::offline() noexcept {
  slot_->seen.store(kOffline, std::memory_order_release);
}

void CodeThread::online() noexcept {
  CodeCache::State& state = *cache_->state_;
  if (state.mapping.is_forked()) return;
  // Under the lock: whoever reclaims either sees this thread online, or has made what it reclaims
  // unreachable before.
  const std::scoped_lock lock(state.mutex);
  slot_->seen.store(state.epoch.load(std::memory_order_acquire), std::memory_order_release);
}

}  // namespace touchstone::jit
