// SPDX-License-Identifier: MIT
// The order of a collection's steps, sizing, roots, and what the heap tells about itself.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/detail/heap_core.h>

#include "callback_scope.h"
#include "probes.h"
#include "sanitizers.h"

namespace touchstone::heap::detail {
namespace {

constexpr std::size_t index_of(RegionKind kind) noexcept {
  return static_cast<std::size_t>(kind);
}

bool is_young_kind(RegionKind kind) noexcept {
  return kind == RegionKind::kEden || kind == RegionKind::kSurvivor;
}

}  // namespace

HeapCore::HeapCore(const HeapOptions& options, std::size_t alignment) noexcept
    : alignment_(alignment),
      options_(options),
      gang_(options.workers != 0 ? options.workers : std::min(arch::usable_cpus(), 16U)) {
  if (options_.workers == 0) options_.workers = std::min(arch::usable_cpus(), 16U);
  stress_left_.store(options_.stress_interval);
}

HeapCore::~HeapCore() {
  if (root_region_) undeclare_root_region(reservation_.data(), reservation_.range().size());
}

Result<> HeapCore::create() noexcept {
  try {
    if (Result<> fine = check_options(); !fine) return fine;
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfMemory, .operation = "Heap::create"});
  }
  if (Result<> reserved = reserve(); !reserved) return reserved;
  // Enough for every worker to make some progress, whatever happens.
  WorkChunk* chunks = nullptr;
  for (unsigned i = 0; i < 2 * options_.workers + 2; ++i) {
    WorkChunk* const chunk = chunks_.take();
    if (chunk == nullptr) break;
    chunk->next = std::exchange(chunks, chunk);
  }
  const bool some = chunks != nullptr;
  while (chunks != nullptr) chunks_.give(std::exchange(chunks, chunks->next));
  std::unique_lock lock(space_mutex_);
  if (!some || !grow(lock, 1)) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfMemory, .operation = "Heap::create"});
  }
  target_ = options_.initial_size;
  reserve_regions_ = std::max<std::size_t>(1, total_regions_ / 64);
  lock.unlock();
  resize(false);
  last_end_ns_ = created_ns_ = now();
  return {};
}

void HeapCore::end() noexcept {
  // The mutators' memory is the heap's; what the embedder left attached goes with it.
  while (mutators_ != nullptr) {
    Mutator* const mutator = std::exchange(mutators_, mutators_->next_);
    delete mutator;
  }
}

std::uint64_t HeapCore::now() const noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

FastPathLayout HeapCore::fast_path_layout() const noexcept {
  return {.tlab_top_offset = offsetof(MutatorBlock, tlab_top),
          .object_alignment = static_cast<std::uint32_t>(alignment_),
          .max_tlab_object = static_cast<std::uint32_t>(tables_.region_size / 8),
          .max_young_object = static_cast<std::uint32_t>(large_object_size()),
          .card_table_offset = offsetof(MutatorBlock, card_table),
          .card_shift = Mutator::kCardShift,
          .dirty_card = Mutator::kDirtyCard,
          .clean_card = Mutator::kCleanCard,
          .mark_bitmap_offset = offsetof(MutatorBlock, mark_bitmap),
          .mark_shift = static_cast<std::uint8_t>(tables_.mark_shift),
          .safepoint_flag_offset = offsetof(MutatorBlock, safepoint_flag)};
}

// ---- Roots

Result<> HeapCore::add_roots(const RootCallback& callback) noexcept {
  if (Result<> fine = check_outside("Heap::add_roots"); !fine) return fine;
  const std::lock_guard lock(mutex_);
  try {
    callbacks_.push_back(callback);
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfMemory, .operation = "Heap::add_roots"});
  }
  return {};
}

bool HeapCore::remove_roots(const RootCallback& callback) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(callbacks_, callback);
  if (found == callbacks_.end()) return false;
  callbacks_.erase(found);
  return true;
}

