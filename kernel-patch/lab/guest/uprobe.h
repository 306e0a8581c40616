// SPDX-License-Identifier: GPL-2.0-only
// Atomics under a uprobe, which executes them out of line.
#ifndef TOUCHSTONE_LAB_UPROBE_H
#define TOUCHSTONE_LAB_UPROBE_H

namespace lab {

// Probes single-instruction touches and prints their hits and faults. A probed instruction runs in
// the kernel's own page of copies, which is mapped execute-only.
void run_uprobes();

}  // namespace lab

#endif  // TOUCHSTONE_LAB_UPROBE_H
