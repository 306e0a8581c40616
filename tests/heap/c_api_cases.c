/* SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
/* For siginfo_t. */
#define _POSIX_C_SOURCE 200809L
#endif

#include "c_api_cases.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <touchstone.h>
#include <unistd.h>

#ifdef __cplusplus
#define CASES c_api_cases_as_cpp
#pragma GCC diagnostic ignored "-Wold-style-cast"
#else
#define CASES c_api_cases_as_c
#endif

/* ---- What the cases say */

static void failed(c_api_report* report, const char* file, int line, const char* what) {
  const size_t used = strlen(report->text);
  ++report->failures;
  (void)snprintf(report->text + used, sizeof report->text - used, "%s:%d: %s\n", file, line, what);
}
#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) failed(report, __FILE__, __LINE__, #condition); \
  } while (0)
/* Ends the case. */
#define REQUIRE(condition)                            \
  do {                                                \
    if (!(condition)) {                               \
      failed(report, __FILE__, __LINE__, #condition); \
      return;                                         \
    }                                                 \
  } while (0)

/* ---- Objects with the ready-made header */

typedef struct pair pair;
struct pair {
  uint64_t header;
  pair* left;
  pair* right;
  uint64_t number;
};

static pair* make_pair_of(ts_mutator* mutator, uint64_t number) {
  pair* const made = (pair*)ts_allocate(mutator, sizeof(pair));
  if (made == NULL) return NULL;
  made->header = ts_header_record(sizeof(pair), 2);
  made->number = number;
  return made;
}

/* A heap and its one mutator. */
typedef struct world {
  ts_heap* heap;
  ts_mutator* mutator;
} world;

static ts_heap_options small_heap(void) {
  ts_heap_options options = ts_heap_options_init();
  options.max_size = (size_t)64 << 20;
  options.workers = 2;
  options.verify = true;
  options.poison = true;
  return options;
}
static bool open_world(c_api_report* report, world* it, const ts_heap_options* options) {
  ts_error error = ts_error_init();
  it->heap = NULL;
  it->mutator = NULL;
  EXPECT(ts_heap_create(options, &it->heap, &error) == TS_OK);
  if (it->heap == NULL) {
    failed(report, __FILE__, __LINE__, error.detail);
    return false;
  }
  EXPECT(ts_attach(it->heap, "main", &it->mutator, NULL) == TS_OK);
  return it->mutator != NULL;
}
static void close_world(c_api_report* report, world* it) {
  EXPECT(ts_detach(it->mutator, NULL) == TS_OK);
  EXPECT(ts_heap_destroy(it->heap, NULL) == TS_OK);
}

/* A list of `length` pairs with numbers from 0 up, in `root`. */
static bool grow_list(ts_mutator* mutator, ts_local* root, uint64_t length) {
  for (uint64_t i = 0; i < length; ++i) {
    pair* const made = make_pair_of(mutator, i);
    if (made == NULL) return false;
    made->left = (pair*)root->object;
    root->object = made;
  }
  return true;
}
static bool list_is(const ts_local* root, uint64_t length) {
  const pair* at = (const pair*)root->object;
  for (uint64_t i = length; i-- > 0; at = at->left) {
    if (at == NULL || at->number != i) return false;
  }
  return at == NULL;
}

/* ---- Errors */

static void errors_have_names_and_messages(c_api_report* report) {
  for (unsigned code = TS_OK; code <= TS_SYSTEM; ++code) {
    const char* const name = ts_code_name((ts_code)code);
    EXPECT(name != NULL && strlen(name) > 3 && strcmp(name, "unknown error") != 0);
  }
  EXPECT(strcmp(ts_code_name((ts_code)(TS_SYSTEM + 1)), "unknown error") == 0);
  EXPECT(strcmp(ts_code_name((ts_code)4000000000u), "unknown error") == 0);
  EXPECT(strchr(ts_version(), '.') != NULL);

  ts_error error = ts_error_init();
  error.code = TS_OUT_OF_MEMORY;
  error.operation = "an operation";
  error.detail = "a detail";
  char line[200];
  const size_t length = ts_error_message(&error, line, sizeof line);
  EXPECT(length == strlen(line));
  EXPECT(strstr(line, "an operation") != NULL && strstr(line, "a detail") != NULL);
  char cut[8];
  EXPECT(ts_error_message(&error, cut, sizeof cut) == length);
  EXPECT(strlen(cut) == sizeof cut - 1 && strncmp(cut, line, sizeof cut - 1) == 0);
  EXPECT(ts_error_message(&error, NULL, 0) == length);
  EXPECT(ts_error_message(NULL, line, sizeof line) > 0);
}

static void structs_of_other_versions(c_api_report* report) {
  ts_heap* heap = NULL;
  ts_error error = ts_error_init();

  /* An earlier version: what it does not have takes its default. */
  ts_heap_options options = small_heap();
  options.tenuring_age = 99;
  options.size = offsetof(ts_heap_options, tenuring_age);
  REQUIRE(ts_heap_create(&options, &heap, &error) == TS_OK);
  EXPECT(ts_heap_destroy(heap, NULL) == TS_OK);
  options.size = sizeof options;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  EXPECT(heap == NULL);
  EXPECT(strstr(error.detail, "tenuring_age") != NULL);

  /* A later one: fine as long as it does not ask for what is not known here. */
  struct {
    ts_heap_options known;
    uint64_t later[4];
  } longer;
  memset(&longer, 0, sizeof longer);
  longer.known = small_heap();
  longer.known.size = sizeof longer;
  REQUIRE(ts_heap_create(&longer.known, &heap, &error) == TS_OK);
  struct {
    ts_statistics known;
    uint64_t later;
  } figures;
  memset(&figures, 0x55, sizeof figures);
  figures.known.size = sizeof figures;
  EXPECT(ts_get_statistics(heap, &figures.known, NULL) == TS_OK);
  EXPECT(figures.known.size == sizeof figures);
  EXPECT(figures.known.max_size == (size_t)64 << 20);
  EXPECT(figures.later == 0);
  /* Of an earlier one no more is written than there is. */
  memset(&figures, 0x55, sizeof figures);
  figures.known.size = offsetof(ts_statistics, allocated);
  EXPECT(ts_get_statistics(heap, &figures.known, NULL) == TS_OK);
  EXPECT(figures.known.allocated == UINT64_C(0x5555555555555555));
  EXPECT(figures.known.young_collections == 0);
  EXPECT(ts_heap_destroy(heap, NULL) == TS_OK);
  longer.later[3] = 1;
  EXPECT(ts_heap_create(&longer.known, &heap, &error) == TS_INVALID_ARGUMENT);
  EXPECT(strstr(error.detail, "does not know") != NULL);

  /* No size at all. */
  options = small_heap();
  options.size = 0;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  options.size = SIZE_MAX;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  EXPECT(strstr(error.detail, "size is not set") != NULL);
  /* An error that cannot be written to is left alone. */
  ts_error none = ts_error_init();
  none.size = 0;
  EXPECT(ts_heap_create(&options, &heap, &none) == TS_INVALID_ARGUMENT);
  EXPECT(none.code == TS_OK);
}

static void options_that_cannot_be(c_api_report* report) {
  ts_heap* heap = NULL;
  ts_error error = ts_error_init();
  EXPECT(ts_heap_create(NULL, NULL, &error) == TS_INVALID_ARGUMENT);
  ts_heap_options options = small_heap();
  options.min_size = options.max_size * 2;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  EXPECT(strstr(error.detail, "min_size") != NULL);
  options = small_heap();
  options.max_size = 4096;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  options = small_heap();
  options.region_size = 3 << 20;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  EXPECT(strstr(error.detail, "region_size") != NULL);
  options = small_heap();
  options.overhead_goal = -1;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  options = small_heap();
  options.huge_pages = (ts_huge_pages)7;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  EXPECT(strcmp(error.detail, "huge_pages") == 0);
  options = small_heap();
  options.safepoint_timeout_ns = UINT64_MAX;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  ts_object_model model;
  memset(&model, 0, sizeof model);
  model.size = sizeof model;
  options = small_heap();
  options.model = &model;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  EXPECT(strstr(error.detail, "alignment") != NULL);
  model.alignment = 8;
  EXPECT(ts_heap_create(&options, &heap, &error) == TS_INVALID_ARGUMENT);
  EXPECT(strstr(error.detail, "object_size") != NULL);
  EXPECT(heap == NULL);
}

static void handles_that_are_gone(c_api_report* report) {
  ts_error error = ts_error_init();
  world it;
  ts_heap_options options = small_heap();
  if (!open_world(report, &it, &options)) return;

  EXPECT(ts_heap_destroy(it.heap, &error) == TS_BUSY);
  EXPECT(strstr(error.detail, "mutators") != NULL);

  ts_local local;
  ts_local_open(&local, it.mutator, NULL);
  EXPECT(ts_detach(it.mutator, &error) == TS_BUSY);
  ts_local_close(&local);
  EXPECT(ts_detach(it.mutator, NULL) == TS_OK);

  /* A mutator that was detached. */
  EXPECT(ts_detach(it.mutator, &error) == TS_INVALID_ARGUMENT);
  EXPECT(ts_allocate(it.mutator, 32) == NULL);
  EXPECT(ts_allocation_error(it.mutator, &error) == TS_INVALID_ARGUMENT);
  EXPECT(strstr(error.detail, "detached") != NULL);
  ts_poll(it.mutator);
  EXPECT(ts_enter_native(it.mutator, NULL) == TS_INVALID_ARGUMENT);
  EXPECT(ts_leave_native(it.mutator, NULL) == TS_INVALID_ARGUMENT);
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, NULL, &error) == TS_INVALID_ARGUMENT);

  ts_root* root = NULL;
  ts_weak* weak = NULL;
  EXPECT(ts_root_create(it.heap, NULL, &root, NULL) == TS_OK);
  EXPECT(ts_heap_destroy(it.heap, &error) == TS_BUSY);
  EXPECT(strstr(error.detail, "roots") != NULL);
  ts_root_destroy(root);
  ts_root_destroy(NULL);
  EXPECT(ts_weak_create(it.heap, NULL, &weak, NULL) == TS_OK);
  EXPECT(ts_heap_destroy(it.heap, &error) == TS_BUSY);
  ts_weak_destroy(weak);
  ts_weak_destroy(NULL);

  /* A heap that was destroyed, also when another is in its place. */
  ts_heap* const gone = it.heap;
  ts_heap* other = NULL;
  EXPECT(ts_heap_destroy(gone, NULL) == TS_OK);
  for (int turn = 0; turn < 2; ++turn) {
    ts_mutator* mutator = NULL;
    ts_statistics statistics;
    statistics.size = sizeof statistics;
    EXPECT(ts_heap_destroy(gone, &error) == TS_INVALID_ARGUMENT);
    EXPECT(strstr(error.detail, "destroyed") != NULL);
    EXPECT(ts_attach(gone, NULL, &mutator, NULL) == TS_INVALID_ARGUMENT);
    EXPECT(ts_collect(gone, NULL, TS_COLLECT_FULL, NULL, NULL) == TS_INVALID_ARGUMENT);
    EXPECT(ts_trim(gone, NULL, NULL, NULL) == TS_INVALID_ARGUMENT);
    EXPECT(ts_get_statistics(gone, &statistics, NULL) == TS_INVALID_ARGUMENT);
    EXPECT(ts_root_create(gone, NULL, &root, NULL) == TS_INVALID_ARGUMENT);
    EXPECT(ts_add_finalizer(gone, NULL, 0, NULL, NULL) == TS_INVALID_ARGUMENT);
    EXPECT(!ts_heap_contains(gone, report));
    EXPECT(ts_allocate(it.mutator, 32) == NULL);
    if (turn == 0) EXPECT(ts_heap_create(&options, &other, NULL) == TS_OK);
  }
  EXPECT(ts_heap_destroy(other, NULL) == TS_OK);
  EXPECT(ts_heap_destroy(NULL, NULL) == TS_INVALID_ARGUMENT);
  EXPECT(ts_allocate_slow(NULL, 8) == NULL);
}

