/* SPDX-License-Identifier: MIT */
#ifndef TOUCHSTONE_C_COLLECTOR_H_
#define TOUCHSTONE_C_COLLECTOR_H_

/* The collected heap: object model, options, roots, collections, statistics. What a thread does
 * with its objects is in touchstone/c/mutator.h.
 *
 * A ts_heap is a number in the guise of a pointer: after ts_heap_destroy() every function returns
 * TS_INVALID_ARGUMENT for it, also when another heap has been made since. */

#include <touchstone/c/base.h>

TS_BEGIN_DECLS

typedef struct ts_heap ts_heap;
typedef struct ts_mutator ts_mutator;

/* ---- What the collector has to know of objects */

/* Takes the slots of an object. What ts_trace_slot() finds in `next` to `end` is the library's. */
typedef struct ts_tracer ts_tracer;
typedef struct ts_tracer_calls {
  void (*full)(ts_tracer* tracer);
  void (*weak)(ts_tracer* tracer, void* slot);
  void (*ephemeron)(ts_tracer* tracer, void* key_slot, void* value_slot);
} ts_tracer_calls;
struct ts_tracer {
  void** next;
  void** end;
  const ts_tracer_calls* calls;
};

/* The address of a reference: a word that holds null or the start of an object of this heap. */
static inline void ts_trace_slot(ts_tracer* tracer, void* slot) {
  if (tracer->next == tracer->end) tracer->calls->full(tracer);
  *tracer->next++ = slot;
}
/* `count` such words, one behind the other. */
static inline void ts_trace_slots(ts_tracer* tracer, void* first, size_t count) {
  for (size_t i = 0; i < count; ++i) ts_trace_slot(tracer, (char*)first + i * 8);
}
/* A reference that keeps nothing alive: it becomes null when its object dies. */
static inline void ts_trace_weak(ts_tracer* tracer, void* slot) {
  tracer->calls->weak(tracer, slot);
}
/* Two references of which the second counts only while the object of the first is alive by other
 * means. Both become null when that object dies. While the first is null the second is a plain
 * reference. */
static inline void ts_trace_ephemeron(ts_tracer* tracer, void* key_slot, void* value_slot) {
  tracer->calls->ephemeron(tracer, key_slot, value_slot);
}

/* The embedder's objects. Each starts at a multiple of `alignment` and has a size that is one. Its
 * first 8 bytes are its header, of which the two lowest bits are the collector's and are 0 whenever
 * the embedder sees the object. A header is not 0 once the object is initialised, which has to be
 * so by the mutator's next safepoint. A pointer to a type descriptor will do, and so will bits.
 *
 * The functions get the header as an argument, since while they run the word in memory may hold
 * something else. Several threads call them at once, with the world stopped: they must not use the
 * heap, block, throw or longjmp. */
typedef struct ts_object_model {
  size_t size;
  size_t alignment; /* 8 or 16. */
  void* context;    /* Handed to every function. */
  /* Bytes of an object. */
  size_t (*object_size)(const void* object, uint64_t header, void* context);
  /* Calls ts_trace_slot() and the like for each reference in it. */
  void (*trace)(void* object, uint64_t header, ts_tracer* tracer, void* context);
  /* Makes `bytes` bytes (a multiple of the alignment) an object without references, of which
   * object_size() tells the size again. */
  void (*write_filler)(void* at, size_t bytes, void* context);
  /* Optional: trace() for the slots alone that lie in [begin, end). Worth having for arrays: a card
   * in the middle of a large one is then scanned without the rest. */
  void (*trace_range)(void* object, uint64_t header, void* begin, void* end, ts_tracer* tracer,
                      void* context);
  /* Optional: whether write_filler() made it. An ambiguous root that hits a filler then pins
   * nothing. */
  bool (*is_filler)(const void* object, uint64_t header, void* context);
} ts_object_model;

/* ---- The ready-made header, for runtimes that have none of their own: what a heap without a model
 * takes for one. An object is the header, then references, then bytes without references. Its size
 * is a multiple of 8. */

#define TS_HEADER_MAX_SIZE (UINT64_C(8) << 36) /* Bytes; less than this. */
#define TS_HEADER_MAX_REFERENCES ((UINT64_C(1) << 23) - 1)

/* `references` references, then bytes. */
static inline uint64_t ts_header_record(size_t bytes, size_t references) {
  return UINT64_C(1) << 2 | (uint64_t)(bytes / 8) << 4 | (uint64_t)references << 40;
}
/* References alone, so many. */
static inline uint64_t ts_header_array(size_t references) {
  return UINT64_C(2) << 2 | (uint64_t)(references + 1) << 4;
}
/* A key, a value, then a record's references and bytes. */
static inline uint64_t ts_header_ephemeron(size_t bytes, size_t references) {
  return UINT64_C(3) << 2 | (uint64_t)(bytes / 8) << 4 | (uint64_t)references << 40;
}
/* A weak reference, then a record's references and bytes. */
static inline uint64_t ts_header_weak(size_t bytes, size_t references) {
  return (uint64_t)(bytes / 8) << 4 | (uint64_t)references << 40;
}

