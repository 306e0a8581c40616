// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_GC_LOG_H_
#define TOUCHSTONE_HEAP_GC_LOG_H_

#include <cstdint>
#include <cstdio>
#include <string>

#include <touchstone/arch/export.h>
#include <touchstone/heap/heap_listener.h>

namespace touchstone::heap {

/// The line of a collection in the manner of the JVM's unified log, without its line end:
///
///     [0.142s][info][gc] GC(3) Pause Young (allocation) 24M->4M(64M) 1.310ms
///
/// The time is that of the pause's end since the heap was made; then used memory before and after,
/// what is committed, and the pause. Throws std::bad_alloc.
[[nodiscard]] TOUCHSTONE_API std::string gc_log_line(const CollectionReport& report);

/// Writes [gc] lines to a stream: collections, growth that failed, time-outs, out of memory, what
/// verification finds. Tells another listener too.
class TOUCHSTONE_API GcLog final : public HeapListener {
 public:
  /// Both must outlive the heap; `next` may be null.
  explicit GcLog(std::FILE* stream, HeapListener* next = nullptr) noexcept
      : stream_(stream), next_(next) {}

  void on_collection_start(const CollectionReport& report) noexcept override;
  void on_collection_end(const CollectionReport& report) noexcept override;
  void on_safepoint_timeout(std::span<const LateMutator> late) noexcept override;
  void on_out_of_memory(std::size_t size) noexcept override;
  void on_growth(std::size_t committed, const Error* error) noexcept override;
  void on_trim(std::size_t bytes) noexcept override;
  void on_violation(const Violation& violation) noexcept override;
  void on_abandoned_mutator(std::uint64_t id) noexcept override;

 private:
  std::FILE* stream_;
  HeapListener* next_;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_GC_LOG_H_
