// SPDX-License-Identifier: GPL-2.0-only
// What userfaultfd is told of touches.
#ifndef TOUCHSTONE_LAB_UFFD_H
#define TOUCHSTONE_LAB_UFFD_H

namespace lab {

// Touches memory that is registered for missing pages, and for write protection where the kernel
// has it, and prints how many events of which kind came and what memory then holds.
void run_uffd();

// Makes memory read-only while a touch of it is being handled, and prints what the touch is told:
// a read goes on, whatever it was taken for before.
void run_protected_meanwhile();

}  // namespace lab

#endif  // TOUCHSTONE_LAB_UFFD_H