/* ---- Objects */

static void objects_survive(c_api_report* report) {
  world it;
  ts_heap_options options = small_heap();
  if (!open_world(report, &it, &options)) return;
  ts_local list;
  ts_local_open(&list, it.mutator, NULL);
  EXPECT(grow_list(it.mutator, &list, 100000));
  EXPECT(ts_heap_contains(it.heap, list.object));
  EXPECT(!ts_heap_contains(it.heap, &list));
  ts_collection_report collection;
  collection.size = sizeof collection;
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_YOUNG, &collection, NULL) == TS_OK);
  EXPECT(collection.number == 1 && collection.kind == TS_COLLECT_YOUNG);
  EXPECT(collection.cause == TS_CAUSE_REQUEST);
  EXPECT(collection.copied + collection.promoted >= 100000 * sizeof(pair));
  EXPECT(list_is(&list, 100000));
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, &collection, NULL) == TS_OK);
  EXPECT(collection.kind == TS_COLLECT_FULL && collection.marked >= 100000 * sizeof(pair));
  EXPECT(list_is(&list, 100000));
  EXPECT(ts_get_last_collection(it.heap, &collection, NULL) == TS_OK);
  EXPECT(collection.kind == TS_COLLECT_FULL);
  ts_local_close(&list);
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, &collection, NULL) == TS_OK);
  EXPECT(collection.marked == 0);

  size_t trimmed = 0;
  EXPECT(ts_trim(it.heap, it.mutator, &trimmed, NULL) == TS_OK);
  ts_statistics statistics;
  statistics.size = sizeof statistics;
  EXPECT(ts_get_statistics(it.heap, &statistics, NULL) == TS_OK);
  EXPECT(statistics.trimmed == trimmed);
  EXPECT(statistics.young_collections + statistics.full_collections >= 4);
  EXPECT(statistics.mutators == 1 && statistics.workers == 2 && statistics.violations == 0);
  EXPECT(ts_collect(it.heap, it.mutator, (ts_collection_kind)2, NULL, NULL) == TS_INVALID_ARGUMENT);
  close_world(report, &it);
}

