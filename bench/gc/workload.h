// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_GC_WORKLOAD_H_
#define TOUCHSTONE_BENCH_GC_WORKLOAD_H_

#include <span>
#include <string_view>

#include <touchstone/arch/error.h>
#include <touchstone/heap/heap.h>
#include <touchstone/heap/object_header.h>

#include "heap_run.h"
#include "programs.h"

namespace touchstone::gc {

using Model = heap::HeaderModel<8>;
using GcHeap = heap::Heap<Model>;

/// Null if there is none of that name.
[[nodiscard]] const WorkloadTraits* find_workload(std::string_view name) noexcept;

/// Runs it on mutators of its own. An allocation that fails ends it with that error.
[[nodiscard]] Result<WorkloadResult> run_workload(GcHeap& heap, const WorkloadTraits& workload,
                                                  const WorkloadSize& size);

}  // namespace touchstone::gc

#endif  // TOUCHSTONE_BENCH_GC_WORKLOAD_H_
