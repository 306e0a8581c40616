// SPDX-License-Identifier: GPL-2.0-only
// What a change of the fault path costs and gains where it is most felt.
#ifndef TOUCHSTONE_LAB_COST_H
#define TOUCHSTONE_LAB_COST_H

#include <cstddef>

namespace lab {

// The cost of faults that the series is not about: reads and writes, in writable and in read-only
// memory, from readable and execute-only text. Prints total and count, for the host to divide.
void run_fault_costs();

// Read faults over and over, as will-it-scale's page_fault1 does with writes. Then
// populates memory one page at a time by each kind of touch, then reads and writes it at random for
// a number of rounds, as a heap would be.
void run_populate(size_t bytes, unsigned rounds);

}  // namespace lab

#endif  // TOUCHSTONE_LAB_COST_H