static void sizes(c_api_report* report) {
  ts_error error = ts_error_init();
  world it;
  ts_heap_options options = small_heap();
  if (!open_world(report, &it, &options)) return;
  EXPECT(ts_allocate(it.mutator, 0) == NULL);
  EXPECT(ts_allocation_error(it.mutator, &error) == TS_INVALID_ARGUMENT);
  EXPECT(ts_allocate_aligned(it.mutator, 0) == NULL);
  EXPECT(ts_allocate(it.mutator, SIZE_MAX) == NULL);
  EXPECT(ts_allocation_error(it.mutator, &error) == TS_OUT_OF_MEMORY);
  EXPECT(error.length == SIZE_MAX);
  EXPECT(ts_allocate(it.mutator, SIZE_MAX - 7) == NULL);
  EXPECT(ts_allocate(it.mutator, SIZE_MAX / 2 + 1) == NULL);
  EXPECT(ts_allocate(it.mutator, (size_t)1 << 40) == NULL);
  EXPECT(ts_allocation_error(it.mutator, &error) == TS_OUT_OF_MEMORY);
  /* Odd ones are rounded up, and what follows is aligned. */
  for (size_t size = 1; size < 64; ++size) {
    uint64_t* const object = (uint64_t*)ts_allocate(it.mutator, size);
    REQUIRE(object != NULL);
    EXPECT((uintptr_t)object % 8 == 0);
    for (size_t i = 0; i < (size + 7) / 8; ++i) EXPECT(object[i] == 0);
    *object = ts_header_record((size + 7) / 8 * 8, 0);
    if (size > 8) memset(object + 1, 0xff, (size + 7) / 8 * 8 - 8);
  }
  /* Each kind of place. */
  ts_local big;
  ts_local_open(&big, it.mutator, NULL);
  for (size_t size = 1 << 10; size <= 8u << 20; size *= 4) {
    uint64_t* const object = (uint64_t*)ts_allocate_aligned(it.mutator, size);
    REQUIRE(object != NULL);
    object[0] = ts_header_record(size, 1);
    object[size / 8 - 1] = size;
    ts_write(it.mutator, object + 1, big.object);
    big.object = object;
  }
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, NULL, NULL) == TS_OK);
  size_t count = 0;
  for (uint64_t* at = (uint64_t*)big.object; at != NULL; at = *(uint64_t**)(void*)(at + 1)) {
    const size_t size = (size_t)(at[0] >> 4 & 0xfffffffff) * 8;
    EXPECT(at[size / 8 - 1] == size);
    ++count;
  }
  EXPECT(count == 7);
  ts_local_close(&big);
  close_world(report, &it);
}

static void out_of_memory_is_an_error(c_api_report* report) {
  ts_error error = ts_error_init();
  world it;
  ts_heap_options options = small_heap();
  options.verify = false;
  options.max_size = (size_t)4 << 20;
  if (!open_world(report, &it, &options)) return;
  ts_local list;
  ts_local_open(&list, it.mutator, NULL);
  EXPECT(!grow_list(it.mutator, &list, 1 << 20));
  EXPECT(ts_allocation_error(it.mutator, &error) == TS_OUT_OF_MEMORY);
  EXPECT(list.object != NULL);
  const uint64_t length = ((pair*)list.object)->number + 1;
  EXPECT(length * sizeof(pair) >= (size_t)2 << 20);
  EXPECT(list_is(&list, length));
  list.object = NULL;
  EXPECT(grow_list(it.mutator, &list, length / 2));
  EXPECT(list_is(&list, length / 2));
  ts_local_close(&list);
  close_world(report, &it);
}

static void kept_while_allocating(c_api_report* report) {
  world it;
  ts_heap_options options = small_heap();
  options.stress_interval = 1;
  if (!open_world(report, &it, &options)) return;
  void* first = make_pair_of(it.mutator, 1);
  void* second = NULL;
  for (uint64_t i = 2; i < 200; ++i) {
    pair* const made = (pair*)ts_allocate_keeping(it.mutator, sizeof(pair), &first, &second);
    REQUIRE(made != NULL);
    made->header = ts_header_record(sizeof(pair), 2);
    made->number = i;
    made->left = (pair*)first;
    second = made;
    void* const none = ts_allocate_keeping(it.mutator, 0, &second, NULL);
    EXPECT(none == NULL);
    /* Fills what is left of the buffer, so that the slow path, and with it a collection, comes. */
    const size_t left = (size_t)(ts_block(it.mutator)->tlab_end - ts_block(it.mutator)->tlab_top);
    first = second;
    if (left > 8) {
      uint64_t* const rest = (uint64_t*)ts_allocate_keeping(it.mutator, left, &first, &second);
      REQUIRE(rest != NULL);
      *rest = ts_header_record(left, 0);
    }
  }
  ts_statistics statistics;
  statistics.size = sizeof statistics;
  EXPECT(ts_get_statistics(it.heap, &statistics, NULL) == TS_OK);
  EXPECT(statistics.young_collections > 20 && statistics.full_collections > 20);
  uint64_t expected = 199;
  for (pair* at = (pair*)first; at != NULL; at = at->left) EXPECT(at->number == expected--);
  EXPECT(expected == 0);
  close_world(report, &it);
}

/* ---- Barriers */

static void barriers(c_api_report* report) {
  enum { kSlots = 4096 };
  world it;
  ts_heap_options options = small_heap();
  if (!open_world(report, &it, &options)) return;
  ts_local table;
  ts_local_open(&table, it.mutator, NULL);
  uint64_t* made = (uint64_t*)ts_allocate(it.mutator, 8 + kSlots * 8);
  REQUIRE(made != NULL);
  *made = ts_header_array(kSlots);
  table.object = made;
  /* Makes it old. */
  for (int i = 0; i < 3; ++i) {
    EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_YOUNG, NULL, NULL) == TS_OK);
  }
#define SLOTS ((void**)table.object + 1)
  for (uint64_t i = 0; i < 8; ++i) {
    pair* const fresh = make_pair_of(it.mutator, i);
    ts_write(it.mutator, SLOTS + i * 100, fresh);
  }
  EXPECT(ts_swap(it.mutator, SLOTS + 1, make_pair_of(it.mutator, 100)) == NULL);
  void* expected = NULL;
  EXPECT(ts_compare_swap(it.mutator, SLOTS + 1001, &expected, make_pair_of(it.mutator, 101)));
  EXPECT(!ts_compare_swap(it.mutator, SLOTS + 1001, &expected, NULL));
  EXPECT(expected == SLOTS[1001]);
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_YOUNG, NULL, NULL) == TS_OK);
  for (uint64_t i = 0; i < 8; ++i) EXPECT(((pair*)SLOTS[i * 100])->number == i);
  EXPECT(((pair*)SLOTS[1])->number == 100);
  EXPECT(((pair*)SLOTS[1001])->number == 101);

  /* Copies, apart and overlapping both ways. */
  void* run[300];
  for (uint64_t i = 0; i < 300; ++i) run[i] = make_pair_of(it.mutator, 1000 + i);
  ts_copy_references(it.mutator, SLOTS + 2000, run, 300);
  ts_copy_references(it.mutator, SLOTS + 2100, SLOTS + 2000, 300);
  ts_copy_references(it.mutator, SLOTS + 1950, SLOTS + 2000, 100);
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_YOUNG, NULL, NULL) == TS_OK);
  for (uint64_t i = 0; i < 100; ++i) EXPECT(((pair*)SLOTS[1950 + i])->number == 1000 + i);
  for (uint64_t i = 0; i < 300; ++i) EXPECT(((pair*)SLOTS[2100 + i])->number == 1000 + i);

  /* Stored by hand, then told. */
  for (uint64_t i = 0; i < 300; ++i) SLOTS[3000 + i] = make_pair_of(it.mutator, i);
  ts_write_barrier_range(it.mutator, SLOTS + 3000, 300 * 8);
  ts_write_barrier_range(it.mutator, SLOTS, 0);
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_YOUNG, NULL, NULL) == TS_OK);
  for (uint64_t i = 0; i < 300; ++i) EXPECT(((pair*)SLOTS[3000 + i])->number == i);
#undef SLOTS
  ts_local_close(&table);
  close_world(report, &it);
}