RootNode::RootNode(HeapCore& heap, std::uintptr_t value, bool weak) noexcept
    : value_(value), heap_(&heap), weak_(weak) {
  const std::lock_guard lock(heap.mutex_);
  RootNode*& first = weak ? heap.weak_roots_ : heap.strong_roots_;
  next_ = first;
  if (first != nullptr) first->previous_ = this;
  first = this;
}

RootNode::~RootNode() {
  const std::lock_guard lock(heap_->mutex_);
  RootNode*& first = weak_ ? heap_->weak_roots_ : heap_->strong_roots_;
  (previous_ != nullptr ? previous_->next_ : first) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

void HeapCore::visit_roots(RootVisitor& visitor) noexcept {
  // One claim is a callback, a mutator, or a list.
  const auto claim = [&] { return work_.next_root.fetch_add(1, std::memory_order_relaxed); };
  std::size_t mine = claim();
  std::size_t turn = 0;
  const auto is_mine = [&] {
    if (turn++ != mine) return false;
    mine = claim();
    return true;
  };
  for (const RootCallback& callback : callbacks_) {
    if (is_mine()) callback.visit_roots(visitor, callback.context);
  }
  for (Mutator* mutator = mutators_; mutator != nullptr; mutator = mutator->next_) {
    if (!is_mine()) continue;
    for (LocalBase* local = mutator->locals; local != nullptr; local = local->previous_) {
      visitor.visit(&local->value_);
    }
    for (const RootCallback& callback : mutator->callbacks_) {
      callback.visit_roots(visitor, callback.context);
    }
    if (mutator->stack_base_ != 0 && mutator->stack_top_ != 0) {
      visitor.visit_ambiguous(at<void>(mutator->stack_top_), at<void>(mutator->stack_base_));
      visitor.visit_ambiguous(mutator->ending_frames_.data(),
                              mutator->ending_frames_.data() + mutator->ending_words_);
      if (mutator->fake_stack_ != nullptr) visit_fake_frames(visitor, *mutator);
    }
  }
  if (is_mine()) each_node(strong_roots_, [&](Address& value) { visitor.visit(&value); });
  if (is_mine()) {
    for (Finalizable& each : finalizable_) visitor.visit(&each.object);
  }
}

// Reads whatever lies on a stack.
__attribute__((no_sanitize("address", "thread"))) void HeapCore::visit_fake_frames(
    RootVisitor& visitor, const Mutator& mutator) noexcept {
  for (Address place = round_up(mutator.stack_top_, 8); place + 8 <= mutator.stack_base_;
       place += 8) {
    const Address word = *at<const volatile AliasedWord>(place);
    if (const auto frame = fake_frame(mutator.fake_stack_, word); frame.begin != nullptr) {
      visitor.visit_ambiguous(frame.begin, frame.end);
    }
  }
}

void HeapCore::reset_claims() noexcept {
  work_.next_root.store(0, std::memory_order_relaxed);
  work_.next_region.store(0, std::memory_order_relaxed);
}

Address HeapCore::claim_region() noexcept {
  const std::size_t index = work_.next_region.fetch_add(1, std::memory_order_relaxed);
  return index < work_.regions ? region_address(index) : 0;
}

Result<> HeapCore::add_finalizer(void* object, std::uint32_t priority, void* context) noexcept {
  if (Result<> fine = check_outside("Heap::add_finalizer"); !fine) return fine;
  const std::lock_guard lock(mutex_);
  try {
    finalizable_.reserve(finalizable_.size() + finalizers_.size() + 1);
    finalizers_.push_back({.object = address_of(object), .priority = priority, .context = context});
  } catch (const std::bad_alloc&) {
    return std::unexpected(
        Error{.code = ErrorCode::kOutOfMemory, .operation = "Heap::add_finalizer"});
  }
  return {};
}

std::optional<HeapCore::Finalization> HeapCore::next_finalizable() noexcept {
  const std::lock_guard lock(mutex_);
  const auto first = std::ranges::min_element(finalizable_, {}, &Finalizable::priority);
  if (first == finalizable_.end()) return std::nullopt;
  const Finalization next{.object = at<void>(first->object), .context = first->context};
  finalizable_.erase(first);
  return next;
}

std::size_t HeapCore::finalizable_count() const noexcept {
  const std::lock_guard lock(mutex_);
  return finalizable_.size();
}

// ---- Collection

void HeapCore::gang_task(void* core, unsigned worker) noexcept {
  auto& heap = *static_cast<HeapCore*>(core);
  const CallbackScope scope(&heap);
  heap.run_phase(heap.phase_, worker);
}

void HeapCore::run(Phase phase) noexcept {
  phase_ = phase;
  share_.reset(work_.workers);
  work_.regions = committed_regions_;
  reset_claims();
  gang_.run(work_.workers, &HeapCore::gang_task, this);
}

void HeapCore::run_serial(Phase phase) noexcept {
  share_.reset(1);
  work_.regions = committed_regions_;
  reset_claims();
  run_phase(phase, 0);
}

namespace {
/// Notes the words that may be addresses in the heap.
class AmbiguousWords final : public RootVisitor {
 public:
  AmbiguousWords(std::vector<Address>& words, Address begin, Address end)
      : words_(words), begin_(begin), end_(end) {}
  [[nodiscard]] bool lost() const noexcept { return lost_; }

  void visit(void* /*slot*/) noexcept override {}
  // Reads whatever lies on a stack, between the sanitizer's red zones too.
  __attribute__((no_sanitize("address", "thread"))) void visit_ambiguous(
      const void* begin, const void* end) noexcept override {
    const Address last = address_of(end);
    for (Address at_word = round_up(address_of(begin), 8); at_word + 8 <= last; at_word += 8) {
      const Address word = *at<const volatile AliasedWord>(at_word);
      if (word - begin_ >= end_ - begin_) continue;
      try {
        words_.push_back(word);
      } catch (const std::bad_alloc&) {
        lost_ = true;
      }
    }
  }

 private:
  std::vector<Address>& words_;
  Address begin_;
  Address end_;
  bool lost_ = false;
};
}  // namespace

bool HeapCore::gather_ambiguous() noexcept {
  ambiguous_.clear();
  AmbiguousWords words(ambiguous_, tables_.base, committed_end());
  reset_claims();
  visit_roots(words);
  std::ranges::sort(ambiguous_);
  ambiguous_.erase(std::ranges::unique(ambiguous_).begin(), ambiguous_.end());
  return !words.lost();
}

std::size_t HeapCore::used_bytes() const noexcept {
  return (committed_regions_ - free_regions_) * tables_.region_size;
}

void HeapCore::report_violation(const char* what, Address object, Address field,
                                Address value) noexcept {
  ++work_.violations;
  if (options_.listener != nullptr) {
    options_.listener->on_violation({.what = what,
                                     .object = object,
                                     .field = field,
                                     .value = value,
                                     .collection = collections_});
  }
}

Result<> HeapCore::collect_stopped(CollectionKind kind, CollectionCause cause,
                                   std::uint64_t stop_ns) noexcept {
  const std::uint64_t start = now();
  for (Mutator* mutator = mutators_; mutator != nullptr; mutator = mutator->next_) {
    retire_tlab(*mutator);
  }
  medium_ = 0;
  if (!gather_ambiguous()) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfMemory,
                                 .operation = "collect",
                                 .detail = "no memory to list ambiguous roots"});
  }
  ++collections_;
  work_.report = {.number = collections_,
                  .kind = kind,
                  .cause = cause,
                  .start_ns = start - created_ns_,
                  .stop_ns = stop_ns};
  TOUCHSTONE_PROBE2(gc__begin, collections_, static_cast<int>(kind));
  CollectionReport& report = work_.report;
  work_.workers = options_.workers > 1 ? std::min(gang_.start(), options_.workers) : 1;
  // What a few regions hold is collected before others have woken up.
  if (counts_[index_of(RegionKind::kEden)] < 2 && kind == CollectionKind::kYoung &&
      options_.stress_interval == 0) {
    work_.workers = 1;
  }
  report.workers = work_.workers;
  report.used_before = used_bytes();
  work_.violations = 0;
  work_.promote_all = kind == CollectionKind::kFull;
  work_.move_all = cause == CollectionCause::kNoRoom || cause == CollectionCause::kTrim ||
                   cause == CollectionCause::kStress;
  for (std::atomic<std::size_t>* count :
       {&work_.copied, &work_.promoted, &work_.compacted, &work_.marked, &work_.dirty_cards,
        &work_.pinned_objects, &work_.pinned_bytes}) {
    count->store(0, std::memory_order_relaxed);
  }
  work_.overflowed.store(false);
  pins_lost_ = false;
  if (options_.listener != nullptr) options_.listener->on_collection_start(report);
  if (options_.verify) run_serial(Phase::kVerify);

  if (work_.violations == 0) {
    begin_collection();
    collect_young();
    if (kind == CollectionKind::kFull) collect_full();
    end_collection();
    if (options_.verify) run_serial(Phase::kVerify);
  }

  report.copied = work_.copied.load();
  report.promoted = work_.promoted.load();
  report.compacted = work_.compacted.load();
  report.marked = work_.marked.load();
  report.dirty_cards = work_.dirty_cards.load();
  report.pinned_objects = work_.pinned_objects.load();
  report.pinned_bytes = work_.pinned_bytes.load();
  report.used_after = used_bytes();
  report.committed = committed_regions_ * tables_.region_size;
  report.pause_ns = now() - start;
  TOUCHSTONE_PROBE4(gc__end, report.number, report.pause_ns, report.used_before, report.used_after);
  const std::uint64_t mutating = start > last_end_ns_ ? start - last_end_ns_ : 0;
  last_end_ns_ = start + report.pause_ns;
  const double share = static_cast<double>(report.pause_ns) /
                       static_cast<double>(std::max<std::uint64_t>(report.pause_ns + mutating, 1));
  overhead_ = overhead_ == 0 ? share : overhead_ * 0.6 + share * 0.4;
  {
    const std::lock_guard space(space_mutex_);
    if (kind == CollectionKind::kFull) {
      ++sums_.full_collections;
    } else {
      ++sums_.young_collections;
    }
    sums_.pause_ns += report.pause_ns;
    sums_.longest_pause_ns = std::max(sums_.longest_pause_ns, report.pause_ns);
    sums_.stop_ns += stop_ns;
    sums_.longest_stop_ns = std::max(sums_.longest_stop_ns, stop_ns);
    sums_.copied += report.copied;
    sums_.promoted += report.promoted;
    sums_.compacted += report.compacted;
    sums_.kept_regions += report.kept_regions;
    sums_.pinned_objects += report.pinned_objects;
    sums_.violations += work_.violations;
    resize(kind == CollectionKind::kFull);
    last_report_ = report;
  }
  if (options_.listener != nullptr) options_.listener->on_collection_end(report);
  if (work_.violations != 0) {
    return std::unexpected(Error{.code = ErrorCode::kCorrupt,
                                 .operation = "collect",
                                 .detail = "verification failed; see HeapListener::on_violation"});
  }
  return {};
}

