// SPDX-License-Identifier: MIT
// References that are nowhere but in a thread's registers.
#include <array>
#include <cstdint>
#include <memory>
#include <semaphore>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/heap/heap.h>

#include "collector_fixture.h"
#include "result_assertions.h"

// Calls call(context) with the complements of four words in registers that callees keep, and writes
// the complements of what is in them then back. So a reference is in a register and nowhere else.
extern "C" void touchstone_with_words_in_registers(std::uintptr_t* words, void (*call)(void*),
                                                   void* context);
// Calls call(context) with other words in those registers, whose own are kept 8 KiB down the stack.
extern "C" void touchstone_call_deep(void (*call)(void*), void* context);
#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  .type touchstone_with_words_in_registers, @function
touchstone_with_words_in_registers:
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rdi, %r15
  mov 0(%r15), %rbx
  mov 8(%r15), %r12
  mov 16(%r15), %r13
  mov 24(%r15), %r14
  not %rbx
  not %r12
  not %r13
  not %r14
  mov %rdx, %rdi
  call *%rsi
  not %rbx
  not %r12
  not %r13
  not %r14
  mov %rbx, 0(%r15)
  mov %r12, 8(%r15)
  mov %r13, 16(%r15)
  mov %r14, 24(%r15)
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  ret
  .size touchstone_with_words_in_registers, . - touchstone_with_words_in_registers
  .type touchstone_call_deep, @function
touchstone_call_deep:
  push %rbp
  mov %rsp, %rbp
  sub $8192, %rsp
  push %rbx
  push %r12
  push %r13
  push %r14
  xor %ebx, %ebx
  xor %r12d, %r12d
  xor %r13d, %r13d
  xor %r14d, %r14d
  mov %rdi, %rax
  mov %rsi, %rdi
  call *%rax
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  leave
  ret
  .size touchstone_call_deep, . - touchstone_call_deep
  .popsection
)");
#elif defined(__aarch64__)
asm(R"(
  .pushsection .text
  .type touchstone_with_words_in_registers, %function
touchstone_with_words_in_registers:
  stp x29, x30, [sp, #-64]!
  mov x29, sp
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  str x23, [sp, #48]
  mov x23, x0
  ldp x19, x20, [x23]
  ldp x21, x22, [x23, #16]
  mvn x19, x19
  mvn x20, x20
  mvn x21, x21
  mvn x22, x22
  mov x0, x2
  blr x1
  mvn x19, x19
  mvn x20, x20
  mvn x21, x21
  mvn x22, x22
  stp x19, x20, [x23]
  stp x21, x22, [x23, #16]
  ldr x23, [sp, #48]
  ldp x21, x22, [sp, #32]
  ldp x19, x20, [sp, #16]
  ldp x29, x30, [sp], #64
  ret
  .size touchstone_with_words_in_registers, . - touchstone_with_words_in_registers
  .type touchstone_call_deep, %function
touchstone_call_deep:
  stp x29, x30, [sp, #-16]!
  mov x29, sp
  sub sp, sp, #8192
  stp x19, x20, [sp, #-32]!
  stp x21, x22, [sp, #16]
  mov x19, xzr
  mov x20, xzr
  mov x21, xzr
  mov x22, xzr
  mov x2, x0
  mov x0, x1
  blr x2
  ldp x21, x22, [sp, #16]
  ldp x19, x20, [sp], #32
  mov sp, x29
  ldp x29, x30, [sp], #16
  ret
  .size touchstone_call_deep, . - touchstone_call_deep
  .popsection
)");
#endif

namespace touchstone::heap::testing {
namespace {

using ::testing::IsEmpty;
using touchstone::testing::ok;

constexpr std::uint64_t kNumber = 4242;

class StackRoots : public HeapFixture<::testing::Test> {
 protected:
  void SetUp() override { make({.max_size = std::size_t{16} << 20U}); }

  /// Fills the words with the complements of new objects' addresses.
  [[gnu::noinline]] void allocate() {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      words_[i] = ~reinterpret_cast<std::uintptr_t>(make_pair(*heap_, *mutator_, kNumber + i));
    }
  }
  /// Whether the objects are where they were, with their contents.
  void expect_kept() const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      EXPECT_EQ(reinterpret_cast<const Pair*>(~words_[i])->number, kNumber + i);
    }
    ASSERT_FALSE(told_.reports.empty());
    EXPECT_GE(told_.reports.back().pinned_objects, words_.size());
  }

  std::array<std::uintptr_t, 4> words_{};
};

/// What a native section's own calls do to the stack below it.
[[gnu::noinline]] void overwrite_stack() {
  volatile std::uint64_t words[1024];
  for (auto& word : words) word = 0;
}

TEST_F(StackRoots, RegistersOfTheCollectingThreadAreLookedAt) {
  mutator_->scan_stack_from(__builtin_frame_address(0));
  allocate();
  struct Context {
    TestHeap& heap;
    Mutator& mutator;
  } context{*heap_, *mutator_};
  touchstone_with_words_in_registers(
      words_.data(),
      [](void* pointer) {
        const Context& it = *static_cast<Context*>(pointer);
        EXPECT_TRUE(ok(it.heap.collect(&it.mutator, CollectionKind::kFull)));
      },
      &context);
  mutator_->scan_stack_from(nullptr);
  expect_kept();
}

TEST_F(StackRoots, RegistersOutliveTheFrameThatEntersANativeSection) {
  mutator_->scan_stack_from(__builtin_frame_address(0));
  std::binary_semaphore is_native{0};
  std::binary_semaphore collected{0};
  struct Context {
    Mutator& mutator;
    std::binary_semaphore& is_native;
    std::binary_semaphore& collected;
  } context{*mutator_, is_native, collected};
  std::thread collector([&] {
    is_native.acquire();
    EXPECT_TRUE(ok(heap_->collect(nullptr, CollectionKind::kFull)));
    collected.release();
  });
  allocate();
  touchstone_with_words_in_registers(
      words_.data(),
      [](void* pointer) {
        const Context& it = *static_cast<Context*>(pointer);
        it.mutator.enter_native();
        overwrite_stack();
        touchstone_call_deep(
            [](void* waiting) {
              static_cast<Context*>(waiting)->is_native.release();
              static_cast<Context*>(waiting)->collected.acquire();
            },
            pointer);
        it.mutator.leave_native();
      },
      &context);
  collector.join();
  mutator_->scan_stack_from(nullptr);
  expect_kept();
  // Nothing stale holds them afterwards.
  ASSERT_TRUE(ok(heap_->collect(mutator_.get(), CollectionKind::kFull)));
  EXPECT_EQ(told_.reports.back().pinned_objects, 0U);
}

}  // namespace
}  // namespace touchstone::heap::testing
