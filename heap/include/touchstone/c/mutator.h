/* SPDX-License-Identifier: MIT */
#ifndef TOUCHSTONE_C_MUTATOR_H_
#define TOUCHSTONE_C_MUTATOR_H_

/* A thread's use of a heap: allocation, barriers, safepoints, roots on its stack. The fast paths
 * are inline.
 *
 * A mutator is used by its own thread alone. It is *running*, or in a *native section* during which
 * it touches no object and does not hold up a collection. A running one polls often. Objects move
 * only at safepoints, which are: ts_poll(), the slow path of an allocation, native sections,
 * ts_collect(), ts_trim(), ts_attach() and ts_detach(). Across these, references are to be in
 * roots. */

#include <touchstone/c/base.h>
#include <touchstone/c/collector.h>

TS_BEGIN_DECLS

typedef struct ts_local ts_local;
/* A slot of any pointer type. */
typedef void* ts_reference __attribute__((may_alias));

/* The start of every ts_mutator: what the functions below work on. The library's. */
typedef struct ts_mutator_block {
  uintptr_t tlab_top;
  uintptr_t tlab_end;
  uintptr_t
      card_table; /* Biased: the card of an address is at this + (address >> TS_CARD_SHIFT). */
  uintptr_t mark_bitmap;
  uint32_t safepoint_flag;
  uint32_t alignment_mask;
  ts_local* locals;
} ts_mutator_block;

enum { TS_CARD_SHIFT = 9, TS_DIRTY_CARD = 0 };

static inline ts_mutator_block* ts_block(ts_mutator* mutator) {
  return (ts_mutator_block*)(void*)mutator;
}

/* ---- Threads */

/* Makes the calling thread a mutator, running; waits for a collection under way. `name` (or NULL)
 * is for reports. */
TS_CHECK TS_API ts_code ts_attach(ts_heap* heap, const char* name, ts_mutator** mutator,
                                  ts_error* error) TS_NOEXCEPT;
/* Ends the thread's part. TS_BUSY, and nothing is done, while it has locals. A mutator that is used
 * afterwards, if not too many others have been detached since, is TS_INVALID_ARGUMENT. */
TS_CHECK TS_API ts_code ts_detach(ts_mutator* mutator, ts_error* error) TS_NOEXCEPT;

TS_API uint64_t ts_mutator_id(const ts_mutator* mutator) TS_NOEXCEPT;

/* From here on the thread touches no object, until the section is left. Sections nest. */
TS_CHECK TS_API ts_code ts_enter_native(ts_mutator* mutator, ts_error* error) TS_NOEXCEPT;
/* Waits for a collection that is under way. TS_INVALID_ARGUMENT outside a section. */
TS_CHECK TS_API ts_code ts_leave_native(ts_mutator* mutator, ts_error* error) TS_NOEXCEPT;

TS_API void ts_poll_slow(ts_mutator* mutator) TS_NOEXCEPT;
/* A safepoint: one load when nobody wants to collect. */
static inline void ts_poll(ts_mutator* mutator) {
  if (__builtin_expect(__atomic_load_n(&ts_block(mutator)->safepoint_flag, __ATOMIC_RELAXED) != 0,
                       0)) {
    ts_poll_slow(mutator);
  }
}

/* ---- Allocation */

TS_API void* ts_allocate_slow(ts_mutator* mutator, size_t size) TS_NOEXCEPT;
/* Zeroed memory for an object of `size` bytes, rounded up to the alignment, or NULL, which
 * ts_allocation_error() then explains. Its header has to be written before the next safepoint. May
 * collect. */
static inline void* ts_allocate(ts_mutator* mutator, size_t size) {
  ts_mutator_block* const block = ts_block(mutator);
  const size_t mask = block->alignment_mask;
  const size_t rounded = (size + mask) & ~mask;
  const uintptr_t object = block->tlab_top;
  if (__builtin_expect(rounded - 1 >= block->tlab_end - object, 0)) {
    return ts_allocate_slow(mutator, size);
  }
  if (object == 0) __builtin_unreachable(); /* Spares callers a second comparison. */
  block->tlab_top = object + rounded;
  return (void*)object;
}
/* The same for a size that is a multiple of the object alignment: two instructions fewer. */
static inline void* ts_allocate_aligned(ts_mutator* mutator, size_t size) {
  ts_mutator_block* const block = ts_block(mutator);
  const uintptr_t object = block->tlab_top;
  if (__builtin_expect(size - 1 >= block->tlab_end - object, 0)) {
    return ts_allocate_slow(mutator, size);
  }
  if (object == 0) __builtin_unreachable();
  block->tlab_top = object + size;
  return (void*)object;
}
TS_API void* ts_allocate_slow_keeping(ts_mutator* mutator, size_t size, void** kept,
                                      size_t count) TS_NOEXCEPT;
/* As ts_allocate_aligned(), and what `first` and `second` (or NULL) hold are roots meanwhile: for
 * what is needed right after, such as what goes into the object. Costs nothing unless the slow path
 * is taken, where a ts_local always does. */