void HeapCore::collect_young() noexcept {
  CollectionReport& report = work_.report;
  std::size_t moved_regions = 0;
  for (std::size_t i = 0; i < committed_regions_; ++i) {
    const Address bottom = region_address(i);
    Region& region = tables_.region(bottom);
    if (region.kind == RegionKind::kOld) {
      region.scan_end = region.top;
      region.scanned_in = collections_;
    } else if (region.kind == RegionKind::kLarge || region.kind == RegionKind::kLargeTail) {
      region.scanned_in = collections_;
    } else if (is_young_kind(region.kind)) {
      const unsigned age = region.age + 1U;
      const bool old = work_.promote_all || age > options_.tenuring_age;
      tables_.target(bottom) = old ? std::uint8_t{kTargetOld} : static_cast<std::uint8_t>(age);
      region.keeps = 0;
      region.pinned = 0;
      ++moved_regions;
    }
  }
  for (std::size_t age = 1; age <= kMaxTenuringAge; ++age) copying_[age] = 0;

  if (!ambiguous_.empty()) run_serial(Phase::kPinYoung);
  run(Phase::kYoung);
  run_serial(Phase::kYoungWeak);
  for (std::size_t i = 0; i < committed_regions_; ++i) {
    const Address bottom = region_address(i);
    if (tables_.region(bottom).keeps != 0) {
      // All of its references to young objects are remembered, and nothing of them is known yet.
      clear_side_tables(bottom, bottom + tables_.region_size);
      std::memset(&tables_.card(bottom), Mutator::kDirtyCard,
                  tables_.region_size >> Mutator::kCardShift);
    }
  }
  run_serial(Phase::kYoungEnd);
  const std::lock_guard lock(space_mutex_);
  for (std::size_t i = 0; i < committed_regions_; ++i) {
    const Address bottom = region_address(i);
    if ((tables_.target(bottom) & kTargetMask) == 0) continue;
    Region& region = tables_.region(bottom);
    if (region.keeps == 0) {
      free_region(bottom);
      continue;
    }
    ++report.kept_regions;
    if (region.pinned != 0) count_stranded(region);
    const Address top = region.top;
    const std::uint64_t live = region.live;
    set_kind(bottom, RegionKind::kOld, 0);
    region.top = region.scan_end = round_up(top, buffer_unit_);
    region.live = live;
  }
  if (moved_regions != 0) {
    const double survived = static_cast<double>(work_.copied.load() + work_.promoted.load()) /
                            static_cast<double>(moved_regions * tables_.region_size);
    survival_ = survival_ * 0.5 + survived * 0.5;
  }
}