typedef struct findings {
  size_t violations;
  size_t starts;
  size_t ends;
  size_t out_of_memory;
  size_t timeouts;
  size_t growths;
  size_t trims;
  uintptr_t object;
  uintptr_t field;
  char late[32];
  ts_heap* heap;
  ts_code inner_collect;
  ts_code inner_attach;
} findings;

static void on_violation(const ts_violation* violation, void* context) {
  findings* const found = (findings*)context;
  ++found->violations;
  found->object = violation->object;
  found->field = violation->field;
}
static void on_start(const ts_collection_report* collection, void* context) {
  findings* const found = (findings*)context;
  found->starts += collection->number != 0;
  if (found->heap != NULL) {
    /* Nothing that waits for the end of a collection can be done within one. */
    ts_mutator* mutator = NULL;
    found->inner_collect = ts_collect(found->heap, NULL, TS_COLLECT_FULL, NULL, NULL);
    found->inner_attach = ts_attach(found->heap, NULL, &mutator, NULL);
  }
}
static void on_end(const ts_collection_report* collection, void* context) {
  ((findings*)context)->ends += collection->pause_ns != 0;
}
static void on_out_of_memory(size_t bytes, void* context) {
  ((findings*)context)->out_of_memory = bytes;
}
static void on_timeout(uint64_t id, const char* name, void* context) {
  findings* const found = (findings*)context;
  found->timeouts += id != 0;
  (void)snprintf(found->late, sizeof found->late, "%s", name);
}
static void on_growth(size_t committed, const ts_error* error, void* context) {
  ((findings*)context)->growths += committed != 0 && error == NULL;
}
static void on_trim(size_t bytes, void* context) {
  (void)bytes;
  ++((findings*)context)->trims;
}
static ts_listener listener_of(findings* found) {
  ts_listener listener;
  memset(found, 0, sizeof *found);
  memset(&listener, 0, sizeof listener);
  listener.size = sizeof listener;
  listener.context = found;
  listener.collection_start = on_start;
  listener.collection_end = on_end;
  listener.safepoint_timeout = on_timeout;
  listener.out_of_memory = on_out_of_memory;
  listener.growth = on_growth;
  listener.trim = on_trim;
  listener.violation = on_violation;
  return listener;
}

static void a_missing_barrier_is_found(c_api_report* report) {
  ts_error error = ts_error_init();
  findings found;
  const ts_listener listener = listener_of(&found);
  world it;
  ts_heap_options options = small_heap();
  options.listener = &listener;
  options.poison = false;
  if (!open_world(report, &it, &options)) return;
  ts_local old;
  ts_local_open(&old, it.mutator, make_pair_of(it.mutator, 1));
  for (int i = 0; i < 3; ++i) {
    EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_YOUNG, NULL, NULL) == TS_OK);
  }
  pair* const holder = (pair*)old.object;
  holder->right = make_pair_of(it.mutator, 2);
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_YOUNG, NULL, &error) == TS_CORRUPT);
  EXPECT(found.violations >= 1);
  EXPECT(found.object == (uintptr_t)holder);
  EXPECT(found.field == (uintptr_t)&holder->right);
  ((pair*)old.object)->right = NULL;
  ts_local_close(&old);
  close_world(report, &it);
}

/* What trace() shows is no reference: beside the heap, within an object, at an odd address. */
static void bad_references_are_named(c_api_report* report) {
  findings found;
  const ts_listener listener = listener_of(&found);
  world it;
  ts_heap_options options = small_heap();
  options.listener = &listener;
  if (!open_world(report, &it, &options)) return;
  ts_local holder, target;
  ts_local_open(&holder, it.mutator, make_pair_of(it.mutator, 1));
  ts_local_open(&target, it.mutator, make_pair_of(it.mutator, 2));
  for (int kind = 0; kind < 3; ++kind) {
    ts_error error = ts_error_init();
    pair* const object = (pair*)holder.object;
    const uintptr_t fine = (uintptr_t)target.object;
    const uintptr_t bad = kind == 0 ? (uintptr_t)report : kind == 1 ? fine + 8 : fine + 1;
    object->right = (pair*)bad;
    ts_write_barrier(it.mutator, &object->right);
    found.violations = 0;
    EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, NULL, &error) == TS_CORRUPT);
    EXPECT(found.violations >= 1);
    EXPECT(found.object == (uintptr_t)object);
    EXPECT(found.field == (uintptr_t)&object->right);
    EXPECT((uintptr_t)object->right == bad);
    ((pair*)holder.object)->right = NULL;
    EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, NULL, NULL) == TS_OK);
    EXPECT(((pair*)holder.object)->number == 1 && ((pair*)target.object)->number == 2);
  }
  ts_local_close(&holder);
  close_world(report, &it);
}

/* ---- Roots */

typedef struct some_roots {
  void* precise[3];
  uintptr_t ambiguous[2];
} some_roots;
static void show(ts_root_visitor* visitor, void* context) {
  some_roots* const roots = (some_roots*)context;
  ts_visit_roots(visitor, roots->precise, 3);
  ts_visit_ambiguous(visitor, roots->ambiguous, roots->ambiguous + 2);
}

static void roots_of_all_kinds(c_api_report* report) {
  world it;
  ts_heap_options options = small_heap();
  if (!open_world(report, &it, &options)) return;
  some_roots of_heap, of_mutator;
  memset(&of_heap, 0, sizeof of_heap);
  memset(&of_mutator, 0, sizeof of_mutator);
  EXPECT(ts_add_roots(it.heap, show, &of_heap, NULL) == TS_OK);
  EXPECT(ts_mutator_add_roots(it.mutator, show, &of_mutator, NULL) == TS_OK);
  EXPECT(ts_add_roots(it.heap, NULL, NULL, NULL) == TS_INVALID_ARGUMENT);
  ts_root* root = NULL;
  ts_weak* weak = NULL;
  ts_weak* pinned = NULL;
  EXPECT(ts_root_create(it.heap, make_pair_of(it.mutator, 1), &root, NULL) == TS_OK);
  EXPECT(ts_weak_create(it.heap, make_pair_of(it.mutator, 2), &weak, NULL) == TS_OK);
  of_heap.precise[1] = make_pair_of(it.mutator, 3);
  of_mutator.precise[2] = make_pair_of(it.mutator, 4);
  /* Into the middle of it. */
  pair* const here = make_pair_of(it.mutator, 5);
  of_heap.ambiguous[0] = (uintptr_t)&here->number;
  of_heap.ambiguous[1] = (uintptr_t)report;
  EXPECT(ts_weak_create(it.heap, here, &pinned, NULL) == TS_OK);
  void* const before = of_heap.precise[1];
  for (int full = 0; full < 2; ++full) {
    EXPECT(ts_collect(it.heap, it.mutator, full ? TS_COLLECT_FULL : TS_COLLECT_YOUNG, NULL, NULL) ==
           TS_OK);
    EXPECT(((pair*)ts_root_get(root))->number == 1);
    EXPECT(ts_weak_get(weak) == NULL);
    EXPECT(((pair*)of_heap.precise[1])->number == 3);
    EXPECT(((pair*)of_mutator.precise[2])->number == 4);
    EXPECT(ts_weak_get(pinned) == here && here->number == 5);
  }
  EXPECT(of_heap.precise[1] != before);
  ts_root_set(root, here);
  of_heap.ambiguous[0] = 0;
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, NULL, NULL) == TS_OK);
  EXPECT(((pair*)ts_root_get(root))->number == 5);
  EXPECT(ts_weak_get(pinned) == ts_root_get(root));
  ts_weak_set(pinned, ts_root_get(root));
  ts_root_destroy(root);
  EXPECT(ts_remove_roots(it.heap, show, &of_heap, NULL) == TS_OK);
  EXPECT(ts_remove_roots(it.heap, show, &of_heap, NULL) == TS_INVALID_ARGUMENT);
  EXPECT(ts_mutator_remove_roots(it.mutator, show, &of_mutator, NULL) == TS_OK);
  EXPECT(ts_mutator_remove_roots(it.mutator, show, &of_mutator, NULL) == TS_INVALID_ARGUMENT);
  ts_collection_report collection;
  collection.size = sizeof collection;
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, &collection, NULL) == TS_OK);
  EXPECT(collection.marked == 0);
  EXPECT(ts_weak_get(pinned) == NULL);
  ts_weak_destroy(weak);
  ts_weak_destroy(pinned);

  /* A mutator's roots end with it. */
  EXPECT(ts_mutator_add_roots(it.mutator, show, &of_mutator, NULL) == TS_OK);
  close_world(report, &it);
}

