// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_SRC_C_HEAP_H_
#define TOUCHSTONE_SRC_C_HEAP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <touchstone/c/collector.h>
#include <touchstone/heap/detail/heap_core.h>
#include <touchstone/heap/heap_listener.h>

namespace touchstone::heap::c {

/// What is behind a ts_heap: the heap and what C gave it. It is its heap's listener, so that the
/// way from a mutator back to it is short.
class CHeap final : public HeapListener {
 public:
  explicit CHeap(const ts_listener& listener) noexcept : listener_(listener) {}

  [[nodiscard]] Result<> make(const HeapOptions& options, const ts_object_model* model) noexcept;
  [[nodiscard]] detail::HeapCore& core() const noexcept { return *core_; }
  [[nodiscard]] static CHeap& of(const Mutator& mutator) noexcept {
    return *static_cast<CHeap*>(mutator.heap().options().listener);
  }

  /// `mutator` null: of the whole heap.
  [[nodiscard]] Result<> add_roots(Mutator* mutator, ts_root_callback callback,
                                   void* context) noexcept;
  [[nodiscard]] Result<> remove_roots(Mutator* mutator, ts_root_callback callback,
                                      void* context) noexcept;
  /// After the mutator of that id was detached.
  void forget_roots(std::uint64_t mutator_id) noexcept;

  /// Roots that C holds.
  std::atomic<std::size_t> roots{0};

  void on_collection_start(const CollectionReport& report) noexcept override;
  void on_collection_end(const CollectionReport& report) noexcept override;
  void on_safepoint_timeout(std::span<const LateMutator> late) noexcept override;
  void on_out_of_memory(std::size_t size) noexcept override;
  void on_growth(std::size_t committed, const Error* error) noexcept override;
  void on_trim(std::size_t bytes) noexcept override;
  void on_violation(const Violation& violation) noexcept override;

 private:
  struct Roots {
    std::uint64_t mutator_id;  // 0: the whole heap's. Not an address, which may be taken again.
    ts_root_callback callback;
    void* context;

    static void visit(RootVisitor& visitor, void* roots) noexcept;
  };

  const ts_listener listener_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Roots>> callbacks_;
  std::unique_ptr<detail::HeapCore> core_;  // Goes first.
};

/// What a handle stands for; null if that is gone or never was. It stays while it is used, unless
/// the caller destroys it meanwhile.
[[nodiscard]] CHeap* find_heap(ts_heap* handle) noexcept;

/// Null if it has been detached.
[[nodiscard]] inline Mutator* find_mutator(ts_mutator* handle) noexcept {
  if (handle == nullptr) return nullptr;
  Mutator& mutator = Mutator::of(reinterpret_cast<MutatorBlock*>(handle));
  return mutator.attached() ? &mutator : nullptr;
}
[[nodiscard]] inline const Mutator* find_mutator(const ts_mutator* handle) noexcept {
  return find_mutator(const_cast<ts_mutator*>(handle));
}

[[nodiscard]] ts_collection_report to_c(const CollectionReport& report) noexcept;

}  // namespace touchstone::heap::c

#endif  // TOUCHSTONE_SRC_C_HEAP_H_
