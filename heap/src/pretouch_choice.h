// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_PRETOUCH_CHOICE_H_
#define TOUCHSTONE_HEAP_SRC_PRETOUCH_CHOICE_H_

#include <vector>

#include <touchstone/heap/pretouch.h>

namespace touchstone::heap {

/// The chosen strategy, then those that may take over where it turns out refused or without effect.
[[nodiscard]] std::vector<PretouchStrategy> ranking(const PretouchChoice& choice,
                                                    bool memory_in_use);

/// options.geometry, or the machine's when that is all zero; kInvalidArgument for an invalid one.
[[nodiscard]] Result<arch::Geometry> geometry_of(const PretouchOptions& options);

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_PRETOUCH_CHOICE_H_