/* Its frame, below the base, holds the only reference. */
__attribute__((noinline)) static uint64_t kept_by_the_stack(world* it, ts_code* collected) {
  pair* volatile here = make_pair_of(it->mutator, 77);
  *collected = ts_collect(it->heap, it->mutator, TS_COLLECT_YOUNG, NULL, NULL);
  return here->number;
}
static void the_stack_is_scanned(c_api_report* report) {
  world it;
  ts_heap_options options = small_heap();
  if (!open_world(report, &it, &options)) return;
  ts_code collected = TS_SYSTEM;
  ts_scan_stack_from(it.mutator, __builtin_frame_address(0));
  EXPECT(kept_by_the_stack(&it, &collected) == 77);
  EXPECT(collected == TS_OK);
  ts_scan_stack_from(it.mutator, NULL);
  close_world(report, &it);
}

/* ---- Weak references, ephemerons, finalizers */

static void references(c_api_report* report) {
  world it;
  ts_heap_options options = small_heap();
  if (!open_world(report, &it, &options)) return;
  ts_local key, holder, weak;
  ts_local_open(&key, it.mutator, NULL);
  ts_local_open(&holder, it.mutator, NULL);
  ts_local_open(&weak, it.mutator, NULL);
  key.object = make_pair_of(it.mutator, 1);
  pair* const ephemeron = (pair*)ts_allocate(it.mutator, 24);
  REQUIRE(ephemeron != NULL);
  ephemeron->header = ts_header_ephemeron(24, 0);
  ephemeron->left = (pair*)key.object;
  holder.object = ephemeron;
  /* The value refers to its own key. */
  pair* const value = make_pair_of(it.mutator, 2);
  value->left = (pair*)key.object;
  ts_write(it.mutator, &((pair*)holder.object)->right, value);
  pair* const box = (pair*)ts_allocate(it.mutator, 16);
  REQUIRE(box != NULL);
  box->header = ts_header_weak(16, 0);
  box->left = ((pair*)holder.object)->right;
  weak.object = box;
  int number = 5;
  EXPECT(ts_add_finalizer(it.heap, key.object, 1, &number, NULL) == TS_OK);
  EXPECT(ts_add_finalizer(it.heap, &number, 1, NULL, NULL) == TS_INVALID_ARGUMENT);
  EXPECT(ts_add_finalizer(it.heap, NULL, 1, NULL, NULL) == TS_INVALID_ARGUMENT);

  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, NULL, NULL) == TS_OK);
  EXPECT(((pair*)holder.object)->left == (pair*)key.object);
  EXPECT(((pair*)holder.object)->right->number == 2);
  EXPECT(((pair*)weak.object)->left == ((pair*)holder.object)->right);
  void* object = NULL;
  void* context = NULL;
  EXPECT(!ts_next_finalizable(it.heap, &object, &context));

  key.object = NULL;
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, NULL, NULL) == TS_OK);
  EXPECT(((pair*)holder.object)->left == NULL);
  EXPECT(((pair*)holder.object)->right == NULL);
  EXPECT(((pair*)weak.object)->left == NULL);
  EXPECT(ts_next_finalizable(it.heap, &object, &context));
  EXPECT(context == &number && ((pair*)object)->number == 1);
  EXPECT(!ts_next_finalizable(it.heap, &object, NULL));
  ts_local_close(&key);
  close_world(report, &it);
}

/* ---- A model of the program's own: the header is a pointer to a descriptor */

typedef struct shape {
  size_t references; /* Behind the header; SIZE_MAX: as many as the second word says. */
  size_t bytes;      /* Behind these. */
} shape;
static const shape kTree = {2, 8};
static const shape kVector = {SIZE_MAX, 0};
/* A filler's second word says its size. One of 16 bytes has room for that too. */
static const shape kFiller = {0, 0};

typedef struct calls {
  size_t ranges;
} calls;

static size_t shape_size(const void* object, uint64_t header, void* context) {
  const shape* const is = (const shape*)(uintptr_t)header;
  const size_t* const words = (const size_t*)object;
  (void)context;
  if (is == &kFiller) return words[1];
  const size_t size =
      is->references == SIZE_MAX ? 16 + words[1] * 8 : 8 + is->references * 8 + is->bytes;
  return (size + 15) / 16 * 16;
}
static void shape_trace(void* object, uint64_t header, ts_tracer* tracer, void* context) {
  const shape* const is = (const shape*)(uintptr_t)header;
  void** const words = (void**)object;
  (void)context;
  if (is->references == SIZE_MAX) {
    ts_trace_slots(tracer, words + 2, ((size_t*)object)[1]);
  } else {
    for (size_t i = 0; i < is->references; ++i) ts_trace_slot(tracer, words + 1 + i);
  }
}
static void shape_trace_range(void* object, uint64_t header, void* begin, void* end,
                              ts_tracer* tracer, void* context) {
  const shape* const is = (const shape*)(uintptr_t)header;
  void** first = (void**)object + (is->references == SIZE_MAX ? 2 : 1);
  void** last = first + (is->references == SIZE_MAX ? ((size_t*)object)[1] : is->references);
  __atomic_fetch_add(&((calls*)context)->ranges, 1, __ATOMIC_RELAXED);
  if (first < (void**)begin) first = (void**)begin;
  if (last > (void**)end) last = (void**)end;
  if (first < last) ts_trace_slots(tracer, first, (size_t)(last - first));
}
static void shape_fill(void* at, size_t bytes, void* context) {
  (void)context;
  ((uint64_t*)at)[0] = (uint64_t)(uintptr_t)&kFiller;
  ((uint64_t*)at)[1] = bytes;
}
static bool shape_is_filler(const void* object, uint64_t header, void* context) {
  (void)object;
  (void)context;
  return header == (uint64_t)(uintptr_t)&kFiller;
}

typedef struct tree tree;
struct tree {
  const shape* is;
  tree* left;
  tree* right;
  uint64_t number;
};
static tree* make_tree_of(ts_mutator* mutator, unsigned depth) {
  ts_local left, right;
  ts_local_open(&left, mutator, NULL);
  ts_local_open(&right, mutator, NULL);
  if (depth > 0) {
    left.object = make_tree_of(mutator, depth - 1);
    right.object = make_tree_of(mutator, depth - 1);
  }
  tree* const made = (tree*)ts_allocate_aligned(mutator, 32);
  if (made != NULL) {
    made->is = &kTree;
    made->left = (tree*)left.object;
    made->right = (tree*)right.object;
    made->number = depth;
  }
  ts_local_close(&left);
  return made;
}
static size_t count_tree(const tree* at, uint64_t depth) {
  if (at == NULL || at->is != &kTree || at->number != depth) return 0;
  return depth == 0 ? 1 : 1 + count_tree(at->left, depth - 1) + count_tree(at->right, depth - 1);
}