/// A region that is kept from being evacuated by ambiguous roots.
void HeapCore::count_stranded(const Region& region) noexcept {
  ++work_.report.pinned_regions;
  work_.report.retained_bytes += tables_.region_size - region.live;
}

bool HeapCore::select_moving(bool all) noexcept {
  moving_.clear();
  if (pins_lost_) return false;
  const std::size_t region_size = tables_.region_size;
  const double threshold = all ? 0.98 : options_.evacuation_threshold;
  try {
    for (std::size_t i = 0; i < committed_regions_; ++i) {
      const Address bottom = region_address(i);
      const Region& region = tables_.region(bottom);
      if (region.kind != RegionKind::kOld || region.pinned != 0) continue;
      if (options_.stress_interval != 0 ||
          static_cast<double>(region.live) < threshold * static_cast<double>(region_size)) {
        moving_.push_back(bottom);
      }
    }
    std::ranges::sort(moving_, {}, [&](Address bottom) { return tables_.region(bottom).live; });
  } catch (const std::bad_alloc&) {
    moving_.clear();
    return false;
  }
  // As many as there is room for, the emptiest first.
  const std::size_t room = available_regions();
  std::size_t live = 0;
  std::size_t count = 0;
  const auto regions_for = [&](std::size_t bytes) {
    return bytes / (region_size - region_size / 16) + work_.workers;
  };
  while (count < moving_.size() &&
         (count < 1 || regions_for(live + tables_.region(moving_[count]).live) <= room)) {
    live += tables_.region(moving_[count]).live;
    ++count;
  }
  moving_.resize(room == 0 ? 0 : count);
  if (moving_.empty()) return false;
  if (options_.stress_interval != 0) return true;
  const std::size_t needed = regions_for(live);
  const std::size_t gain = moving_.size() > needed ? moving_.size() - needed : 0;
  // Fixing up all references has to be worth it.
  return all ? gain != 0 : gain * region_size > used_bytes() / 16 && gain >= work_.workers;
}

