// SPDX-License-Identifier: MIT
// The heap's memory: reservation, growth, regions, side tables, and the rooms cut from them.
#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <new>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/detail/heap_core.h>
#include <touchstone/heap/discard.h>
#include <touchstone/heap/pretouch.h>

#include "callback_scope.h"
#include "sanitizers.h"

namespace touchstone::heap::detail {
namespace {

constexpr std::size_t kKiB = std::size_t{1} << 10U;
constexpr std::size_t kMiB = std::size_t{1} << 20U;
/// Growth in one go, so that commits are few.
constexpr std::size_t kGrowthStep = 32 * kMiB;

std::unexpected<Error> bad_option(const char* detail) noexcept {
  return std::unexpected(
      Error{.code = ErrorCode::kInvalidArgument, .operation = "Heap::create", .detail = detail});
}

}  // namespace

/// Throws std::bad_alloc, as it reads files.
Result<> HeapCore::check_options() {
  HeapOptions& o = options_;
  const arch::Geometry machine = arch::geometry(o.roots);
  if (o.geometry == arch::Geometry{}) o.geometry = machine;
  if (!o.geometry.valid()) return bad_option("geometry");
  if (o.max_size == 0) {
    const auto cgroup = arch::cgroup_memory(o.roots);
    const auto available = arch::available_memory(o.roots);
    std::uint64_t room = 0;
    if (available) room = *available;
    if (cgroup && *cgroup) room = room == 0 ? (*cgroup)->limit : std::min(room, (*cgroup)->limit);
    if (room == 0) return std::unexpected(available ? cgroup.error() : available.error());
    o.max_size = std::max<std::size_t>(room / 4, kMinHeap);
  }
  if (o.max_size < kMinHeap) return bad_option("max_size is below kMinHeap");
  if (o.max_size > Reservation::kMaxSize / 2) return bad_option("max_size");
  if (o.region_size == 0) {
    const std::size_t least = o.max_size < 16 * kMiB ? 64 * kKiB : 256 * kKiB;
    o.region_size = std::clamp(std::bit_floor(o.max_size / 1024), least, 4 * kMiB);
    o.region_size = std::max(o.region_size, o.geometry.base_page);
  }
  if (!std::has_single_bit(o.region_size) || o.region_size < 64 * kKiB ||
      o.region_size > 4 * kMiB || o.region_size % machine.base_page != 0) {
    return bad_option("region_size");
  }
  if (o.max_size / o.region_size < 8) return bad_option("region_size: max_size holds too few");
  // Chunks of huge pages, except where the heap would be a few of them.
  chunk_size_ = std::max(o.region_size, o.geometry.pmd);
  while (chunk_size_ > o.region_size && chunk_size_ > o.max_size / 8) chunk_size_ /= 2;
  if (o.soft_max_size == 0) o.soft_max_size = o.max_size;
  if (o.soft_max_size > o.max_size) return bad_option("soft_max_size is above max_size");
  if (o.min_size == 0) o.min_size = std::min(8 * kMiB, o.soft_max_size);
  if (o.min_size > o.soft_max_size) return bad_option("min_size is above soft_max_size");
  if (o.initial_size == 0) {
    o.initial_size = std::min(std::max(o.max_size / 16, 64 * kMiB), o.soft_max_size);
    o.initial_size = std::max(o.initial_size, o.min_size);
  }
  if (o.initial_size > o.soft_max_size) return bad_option("initial_size is above soft_max_size");
  if (o.initial_size < o.min_size) return bad_option("initial_size is below min_size");
  if (o.young_size > o.max_size / 2) return bad_option("young_size is above half of max_size");
  if (o.tenuring_age > kMaxTenuringAge) return bad_option("tenuring_age");
  if (!(o.overhead_goal > 0 && o.overhead_goal < 1)) return bad_option("overhead_goal");
  if (!(o.evacuation_threshold >= 0 && o.evacuation_threshold <= 1)) {
    return bad_option("evacuation_threshold");
  }
  if (o.safepoint_timeout.count() < 0) return bad_option("safepoint_timeout");
  if (o.workers > WorkShare::kMaxWorkers) return bad_option("workers");
  return {};
}

Result<> HeapCore::reserve() noexcept {
  const std::size_t size = round_up(options_.max_size, chunk_size_);
  total_regions_ = size / options_.region_size;
  ReservationOptions wanted{.size = size,
                            .alignment = std::max(chunk_size_, options_.region_size),
                            .name = options_.name,
                            .huge_pages = options_.huge_pages};
  Result<Reservation> heap = Reservation::reserve(wanted);
  if (!heap && heap.error().code == ErrorCode::kUnsupported &&
      options_.huge_pages == HugePages::kPrefer) {
    // A kernel without huge pages.
    wanted.huge_pages = HugePages::kDefault;
    heap = Reservation::reserve(wanted);
  }
  if (!heap) return std::unexpected(heap.error());
  reservation_ = std::move(*heap);
  declare_root_region(reservation_.data(), size);
  root_region_ = true;

  tables_.base = address_of(reservation_.data());
  tables_.end = tables_.base + size;
  tables_.region_size = options_.region_size;
  tables_.region_shift = static_cast<unsigned>(std::countr_zero(options_.region_size));
  tables_.mark_shift = static_cast<unsigned>(std::countr_zero(alignment_));
  buffer_unit_ =
      std::max(std::size_t{1} << Mutator::kCardShift, std::size_t{64} << tables_.mark_shift);

  const std::size_t page = arch::base_page_size();
  const std::array<unsigned, 5> shifts = {Mutator::kCardShift, Mutator::kCardShift,
                                          tables_.mark_shift + 3, tables_.region_shift,
                                          tables_.region_shift - 6};
  std::size_t offset = 0;
  for (std::size_t i = 0; i < side_tables_.size(); ++i) {
    side_tables_[i] = {
        .offset = offset, .size = round_up(size >> shifts[i], page), .shift = shifts[i]};
    offset += side_tables_[i].size;
  }
  Result<Reservation> side =
      Reservation::reserve({.size = offset, .name = "touchstone side tables"});
  if (!side) return std::unexpected(side.error());
  side_ = std::move(*side);
  const Address tables = address_of(side_.data());
  const auto biased = [&](std::size_t table) {
    return tables + side_tables_[table].offset - (tables_.base >> side_tables_[table].shift);
  };
  tables_.cards = biased(0);
  tables_.crossing = biased(1);
  tables_.marks = biased(2);
  tables_.targets = biased(3);
  tables_.regions =
      tables + side_tables_[4].offset - (tables_.base >> tables_.region_shift) * sizeof(Region);
  try {
    free_bits_.resize((total_regions_ + 63) / 64);
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfMemory, .operation = "Heap::create"});
  }
  return {};
}