/* ---- What it tells */

typedef TS_ENUM(ts_collection_kind){
    TS_COLLECT_YOUNG = 0, /* New objects and survivors. */
    TS_COLLECT_FULL = 1   /* Everything. */
} ts_collection_kind;

typedef TS_ENUM(ts_collection_cause){
    TS_CAUSE_REQUEST = 0,    /* ts_collect(). */
    TS_CAUSE_ALLOCATION = 1, /* The budget for new objects was used up. */
    TS_CAUSE_OCCUPANCY = 2,  /* Too much had been promoted since the last full collection. */
    TS_CAUSE_NO_ROOM = 3,    /* The last try before an allocation fails. */
    TS_CAUSE_TRIM = 4,       /* ts_trim(). */
    TS_CAUSE_STRESS = 5      /* ts_heap_options.stress_interval. */
} ts_collection_cause;

/* One collection. Bytes, nanoseconds. */
typedef struct ts_collection_report {
  size_t size;
  uint64_t number; /* From 1. */
  ts_collection_kind kind;
  ts_collection_cause cause;
  uint64_t workers;
  uint64_t stop_ns;  /* From the request to the moment all mutators stood. */
  uint64_t pause_ns; /* From then on until they could go on. */
  uint64_t mark_ns;  /* Of pause_ns; full collections. */
  uint64_t move_ns;  /* Of pause_ns: evacuating old regions and fixing up references. */
  uint64_t used_before;
  uint64_t used_after;
  uint64_t copied;         /* Moved to survivor regions. */
  uint64_t promoted;       /* Moved to old regions. */
  uint64_t compacted;      /* Moved from old region to old region. */
  uint64_t marked;         /* Found alive by a full collection. */
  uint64_t kept_regions;   /* Young regions that became old where they were. */
  uint64_t pinned_objects; /* Objects that ambiguous roots kept in place. */
  uint64_t dirty_cards;    /* Cards that were scanned. */
  uint64_t freed_regions;
  uint64_t freed_large;    /* Bytes of large objects that were freed. */
  uint64_t pinned_bytes;   /* Of pinned_objects. */
  uint64_t pinned_regions; /* Stay where they are for the sake of these. */
  uint64_t retained_bytes; /* Of these regions, what no live object takes. */
} ts_collection_report;

/* Sums and the present state. Bytes, nanoseconds. */
typedef struct ts_statistics {
  size_t size;
  uint64_t young_collections;
  uint64_t full_collections;
  uint64_t pause_ns;
  uint64_t longest_pause_ns;
  uint64_t stop_ns;
  uint64_t longest_stop_ns;
  uint64_t safepoint_timeouts;
  uint64_t allocated;
  uint64_t copied;
  uint64_t promoted;
  uint64_t compacted;
  uint64_t kept_regions;
  uint64_t pinned_objects;
  uint64_t out_of_memory; /* Allocations that failed. */
  uint64_t trimmed;       /* Given back by ts_trim(). */
  uint64_t violations;    /* Findings of verification. */
  uint64_t max_size;
  uint64_t soft_max_size;
  uint64_t target_size; /* What sizing aims at now. */
  uint64_t committed;
  uint64_t side_tables; /* Committed for the heap's tables. */
  uint64_t used;
  uint64_t live_after_full; /* After the last full collection. */
  uint64_t region_size;
  uint64_t chunk_size;
  uint64_t eden_regions;
  uint64_t survivor_regions;
  uint64_t old_regions;
  uint64_t large_regions;
  uint64_t free_regions;
  uint64_t mutators;
  uint64_t workers;
  uint64_t pinned_bytes; /* These three as the last collection found them. */
  uint64_t pinned_regions;
  uint64_t retained_bytes;
} ts_statistics;

/* What verification found. */
typedef struct ts_violation {
  size_t size;
  const char* what; /* Such as "a reference to free memory". */
  uintptr_t object; /* The object that holds the reference, 0 for a root. */
  uintptr_t field;  /* The address of the slot, 0 if it is about the object. */
  uintptr_t value;  /* What it holds. */
  uint64_t collection;
} ts_violation;

/* Told what the heap does; NULL members are not called. Calls come from the thread that caused the
 * event, for collections while the world stands still: they must not use the heap, block for long
 * or throw. What they are handed is valid during the call. */
