// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_HEAP_COLLECTOR_FIXTURE_H_
#define TOUCHSTONE_TESTS_HEAP_COLLECTOR_FIXTURE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <touchstone/heap/heap.h>
#include <touchstone/heap/object_header.h>

namespace touchstone::heap::testing {

using Model = HeaderModel<8>;
using TestHeap = Heap<Model>;

/// Two references and a number.
struct Pair {
  std::uint64_t header;
  Pair* left;
  Pair* right;
  std::uint64_t number;
};
inline constexpr ObjectHeader kPair = ObjectHeader::record(sizeof(Pair), 2);

/// References alone.
struct Table {
  std::uint64_t header;
  Pair*& operator[](std::size_t i) { return reinterpret_cast<Pair**>(this + 1)[i]; }
};

/// Null where it fails.
inline Pair* make_pair(TestHeap& heap, Mutator& mutator, std::uint64_t number) {
  std::byte* const memory = heap.allocate_or_null(mutator, sizeof(Pair));
  if (memory == nullptr) return nullptr;
  auto* const pair = reinterpret_cast<Pair*>(memory);
  pair->header = kPair.word();
  pair->number = number;
  return pair;
}
inline Table* make_table(TestHeap& heap, Mutator& mutator, std::size_t length) {
  std::byte* const memory = heap.allocate_or_null(mutator, 8 + length * 8);
  if (memory == nullptr) return nullptr;
  auto* const table = reinterpret_cast<Table*>(memory);
  table->header = ObjectHeader::array(length).word();
  return table;
}

/// Keeps what it is told.
class Recorder : public HeapListener {
 public:
  void on_collection_end(const CollectionReport& report) noexcept override {
    const std::lock_guard lock(mutex_);
    reports.push_back(report);
  }
  void on_safepoint_timeout(std::span<const LateMutator> late) noexcept override {
    const std::lock_guard lock(mutex_);
    for (const LateMutator& each : late) late_names.emplace_back(each.name);
  }
  void on_violation(const Violation& violation) noexcept override {
    const std::lock_guard lock(mutex_);
    violations.push_back(violation);
  }
  void on_out_of_memory(std::size_t size) noexcept override {
    const std::lock_guard lock(mutex_);
    out_of_memory.push_back(size);
  }
  void on_abandoned_mutator(std::uint64_t id) noexcept override {
    const std::lock_guard lock(mutex_);
    abandoned.push_back(id);
  }

  std::vector<CollectionReport> reports;
  std::vector<std::string> late_names;
  std::vector<Violation> violations;
  std::vector<std::size_t> out_of_memory;
  std::vector<std::uint64_t> abandoned;

 private:
  std::mutex mutex_;
};

}  // namespace touchstone::heap::testing

#endif  // TOUCHSTONE_TESTS_HEAP_COLLECTOR_FIXTURE_H_