static void run_shapes(c_api_report* report, bool optional) {
  calls called = {0};
  ts_object_model model;
  memset(&model, 0, sizeof model);
  model.size = sizeof model;
  model.alignment = 16;
  model.context = &called;
  model.object_size = shape_size;
  model.trace = shape_trace;
  model.write_filler = shape_fill;
  if (optional) {
    model.trace_range = shape_trace_range;
    model.is_filler = shape_is_filler;
  }
  world it;
  ts_heap_options options = small_heap();
  options.model = &model;
  if (!open_world(report, &it, &options)) return;
  ts_local root, vector;
  ts_local_open(&root, it.mutator, NULL);
  ts_local_open(&vector, it.mutator, NULL);
  root.object = make_tree_of(it.mutator, 14);
  EXPECT(count_tree((tree*)root.object, 14) == (1u << 15) - 1);
  /* Large, and therefore old: a card in it is scanned from its middle. */
  enum { kLength = 200000 };
  size_t* const made = (size_t*)ts_allocate(it.mutator, 16 + kLength * 8);
  REQUIRE(made != NULL);
  made[0] = (size_t)(uintptr_t)&kVector;
  made[1] = kLength;
  vector.object = made;
  for (size_t i = 0; i < kLength; i += 1000) {
    tree* const leaf = make_tree_of(it.mutator, 0);
    REQUIRE(leaf != NULL);
    ts_write(it.mutator, (void**)vector.object + 2 + i, leaf);
  }
  for (int i = 0; i < 4; ++i) {
    for (int trees = 0; trees < 20; ++trees) EXPECT(make_tree_of(it.mutator, 10) != NULL);
    EXPECT(ts_collect(it.heap, it.mutator, i % 2 ? TS_COLLECT_FULL : TS_COLLECT_YOUNG, NULL,
                      NULL) == TS_OK);
    EXPECT(count_tree((tree*)root.object, 14) == (1u << 15) - 1);
    for (size_t slot = 0; slot < kLength; slot += 1000) {
      EXPECT(count_tree(((tree**)vector.object)[2 + slot], 0) == 1);
    }
  }
  EXPECT(optional == (called.ranges != 0));
  ts_local_close(&root);
  close_world(report, &it);
}
static void a_model_of_its_own(c_api_report* report) {
  run_shapes(report, true);
}
static void a_model_without_the_optional(c_api_report* report) {
  run_shapes(report, false);
}

/* Many weak references and ephemerons in one object, told through the tracer. */
typedef struct entry {
  void* key;
  void* value;
} entry;
static size_t dictionary_size(const void* object, uint64_t header, void* context) {
  (void)object;
  (void)context;
  return (size_t)(header >> 8);
}
/* Bits 2 to 3: 0 filler or bytes, 1 entries, 2 weak references. */
static void dictionary_trace(void* object, uint64_t header, ts_tracer* tracer, void* context) {
  entry* const entries = (entry*)(void*)((uint64_t*)object + 1);
  void** const slots = (void**)object + 1;
  const size_t bytes = (size_t)(header >> 8) - 8;
  (void)context;
  if ((header >> 2 & 3) == 1) {
    for (size_t i = 0; i < bytes / 16; ++i) {
      ts_trace_ephemeron(tracer, &entries[i].key, &entries[i].value);
    }
  } else if ((header >> 2 & 3) == 2) {
    for (size_t i = 0; i < bytes / 8; ++i) ts_trace_weak(tracer, slots + i);
  }
}
static void dictionary_fill(void* at, size_t bytes, void* context) {
  (void)context;
  *(uint64_t*)at = (uint64_t)bytes << 8 | 16;
}
static void weak_and_ephemerons_of_a_model(c_api_report* report) {
  enum { kEntries = 100 };
  ts_object_model model;
  memset(&model, 0, sizeof model);
  model.size = sizeof model;
  model.alignment = 8;
  model.object_size = dictionary_size;
  model.trace = dictionary_trace;
  model.write_filler = dictionary_fill;
  world it;
  ts_heap_options options = small_heap();
  options.model = &model;
  if (!open_world(report, &it, &options)) return;
  ts_local entries, weak, keys[kEntries];
  ts_local_open(&entries, it.mutator, NULL);
  ts_local_open(&weak, it.mutator, NULL);
  const size_t entries_size = 8 + kEntries * 16;
  const size_t weak_size = 8 + kEntries * 8;
  entries.object = ts_allocate(it.mutator, entries_size);
  REQUIRE(entries.object != NULL);
  *(uint64_t*)entries.object = (uint64_t)entries_size << 8 | 1 << 2;
  weak.object = ts_allocate(it.mutator, weak_size);
  REQUIRE(weak.object != NULL);
  *(uint64_t*)weak.object = (uint64_t)weak_size << 8 | 2 << 2;
  for (size_t i = 0; i < kEntries; ++i) {
    uint64_t* const key = (uint64_t*)ts_allocate(it.mutator, 16);
    uint64_t* const value = (uint64_t*)ts_allocate(it.mutator, 16);
    REQUIRE(key != NULL && value != NULL);
    *key = *value = 16 << 8 | 16;
    key[1] = i;
    value[1] = i + 1000;
    ts_local_open(&keys[i], it.mutator, i % 3 == 0 ? key : NULL);
    ts_write(it.mutator, (void**)entries.object + 1 + i * 2, key);
    ts_write(it.mutator, (void**)entries.object + 2 + i * 2, value);
    ts_write(it.mutator, (void**)weak.object + 1 + i, value);
  }
  for (int full = 0; full < 2; ++full) {
    EXPECT(ts_collect(it.heap, it.mutator, full ? TS_COLLECT_FULL : TS_COLLECT_YOUNG, NULL, NULL) ==
           TS_OK);
    for (size_t i = 0; i < kEntries; ++i) {
      uint64_t** const pair_of = (uint64_t**)entries.object + 1 + i * 2;
      if (i % 3 == 0) {
        EXPECT(pair_of[0] == (uint64_t*)keys[i].object && pair_of[1][1] == i + 1000);
      } else {
        EXPECT(pair_of[0] == NULL && pair_of[1] == NULL);
      }
      EXPECT(((uint64_t**)weak.object)[1 + i] == pair_of[1]);
    }
  }
  ts_local_close(&entries);
  close_world(report, &it);
}

/* ---- Threads */

typedef struct worker {
  ts_heap* heap;
  c_api_report report;
  pthread_t thread;
} worker;