typedef struct ts_listener {
  size_t size;
  void* context; /* Handed to every function. */
  void (*collection_start)(const ts_collection_report* report, void* context);
  void (*collection_end)(const ts_collection_report* report, void* context);
  /* A mutator had not stopped when the time was up, once for each: the collection is off. */
  void (*safepoint_timeout)(uint64_t mutator_id, const char* name, void* context);
  /* So many bytes could not be had, after the last full collection. */
  void (*out_of_memory)(size_t bytes, void* context);
  /* The heap's committed part has grown; `error` if it was to and could not, else NULL. */
  void (*growth)(size_t committed, const ts_error* error, void* context);
  /* ts_trim() has given memory back. */
  void (*trim)(size_t bytes, void* context);
  void (*violation)(const ts_violation* violation, void* context);
} ts_listener;

/* ---- Heaps */

typedef TS_ENUM(ts_huge_pages){
    TS_HUGE_PAGES_DEFAULT = 0, /* As the system's setting says. */
    TS_HUGE_PAGES_PREFER = 1,  /* MADV_HUGEPAGE. */
    TS_HUGE_PAGES_AVOID = 2    /* MADV_NOHUGEPAGE. */
} ts_huge_pages;

/* How a heap is to be. Sizes in bytes; 0 leaves the choice to the heap. What contradicts itself is
 * TS_INVALID_ARGUMENT with the member named. Begin with ts_heap_options_init(). */
typedef struct ts_heap_options {
  size_t size;
  const ts_object_model* model; /* NULL: the ready-made header, 8-byte aligned. Copied. */
  const ts_listener* listener;  /* NULL: nobody. Copied. */
  const char* name;             /* In /proc/PID/maps; read during the call. */
  size_t max_size;              /* 0: a quarter of what the cgroup or the machine allows. */
  size_t soft_max_size;         /* Stays below unless there is no other way. 0: max_size. */
  size_t min_size;
  size_t initial_size;
  size_t region_size;            /* A power of two from 64 KiB to 4 MiB. */
  size_t young_size;             /* A fixed budget between two young collections. */
  uint64_t safepoint_timeout_ns; /* 0: none. */
  uint64_t stress_interval;      /* Not 0: collect at every nth allocation, and move everything. */
  double overhead_goal;          /* The heap grows above this share of time; 0.06. */
  double evacuation_threshold;   /* Full collections evacuate regions less alive than this; 0.6. */
  unsigned tenuring_age;         /* Collections survived before promotion, 0 to 4; 1. */
  unsigned workers;              /* Threads that collect. 0: one for each usable CPU, at most 16. */
  ts_huge_pages huge_pages;      /* TS_HUGE_PAGES_PREFER. */
  bool verify;                   /* Check the heap before and after each collection. */
  bool poison;                   /* Overwrite what is freed. */
  bool pretouch;                 /* Touch each growth before use. */
} ts_heap_options;

static inline ts_heap_options ts_heap_options_init(void) {
  ts_heap_options options = {
      sizeof(ts_heap_options), NULL,  NULL,  NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0.06, 0.6, 1, 0,
      TS_HUGE_PAGES_PREFER,    false, false, false};
  return options;
}

/* Makes a heap. `options` NULL: all defaults. Errors: what Heap::create() of heap.h has, and
 * TS_LIMIT_EXCEEDED above 1024 heaps at a time. */
TS_CHECK TS_API ts_code ts_heap_create(const ts_heap_options* options, ts_heap** heap,
                                       ts_error* error) TS_NOEXCEPT;

/* Ends a heap and unmaps its memory. TS_BUSY, and nothing is done, while mutators are attached or
 * roots made by ts_root_create() or ts_weak_create() exist. */
TS_CHECK TS_API ts_code ts_heap_destroy(ts_heap* heap, ts_error* error) TS_NOEXCEPT;

/* Collects now, and tells about it in `report` unless that is NULL. `mutator` is the calling
 * thread's, NULL where it has none. Errors: TS_TIMED_OUT (nothing has changed), TS_CORRUPT
 * (verification found something), TS_BUSY (in a native section, or within a collection). */
TS_CHECK TS_API ts_code ts_collect(ts_heap* heap, ts_mutator* mutator, ts_collection_kind kind,
                                   ts_collection_report* report, ts_error* error) TS_NOEXCEPT;

/* Collects fully and gives free memory back to the system in whole huge pages; `bytes` (or NULL) is
 * how much. Errors as ts_collect(), and those of giving back. */
TS_CHECK TS_API ts_code ts_trim(ts_heap* heap, ts_mutator* mutator, size_t* bytes,
                                ts_error* error) TS_NOEXCEPT;

/* The figures. Thread-safe; of one moment if the caller is a running mutator. */
TS_CHECK TS_API ts_code ts_get_statistics(ts_heap* heap, ts_statistics* statistics,
                                          ts_error* error) TS_NOEXCEPT;
/* The same as one JSON object, ended by NUL and cut to fit. `length` (or NULL) is what the whole
 * text has, without the NUL. */
