// SPDX-License-Identifier: MIT
// Every allocation that the heap itself makes from the C++ library fails in turn.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/heap/heap.h>
#include <touchstone/heap/object_header.h>

#include "collector_fixture.h"

namespace {

/// 1: the next one fails. 0: none.
std::atomic<std::uint64_t> fails_after{0};
std::atomic<std::uint64_t> failed{0};

void* allocate_or_fail(std::size_t size) {
  std::uint64_t left = fails_after.load();
  while (left != 0 && !fails_after.compare_exchange_weak(left, left - 1)) {
  }
  if (left == 1) {
    failed.fetch_add(1);
    return nullptr;
  }
  return std::malloc(size == 0 ? 1 : size);
}
// Apart, as GCC takes it for a mismatch where it sees both.
[[gnu::noinline]] void give_back(void* memory) {
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) {
  void* const memory = allocate_or_fail(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_fail(size);
}
void* operator new[](std::size_t size) {
  return operator new(size);
}
void* operator new[](std::size_t size, const std::nothrow_t& nothrow) noexcept {
  return operator new(size, nothrow);
}
void operator delete(void* memory) noexcept {
  give_back(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  give_back(memory);
}
void operator delete[](void* memory) noexcept {
  give_back(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  give_back(memory);
}

namespace touchstone::heap::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

/// A bit of everything. The errors are counted, and what is alive is found alive, whatever failed.
unsigned run_all(unsigned workers, bool verify) {
  unsigned errors = 0;
  const auto count = [&](const auto& result) {
    errors += result ? 0U : 1U;
    return result.has_value();
  };
  auto heap = TestHeap::create({.max_size = 16 * kMiB, .workers = workers, .verify = verify});
  if (!count(heap)) return errors;
  auto mutator = (*heap)->attach("failing");
  if (!count(mutator)) return errors;
  std::uintptr_t word = 0;
  const RootCallback callback{[](RootVisitor& visitor, void* context) noexcept {
                                auto* const place = static_cast<std::uintptr_t*>(context);
                                visitor.visit_ambiguous(place, place + 1);
                              },
                              &word};
  count((*heap)->add_roots(callback));
  {
    Local<Pair> head(**mutator);
    const auto expect_list = [&](std::uint64_t length) {
      const Pair* at = head.get();
      for (std::uint64_t i = length; i-- > 0; at = at->left) {
        ASSERT_NE(at, nullptr);
        ASSERT_EQ(at->number, i);
      }
      ASSERT_EQ(at, nullptr);
    };
    for (std::uint64_t i = 0; i < 1000; ++i) {
      Pair* const fresh = make_pair(**heap, **mutator, i);
      if (fresh == nullptr) {
        ++errors;
        (*heap)->remove_roots(callback);
        return errors;
      }
      (*mutator)->write(fresh->left, head.get());
      head = fresh;
    }
    word = reinterpret_cast<std::uintptr_t>(head->left);
    const WeakRoot<Pair> weak(**heap, head->left);
    Pair* const dies = make_pair(**heap, **mutator, 5000);
    if (dies != nullptr) count((*heap)->add_finalizer(dies));
    const auto ephemeron =
        (*heap)->allocate(**mutator, 24);  // Its key is alive, its value only through it.
    if (count(ephemeron)) {
      auto* const words = reinterpret_cast<std::uint64_t*>(*ephemeron);
      words[0] = ObjectHeader::make(ObjectHeader::Kind::kEphemeron, 24).word();
      (*mutator)->write(head->right, reinterpret_cast<Pair*>(words));
    }
    for (const CollectionKind kind :
         {CollectionKind::kYoung, CollectionKind::kFull, CollectionKind::kFull}) {
      count((*heap)->collect(mutator->get(), kind));
      expect_list(1000);
      EXPECT_EQ(weak.get(), head->left);
    }
    count((*heap)->trim(mutator->get()));
    expect_list(1000);
  }
  (*heap)->remove_roots(callback);
  return errors;
}

TEST(CollectorWithoutMemory, EveryFailingAllocationIsAnErrorOrMadeUpFor) {
  for (const unsigned workers : {1U, 2U}) {
    for (const bool verify : {false, true}) {
      ASSERT_EQ(run_all(workers, verify), 0U);
      std::uint64_t with_error = 0;
      for (std::uint64_t nth = 1;; ++nth) {
        failed = 0;
        fails_after = nth;
        const unsigned errors = run_all(workers, verify);
        fails_after = 0;
        if (::testing::Test::HasFailure()) FAIL() << "allocation " << nth;
        if (failed == 0) {
          EXPECT_EQ(errors, 0U);
          EXPECT_GE(nth, 20U);
          break;
        }
        with_error += errors != 0 ? 1U : 0U;
      }
      EXPECT_GE(with_error, 3U);
    }
  }
}

}  // namespace
}  // namespace touchstone::heap::testing
