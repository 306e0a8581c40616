// SPDX-License-Identifier: MIT
// A stop that not everybody follows: who was late is named, nothing has changed, all go on.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/heap/heap.h>

#include "collector_fixture.h"
#include "result_assertions.h"

namespace touchstone::heap::testing {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using touchstone::testing::fails_with;
using touchstone::testing::ok;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

class SafepointTimeout : public ::testing::Test {
 protected:
  void SetUp() override {
    auto heap = TestHeap::create({.max_size = 16 * kMiB,
                                  .workers = 2,
                                  .safepoint_timeout = std::chrono::milliseconds(30),
                                  .verify = true,
                                  .listener = &told_});
    ASSERT_TRUE(ok(heap));
    heap_ = std::move(*heap);
  }
  void TearDown() override {
    release_ = true;
    for (std::thread& thread : threads_) thread.join();
    EXPECT_THAT(told_.violations, IsEmpty());
  }
  /// A mutator that comes to no safepoint until it is released.
  void add_late(const char* name) {
    add([this, name] {
      const auto mutator = heap_->attach(name);
      ++attached_;
      while (!release_) std::this_thread::yield();
    });
  }
  /// One that polls all the time, and counts.
  void add_polling() {
    add([this] {
      const auto mutator = heap_->attach("polling");
      const Local<Pair> kept(**mutator, make_pair(*heap_, **mutator, 7));
      ++attached_;
      while (!release_) {
        (*mutator)->poll();
        ++polls_;
      }
      EXPECT_EQ(kept->number, 7U);
    });
  }
  template <typename Run>
  void add(Run&& run) {
    const unsigned before = attached_;
    threads_.emplace_back(std::forward<Run>(run));
    while (attached_ == before) std::this_thread::yield();
  }

  Recorder told_;
  std::unique_ptr<TestHeap> heap_;
  std::vector<std::thread> threads_;
  std::atomic<unsigned> attached_ = 0;
  std::atomic<bool> release_ = false;
  std::atomic<std::uint64_t> polls_ = 0;
};

TEST_F(SafepointTimeout, AllThatAreLateAreNamedAndTheOthersGoOn) {
  add_late("first");
  add_polling();
  add_late("second");
  EXPECT_TRUE(fails_with(ErrorCode::kTimedOut, heap_->collect(nullptr)));
  // On a machine that is busy elsewhere the polling one may be late as well.
  EXPECT_THAT(told_.late_names, IsSupersetOf({"first", "second"}));
  EXPECT_THAT(told_.reports, IsEmpty());
  EXPECT_EQ(heap_->statistics().safepoint_timeouts, 1U);
  EXPECT_EQ(heap_->statistics().full_collections, 0U);
  // Who had stopped runs again.
  const std::uint64_t then = polls_;
  while (polls_ < then + 1000) std::this_thread::yield();
}

TEST_F(SafepointTimeout, AnAllocationThatCannotCollectFailsAndTheHeapIsAsItWas) {
  add_late("late");
  const auto mutator = heap_->attach("allocating");
  ASSERT_TRUE(ok(mutator));
  Local<Pair> head(**mutator);
  std::uint64_t count = 0;
  std::vector<const Pair*> places;
  for (;; ++count) {
    Pair* const fresh = make_pair(*heap_, **mutator, count);
    if (fresh == nullptr) break;
    (*mutator)->write(fresh->left, head.get());
    head = fresh;
    places.push_back(fresh);
  }
  EXPECT_EQ((*mutator)->error().code, ErrorCode::kTimedOut);
  EXPECT_THAT(told_.late_names, Each(std::string("late")));
  EXPECT_GE(count, 10'000U);
  const Pair* at = head.get();
  for (std::uint64_t i = count; i-- > 0; at = at->left) {
    ASSERT_EQ(at, places[i]);
    ASSERT_EQ(at->number, i);
  }
  // As soon as nobody is late there is room.
  release_ = true;
  threads_[0].join();
  threads_.clear();
  head = nullptr;
  EXPECT_NE(make_pair(*heap_, **mutator, 1), nullptr);
  EXPECT_TRUE(ok(heap_->collect(mutator->get())));
}

TEST_F(SafepointTimeout, NobodyIsLateInANativeSection) {
  add([this] {
    const auto mutator = heap_->attach("waiting");
    const NativeScope native(**mutator);
    ++attached_;
    while (!release_) std::this_thread::yield();
  });
  add_polling();
  for (int i = 0; i < 5; ++i) {
    const auto done = heap_->collect(nullptr);
    // A machine that is busy elsewhere may make the polling one late, never the waiting one.
    if (!done) {
      EXPECT_EQ(done.error().code, ErrorCode::kTimedOut);
    }
  }
  EXPECT_THAT(told_.late_names, Each(std::string("polling")));
}

}  // namespace
}  // namespace touchstone::heap::testing
