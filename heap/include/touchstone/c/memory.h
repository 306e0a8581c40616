/* SPDX-License-Identifier: MIT */
#ifndef TOUCHSTONE_C_MEMORY_H_
#define TOUCHSTONE_C_MEMORY_H_

/* Memory without objects: reservations, pre-touch, residency, give-back, quarantine. Each is the C
 * form of the header of that name under touchstone/heap/, where errors and limits are explained. */

#include <touchstone/c/base.h>
#include <touchstone/c/collector.h>

TS_BEGIN_DECLS

/* A figure that no source tells. */
#define TS_UNKNOWN SIZE_MAX

/* ---- Reservations */

typedef struct ts_reservation ts_reservation;

typedef TS_ENUM(ts_fork_behaviour){
    TS_FORK_INHERIT = 0, /* A child has a copy. */
    TS_FORK_WIPE = 1,    /* Zeroes. */
    TS_FORK_OMIT = 2     /* Nothing. */
} ts_fork_behaviour;

typedef TS_ENUM(ts_protection){TS_PROTECT_NONE = 0, TS_PROTECT_READ = 1,
                               TS_PROTECT_READ_WRITE = 2} ts_protection;

typedef TS_ENUM(ts_discard_policy){
    TS_DISCARD_AT_ONCE = 0, /* The next read sees zero. */
    TS_DISCARD_LAZILY = 1   /* The kernel takes it when memory runs short. */
} ts_discard_policy;

typedef struct ts_reservation_options {
  size_t size;
  size_t bytes;        /* To reserve: a multiple of the page. */
  size_t alignment;    /* Of the start: a power of two; 0: the page. */
  size_t hugetlb_page; /* Not 0: from the kernel's pool of such pages. */
  const char* name;    /* In /proc/PID/maps; NULL: none. Read during the call. */
  ts_huge_pages huge_pages;
  ts_fork_behaviour fork;
} ts_reservation_options;

static inline ts_reservation_options ts_reservation_options_init(size_t bytes) {
  ts_reservation_options options = {
      sizeof(ts_reservation_options), bytes,          0, 0, "touchstone",
      TS_HUGE_PAGES_DEFAULT,          TS_FORK_INHERIT};
  return options;
}

/* Reserves addresses; no memory is used. */
TS_CHECK TS_API ts_code ts_reserve(const ts_reservation_options* options, ts_reservation** made,
                                   ts_error* error) TS_NOEXCEPT;
TS_API void* ts_reservation_start(const ts_reservation* reservation) TS_NOEXCEPT;
TS_API size_t ts_reservation_size(const ts_reservation* reservation) TS_NOEXCEPT;
/* Makes a range readable and writable; `zeroed` (or NULL) is whether every byte reads zero. */
TS_CHECK TS_API ts_code ts_commit(ts_reservation* reservation, void* address, size_t length,
                                  bool* zeroed, ts_error* error) TS_NOEXCEPT;
/* Gives memory back and has every access fault. */
TS_CHECK TS_API ts_code ts_uncommit(ts_reservation* reservation, void* address, size_t length,
                                    ts_error* error) TS_NOEXCEPT;
/* Gives memory back and leaves it committed: a hint. */
TS_CHECK TS_API ts_code ts_discard(ts_reservation* reservation, void* address, size_t length,
                                   ts_discard_policy policy, ts_error* error) TS_NOEXCEPT;
TS_CHECK TS_API ts_code ts_protect(ts_reservation* reservation, void* address, size_t length,
                                   ts_protection protection, ts_error* error) TS_NOEXCEPT;
/* Forbids for ever that a range is unmapped, moved or protected otherwise. */
TS_CHECK TS_API ts_code ts_seal(ts_reservation* reservation, void* address, size_t length,
                                ts_error* error) TS_NOEXCEPT;
/* Unmaps all and frees the handle; NULL is fine. With TS_NOT_PERMITTED what is sealed stays mapped,
 * and the handle is gone all the same; with any other error it is still valid. */
TS_CHECK TS_API ts_code ts_reservation_destroy(ts_reservation* reservation,
                                               ts_error* error) TS_NOEXCEPT;

/* ---- Pre-touch */

typedef TS_ENUM(ts_pretouch_strategy){TS_PRETOUCH_NONE = 0,
                                      TS_PRETOUCH_STORE = 1,
                                      TS_PRETOUCH_ATOMIC_RMW = 2,
                                      TS_PRETOUCH_POPULATE_WRITE = 3,
                                      TS_PRETOUCH_POPULATE_READ_THEN_STORE = 4,
                                      TS_PRETOUCH_LOAD_THEN_STORE = 5,
                                      TS_PRETOUCH_COLLAPSE = 6,
                                      TS_PRETOUCH_AUTOMATIC = 7} ts_pretouch_strategy;

typedef TS_ENUM(ts_limit_policy){TS_LIMIT_REFUSE = 0, /* An error before the first touch. */
                                 TS_LIMIT_CLAMP = 1,  /* Touch what fits. */
                                 TS_LIMIT_IGNORE = 2} ts_limit_policy;

typedef struct ts_pretouch_options {
  size_t size;
  ts_pretouch_strategy strategy;
  unsigned threads; /* 0: one for each usable CPU. */
  ts_huge_pages huge_pages;
  ts_limit_policy limits;
  bool memory_in_use; /* Other threads use the range meanwhile. */
} ts_pretouch_options;

static inline ts_pretouch_options ts_pretouch_options_init(void) {
  ts_pretouch_options options = {sizeof(ts_pretouch_options), TS_PRETOUCH_AUTOMATIC, 0,
                                 TS_HUGE_PAGES_DEFAULT,       TS_LIMIT_REFUSE,       false};
  return options;
}

