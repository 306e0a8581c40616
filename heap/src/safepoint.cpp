// SPDX-License-Identifier: MIT
// Mutators: how they come and go, stop and go on; and the slow path of their allocations.
#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <new>
#include <span>
#include <utility>

#include <touchstone/heap/detail/heap_core.h>

#include "callback_scope.h"
#include "sanitizers.h"
#include "touching.h"

namespace touchstone::heap {
namespace detail {

namespace {
constexpr std::size_t kMostLateNamed = 16;
}

/// Detached mutators, see HeapCore::keep_detached_mutators().
class Graveyard {
 public:
  static void bury(Mutator* mutator) noexcept {
    // No core, no TLAB, and a poll takes the slow path.
    mutator->core_ = nullptr;
    mutator->safepoint_flag = 1;
    // Never destroyed: threads may detach while the process ends.
    static Graveyard* const all = new (std::nothrow) Graveyard;
    Mutator* oldest = mutator;
    if (all != nullptr) {
      const std::lock_guard lock(all->mutex_);
      oldest = std::exchange(all->graves_[all->next_++ % kGraves], mutator);
    }
    delete oldest;
  }

 private:
  static constexpr std::size_t kGraves = 64;
  std::mutex mutex_;
  std::array<Mutator*, kGraves> graves_{};
  std::size_t next_ = 0;
};

/// What everything that may wait for the end of a collection returns within one.
Result<> HeapCore::check_outside(const char* operation) const noexcept {
  if (!CallbackScope::entered(this)) return {};
  return std::unexpected(Error{.code = ErrorCode::kBusy,
                               .operation = operation,
                               .detail = "called from what the heap called"});
}

Result<MutatorPointer> HeapCore::attach(std::string_view name) noexcept {
  if (Result<> fine = check_outside("Heap::attach"); !fine) return std::unexpected(fine.error());
  MutatorPointer mutator(new (std::nothrow) Mutator(*this));
  const auto no_memory = [&] {
    delete mutator.release();
    return std::unexpected(Error{.code = ErrorCode::kOutOfMemory, .operation = "Heap::attach"});
  };
  if (!mutator) return no_memory();
  try {
    mutator->name_ = name;
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  mutator->card_table = tables_.cards;
  mutator->mark_bitmap = tables_.marks;
  mutator->alignment_mask = static_cast<std::uint32_t>(alignment_ - 1);
  std::unique_lock lock(mutex_);
  resumed_.wait(lock, [&] { return !stopping_; });
  mutator->id_ = next_id_++;
  mutator->next_ = std::exchange(mutators_, mutator.get());
  {
    const std::lock_guard space(space_mutex_);
    ++mutator_count_;
  }
  mutator->state_.store(Mutator::kRunning);
  return mutator;
}

Result<> HeapCore::detach(Mutator& mutator) noexcept {
  if (Result<> fine = check_outside("Mutator::detach"); !fine) return fine;
  if (mutator.locals != nullptr) {
    return std::unexpected(Error{
        .code = ErrorCode::kBusy, .operation = "Mutator::detach", .detail = "it still has locals"});
  }
  std::unique_lock lock(mutex_);
  wait_while_stopped(mutator, lock);
  retire_tlab(mutator);
  for (Mutator** link = &mutators_; *link != nullptr; link = &(*link)->next_) {
    if (*link != &mutator) continue;
    *link = mutator.next_;
    break;
  }
  {
    const std::lock_guard space(space_mutex_);
    --mutator_count_;
  }
  lock.unlock();
  if (keep_detached_) {
    Graveyard::bury(&mutator);
  } else {
    delete &mutator;
  }
  return {};
}

/// Where the scan of the stack begins: below the whole frame of the caller, which has the registers
/// in it that its own callers keep (__builtin_unwind_init). Inlined it would begin within that.
[[gnu::noinline]] void HeapCore::note_stack(Mutator& mutator) noexcept {
  mutator.stack_top_ = address_of(__builtin_frame_address(0));
  mutator.fake_stack_ = current_fake_stack();
}

/// Copies the frames that are gone when the native section runs: they hold what the callers had in
/// registers.
TOUCHSTONE_TOUCHES void HeapCore::keep_ending_frames(Mutator& mutator) noexcept {
  const std::size_t words =
      std::min(mutator.ending_frames_.size(),
               (mutator.stack_base_ - mutator.stack_top_) / sizeof(std::uintptr_t));
  const volatile std::uintptr_t* const from = at<const std::uintptr_t>(mutator.stack_top_);
  for (std::size_t i = 0; i < words; ++i) mutator.ending_frames_[i] = from[i];
  mutator.ending_words_ = words;
}

void HeapCore::wait_while_stopped(Mutator& mutator, std::unique_lock<std::mutex>& lock) noexcept {
  if (stopping_) {
    mutator.state_.store(Mutator::kParked);
    stopped_.notify_all();
    resumed_.wait(lock, [&] { return !stopping_; });
  }
  mutator.state_.store(Mutator::kRunning);
}

// The frames of these hold the callers' registers while they wait: they must not be inlined into
// what has ended by then.
[[gnu::noinline]] void HeapCore::poll_slow(Mutator& mutator) noexcept {
  __builtin_unwind_init();
  if (mutator.stack_base_ != 0) note_stack(mutator);
  std::unique_lock lock(mutex_);
  wait_while_stopped(mutator, lock);
}

void HeapCore::enter_native(Mutator& mutator) noexcept {
  mutator.state_.store(Mutator::kNative);
  if (__atomic_load_n(&mutator.safepoint_flag, __ATOMIC_SEQ_CST) != 0) {
    // Somebody waits for this.
    const std::lock_guard lock(mutex_);
    stopped_.notify_all();
  }
}

void HeapCore::leave_native(Mutator& mutator) noexcept {
  mutator.state_.store(Mutator::kRunning);
  if (__atomic_load_n(&mutator.safepoint_flag, __ATOMIC_SEQ_CST) != 0) {
    std::unique_lock lock(mutex_);
    wait_while_stopped(mutator, lock);
  }
  mutator.ending_words_ = 0;
}

/// Waits until all mutators but `self` stand. With the lock, which is open while waiting.
Result<> HeapCore::stop_world(Mutator* self, std::unique_lock<std::mutex>& lock) noexcept {
  stopping_ = true;
  for (Mutator* mutator = mutators_; mutator != nullptr; mutator = mutator->next_) {
    if (mutator != self) __atomic_store_n(&mutator->safepoint_flag, 1U, __ATOMIC_SEQ_CST);
  }
  const auto runs = [&](const Mutator* mutator) {
    return mutator != self && mutator->state_.load() == Mutator::kRunning;
  };
  const auto all_stand = [&] {
    for (const Mutator* mutator = mutators_; mutator != nullptr; mutator = mutator->next_) {
      if (runs(mutator)) return false;
    }
    return true;
  };
  if (options_.safepoint_timeout.count() == 0) {
    stopped_.wait(lock, all_stand);
    return {};
  }
  if (stopped_.wait_for(lock, options_.safepoint_timeout, all_stand)) return {};
  std::array<LateMutator, kMostLateNamed> late{};
  std::size_t count = 0;
  for (const Mutator* mutator = mutators_; mutator != nullptr; mutator = mutator->next_) {
    if (!runs(mutator) || count == late.size()) continue;
    late[count++] = {.id = mutator->id_, .name = mutator->name_.c_str()};
  }
  {
    const std::lock_guard space(space_mutex_);
    ++sums_.safepoint_timeouts;
  }
  if (options_.listener != nullptr) {
    options_.listener->on_safepoint_timeout(std::span(late).first(count));
  }
  resume_world();
  return std::unexpected(Error{.code = ErrorCode::kTimedOut,
                               .operation = "collect",
                               .detail = "not all mutators came to a safepoint in time; see "
                                         "HeapListener::on_safepoint_timeout"});
}

void HeapCore::resume_world() noexcept {
  stopping_ = false;
  for (Mutator* mutator = mutators_; mutator != nullptr; mutator = mutator->next_) {
    __atomic_store_n(&mutator->safepoint_flag, 0U, __ATOMIC_SEQ_CST);
  }
  resumed_.notify_all();
}

[[gnu::noinline]] Result<CollectionReport> HeapCore::collect_at_safepoint(
    Mutator* self, CollectionKind kind, CollectionCause cause, std::optional<std::uint64_t> seen,
    Result<std::size_t>* trimmed) noexcept {
  __builtin_unwind_init();
  if (Result<> fine = check_outside("collect"); !fine) return std::unexpected(fine.error());
  if (self != nullptr) {
    if (self->state_.load() != Mutator::kRunning) {
      return std::unexpected(Error{.code = ErrorCode::kBusy,
                                   .operation = "collect",
                                   .detail = "the mutator is in a native section"});
    }
    if (self->stack_base_ != 0) note_stack(*self);
  }
  std::unique_lock lock(mutex_);
  while (stopping_) {
    if (self != nullptr) {
      wait_while_stopped(*self, lock);
    } else {
      resumed_.wait(lock, [&] { return !stopping_; });
    }
  }
  if (seen && *seen != collections_) return last_report_;
  const std::uint64_t asked = now();
  const CallbackScope scope(this);
  if (Result<> stopped = stop_world(self, lock); !stopped) return std::unexpected(stopped.error());
  // Nobody changes what the lock protects while the world stands: all wait for `stopping_`.
  lock.unlock();
  const Result<> done = collect_stopped(kind, cause, now() - asked);
  if (done && trimmed != nullptr) {
    *trimmed = give_back();
    chunks_.shrink(2 * options_.workers + 2);
    if (*trimmed && options_.listener != nullptr) options_.listener->on_trim(**trimmed);
  }
  lock.lock();
  const CollectionReport report = last_report_;
  resume_world();
  if (!done) return std::unexpected(done.error());
  return report;
}

Result<CollectionReport> HeapCore::collect(Mutator* self, CollectionKind kind) noexcept {
  return collect_at_safepoint(self, kind, CollectionCause::kRequest);
}

Result<std::size_t> HeapCore::trim(Mutator* self) noexcept {
  Result<std::size_t> trimmed = std::size_t{0};
  const auto done = collect_at_safepoint(self, CollectionKind::kFull, CollectionCause::kTrim,
                                         std::nullopt, &trimmed);
  if (!done) return std::unexpected(done.error());
  if (trimmed) {
    const std::lock_guard space(space_mutex_);
    sums_.trimmed += *trimmed;
  }
  return trimmed;
}

// ---- Allocation

Address HeapCore::take_room(Mutator& mutator, std::size_t size) noexcept {
  if (size > large_object_size()) return take_large(size);
  if (size > tables_.region_size / 8) return take_medium(size);
  if (mutator.tlab_hard_end_ - mutator.tlab_top < size && !new_tlab(mutator, size)) return 0;
  open_window(mutator, size);
  const Address object = mutator.tlab_top;
  mutator.tlab_top = object + size;
  return object;
}

std::byte* HeapCore::allocate_slow(Mutator& mutator, std::size_t asked) noexcept {
  const auto fail = [&](ErrorCode code, const char* detail) -> std::byte* {
    mutator.error_ =
        Error{.code = code, .operation = "allocate", .length = asked, .detail = detail};
    return nullptr;
  };
  if (asked == 0) return fail(ErrorCode::kInvalidArgument, "an object has no bytes");
  if (mutator.native_depth_ != 0) {
    return fail(ErrorCode::kBusy, "the mutator is in a native section");
  }
  if (const Result<> fine = check_outside("allocate"); !fine) {
    return fail(fine.error().code, fine.error().detail);
  }
  const auto no_memory = [&](const char* detail) -> std::byte* {
    {
      const std::lock_guard space(space_mutex_);
      ++sums_.out_of_memory;
    }
    if (options_.listener != nullptr) {
      const CallbackScope scope(this);
      options_.listener->on_out_of_memory(asked);
    }
    return fail(ErrorCode::kOutOfMemory, detail);
  };
  if (asked > options_.max_size) return no_memory("larger than the heap");
  const std::size_t size = round_up(asked, alignment_);
  for (std::uint64_t left = fail_allocation_.load(); left != 0;) {
    if (!fail_allocation_.compare_exchange_weak(left, left - 1)) continue;
    if (left == 1) return no_memory("a failure that was asked for");
    break;
  }
  mutator.poll();
  if (options_.stress_interval != 0 && stress_left_.fetch_sub(1) == 1) {
    stress_left_.store(options_.stress_interval);
    const bool full = (++stress_turn_ & 1U) == 0;
    const auto done = collect_at_safepoint(
        &mutator, full ? CollectionKind::kFull : CollectionKind::kYoung, CollectionCause::kStress);
    if (!done) {
      mutator.error_ = done.error();
      return nullptr;
    }
  }
  for (unsigned tries = 0; tries < 3;) {
    std::uint64_t seen = 0;
    bool full = false;
    {
      const std::lock_guard lock(mutex_);
      seen = collections_;
    }
    if (const Address object = take_room(mutator, size); object != 0) {
      return at<std::byte>(object);
    }
    {
      const std::lock_guard space(space_mutex_);
      full = full_wanted_ || tries > 0;
    }
    const CollectionCause cause = tries == 2   ? CollectionCause::kNoRoom
                                  : tries == 1 ? CollectionCause::kOccupancy
                                  : full       ? CollectionCause::kOccupancy
                                               : CollectionCause::kAllocation;
    const auto done = collect_at_safepoint(
        &mutator, full ? CollectionKind::kFull : CollectionKind::kYoung, cause, seen);
    if (!done) {
      mutator.error_ = done.error();
      return nullptr;
    }
    // Another mutator's collection counts as well, and what it freed may be gone again.
    if (done->number == seen + 1) ++tries;
  }
  if (const Address object = take_room(mutator, size); object != 0) return at<std::byte>(object);
  return no_memory("no room after a full collection");
}

}  // namespace detail

// ---- Mutator

std::byte* Mutator::allocate_slow(std::size_t size) noexcept {
  return core_->allocate_slow(*this, size);
}
void Mutator::poll_slow() noexcept {
  // In a native section nobody waits for this thread.
  if (native_depth_ == 0 && !detail::CallbackScope::entered(core_)) core_->poll_slow(*this);
}
void Mutator::enter_native() noexcept {
  __builtin_unwind_init();
  if (native_depth_++ != 0) return;
  if (stack_base_ != 0) {
    detail::HeapCore::note_stack(*this);
    detail::HeapCore::keep_ending_frames(*this);
  }
  core_->enter_native(*this);
}
void Mutator::leave_native() noexcept {
  if (native_depth_ == 0) return;
  --native_depth_;
  if (native_depth_ != 0) return;
  core_->leave_native(*this);
}
bool Mutator::in_native() const noexcept {
  return state_.load(std::memory_order_relaxed) == kNative;
}

void Mutator::add_roots(const RootCallback& callback) {
  callbacks_.push_back(callback);
}
bool Mutator::remove_roots(const RootCallback& callback) noexcept {
  const auto found = std::ranges::find(callbacks_, callback);
  if (found == callbacks_.end()) return false;
  callbacks_.erase(found);
  return true;
}

Result<> Mutator::detach(MutatorPointer& mutator) noexcept {
  Result<> done = mutator->core_->detach(*mutator);
  if (done) static_cast<void>(mutator.release());
  return done;
}

void MutatorDetach::operator()(Mutator* mutator) const noexcept {
  detail::HeapCore& core = *mutator->core_;
  if (core.detach(*mutator)) return;
  mutator->enter_native();
  if (core.options().listener != nullptr) {
    core.options().listener->on_abandoned_mutator(mutator->id());
  }
}

}  // namespace touchstone::heap