static inline void* ts_allocate_keeping(ts_mutator* mutator, size_t size, void** first,
                                        void** second) {
  ts_mutator_block* const block = ts_block(mutator);
  const uintptr_t object = block->tlab_top;
  if (__builtin_expect(size - 1 >= block->tlab_end - object, 0)) {
    /* Their addresses stay here, so that they stay in registers. */
    void* kept[2] = {first != NULL ? *first : NULL, second != NULL ? *second : NULL};
    void* const made = ts_allocate_slow_keeping(mutator, size, kept, 2);
    if (first != NULL) *first = kept[0];
    if (second != NULL) *second = kept[1];
    return made;
  }
  if (object == 0) __builtin_unreachable();
  block->tlab_top = object + size;
  return (void*)object;
}
/* Why the last allocation failed: TS_INVALID_ARGUMENT (no bytes), TS_OUT_OF_MEMORY (more than there
 * is room for after a full collection; nothing else has changed), TS_BUSY (in a native section),
 * or what ts_collect() has. */
TS_API ts_code ts_allocation_error(const ts_mutator* mutator, ts_error* error) TS_NOEXCEPT;

/* ---- Barriers */

/* To be called after a reference was stored into the heap at `slot`, with no safepoint in between.
 * An object of at most max_young_object bytes (ts_fast_path_layout) needs none until the next
 * safepoint. */
static inline void ts_write_barrier(ts_mutator* mutator, const void* slot) {
  const uintptr_t card = ts_block(mutator)->card_table + ((uintptr_t)slot >> TS_CARD_SHIFT);
  __atomic_store_n((uint8_t*)card, (uint8_t)TS_DIRTY_CARD, __ATOMIC_RELAXED);
}
/* The same for all slots in `bytes` bytes. */
static inline void ts_write_barrier_range(ts_mutator* mutator, const void* begin, size_t bytes) {
  if (bytes == 0) return;
  const uintptr_t cards = ts_block(mutator)->card_table;
  const uintptr_t last = ((uintptr_t)begin + bytes - 1) >> TS_CARD_SHIFT;
  for (uintptr_t card = (uintptr_t)begin >> TS_CARD_SHIFT; card <= last; ++card) {
    __atomic_store_n((uint8_t*)(cards + card), (uint8_t)TS_DIRTY_CARD, __ATOMIC_RELAXED);
  }
}
/* Stores a reference and marks its card. */
static inline void ts_write(ts_mutator* mutator, void* slot, void* value) {
  __atomic_store_n((ts_reference*)slot, value, __ATOMIC_RELAXED);
  ts_write_barrier(mutator, slot);
}
/* Copies `count` references, each as a whole; the runs may overlap. */
static inline void ts_copy_references(ts_mutator* mutator, void* to, const void* from,
                                      size_t count) {
  ts_reference* const target = (ts_reference*)to;
  const ts_reference* const source = (const ts_reference*)from;
  const bool backwards = (uintptr_t)to - (uintptr_t)from < count * 8;
  for (size_t n = 0; n < count; ++n) {
    const size_t i = backwards ? count - 1 - n : n;
    __atomic_store_n(target + i, __atomic_load_n(source + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  }
  ts_write_barrier_range(mutator, to, count * 8);
}
/* Stores a reference and returns the one before: one atomic step, acquire-release. */
static inline void* ts_swap(ts_mutator* mutator, void* slot, void* value) {
  void* const before = __atomic_exchange_n((ts_reference*)slot, value, __ATOMIC_ACQ_REL);
  ts_write_barrier(mutator, slot);
  return before;
}
/* Stores `desired` if `*expected` is there, else sets `*expected` to what is: acquire-release. */
static inline bool ts_compare_swap(ts_mutator* mutator, void* slot, void** expected,
                                   void* desired) {
  if (!__atomic_compare_exchange_n((ts_reference*)slot, expected, desired, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    return false;
  }
  ts_write_barrier(mutator, slot);
  return true;
}

/* ---- Roots */

/* A root on the thread's stack: keeps `object` alive and follows it when it moves. */
struct ts_local {
  void* object;
  ts_mutator* mutator;
  ts_local* previous;
};
/* `local` must stay where it is until it is closed. */
static inline void ts_local_open(ts_local* local, ts_mutator* mutator, void* object) {
  ts_local* self = local;
  /* GCC 12 warns of an address that it sees stored and does not see taken out again. */
  __asm__("" : "+r"(self));
  local->object = object;
  local->mutator = mutator;
  /* A store of its own: two words that are put together in a vector register first are slow to read
   * back a few instructions later. */
  __atomic_store_n(&local->previous, ts_block(mutator)->locals, __ATOMIC_RELAXED);
  ts_block(mutator)->locals = self;
}
/* Closes it and all that were opened later. */
static inline void ts_local_close(ts_local* local) {
  ts_block(local->mutator)->locals = local->previous;
}

/* Roots of this mutator alone. */
TS_CHECK TS_API ts_code ts_mutator_add_roots(ts_mutator* mutator, ts_root_callback callback,
                                             void* context, ts_error* error) TS_NOEXCEPT;
/* TS_INVALID_ARGUMENT if there was no such. */
TS_CHECK TS_API ts_code ts_mutator_remove_roots(ts_mutator* mutator, ts_root_callback callback,
                                                void* context, ts_error* error) TS_NOEXCEPT;
/* Has the thread's stack, from where it stands at a safepoint up to `base`, and its registers
 * looked at as ambiguous roots; NULL stops that. `base` is above all frames that matter. */
TS_API void ts_scan_stack_from(ts_mutator* mutator, const void* base) TS_NOEXCEPT;

TS_END_DECLS

#endif /* TOUCHSTONE_C_MUTATOR_H_ */
