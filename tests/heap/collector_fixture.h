// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_HEAP_COLLECTOR_FIXTURE_H_
#define TOUCHSTONE_TESTS_HEAP_COLLECTOR_FIXTURE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/heap/heap.h>
#include <touchstone/heap/object_header.h>

#include "result_assertions.h"

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
template <typename HeapUnderTest>
Pair* make_pair(HeapUnderTest& heap, Mutator& mutator, std::uint64_t number) {
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

/// A heap with poison and, unless it is told otherwise, verification; a mutator; and what they
/// told, in which there must be no violation. Base is a fixture of GoogleTest; a parameter is the
/// number of workers.
template <typename Base, typename HeapUnderTest = TestHeap>
class HeapFixture : public Base {
 protected:
  void make(HeapOptions options, bool verify = true) {
    mutator_.reset();
    heap_.reset();
    options.listener = &told_;
    if constexpr (requires { typename Base::ParamType; }) options.workers = Base::GetParam();
    options.verify = verify;
    options.poison = true;
    auto heap = HeapUnderTest::create(options);
    ASSERT_TRUE(touchstone::testing::ok(heap));
    heap_ = std::move(*heap);
    auto mutator = heap_->attach("test");
    ASSERT_TRUE(touchstone::testing::ok(mutator));
    mutator_ = std::move(*mutator);
  }
  void TearDown() override { EXPECT_THAT(told_.violations, ::testing::IsEmpty()); }

  Pair* pair(std::uint64_t number) { return make_pair(*heap_, *mutator_, number); }
  void collect(CollectionKind kind) {
    ASSERT_TRUE(touchstone::testing::ok(heap_->collect(mutator_.get(), kind)));
  }
  /// A list of so many, its first element last.
  Pair* list(std::uint64_t length) {
    Local<Pair> head(*mutator_);
    for (std::uint64_t i = 0; i < length; ++i) {
      Pair* const fresh = pair(i);
      if (fresh == nullptr) return nullptr;
      mutator_->write(fresh->left, head.get());
      head = fresh;
    }
    return head.get();
  }

  Recorder told_;
  std::unique_ptr<HeapUnderTest> heap_;
  MutatorPointer mutator_;
};

}  // namespace touchstone::heap::testing

#endif  // TOUCHSTONE_TESTS_HEAP_COLLECTOR_FIXTURE_H_
