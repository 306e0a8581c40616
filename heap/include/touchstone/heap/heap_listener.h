// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_HEAP_LISTENER_H_
#define TOUCHSTONE_HEAP_HEAP_LISTENER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include <touchstone/arch/error.h>
#include <touchstone/heap/heap_statistics.h>

namespace touchstone::heap {

/// A mutator that had not stopped when the time was up.
struct LateMutator {
  std::uint64_t id = 0;   ///< Mutator::id().
  const char* name = "";  ///< As given to attach(); valid during the call.
};

/// What verification found.
struct Violation {
  const char* what = "";         ///< Such as "a reference to free memory".
  std::uintptr_t object = 0;     ///< The object that holds the reference, 0 for a root.
  std::uintptr_t field = 0;      ///< The address of the slot, 0 if it is about the object.
  std::uintptr_t value = 0;      ///< What it holds.
  std::uint64_t collection = 0;  ///< The collection before or after which it was found.
};

/// Told what the heap does. Calls come from the thread that caused the event, for collections while
/// the world stands still: they must not use the heap, block for long, or throw.
class HeapListener {
 public:
  HeapListener() = default;
  HeapListener(const HeapListener&) = delete;
  HeapListener& operator=(const HeapListener&) = delete;
  virtual ~HeapListener() = default;

  virtual void on_collection_start(const CollectionReport& /*report*/) noexcept {}
  virtual void on_collection_end(const CollectionReport& /*report*/) noexcept {}
  /// The collection did not take place.
  virtual void on_safepoint_timeout(std::span<const LateMutator> /*late*/) noexcept {}
  /// `size` bytes could not be had, after the last full collection.
  virtual void on_out_of_memory(std::size_t /*size*/) noexcept {}
  /// The heap's committed part has grown; `error` if it was to and could not.
  virtual void on_growth(std::size_t /*committed*/, const Error* /*error*/) noexcept {}
  /// trim() has given memory back.
  virtual void on_trim(std::size_t /*bytes*/) noexcept {}
  virtual void on_violation(const Violation& /*violation*/) noexcept {}
  /// A mutator was destroyed that still had handles; it stays attached, in native state.
  virtual void on_abandoned_mutator(std::uint64_t /*id*/) noexcept {}
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_HEAP_LISTENER_H_