void HeapCore::collect_full() noexcept {
  CollectionReport& report = work_.report;
  const std::uint64_t start = now();
  for (std::size_t i = 0; i < committed_regions_; ++i) {
    tables_.region(region_address(i)).pinned = 0;
  }
  run_serial(Phase::kPinOld);
  for (std::size_t i = 0; i < committed_regions_; ++i) {
    const Address bottom = region_address(i);
    Region& region = tables_.region(bottom);
    if (region.kind != RegionKind::kOld && region.kind != RegionKind::kLarge) continue;
    region.live = 0;
    region.keeps = 0;
    std::memset(at<void>(tables_.marks + (bottom >> (tables_.mark_shift + 3))), 0,
                tables_.region_size >> (tables_.mark_shift + 3));
  }
  run(Phase::kMark);
  run_serial(Phase::kMarkWeak);
  run_serial(Phase::kMarkEnd);
  report.mark_ns = now() - start;

  const auto sweep = [&] {
    const std::lock_guard lock(space_mutex_);
    for (std::size_t i = 0; i < committed_regions_; ++i) {
      const Address bottom = region_address(i);
      const Region& region = tables_.region(bottom);
      if (region.kind == RegionKind::kOld && region.live == 0) {
        if (copying_[kTargetOld] == bottom) copying_[kTargetOld] = 0;
        free_region(bottom);
        ++report.freed_regions;
      } else if (region.kind == RegionKind::kLarge) {
        const std::uint64_t word =
            load_word(tables_.marks + (bottom >> (tables_.mark_shift + 6)) * 8);
        if ((word >> (bottom >> tables_.mark_shift & 63U) & 1U) != 0) continue;
        const std::size_t count = region.large_regions;
        report.freed_large += region.large_size;
        report.freed_regions += count;
        for (std::size_t j = 0; j < count; ++j) free_region(bottom + j * tables_.region_size);
        i += count - 1;
      }
    }
  };
  sweep();
  report.pinned_regions = report.retained_bytes = 0;
  for (std::size_t i = 0; i < committed_regions_; ++i) {
    const Region& region = tables_.region(region_address(i));
    if (region.kind == RegionKind::kOld && region.pinned != 0) count_stranded(region);
  }
  // No young object is left, so that no card has anything to remember.
  for (std::size_t i = 0; i < committed_regions_; ++i) {
    const Address bottom = region_address(i);
    const RegionKind kind = tables_.region(bottom).kind;
    if (kind == RegionKind::kFree) continue;
    std::memset(&tables_.card(bottom), Mutator::kCleanCard,
                tables_.region_size >> Mutator::kCardShift);
  }

  const std::uint64_t moving = now();
  // When memory is short, again and again: what one round frees is the next one's room.
  const unsigned rounds = report.cause == CollectionCause::kNoRoom ? 8 : 1;
  for (unsigned round = 0; round < rounds; ++round) {
    if (options_.evacuation_threshold == 0 && !work_.move_all) break;
    if (!select_moving(work_.move_all)) break;
    copying_[kTargetOld] = 0;
    for (const Address bottom : moving_) tables_.target(bottom) = kTargetOld;
    run(Phase::kMove);
    run_serial(Phase::kMoveEnd);
    run(Phase::kFix);
    const std::lock_guard lock(space_mutex_);
    for (const Address bottom : moving_) {
      Region& region = tables_.region(bottom);
      tables_.target(bottom) = kTargetStay;
      if (region.keeps != 0) {
        region.keeps = 0;
        continue;
      }
      free_region(bottom);
      ++report.freed_regions;
    }
  }
  moving_.clear();
  report.move_ns = now() - moving;
  const std::lock_guard lock(space_mutex_);
  live_after_full_ = (counts_[index_of(RegionKind::kOld)] + counts_[index_of(RegionKind::kLarge)] +
                      counts_[index_of(RegionKind::kLargeTail)]) *
                     tables_.region_size;
  large_since_full_ = 0;
  full_wanted_ = false;
}

