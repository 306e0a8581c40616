/* SPDX-License-Identifier: MIT */
#ifndef TOUCHSTONE_TESTS_HEAP_C_API_CASES_H_
#define TOUCHSTONE_TESTS_HEAP_C_API_CASES_H_

/* The tests of touchstone.h are C, and are compiled twice: as C and as C++. */

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts what fails and says where. */
typedef struct c_api_report {
  int failures;
  char text[4096];
} c_api_report;

typedef struct c_api_case {
  const char* name;
  void (*run)(c_api_report* report);
} c_api_case;

/* Each ends with a case without a name. */
extern const c_api_case c_api_cases_as_c[];
extern const c_api_case c_api_cases_as_cpp[];

#ifdef __cplusplus
}
#endif

#endif /* TOUCHSTONE_TESTS_HEAP_C_API_CASES_H_ */
