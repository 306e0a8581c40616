/* SPDX-License-Identifier: MIT */
#ifndef TOUCHSTONE_C_BASE_H_
#define TOUCHSTONE_C_BASE_H_

/* Errors, and what all parts of the C interface share. What a program hands over to be called must
 * not throw, and not longjmp out of the call. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define TS_NOEXCEPT noexcept
/* What C makes of an enum without negative values, so that any value may come across. */
#define TS_ENUM(name) enum name : unsigned
/* The inline functions are C, casts included. */
#define TS_BEGIN_DECLS \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wold-style-cast\"") extern "C" {
#define TS_END_DECLS \
  }                  \
  _Pragma("GCC diagnostic pop")
#else
#define TS_NOEXCEPT
#define TS_ENUM(name) enum name
#define TS_BEGIN_DECLS
#define TS_END_DECLS
#endif
#define TS_API __attribute__((visibility("default")))
#define TS_CHECK __attribute__((warn_unused_result))

TS_BEGIN_DECLS

/* What became of a call. 0 is success. */
typedef TS_ENUM(ts_code){
    TS_OK = 0,
    TS_INVALID_ARGUMENT = 1, /* A value outside what the function accepts; detail says which. */
    TS_MISALIGNED = 2,       /* An address or a size that is not a multiple of what it must be. */
    TS_OVERFLOW = 3,         /* Address plus size wraps, or a size exceeds the address space. */
    TS_OUT_OF_RANGE = 4,     /* Part of the range lies outside the object it was given to. */
    TS_LIMIT_EXCEEDED = 5,   /* A known limit (cgroup, RLIMIT_AS) forbids it beforehand. */
    TS_OUT_OF_MEMORY = 6,    /* There was no memory, address space or mapping left. */
    TS_POOL_EMPTY = 7,       /* The kernel's pool of hugetlb pages has too few free ones. */
    TS_NOT_PERMITTED = 8,    /* The kernel refused for want of privilege or because of a seal. */
    TS_UNSUPPORTED = 9,      /* This kernel, CPU or build cannot do it. */
    TS_INEFFECTIVE = 10,     /* The call reported success and had no effect. */
    TS_CANCELLED = 11,       /* The caller asked for it to stop. */
    TS_BUSY = 12,            /* In use in a way that the operation would break. */
    TS_UNAVAILABLE = 13,     /* A source of information (procfs, sysfs) could not be read. */
    TS_FROZEN = 14,          /* Read-only in this process (after fork). */
    TS_TIMED_OUT = 15,       /* Not done in the time it was given; nothing has changed. */
    TS_CORRUPT = 16,         /* A check of data found it broken. */
    TS_SYSTEM = 17           /* Any other failed system call; system_errno tells. */
} ts_code;

/* What failed, where, why and how far it got. Each function that takes one accepts NULL; it is
 * written when the function fails and left alone when it succeeds. The strings live for ever. */
typedef struct ts_error {
  size_t size;
  ts_code code;
  int system_errno;      /* 0 where no system call failed. */
  const char* operation; /* Such as "madvise(MADV_POPULATE_WRITE)". */
  uintptr_t address;     /* Start of the range it was to work on, or 0. */
  size_t length;         /* Bytes of that range. */
  size_t progress;       /* Bytes from the start for which it is done. Exact. */
  const char* detail;    /* A clause that says more, or "". */
} ts_error;

/* One to hand to a function. */
static inline ts_error ts_error_init(void) {
  ts_error error = {sizeof(ts_error), TS_OK, 0, "", 0, 0, 0, ""};
  return error;
}

/* Such as "out of memory". Never NULL. Thread-safe. */
TS_API const char* ts_code_name(ts_code code) TS_NOEXCEPT;

/* Writes one line for a person, ended by NUL and cut to fit, and returns the length that the whole
 * line has without the NUL, as snprintf does. `buffer` may be NULL when `size` is 0. */
TS_API size_t ts_error_message(const ts_error* error, char* buffer, size_t size) TS_NOEXCEPT;

/* The library's version, such as "0.1.0". */
TS_API const char* ts_version(void) TS_NOEXCEPT;

TS_END_DECLS

#endif /* TOUCHSTONE_C_BASE_H_ */