typedef struct ts_pretouch_result {
  size_t size;
  size_t bytes;                  /* From the start on. */
  size_t clamped_bytes;          /* Left out at the end. */
  ts_pretouch_strategy strategy; /* Never TS_PRETOUCH_AUTOMATIC. */
  unsigned threads;
  size_t huge_bytes;   /* In huge pages afterwards, or TS_UNKNOWN. */
  size_t minor_faults; /* Or TS_UNKNOWN. */
  double seconds;
} ts_pretouch_result;

/* Has the kernel back a range with memory now. `options` NULL: all defaults; `result` may be NULL.
 * On error, progress is the exact number of bytes touched from the start without a gap. */
TS_CHECK TS_API ts_code ts_pretouch(void* address, size_t length,
                                    const ts_pretouch_options* options, ts_pretouch_result* result,
                                    ts_error* error) TS_NOEXCEPT;

/* ---- Residency */

/* How much of a range is in memory. Bytes, or TS_UNKNOWN. */
typedef struct ts_residency {
  size_t size;
  const char* source; /* "PAGEMAP_SCAN", "pagemap" or "mincore". */
  size_t present;     /* Mapped by a page table entry, the zero page included. */
  size_t zero;        /* Mapped to the zero page. */
  size_t swapped;
  size_t huge; /* In huge pages. */
} ts_residency;

TS_CHECK TS_API ts_code ts_residency_of(const void* address, size_t length, ts_residency* residency,
                                        ts_error* error) TS_NOEXCEPT;

/* ---- Give-back of many ranges */

typedef struct ts_range {
  void* address;
  size_t length;
} ts_range;

/* Where a list of ranges has got to. */
typedef struct ts_discard_progress {
  size_t size;
  size_t range;  /* Index of the first range that is not finished. */
  size_t offset; /* Bytes of it that are. */
  size_t bytes;  /* Given back. */
  size_t kept_bytes;
  size_t calls;
} ts_discard_progress;

/* Gives back what the ranges cover, by few system calls, whole pieces of `granule` bytes alone (0:
 * the page). `progress` (or NULL) is written on failure too. */
TS_CHECK TS_API ts_code ts_discard_ranges(const ts_range* ranges, size_t count,
                                          ts_discard_policy policy, size_t granule,
                                          ts_discard_progress* progress,
                                          ts_error* error) TS_NOEXCEPT;

/* ---- Quarantine */

typedef struct ts_quarantine ts_quarantine;

typedef TS_ENUM(ts_quarantine_mechanism){TS_QUARANTINE_AUTOMATIC = 0, TS_QUARANTINE_PROTECT = 1,
                                         TS_QUARANTINE_GUARD = 2,
                                         TS_QUARANTINE_REMAP = 3} ts_quarantine_mechanism;

typedef struct ts_quarantine_options {
  size_t size;
  ts_quarantine_mechanism mechanism;
  uint64_t epochs;   /* Collections that a block stays for. */
  size_t max_bytes;  /* Held at most. */
  size_t max_blocks; /* Likewise. */
} ts_quarantine_options;

static inline ts_quarantine_options ts_quarantine_options_init(void) {
  ts_quarantine_options options = {sizeof(ts_quarantine_options), TS_QUARANTINE_AUTOMATIC, 2,
                                   (size_t)256 << 20, 1024};
  return options;
}

/* A block that has left quarantine. */
typedef struct ts_released_block {
  size_t size;
  void* address; /* NULL: no block has to leave. */
  size_t length;
  uint64_t tag;
  uint64_t freed_epoch;
  bool zeroed;
} ts_released_block;

TS_CHECK TS_API ts_code ts_quarantine_create(const ts_quarantine_options* options,
                                             ts_quarantine** made, ts_error* error) TS_NOEXCEPT;
/* What is still held stays inaccessible. NULL is fine. */
TS_API void ts_quarantine_destroy(ts_quarantine* quarantine) TS_NOEXCEPT;
/* Makes a freed block inaccessible. */
TS_CHECK TS_API ts_code ts_quarantine_put(ts_quarantine* quarantine, void* address, size_t length,
                                          uint64_t tag, ts_error* error) TS_NOEXCEPT;
/* Notes that a collection has ended, and returns its number. */
TS_API uint64_t ts_quarantine_advance(ts_quarantine* quarantine) TS_NOEXCEPT;
/* Hands back the oldest block if it has stayed long enough or `room` more bytes need its place;
 * with `any`, whatever its age. */
TS_CHECK TS_API ts_code ts_quarantine_release(ts_quarantine* quarantine, size_t room, bool any,
                                              ts_released_block* block,
                                              ts_error* error) TS_NOEXCEPT;

/* What a faulting access hit. */
typedef struct ts_fault {
  size_t size;
  uintptr_t address;    /* The access. */
  uintptr_t block;      /* Start of the block that was freed. */
  size_t block_size;    /* Bytes. */
  size_t offset;        /* address - block. */
  uint64_t freed_epoch; /* The collection in which it was freed. */
  uint64_t age;         /* Collections since. */
  uint64_t tag;
} ts_fault;

/* Whether a SIGSEGV or SIGBUS hit a freed block in any quarantine of the process. `siginfo` is the
 * handler's siginfo_t*. Async-signal-safe, and so is the next. */
TS_API bool ts_explain_fault(const void* siginfo, ts_fault* fault) TS_NOEXCEPT;
/* Writes one line, ended by a newline and not by NUL, cut to fit; returns its length. */
TS_API size_t ts_describe_fault(const ts_fault* fault, char* line, size_t size) TS_NOEXCEPT;

TS_END_DECLS

#endif /* TOUCHSTONE_C_MEMORY_H_ */
