// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_TOUCHING_H_
#define TOUCHSTONE_HEAP_SRC_TOUCHING_H_

/// Marks loops that touch memory for its pages' sake: a sanitizer's shadow memory would double
/// every touch, and there is nothing in them for it to find.
#define TOUCHSTONE_TOUCHES __attribute__((no_sanitize("address"), no_sanitize("thread")))

#endif  // TOUCHSTONE_HEAP_SRC_TOUCHING_H_
