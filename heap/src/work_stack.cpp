// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include <touchstone/heap/detail/work_stack.h>

namespace touchstone::heap::detail {

// ---- ChunkPool ----

ChunkPool::~ChunkPool() {
  shrink(0);
}

WorkChunk* ChunkPool::take() noexcept {
  WorkChunk* chunk = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (in_use_ >= limit_.load(std::memory_order_relaxed)) return nullptr;
    ++in_use_;
    if (free_ != nullptr) {
      chunk = free_;
      free_ = chunk->next;
      --free_count_;
    }
  }
  if (chunk == nullptr) {
    chunk = new (std::nothrow) WorkChunk;
    if (chunk == nullptr) {
      const std::lock_guard lock(mutex_);
      --in_use_;
      return nullptr;
    }
  }
  chunk->next = nullptr;
  chunk->count = 0;
  return chunk;
}

void ChunkPool::give(WorkChunk* chunk) noexcept {
  const std::lock_guard lock(mutex_);
  chunk->next = free_;
  free_ = chunk;
  ++free_count_;
  --in_use_;
}

void ChunkPool::shrink(std::size_t keep) noexcept {
  for (;;) {
    WorkChunk* chunk = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (free_count_ <= keep) return;
      chunk = free_;
      free_ = chunk->next;
      --free_count_;
    }
    delete chunk;
  }
}

// ---- WorkShare ----

void WorkShare::reset(unsigned workers) noexcept {
  workers_ = workers;
  idle_.store(0, std::memory_order_relaxed);
}

void WorkShare::publish(unsigned worker, WorkChunk* chunk) noexcept {
  List& list = lists_[worker];
  const std::lock_guard lock(list.mutex);
  chunk->next = list.first;
  list.first = chunk;
  list.count.store(list.count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

WorkChunk* WorkShare::take_from(List& list) noexcept {
  // A worker always sees its own count; another's may be stale, and is asked for again.
  if (list.count.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::lock_guard lock(list.mutex);
  WorkChunk* const chunk = list.first;
  if (chunk != nullptr) {
    list.first = chunk->next;
    list.count.store(list.count.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  }
  return chunk;
}

WorkChunk* WorkShare::take_back(unsigned worker) noexcept {
  return take_from(lists_[worker]);
}

WorkChunk* WorkShare::steal(unsigned worker) noexcept {
  // A serial phase may drain its stack several times.
  if (workers_ == 1) return nullptr;
  idle_.fetch_add(1, std::memory_order_acq_rel);
  for (unsigned turn = 0;; ++turn) {
    if (idle_.load(std::memory_order_acquire) == workers_) return nullptr;
    for (unsigned i = 1; i < workers_; ++i) {
      List& list = lists_[(worker + i) % workers_];
      if (list.count.load(std::memory_order_relaxed) == 0) continue;
      // Not idle while it holds work.
      idle_.fetch_sub(1, std::memory_order_acq_rel);
      if (WorkChunk* const chunk = take_from(list); chunk != nullptr) return chunk;
      idle_.fetch_add(1, std::memory_order_acq_rel);
    }
    if (turn > 16) std::this_thread::yield();
  }
}

// ---- WorkStack ----

WorkStack::~WorkStack() {
  if (chunk_ != nullptr) pool_.give(chunk_);
}

void WorkStack::adopt(WorkChunk* chunk) noexcept {
  chunk_ = chunk;
  bottom_ = chunk->entries;
  top_ = bottom_ + chunk->count;
  limit_ = bottom_ + WorkChunk::kEntries;
}

bool WorkStack::grow() noexcept {
  WorkChunk* const fresh = pool_.take();
  if (fresh == nullptr) return false;
  if (chunk_ != nullptr) {
    chunk_->count = WorkChunk::kEntries;
    share_.publish(worker_, chunk_);
  }
  adopt(fresh);
  return true;
}

bool WorkStack::refill() noexcept {
  WorkChunk* const chunk = share_.take_back(worker_);
  if (chunk == nullptr) return false;
  if (chunk_ != nullptr) pool_.give(chunk_);
  adopt(chunk);
  return true;
}

void WorkStack::share_half() noexcept {
  const auto count = static_cast<std::size_t>(top_ - bottom_);
  if (count < 2) return;
  WorkChunk* const chunk = pool_.take();
  if (chunk == nullptr) return;
  const std::size_t half = count / 2;
  std::copy_n(bottom_, half, chunk->entries);
  chunk->count = half;
  std::copy(bottom_ + half, top_, bottom_);
  top_ -= half;
  share_.publish(worker_, chunk);
}

bool WorkStack::steal() noexcept {
  WorkChunk* const chunk = share_.steal(worker_);
  if (chunk == nullptr) return false;
  if (chunk_ != nullptr) pool_.give(chunk_);
  adopt(chunk);
  return true;
}

// ---- WorkList ----

bool WorkList::grow() noexcept {
  WorkChunk* const fresh = pool_.take();
  if (fresh == nullptr) return false;
  if (last_ != nullptr) {
    last_->next = fresh;
  } else {
    first_ = fresh;
  }
  last_ = fresh;
  return true;
}

void WorkList::clear() noexcept {
  while (first_ != nullptr) {
    WorkChunk* const next = first_->next;
    pool_.give(first_);
    first_ = next;
  }
  last_ = nullptr;
  size_ = 0;
}

}  // namespace touchstone::heap::detail