static void* work(void* argument) {
  c_api_report* const report = &((worker*)argument)->report;
  ts_heap* const heap = ((worker*)argument)->heap;
  for (int round = 0; round < 4; ++round) {
    ts_mutator* mutator = NULL;
    if (ts_attach(heap, "worker", &mutator, NULL) != TS_OK) {
      failed(report, __FILE__, __LINE__, "ts_attach");
      return NULL;
    }
    ts_local list;
    ts_local_open(&list, mutator, NULL);
    for (int turn = 0; turn < 4; ++turn) {
      list.object = NULL;
      EXPECT(grow_list(mutator, &list, 5000));
      ts_poll(mutator);
      EXPECT(ts_enter_native(mutator, NULL) == TS_OK);
      EXPECT(ts_enter_native(mutator, NULL) == TS_OK);
      EXPECT(ts_collect(heap, mutator, TS_COLLECT_YOUNG, NULL, NULL) == TS_BUSY);
      EXPECT(ts_allocate_slow(mutator, 32) == NULL);
      EXPECT(ts_leave_native(mutator, NULL) == TS_OK);
      EXPECT(ts_leave_native(mutator, NULL) == TS_OK);
      EXPECT(ts_leave_native(mutator, NULL) == TS_INVALID_ARGUMENT);
      EXPECT(ts_collect(heap, mutator, turn == 0 ? TS_COLLECT_FULL : TS_COLLECT_YOUNG, NULL,
                        NULL) == TS_OK);
      EXPECT(list_is(&list, 5000));
    }
    ts_local_close(&list);
    EXPECT(ts_mutator_id(mutator) != 0);
    EXPECT(ts_detach(mutator, NULL) == TS_OK);
  }
  return NULL;
}
static void threads_come_and_go(c_api_report* report) {
  ts_heap* heap = NULL;
  const ts_heap_options options = small_heap();
  REQUIRE(ts_heap_create(&options, &heap, NULL) == TS_OK);
  worker workers[4];
  memset(workers, 0, sizeof workers);
  for (int i = 0; i < 4; ++i) {
    workers[i].heap = heap;
    REQUIRE(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT(pthread_join(workers[i].thread, NULL) == 0);
    EXPECT(workers[i].report.failures == 0);
    if (workers[i].report.failures != 0) {
      failed(report, __FILE__, __LINE__, workers[i].report.text);
    }
  }
  EXPECT(ts_heap_destroy(heap, NULL) == TS_OK);
}

typedef struct sleeper {
  ts_heap* heap;
  ts_mutator* mutator;
  int attached;
  int leave;
} sleeper;
static void nap(void) {
  const struct timespec time = {0, 100000};
  (void)nanosleep(&time, NULL);
}
static void* sleep_running(void* argument) {
  sleeper* const it = (sleeper*)argument;
  if (ts_attach(it->heap, "the late one", &it->mutator, NULL) != TS_OK) it->mutator = NULL;
  __atomic_store_n(&it->attached, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&it->leave, __ATOMIC_SEQ_CST) == 0) nap();
  if (it->mutator != NULL && ts_detach(it->mutator, NULL) != TS_OK) it->mutator = NULL;
  return NULL;
}
static void the_listener_is_told(c_api_report* report) {
  ts_error error = ts_error_init();
  findings found;
  const ts_listener listener = listener_of(&found);
  world it;
  ts_heap_options options = small_heap();
  options.listener = &listener;
  options.safepoint_timeout_ns = 1000000;
  if (!open_world(report, &it, &options)) return;
  found.heap = it.heap;
  EXPECT(make_pair_of(it.mutator, 1) != NULL);
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, NULL, NULL) == TS_OK);
  EXPECT(found.inner_collect == TS_BUSY && found.inner_attach == TS_BUSY);
  found.heap = NULL;
  EXPECT(found.starts == 1 && found.ends == 1 && found.growths >= 1);
  EXPECT(ts_trim(it.heap, it.mutator, NULL, NULL) == TS_OK);
  EXPECT(found.trims == 1);
  EXPECT(ts_allocate(it.mutator, (size_t)1 << 40) == NULL);
  EXPECT(found.out_of_memory == (size_t)1 << 40);

  sleeper late;
  memset(&late, 0, sizeof late);
  late.heap = it.heap;
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, sleep_running, &late) == 0);
  while (__atomic_load_n(&late.attached, __ATOMIC_SEQ_CST) == 0) nap();
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, NULL, &error) == TS_TIMED_OUT);
  EXPECT(found.timeouts == 1 && strcmp(found.late, "the late one") == 0);
  __atomic_store_n(&late.leave, 1, __ATOMIC_SEQ_CST);
  EXPECT(pthread_join(thread, NULL) == 0);
  EXPECT(late.mutator != NULL);
  EXPECT(ts_collect(it.heap, it.mutator, TS_COLLECT_FULL, NULL, NULL) == TS_OK);
  close_world(report, &it);
}

/* ---- Code generators */

static void the_layout_is_what_the_inline_functions_use(c_api_report* report) {
  world it;
  ts_heap_options options = small_heap();
  if (!open_world(report, &it, &options)) return;
  ts_fast_path_layout layout;
  layout.size = sizeof layout;
  EXPECT(ts_get_fast_path_layout(it.heap, &layout, NULL) == TS_OK);
  EXPECT(layout.tlab_top_offset == offsetof(ts_mutator_block, tlab_top));
  EXPECT(layout.tlab_top_offset + 8 == offsetof(ts_mutator_block, tlab_end));
  EXPECT(layout.card_table_offset == offsetof(ts_mutator_block, card_table));
  EXPECT(layout.mark_bitmap_offset == offsetof(ts_mutator_block, mark_bitmap));
  EXPECT(layout.safepoint_flag_offset == offsetof(ts_mutator_block, safepoint_flag));
  EXPECT(layout.card_shift == TS_CARD_SHIFT && layout.dirty_card == TS_DIRTY_CARD);
  EXPECT(layout.object_alignment == 8);
  EXPECT(layout.max_young_object >= layout.max_tlab_object && layout.max_tlab_object > 0);
  EXPECT(ts_get_fast_path_layout(it.heap, NULL, NULL) == TS_INVALID_ARGUMENT);
  close_world(report, &it);
}

/* ---- Memory */