Result<> HeapCore::commit_regions(std::size_t first, std::size_t count) noexcept {
  const std::size_t begin = first * tables_.region_size;
  const std::size_t end = begin + count * tables_.region_size;
  const std::size_t page = side_.page_size();
  for (const SideTable& table : side_tables_) {
    const std::size_t from = table.offset + round_down(begin >> table.shift, page);
    const std::size_t to =
        table.offset + std::min<std::size_t>(round_up(end >> table.shift, page), table.size);
    if (to <= from) continue;
    if (auto done = side_.commit(side_.range().subspan(from, to - from)); !done) {
      return std::unexpected(done.error());
    }
  }
  const MemoryRange range = reservation_.range().subspan(begin, end - begin);
  if (auto done = reservation_.commit(range); !done) return std::unexpected(done.error());
  if (options_.pretouch) {
    if (auto touched = pretouch(
            range.data(), range.size(),
            {.huge_pages = options_.huge_pages == HugePages::kPrefer ? HugePageAdvice::kHuge
                                                                     : HugePageAdvice::kLeave,
             .roots = options_.roots});
        !touched) {
      // Committed all the same, harmlessly; the next growth tries the same range again.
      return std::unexpected(touched.error().error);
    }
  }
  return {};
}

/// Commits at least so many more regions at the end of the committed part. The lock is released
/// meanwhile. True if the heap has grown, by this thread or another one.
bool HeapCore::grow(std::unique_lock<std::mutex>& lock, std::size_t regions) noexcept {
  if (growing_) {
    const std::size_t before = committed_regions_;
    grown_.wait(lock, [&] { return !growing_; });
    return committed_regions_ != before;
  }
  const std::size_t left = total_regions_ - committed_regions_;
  if (regions > left) return false;
  const std::size_t per_chunk = chunk_size_ / tables_.region_size;
  const std::size_t step =
      std::min<std::size_t>(kGrowthStep / tables_.region_size, total_regions_ / 16);
  const std::size_t count = std::min(round_up(std::max(regions, step), per_chunk), left);
  const std::size_t first = committed_regions_;
  growing_ = true;
  lock.unlock();
  Result<> done = commit_regions(first, count);
  std::size_t got = count;
  if (!done && count > regions) {
    // So much could not be had; what is needed may.
    got = std::min(round_up(regions, per_chunk), left);
    done = commit_regions(first, got);
  }
  if (HeapListener* const listener = options_.listener; listener != nullptr) {
    const CallbackScope scope(this);
    listener->on_growth((first + (done ? got : 0)) * tables_.region_size,
                        done ? nullptr : &done.error());
  }
  lock.lock();
  growing_ = false;
  if (done) {
    for (std::size_t i = first; i < first + got; ++i) {
      free_bits_[i / 64] |= std::uint64_t{1} << i % 64;
      tables_.region(region_address(i)).zeroed = 1;
    }
    committed_regions_ += got;
    free_regions_ += got;
    free_hint_ = std::min(free_hint_, first / 64);
  }
  grown_.notify_all();
  return done.has_value();
}

