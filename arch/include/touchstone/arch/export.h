// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_ARCH_EXPORT_H_
#define TOUCHSTONE_ARCH_EXPORT_H_

/// Marks what the shared libraries export; everything else in them is hidden.
#define TOUCHSTONE_API __attribute__((visibility("default")))

#endif  // TOUCHSTONE_ARCH_EXPORT_H_
