// SPDX-License-Identifier: GPL-2.0-only
// What a program is told of an access that may not be made.
#ifndef TOUCHSTONE_LAB_SIGNALS_H
#define TOUCHSTONE_LAB_SIGNALS_H

namespace lab {

// Touches memory that is not mapped, PROT_NONE, or read-only, fresh or resident, and prints the
// signal, its code, whether its address is the touched one, and the ESR it carries.
void run_signals();

}  // namespace lab

#endif  // TOUCHSTONE_LAB_SIGNALS_H