std::size_t HeapCore::available_regions() const noexcept {
  return free_regions_ + (total_regions_ - committed_regions_);
}

void HeapCore::clear_side_tables(Address begin, Address end) noexcept {
  const auto clear = [&](Address table, unsigned shift, int value) {
    std::memset(at<void>(table + (begin >> shift)), value, (end - begin) >> shift);
  };
  clear(tables_.cards, Mutator::kCardShift, Mutator::kCleanCard);
  clear(tables_.crossing, Mutator::kCardShift, 0);
}

void HeapCore::set_kind(Address region, RegionKind kind, std::uint8_t age) noexcept {
  Region& it = tables_.region(region);
  --counts_[static_cast<std::size_t>(it.kind)];
  ++counts_[static_cast<std::size_t>(kind)];
  it.kind = kind;
  it.age = age;
  it.top = region;
  it.scan_end = region;
  it.live = 0;
  it.keeps = 0;
  it.pinned = 0;
  const bool young = kind == RegionKind::kEden || kind == RegionKind::kSurvivor;
  tables_.target(region) = young ? kTargetYoung : kTargetStay;
}

Address HeapCore::acquire_region(std::unique_lock<std::mutex>& lock, RegionKind kind,
                                 std::uint8_t age, bool for_mutator) noexcept {
  for (;;) {
    if (for_mutator && (available_regions() <= reserve_regions_ ||
                        counts_[static_cast<std::size_t>(RegionKind::kEden)] >= eden_limit_)) {
      return 0;
    }
    if (free_regions_ != 0) break;
    if (!grow(lock, 1) && free_regions_ == 0) return 0;
  }
  while (free_bits_[free_hint_] == 0) ++free_hint_;
  std::uint64_t& word = free_bits_[free_hint_];
  const std::size_t index = free_hint_ * 64 + static_cast<unsigned>(std::countr_zero(word));
  word &= word - 1;
  --free_regions_;
  const Address region = region_address(index);
  set_kind(region, kind, age);
  if (kind == RegionKind::kOld) clear_side_tables(region, region + tables_.region_size);
  return region;
}

/// The mark bits of a region that had some must be clear when it is free.
void HeapCore::free_region(Address region) noexcept {
  Region& it = tables_.region(region);
  if (options_.poison) std::memset(at<void>(region), 0xdb, tables_.region_size);
  set_kind(region, RegionKind::kFree, 0);
  it.zeroed = 0;
  const std::size_t index = (region - tables_.base) >> tables_.region_shift;
  free_bits_[index / 64] |= std::uint64_t{1} << index % 64;
  free_hint_ = std::min(free_hint_, index / 64);
  ++free_regions_;
}

// ---- Rooms for copies

CopyBuffer HeapCore::take_buffer(std::uint8_t target, std::size_t least,
                                 std::size_t wanted) noexcept {
  const bool old = target == kTargetOld;
  if (old) {
    least = round_up(least, buffer_unit_);
    wanted = round_up(wanted, buffer_unit_);
  }
  std::unique_lock lock(space_mutex_);
  Address& current = copying_[target];
  for (;;) {
    if (current != 0) {
      Region& region = tables_.region(current);
      const std::size_t left = current + tables_.region_size - region.top;
      if (left >= least) {
        const std::size_t size = std::min(left, wanted);
        const CopyBuffer buffer{region.top, region.top, region.top + size};
        region.top += size;
        return buffer;
      }
    }
    const Address before = current;
    const Address fresh = acquire_region(lock, old ? RegionKind::kOld : RegionKind::kSurvivor,
                                         old ? 0 : target, false);
    if (fresh == 0) return {};
    // The lock may have been open meanwhile, and another worker may have got one as well: both are
    // used, the first by what fits.
    if (current != before && current != 0 &&
        current + tables_.region_size - tables_.region(current).top >= least) {
      free_region(fresh);
      continue;
    }
    current = fresh;
  }
}

