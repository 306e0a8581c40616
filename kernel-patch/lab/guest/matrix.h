// SPDX-License-Identifier: GPL-2.0-only
// The fault matrix: every touch, in every kind of memory, from readable and execute-only text, by
// one thread and by several.
#ifndef TOUCHSTONE_LAB_MATRIX_H
#define TOUCHSTONE_LAB_MATRIX_H

#include <cstddef>

namespace lab {

struct MatrixOptions {
  size_t headline_bytes = 64u << 20;  // size of the rows that are pinned and tabulated
  size_t cross_bytes = 4u << 20;      // size of the rows of the full cross product; 0: none
  bool instructions = false;          // the clock counts instructions: report them
};

// Prints one row for every combination, and one line for every touch the CPU does not execute.
void run_matrix(const MatrixOptions& options);

}  // namespace lab

#endif  // TOUCHSTONE_LAB_MATRIX_H
