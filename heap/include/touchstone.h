/* SPDX-License-Identifier: MIT */
#ifndef TOUCHSTONE_H_
#define TOUCHSTONE_H_

/* Touchstone for C11, and for whatever calls C: the collector (touchstone/c/collector.h,
 * touchstone/c/mutator.h) and the memory beneath it (touchstone/c/memory.h).
 *
 * Names begin with ts_. Handles are opaque. Whatever can fail returns a ts_code and tells more in a
 * ts_error. No exception and no abort leaves the library.
 *
 * A struct that the caller supplies begins with its `size`, which is to be sizeof of it: the
 * library was perhaps built with a later or an earlier version of the struct. Of a shorter one it
 * takes defaults for what is missing and writes no more than there is; of a longer one the rest
 * must be zero, and is zeroed when the library writes.
 */
#include <touchstone/c/base.h>
#include <touchstone/c/collector.h>
#include <touchstone/c/memory.h>
#include <touchstone/c/mutator.h>

#endif /* TOUCHSTONE_H_ */