/// How much may be allocated until the next collection, and whether that is to be a full one. With
/// the world stopped.
void HeapCore::resize(bool full) noexcept {
  const std::size_t region_size = tables_.region_size;
  const std::size_t old =
      (counts_[index_of(RegionKind::kOld)] + counts_[index_of(RegionKind::kLarge)] +
       counts_[index_of(RegionKind::kLargeTail)]) *
      region_size;
  if (overhead_ > options_.overhead_goal) {
    target_ += std::max(target_ / 2, 8 * region_size);
    // What the larger heap brings is measured anew.
    overhead_ = 0;
  } else if (full && overhead_ < options_.overhead_goal / 4) {
    target_ -= target_ / 8;
  }
  if (full) target_ = std::max(target_, live_after_full_ + live_after_full_ / 2);
  target_ = std::clamp(target_, options_.min_size, options_.soft_max_size);

  // Of what old objects leave, new ones may take what their survivors do not need.
  const auto young_of = [&](std::size_t target) {
    const std::size_t room = target > old ? (target - old) / region_size : 0;
    const std::size_t slack = std::size_t{2} * work_.workers;
    const double share = 1.0 + std::clamp(survival_ * 1.5, 0.3, 1.0);
    const auto young = static_cast<std::size_t>(static_cast<double>(room) / share);
    return young > slack ? young - slack : 0;
  };
  // More than a third would cost more in memory that is touched for the first time, and in caches,
  // than collecting less often saves.
  std::size_t young = std::min(young_of(target_), options_.soft_max_size / 3 / region_size);
  const std::size_t least =
      std::max<std::size_t>(2, std::min<std::size_t>(total_regions_ / 32, 8 * mutator_count_));
  if (young < least) {
    // Over the soft maximum rather than collecting all the time.
    young = std::max(young_of(options_.max_size), std::size_t{2});
    young = std::min(young, least);
  }
  if (options_.young_size != 0) {
    young = std::max<std::size_t>(2, options_.young_size / region_size);
  }
  eden_limit_ = young;
  // A full collection when half of what was free after the last one has been promoted into.
  const std::size_t headroom = target_ > live_after_full_ ? (target_ - live_after_full_) / 2 : 0;
  full_wanted_ = !full && old > live_after_full_ + std::max(headroom, 8 * region_size);
}