static void reservations(c_api_report* report) {
  ts_error error = ts_error_init();
  ts_reservation* memory = NULL;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t length = 64 * page;
  ts_reservation_options options = ts_reservation_options_init(0);
  EXPECT(ts_reserve(&options, &memory, &error) == TS_INVALID_ARGUMENT);
  options = ts_reservation_options_init(2 * length);
  options.fork = (ts_fork_behaviour)5;
  EXPECT(ts_reserve(&options, &memory, &error) == TS_INVALID_ARGUMENT);
  options.fork = TS_FORK_OMIT;
  options.alignment = 16 * page;
  REQUIRE(ts_reserve(&options, &memory, &error) == TS_OK);
  char* const start = (char*)ts_reservation_start(memory);
  EXPECT((uintptr_t)start % (16 * page) == 0);
  EXPECT(ts_reservation_size(memory) == 2 * length);
  EXPECT(ts_reservation_start(NULL) == NULL && ts_reservation_size(NULL) == 0);

  bool zeroed = false;
  EXPECT(ts_commit(memory, start, 2 * length + page, &zeroed, &error) == TS_OUT_OF_RANGE);
  EXPECT(ts_commit(memory, start + 1, page, &zeroed, &error) == TS_MISALIGNED);
  EXPECT(ts_commit(NULL, start, page, &zeroed, &error) == TS_INVALID_ARGUMENT);
  EXPECT(ts_commit(memory, start, length, &zeroed, NULL) == TS_OK);
  EXPECT(zeroed);

  ts_pretouch_options how = ts_pretouch_options_init();
  how.strategy = TS_PRETOUCH_STORE;
  how.limits = TS_LIMIT_IGNORE;
  how.huge_pages = TS_HUGE_PAGES_AVOID;
  how.threads = 1;
  ts_pretouch_result touched;
  touched.size = sizeof touched;
  EXPECT(ts_pretouch(start, length, &how, &touched, &error) == TS_OK);
  EXPECT(touched.bytes == length && touched.strategy == TS_PRETOUCH_STORE);
  ts_residency resident;
  resident.size = sizeof resident;
  EXPECT(ts_residency_of(start, length, &resident, NULL) == TS_OK);
  EXPECT(resident.present == length && strlen(resident.source) > 3);
  how.memory_in_use = true;
  EXPECT(ts_pretouch(start, length, &how, NULL, &error) == TS_BUSY);
  how.strategy = (ts_pretouch_strategy)40;
  EXPECT(ts_pretouch(start, length, &how, NULL, &error) == TS_INVALID_ARGUMENT);
  EXPECT(ts_pretouch(start, length, NULL, NULL, &error) == TS_OK);
  EXPECT(ts_pretouch((void*)UINTPTR_MAX, length, NULL, NULL, &error) != TS_OK);

  memset(start, 1, length);
  EXPECT(ts_discard(memory, start, page, TS_DISCARD_AT_ONCE, NULL) == TS_OK);
  EXPECT(start[0] == 0 && start[page] == 1);
  EXPECT(ts_discard(memory, start, page, (ts_discard_policy)9, NULL) == TS_INVALID_ARGUMENT);
  const ts_range ranges[2] = {{start + 2 * page, page}, {start + 8 * page, 3 * page}};
  ts_discard_progress progress;
  progress.size = sizeof progress;
  EXPECT(ts_discard_ranges(ranges, 2, TS_DISCARD_AT_ONCE, 0, &progress, NULL) == TS_OK);
  EXPECT(progress.range == 2 && progress.bytes == 4 * page && progress.calls >= 1);
  EXPECT(start[2 * page] == 0 && start[3 * page] == 1 && start[10 * page] == 0);
  EXPECT(ts_discard_ranges(NULL, 2, TS_DISCARD_AT_ONCE, 0, NULL, NULL) == TS_INVALID_ARGUMENT);

  EXPECT(ts_protect(memory, start, page, TS_PROTECT_READ, NULL) == TS_OK);
  EXPECT(start[0] == 0);
  EXPECT(ts_protect(memory, start, page, (ts_protection)3, NULL) == TS_INVALID_ARGUMENT);
  EXPECT(ts_protect(memory, start, page, TS_PROTECT_READ_WRITE, NULL) == TS_OK);
  EXPECT(ts_uncommit(memory, start, length, NULL) == TS_OK);
  EXPECT(ts_commit(memory, start, page, &zeroed, NULL) == TS_OK);
  EXPECT(zeroed && start[0] == 0);

  /* What is sealed stays. */
  ts_reservation* sealed = NULL;
  options = ts_reservation_options_init(page);
  REQUIRE(ts_reserve(&options, &sealed, NULL) == TS_OK);
  const ts_code done = ts_seal(sealed, ts_reservation_start(sealed), page, &error);
  EXPECT(done == TS_OK || done == TS_UNSUPPORTED);
  EXPECT(ts_reservation_destroy(sealed, NULL) == (done == TS_OK ? TS_NOT_PERMITTED : TS_OK));
  EXPECT(ts_reservation_destroy(memory, NULL) == TS_OK);
  EXPECT(ts_reservation_destroy(NULL, NULL) == TS_OK);
}

static void quarantines(c_api_report* report) {
  ts_error error = ts_error_init();
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  ts_reservation* memory = NULL;
  ts_reservation_options options = ts_reservation_options_init(4 * page);
  REQUIRE(ts_reserve(&options, &memory, NULL) == TS_OK);
  char* const start = (char*)ts_reservation_start(memory);
  EXPECT(ts_commit(memory, start, 4 * page, NULL, NULL) == TS_OK);

  ts_quarantine* quarantine = NULL;
  ts_quarantine_options how = ts_quarantine_options_init();
  how.mechanism = (ts_quarantine_mechanism)9;
  EXPECT(ts_quarantine_create(&how, &quarantine, &error) == TS_INVALID_ARGUMENT);
  how.mechanism = TS_QUARANTINE_PROTECT;
  how.epochs = 1;
  REQUIRE(ts_quarantine_create(&how, &quarantine, NULL) == TS_OK);
  EXPECT(ts_quarantine_put(quarantine, start + page, 2 * page, 42, NULL) == TS_OK);
  EXPECT(ts_quarantine_put(quarantine, start + 1, page, 0, NULL) == TS_MISALIGNED);
  EXPECT(ts_quarantine_put(NULL, start, page, 0, NULL) == TS_INVALID_ARGUMENT);
  const uint64_t epoch = ts_quarantine_advance(quarantine);

  siginfo_t info;
  memset(&info, 0, sizeof info);
  info.si_signo = SIGSEGV;
  info.si_code = SEGV_ACCERR;
  info.si_addr = start + page + 5;
  ts_fault fault;
  fault.size = sizeof fault;
  EXPECT(ts_explain_fault(&info, &fault));
  EXPECT(fault.address == (uintptr_t)start + page + 5 && fault.block == (uintptr_t)start + page);
  EXPECT(fault.block_size == 2 * page && fault.offset == 5 && fault.tag == 42 && fault.age == 1);
  EXPECT(fault.freed_epoch + 1 == epoch);
  char line[256];
  const size_t written = ts_describe_fault(&fault, line, sizeof line);
  EXPECT(written > 10 && written < sizeof line && line[written - 1] == '\n');
  EXPECT(ts_describe_fault(NULL, line, sizeof line) == 0);
  info.si_addr = start;
  EXPECT(!ts_explain_fault(&info, &fault));
  EXPECT(!ts_explain_fault(NULL, &fault));

  ts_released_block block;
  block.size = sizeof block;
  EXPECT(ts_quarantine_release(quarantine, 0, true, &block, NULL) == TS_OK);
  EXPECT(block.address == start + page && block.length == 2 * page && block.tag == 42);
  EXPECT(ts_quarantine_release(quarantine, 0, true, &block, NULL) == TS_OK);
  EXPECT(block.address == NULL && block.length == 0);
  start[page] = 1;
  ts_quarantine_destroy(quarantine);
  ts_quarantine_destroy(NULL);
  EXPECT(ts_quarantine_advance(NULL) == 0);
  EXPECT(ts_reservation_destroy(memory, NULL) == TS_OK);
}

const c_api_case CASES[] = {
    {"ErrorsHaveNamesAndMessages", errors_have_names_and_messages},
    {"StructsOfOtherVersions", structs_of_other_versions},
    {"OptionsThatCannotBe", options_that_cannot_be},
    {"HandlesThatAreGone", handles_that_are_gone},
    {"ObjectsSurvive", objects_survive},
    {"Sizes", sizes},
    {"OutOfMemoryIsAnError", out_of_memory_is_an_error},
    {"KeptWhileAllocating", kept_while_allocating},
    {"Barriers", barriers},
    {"AMissingBarrierIsFound", a_missing_barrier_is_found},
    {"BadReferencesAreNamed", bad_references_are_named},
    {"RootsOfAllKinds", roots_of_all_kinds},
    {"TheStackIsScanned", the_stack_is_scanned},
    {"References", references},
    {"AModelOfItsOwn", a_model_of_its_own},
    {"AModelWithoutTheOptional", a_model_without_the_optional},
    {"WeakAndEphemeronsOfAModel", weak_and_ephemerons_of_a_model},
    {"ThreadsComeAndGo", threads_come_and_go},
    {"TheListenerIsTold", the_listener_is_told},
    {"TheLayoutIsWhatTheInlineFunctionsUse", the_layout_is_what_the_inline_functions_use},
    {"Reservations", reservations},
    {"Quarantines", quarantines},
    {NULL, NULL},
};
