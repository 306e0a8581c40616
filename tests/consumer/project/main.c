/* SPDX-License-Identifier: MIT */
/* All that a C program needs. */
#include <stdio.h>
#include <stdlib.h>
#include <touchstone.h>

typedef struct node {
  uint64_t header;
  struct node* next;
  uint64_t number;
} node;

static int failed(const char* what, const ts_error* error) {
  char line[256];
  ts_error_message(error, line, sizeof line);
  fprintf(stderr, "%s: %s\n", what, line);
  return EXIT_FAILURE;
}

int main(void) {
  ts_error error = ts_error_init();
  ts_heap_options options = ts_heap_options_init();
  options.max_size = (size_t)8 << 20;
  ts_heap* heap;
  if (ts_heap_create(&options, &heap, &error) != TS_OK) return failed("create", &error);
  ts_mutator* mutator;
  if (ts_attach(heap, "main", &mutator, &error) != TS_OK) return failed("attach", &error);

  ts_local list;
  ts_local_open(&list, mutator, NULL);
  /* 24 MB go through a heap of 8 MiB; every thousandth node stays. */
  for (uint64_t i = 0; i < 1000000; ++i) {
    node* const made = ts_allocate(mutator, sizeof(node));
    if (made == NULL) {
      ts_allocation_error(mutator, &error);
      return failed("allocate", &error);
    }
    made->header = ts_header_record(sizeof(node), 1);
    made->number = i;
    if (i % 1000 != 0) continue;
    made->next = list.object;
    list.object = made;
  }
  if (ts_collect(heap, mutator, TS_COLLECT_FULL, NULL, &error) != TS_OK) {
    return failed("collect", &error);
  }
  uint64_t expected = 999000;
  for (const node* at = list.object; at != NULL; at = at->next, expected -= 1000) {
    if (at->number != expected) return fputs("an object is not what it was\n", stderr), 1;
  }
  ts_local_close(&list);

  char statistics[4096];
  size_t length;
  if (ts_get_statistics_json(heap, statistics, sizeof statistics, &length, &error) != TS_OK ||
      length >= sizeof statistics) {
    return failed("statistics", &error);
  }
  puts(statistics);
  if (ts_detach(mutator, &error) != TS_OK) return failed("detach", &error);
  if (ts_heap_destroy(heap, &error) != TS_OK) return failed("destroy", &error);
  return EXIT_SUCCESS;
}
