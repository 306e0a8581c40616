// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_MEMORY_RANGE_H_
#define TOUCHSTONE_HEAP_MEMORY_RANGE_H_

#include <cstddef>
#include <span>

namespace touchstone::heap {

/// A run of addresses: where it starts and how many bytes it has. Says nothing about what is mapped
/// there or who may touch it.
using MemoryRange = std::span<std::byte>;

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_MEMORY_RANGE_H_