void HeapCore::retire_buffer(std::uint8_t target, CopyBuffer& buffer) noexcept {
  if (buffer.begin == 0) return;
  const bool old = target == kTargetOld;
  {
    const std::lock_guard lock(space_mutex_);
    Region& region = tables_.region(buffer.begin);
    if (old) region.live += buffer.top - buffer.begin;
    if (region.top == buffer.end) {
      region.top = old ? round_up(buffer.top, buffer_unit_) : buffer.top;
      buffer.end = buffer.top;
    }
  }
  // Old regions have start bits.
  if (!old && buffer.end != buffer.top) fill(buffer.top, buffer.end - buffer.top);
  buffer = {};
}

// ---- Rooms for mutators

void HeapCore::open_window(Mutator& mutator, std::size_t size) noexcept {
  // What fits into the first-level cache is zeroed just before it is used.
  constexpr std::size_t kWindow = 16 * kKiB;
  const std::size_t left = mutator.tlab_hard_end_ - mutator.tlab_top;
  const bool one_by_one = options_.stress_interval != 0 || fail_allocation_.load() != 0;
  const std::size_t open = one_by_one             ? size
                           : mutator.tlab_zeroed_ ? left
                                                  : std::min(left, std::max(size, kWindow));
  const Address end = mutator.tlab_top + open;
  if (end > mutator.tlab_end) {
    if (!mutator.tlab_zeroed_) {
      std::memset(at<void>(mutator.tlab_end), 0, end - mutator.tlab_end);
    }
    mutator.tlab_end = end;
  }
}

/// By the mutator itself, or with the world stopped.
void HeapCore::retire_tlab(Mutator& mutator) noexcept {
  const Address top = mutator.tlab_top;
  const Address end = mutator.tlab_hard_end_;
  mutator.tlab_top = mutator.tlab_end = mutator.tlab_hard_end_ = 0;
  if (end == top) return;
  {
    const std::lock_guard lock(space_mutex_);
    Region& region = tables_.region(top);
    if (region.top == end) {
      region.top = top;
      allocated_ -= end - top;
      // What was never used is as zero as it was, but for what is in front of it.
      region.zeroed = 0;
      return;
    }
  }
  fill(top, end - top);
}

bool HeapCore::new_tlab(Mutator& mutator, std::size_t size) noexcept {
  retire_tlab(mutator);
  std::unique_lock lock(space_mutex_);
  const std::size_t region_size = tables_.region_size;
  // A region each, unless there are many mutators for few regions.
  const std::size_t share =
      eden_limit_ * region_size / (std::max<std::size_t>(mutator_count_, 1) * 4);
  std::size_t wanted = region_size;
  while (wanted > share && wanted > 16 * kKiB) wanted /= 2;
  wanted = std::max(wanted, size);
  Address region = 0;
  Address begin = 0;
  if (wanted < region_size && medium_ != 0 &&
      medium_ + region_size - tables_.region(medium_).top >= wanted) {
    region = medium_;
  } else {
    region = acquire_region(lock, RegionKind::kEden, 0, true);
    if (region == 0) {
      // The last room there is, before somebody has to collect.
      if (medium_ == 0 || medium_ + region_size - tables_.region(medium_).top < size) return false;
      region = medium_;
      wanted = medium_ + region_size - tables_.region(medium_).top;
    } else if (wanted < region_size) {
      medium_ = region;
    }
  }
  Region& it = tables_.region(region);
  begin = it.top;
  it.top += wanted;
  allocated_ += wanted;
  mutator.tlab_top = mutator.tlab_end = begin;
  mutator.tlab_hard_end_ = begin + wanted;
  mutator.tlab_zeroed_ = it.zeroed != 0;
  return true;
}

