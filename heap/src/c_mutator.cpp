// SPDX-License-Identifier: MIT
// touchstone/c/mutator.h.
#include <cstddef>
#include <new>

#include <touchstone/c/mutator.h>

#include "c_abi.h"
#include "c_heap.h"

using namespace touchstone;
using namespace touchstone::heap;
using namespace touchstone::heap::c;

// The header's inline functions work on what C++ has made.
static_assert(sizeof(ts_mutator_block) == sizeof(MutatorBlock));
static_assert(offsetof(ts_mutator_block, tlab_top) == offsetof(MutatorBlock, tlab_top));
static_assert(offsetof(ts_mutator_block, tlab_end) == offsetof(MutatorBlock, tlab_end));
static_assert(offsetof(ts_mutator_block, card_table) == offsetof(MutatorBlock, card_table));
static_assert(offsetof(ts_mutator_block, mark_bitmap) == offsetof(MutatorBlock, mark_bitmap));
static_assert(offsetof(ts_mutator_block, safepoint_flag) == offsetof(MutatorBlock, safepoint_flag));
static_assert(offsetof(ts_mutator_block, alignment_mask) == offsetof(MutatorBlock, alignment_mask));
static_assert(offsetof(ts_mutator_block, locals) == offsetof(MutatorBlock, locals));
static_assert(std::size_t{TS_CARD_SHIFT} == Mutator::kCardShift);
static_assert(std::size_t{TS_DIRTY_CARD} == Mutator::kDirtyCard);
static_assert(offsetof(ts_local, object) == detail::LocalBase::value_offset() &&
              offsetof(ts_local, previous) == detail::LocalBase::previous_offset());

namespace {

constexpr Error kDetached{.code = ErrorCode::kInvalidArgument,
                          .operation = "ts_mutator",
                          .detail = "no such mutator: it was detached"};

}  // namespace

extern "C" {

ts_code ts_attach(ts_heap* heap, const char* name, ts_mutator** mutator, ts_error* error) noexcept {
  const CHeap* const it = find_heap(heap);
  if (it == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "ts_attach",
                "no such heap: it was destroyed, or never was", error);
  }
  if (mutator == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "ts_attach", "nowhere to write the result to", error);
  }
  *mutator = nullptr;
  auto made = it->core().attach(name != nullptr ? name : "");
  if (made) *mutator = reinterpret_cast<ts_mutator*>(made->release()->block());
  return finish(made, error);
}

ts_code ts_detach(ts_mutator* mutator, ts_error* error) noexcept {
  Mutator* const it = find_mutator(mutator);
  if (it == nullptr) return fail(kDetached, error);
  CHeap& heap = CHeap::of(*it);
  const std::uint64_t id = it->id();
  MutatorPointer owned(it);
  const Result<> done = Mutator::detach(owned);
  // Refused: it stays as it was.
  if (owned) static_cast<void>(owned.release());
  if (done) heap.forget_roots(id);
  return finish(done, error);
}

uint64_t ts_mutator_id(const ts_mutator* mutator) noexcept {
  const Mutator* const it = find_mutator(mutator);
  return it != nullptr ? it->id() : 0;
}

ts_code ts_enter_native(ts_mutator* mutator, ts_error* error) noexcept {
  Mutator* const it = find_mutator(mutator);
  if (it == nullptr) return fail(kDetached, error);
  it->enter_native();
  return TS_OK;
}
ts_code ts_leave_native(ts_mutator* mutator, ts_error* error) noexcept {
  Mutator* const it = find_mutator(mutator);
  if (it == nullptr) return fail(kDetached, error);
  if (!it->in_native()) {
    return fail(ErrorCode::kInvalidArgument, "ts_leave_native", "not in a native section", error);
  }
  it->leave_native();
  return TS_OK;
}

void ts_poll_slow(ts_mutator* mutator) noexcept {
  if (Mutator* const it = find_mutator(mutator); it != nullptr) it->poll_slow();
}

void* ts_allocate_slow(ts_mutator* mutator, size_t size) noexcept {
  Mutator* const it = find_mutator(mutator);
  return it != nullptr ? it->allocate_slow(size) : nullptr;
}
void* ts_allocate_slow_keeping(ts_mutator* mutator, size_t size, void** kept,
                               size_t count) noexcept {
  if (count == 0) return ts_allocate_slow(mutator, size);
  if (find_mutator(mutator) == nullptr) return nullptr;
  ts_local root;
  ts_local_open(&root, mutator, *kept);
  void* const made = ts_allocate_slow_keeping(mutator, size, kept + 1, count - 1);
  *kept = root.object;
  ts_local_close(&root);
  return made;
}
ts_code ts_allocation_error(const ts_mutator* mutator, ts_error* error) noexcept {
  const Mutator* const it = find_mutator(mutator);
  return fail(it != nullptr ? it->error() : kDetached, error);
}

ts_code ts_mutator_add_roots(ts_mutator* mutator, ts_root_callback callback, void* context,
                             ts_error* error) noexcept {
  Mutator* const it = find_mutator(mutator);
  if (it == nullptr) return fail(kDetached, error);
  return finish(CHeap::of(*it).add_roots(it, callback, context), error);
}
ts_code ts_mutator_remove_roots(ts_mutator* mutator, ts_root_callback callback, void* context,
                                ts_error* error) noexcept {
  Mutator* const it = find_mutator(mutator);
  if (it == nullptr) return fail(kDetached, error);
  return finish(CHeap::of(*it).remove_roots(it, callback, context), error);
}

void ts_scan_stack_from(ts_mutator* mutator, const void* base) noexcept {
  if (Mutator* const it = find_mutator(mutator); it != nullptr) it->scan_stack_from(base);
}

}  // extern "C"
