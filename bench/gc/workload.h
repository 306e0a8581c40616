// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_GC_WORKLOAD_H_
#define TOUCHSTONE_BENCH_GC_WORKLOAD_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <touchstone/arch/error.h>
#include <touchstone/heap/heap.h>
#include <touchstone/heap/object_header.h>

namespace touchstone::gc {

using Model = heap::HeaderModel<8>;
using GcHeap = heap::Heap<Model>;

struct WorkloadSize {
  unsigned depth = 0;    ///< The workload's own measure of size: trees' depth, log2 of a count.
  unsigned threads = 1;  ///< Mutators; those that have one only ignore it.
};

/// What a run gave.
struct WorkloadResult {
  std::uint64_t operations = 0;
  std::uint64_t checksum = 0;  ///< Depends on nothing but the size.
  bool correct = false;        ///< What the run checked of itself held.
};

/// A program that allocates, by name.
struct Workload {
  const char* name = "";
  const char* description = "";
  const char* operation = "";  ///< What is counted, in the plural.
  unsigned depth = 0;          ///< Unless asked for otherwise.
  unsigned min_depth = 0;
  unsigned max_depth = 0;
  bool threaded = false;
  /// Attaches mutators of its own. An allocation that fails ends it with that error.
  Result<WorkloadResult> (*run)(GcHeap& heap, const WorkloadSize& size) = nullptr;
};

[[nodiscard]] std::span<const Workload> all_workloads() noexcept;
/// Null if there is none of that name.
[[nodiscard]] const Workload* find_workload(std::string_view name) noexcept;

}  // namespace touchstone::gc

#endif  // TOUCHSTONE_BENCH_GC_WORKLOAD_H_