TS_CHECK TS_API ts_code ts_get_statistics_json(ts_heap* heap, char* buffer, size_t size,
                                               size_t* length, ts_error* error) TS_NOEXCEPT;
/* The last collection's report; all zero before the first. */
TS_CHECK TS_API ts_code ts_get_last_collection(ts_heap* heap, ts_collection_report* report,
                                               ts_error* error) TS_NOEXCEPT;

/* Whether an address lies in the heap's reservation; false for a heap that is gone. */
TS_API bool ts_heap_contains(ts_heap* heap, const void* address) TS_NOEXCEPT;

/* ---- Roots of the whole heap */

/* Shows the collector where references lie outside the heap. */
typedef struct ts_root_visitor ts_root_visitor;
/* `count` words, one behind the other, that hold null or the start of an object; updated when it
 * moves. */
TS_API void ts_visit_roots(ts_root_visitor* visitor, void* first, size_t count) TS_NOEXCEPT;
/* Memory that may hold addresses of objects, or of places inside them, among other things: a stack
 * without maps. What it hits stays alive and where it is. */
TS_API void ts_visit_ambiguous(ts_root_visitor* visitor, const void* begin,
                               const void* end) TS_NOEXCEPT;

/* Called with the world stopped, more than once in a collection, on any collecting thread. It must
 * show the same roots each time, and not use the heap. */
typedef void (*ts_root_callback)(ts_root_visitor* visitor, void* context);

/* To be called by a running mutator, or while there is no collection. */
TS_CHECK TS_API ts_code ts_add_roots(ts_heap* heap, ts_root_callback callback, void* context,
                                     ts_error* error) TS_NOEXCEPT;
/* TS_INVALID_ARGUMENT if there was no such. */
TS_CHECK TS_API ts_code ts_remove_roots(ts_heap* heap, ts_root_callback callback, void* context,
                                        ts_error* error) TS_NOEXCEPT;

/* A root that lives until it is destroyed. Creation, use and destruction are for running mutators;
 * thread-safe. */
typedef struct ts_root ts_root;
TS_CHECK TS_API ts_code ts_root_create(ts_heap* heap, void* object, ts_root** root,
                                       ts_error* error) TS_NOEXCEPT;
TS_API void* ts_root_get(const ts_root* root) TS_NOEXCEPT;
TS_API void ts_root_set(ts_root* root, void* object) TS_NOEXCEPT;
TS_API void ts_root_destroy(ts_root* root) TS_NOEXCEPT; /* NULL is fine. */

/* Follows an object without keeping it alive, and becomes null when the object dies. */
typedef struct ts_weak ts_weak;
TS_CHECK TS_API ts_code ts_weak_create(ts_heap* heap, void* object, ts_weak** weak,
                                       ts_error* error) TS_NOEXCEPT;
TS_API void* ts_weak_get(const ts_weak* weak) TS_NOEXCEPT;
TS_API void ts_weak_set(ts_weak* weak, void* object) TS_NOEXCEPT;
TS_API void ts_weak_destroy(ts_weak* weak) TS_NOEXCEPT; /* NULL is fine. */

/* ---- Finalizers */

/* Has ts_next_finalizable() hand an object out once nothing else reaches it; lower priorities
 * first. Thread-safe, for running mutators. */
TS_CHECK TS_API ts_code ts_add_finalizer(ts_heap* heap, void* object, uint32_t priority,
                                         void* context, ts_error* error) TS_NOEXCEPT;
/* An object that was found dead but for finalizers, alive again, with what add_finalizer() was
 * given; false if there is none. The object is no root any more. Thread-safe, for running
 * mutators. */
TS_API bool ts_next_finalizable(ts_heap* heap, void** object, void** context) TS_NOEXCEPT;

/* ---- For code generators */

/* Where the data lies that a mutator's fast paths work on: FastPathLayout of
 * touchstone/heap/fast_path_layout.h, where each member is explained. Offsets are bytes from the
 * ts_mutator. */
typedef struct ts_fast_path_layout {
  size_t size;
  uint32_t tlab_top_offset;
  uint32_t object_alignment;
  uint32_t max_tlab_object;
  uint32_t max_young_object;
  uint32_t card_table_offset;
  uint32_t mark_bitmap_offset;
  uint32_t safepoint_flag_offset;
  uint8_t card_shift;
  uint8_t dirty_card;
  uint8_t clean_card;
  uint8_t mark_shift;
} ts_fast_path_layout;
TS_CHECK TS_API ts_code ts_get_fast_path_layout(ts_heap* heap, ts_fast_path_layout* layout,
                                                ts_error* error) TS_NOEXCEPT;

TS_END_DECLS

#endif /* TOUCHSTONE_C_COLLECTOR_H_ */