Address HeapCore::take_medium(std::size_t size) noexcept {
  Address begin = 0;
  bool zeroed = false;
  {
    std::unique_lock lock(space_mutex_);
    if (medium_ == 0 || medium_ + tables_.region_size - tables_.region(medium_).top < size) {
      const Address region = acquire_region(lock, RegionKind::kEden, 0, true);
      if (region == 0) return 0;
      medium_ = region;
    }
    Region& region = tables_.region(medium_);
    begin = region.top;
    region.top += size;
    allocated_ += size;
    zeroed = region.zeroed != 0;
  }
  if (!zeroed) std::memset(at<void>(begin), 0, size);
  return begin;
}

Address HeapCore::take_large(std::size_t size) noexcept {
  const std::size_t region_size = tables_.region_size;
  const std::size_t count = (size + region_size - 1) / region_size;
  Address start = 0;
  bool zeroed = true;
  {
    std::unique_lock lock(space_mutex_);
    for (;;) {
      if (available_regions() < count + reserve_regions_) return 0;
      const std::size_t full_at = std::max(
          live_after_full_ + (target_ > live_after_full_ ? (target_ - live_after_full_) / 2 : 0),
          live_after_full_ + 8 * region_size);
      const std::size_t old = (counts_[static_cast<std::size_t>(RegionKind::kOld)] +
                               counts_[static_cast<std::size_t>(RegionKind::kLarge)] +
                               counts_[static_cast<std::size_t>(RegionKind::kLargeTail)]) *
                              region_size;
      if (old + size > full_at && large_since_full_ != 0) {
        full_wanted_ = true;
        return 0;
      }
      // The first run that is long enough.
      std::size_t run = 0;
      std::size_t i = 0;
      for (; i < committed_regions_ && run < count; ++i) {
        run = (free_bits_[i / 64] >> i % 64 & 1U) != 0 ? run + 1 : 0;
      }
      if (run < count) {
        // `run` free ones are at the end.
        if (!grow(lock, count - run)) return 0;
        continue;
      }
      const std::size_t first = i - count;
      start = region_address(first);
      for (std::size_t j = first; j < first + count; ++j) {
        free_bits_[j / 64] &= ~(std::uint64_t{1} << j % 64);
        const Address region = region_address(j);
        set_kind(region, j == first ? RegionKind::kLarge : RegionKind::kLargeTail, 0);
        Region& it = tables_.region(region);
        it.top = std::min(region + region_size, start + size);
        it.large_regions = static_cast<std::uint32_t>(j == first ? count : j - first);
        it.large_size = j == first ? size : 0;
        zeroed = zeroed && it.zeroed != 0;
      }
      free_regions_ -= count;
      large_since_full_ += count * region_size;
      allocated_ += size;
      break;
    }
  }
  clear_side_tables(start, start + count * region_size);
  // Large objects count as old from the start.
  const Address word = tables_.marks + (start >> (tables_.mark_shift + 6)) * 8;
  store_word(word, load_word(word) | std::uint64_t{1} << (start >> tables_.mark_shift & 63U));
  if (!zeroed) std::memset(at<void>(start), 0, size);
  return start;
}

// ---- Give-back

Result<std::size_t> HeapCore::give_back() noexcept {
  // Whole chunks without a region in use; a huge page with a hole would be split.
  std::vector<MemoryRange> ranges;
  const std::size_t per_chunk = std::max<std::size_t>(chunk_size_ / tables_.region_size, 1);
  try {
    const std::lock_guard lock(space_mutex_);
    for (std::size_t first = 0; first + per_chunk <= committed_regions_; first += per_chunk) {
      bool free = true;
      bool touched = false;
      for (std::size_t i = first; i < first + per_chunk && free; ++i) {
        free = (free_bits_[i / 64] >> i % 64 & 1U) != 0;
        touched = touched || tables_.region(region_address(i)).zeroed == 0;
      }
      if (!free || !touched) continue;
      const MemoryRange range =
          reservation_.range().subspan(first * tables_.region_size, chunk_size_);
      if (!ranges.empty() && ranges.back().data() + ranges.back().size() == range.data()) {
        ranges.back() = {ranges.back().data(), ranges.back().size() + range.size()};
      } else {
        ranges.push_back(range);
      }
    }
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfMemory, .operation = "Heap::trim"});
  }
  if (ranges.empty()) return std::size_t{0};
  BatchedDiscard discard({.granule = std::max(chunk_size_, reservation_.page_size())});
  const auto done = discard.discard(ranges);
  if (!done) return std::unexpected(done.error());
  return done->bytes;
}

}  // namespace touchstone::heap::detail
