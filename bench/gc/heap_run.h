// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_GC_HEAP_RUN_H_
#define TOUCHSTONE_BENCH_GC_HEAP_RUN_H_

#include <string>

#include <touchstone/arch/error.h>
#include <touchstone/heap/detail/heap_core.h>
#include <touchstone/heap/heap_options.h>

#include "programs.h"

namespace touchstone::gc {

/// A workload's run on a heap of its own.
struct HeapRun {
  WorkloadResult result;
  double seconds = 0;
  std::string statistics;  ///< The heap's, as to_json() has them.
};

/// Told when a run's heap is there, and when it is about to go.
class HeapWatcher {
 public:
  virtual ~HeapWatcher() = default;
  virtual void begin(const heap::detail::HeapCore& heap) = 0;
  virtual void end() = 0;
};

/// Runs a workload through heap.h, with the ready-made header inlined. Errors: the heap's.
[[nodiscard]] Result<HeapRun> run_in_cpp(const heap::HeapOptions& options,
                                         const WorkloadTraits& workload, const WorkloadSize& size,
                                         HeapWatcher* watcher = nullptr);

/// Runs it through touchstone.h, with a model of functions; there is nothing to watch.
[[nodiscard]] Result<HeapRun> run_in_c(const heap::HeapOptions& options,
                                       const WorkloadTraits& workload, const WorkloadSize& size,
                                       HeapWatcher* watcher = nullptr);

}  // namespace touchstone::gc

#endif  // TOUCHSTONE_BENCH_GC_HEAP_RUN_H_
