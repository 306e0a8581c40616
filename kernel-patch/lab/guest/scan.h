// SPDX-License-Identifier: GPL-2.0-only
// Load-exclusives that no store follows: what taking them for writes costs, and where it must not.
#ifndef TOUCHSTONE_LAB_SCAN_H
#define TOUCHSTONE_LAB_SCAN_H

namespace lab {

// Scans sparse private memory and a sparse shared file by loads, load-exclusives and, for
// comparison, atomics that write, and prints how much memory, dirt and disk space each scan made.
// The file lies in an ext2 image at /ext2.img; without one that part is skipped.
void run_scans();

}  // namespace lab

#endif  // TOUCHSTONE_LAB_SCAN_H