HeapStatistics HeapCore::statistics() const noexcept {
  const std::lock_guard lock(mutex_);
  const std::lock_guard space(space_mutex_);
  HeapStatistics all = sums_;
  all.allocated = allocated_;
  all.max_size = options_.max_size;
  all.soft_max_size = options_.soft_max_size;
  all.target_size = target_;
  all.committed = committed_regions_ * tables_.region_size;
  all.side_tables = side_.committed_bytes();
  all.used = used_bytes();
  all.pinned_bytes = last_report_.pinned_bytes;
  all.pinned_regions = last_report_.pinned_regions;
  all.retained_bytes = last_report_.retained_bytes;
  all.live_after_full = live_after_full_;
  all.region_size = tables_.region_size;
  all.chunk_size = chunk_size_;
  all.eden_regions = counts_[index_of(RegionKind::kEden)];
  all.survivor_regions = counts_[index_of(RegionKind::kSurvivor)];
  all.old_regions = counts_[index_of(RegionKind::kOld)];
  all.large_regions =
      counts_[index_of(RegionKind::kLarge)] + counts_[index_of(RegionKind::kLargeTail)];
  all.free_regions = free_regions_;
  all.mutators = mutator_count_;
  all.workers = options_.workers;
  return all;
}

CollectionReport HeapCore::last_collection() const noexcept {
  const std::lock_guard lock(mutex_);
  const std::lock_guard space(space_mutex_);
  return last_report_;
}

}  // namespace touchstone::heap::detail
