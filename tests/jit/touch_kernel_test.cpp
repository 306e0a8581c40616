// SPDX-License-Identifier: MIT
// Emitted accesses are invisible to the thread sanitizer; the writers beside the kernels use plain
// stores to bytes of their own, read back after joining.
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <touchstone/arch/a64/classify.h>
#include <touchstone/arch/machine.h>
#include <touchstone/heap/pretouch.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/disassembly.h>
#include <touchstone/jit/rmw_function.h>
#include <touchstone/jit/touch_kernel.h>

#include "rmw_shapes.h"

namespace touchstone::jit {
namespace {

constexpr bool kA64 = kHostInstructionSet == InstructionSet::kA64;

std::vector<TouchShape> all_touch_shapes() {
  std::vector<TouchShape> shapes;
  std::array<std::byte, kMaxTouchKernelSize> buffer{};
  for (std::size_t target = 0; target < kRmwTargetCount; ++target) {
    for (std::size_t access = 0; access < kTouchAccessCount; ++access) {
      for (const std::uint8_t width : kRmwWidths) {
        for (const RmwResult result : {RmwResult::kFetch, RmwResult::kDiscard}) {
          const TouchShape shape{.access = static_cast<TouchAccess>(access),
                                 .width = width,
                                 .target = static_cast<RmwTarget>(target),
                                 .result = result};
          if (emit_touch_kernel(shape, buffer)) shapes.push_back(shape);
        }
      }
    }
  }
  return shapes;
}

class TouchKernels : public testing::Test {
 protected:
  std::unique_ptr<CodeCache> cache_ = CodeCache::create({.capacity = std::size_t{1} << 20}).value();

  /// Those that this CPU runs.
  std::vector<TouchKernel> runnable() {
    std::vector<TouchKernel> kernels;
    for (const TouchShape& shape : all_touch_shapes()) {
      auto kernel = TouchKernel::create(*cache_, shape);
      if (kernel) {
        kernels.push_back(*std::move(kernel));
      } else {
        EXPECT_EQ(kernel.error().code, ErrorCode::kUnsupported) << kernel.error().message();
      }
    }
    EXPECT_GE(kernels.size(), 80U);
    return kernels;
  }
};

TEST_F(TouchKernels, EveryCombinationIsEmittedOrRefusedWithItsReason) {
  std::array<std::byte, kMaxTouchKernelSize> buffer{};
  // 14 accesses, 5 widths, 5 targets, 2 results; less what x86-64 lacks.
  const std::size_t rmw_16_without_cx16 = 10 * 2;
  const std::size_t arm_only_on_x86 = 2U * 2 * 5 * 2;
  EXPECT_EQ(all_touch_shapes().size(), 14U * 5 * 5 * 2 - rmw_16_without_cx16 - arm_only_on_x86);
  const auto reason = [&](const TouchShape& shape) {
    const auto emitted = emit_touch_kernel(shape, buffer);
    return emitted ? "" : emitted.error().detail;
  };
  EXPECT_STREQ(reason({.access = TouchAccess::kZeroBlock, .target = RmwTarget::kX86_64}),
               "DC ZVA is an arm64 instruction");
  EXPECT_STREQ(reason({.access = TouchAccess::kWriteBack, .target = RmwTarget::kX86_64}),
               "load-exclusives are arm64 instructions");
  EXPECT_STREQ(reason({.width = 16, .target = RmwTarget::kX86_64}),
               "16 bytes on x86-64 need CMPXCHG16B");
  EXPECT_STREQ(reason({.width = 3}), "the width is none of 1, 2, 4, 8 and 16 bytes");
  EXPECT_STREQ(reason({.access = static_cast<TouchAccess>(99)}), "the access is unknown");
  EXPECT_EQ(emit_touch_kernel({}, std::span(buffer).first(8)).error().code, ErrorCode::kOutOfRange);
}

TEST_F(TouchKernels, ForcedWritesAreExactlyTheReadModifyWrites) {
  for (const TouchShape& shape : all_touch_shapes()) {
    if (!is_a64(shape.target)) continue;
    std::array<std::byte, kMaxTouchKernelSize> buffer{};
    const std::size_t size = emit_touch_kernel(shape, buffer).value();
    std::size_t forced = 0;
    std::size_t exclusive = 0;
    std::size_t zero = 0;
    for (std::size_t i = 0; i < size; i += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, buffer.data() + i, sizeof word);
      forced += arch::a64::is_forced_write(word) ? 1U : 0U;
      exclusive += arch::a64::is_load_exclusive(word) ? 1U : 0U;
      const arch::a64::MemoryAccess access = arch::a64::classify(word);
      zero += access && access.encoding->kind == arch::a64::Kind::kZero ? 1U : 0U;
      if (access && access.encoding->kind != arch::a64::Kind::kZero) {
        EXPECT_EQ(access.width, shape.width) << to_string(shape);
      }
    }
    const bool rmw =
        shape.access <= TouchAccess::kCompareSwap || shape.access == TouchAccess::kSwap;
    const bool loops =
        shape.access == TouchAccess::kWriteBack || (rmw && shape.target == RmwTarget::kA64Llsc);
    EXPECT_EQ(forced, rmw && !loops ? 1U : 0U) << to_string(shape);
    EXPECT_EQ(exclusive, loops ? 1U : 0U) << to_string(shape);
    EXPECT_EQ(zero, shape.access == TouchAccess::kZeroBlock ? 1U : 0U) << to_string(shape);
  }
}

TEST_F(TouchKernels, PreservingOnesPreserveAndOwnedOnesZero) {
  for (const TouchKernel& kernel : runnable()) {
    const TouchShape& shape = kernel.shape();
    alignas(2048) static std::array<std::byte, 8192> memory;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory[i] = static_cast<std::byte>(i * 37 + (i >> 8U));
    }
    auto wanted = memory;
    constexpr std::size_t stride = 2048;
    const std::size_t unit = kernel.alignment();
    ASSERT_LE(unit, stride);
    if (shape.access >= TouchAccess::kSwap && shape.access != TouchAccess::kLoadThenStore) {
      for (std::size_t at = 0; at < memory.size(); at += stride) {
        std::memset(wanted.data() + at, 0, unit);
      }
    }
    ASSERT_TRUE(
        kernel.touch(memory.data(), memory.data() + memory.size(), stride, TouchedMemory::kOwned));
    EXPECT_EQ(memory, wanted) << to_string(shape);
    // Extremes and zero, at every place.
    for (const std::byte fill : {std::byte{0}, std::byte{0xff}, std::byte{0x80}, std::byte{0x7f}}) {
      if (!is_value_preserving(shape.access)) break;
      memory.fill(fill);
      ASSERT_TRUE(
          kernel.touch(memory.data(), memory.data() + memory.size(), unit, TouchedMemory::kInUse));
      for (const std::byte byte : memory) ASSERT_EQ(byte, fill) << to_string(shape);
    }
  }
}

TEST_F(TouchKernels, ExactlyThePlacesAskedForAreTouched) {
  const std::size_t page = arch::base_page_size();
  constexpr std::size_t pages = 16;
  for (const TouchKernel& kernel : runnable()) {
    void* mapped =
        mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    ASSERT_EQ(madvise(mapped, pages * page, MADV_NOHUGEPAGE), 0);
    auto* start = static_cast<std::byte*>(mapped);
    ASSERT_TRUE(kernel.touch(start + page, start + 9 * page, 2 * page, TouchedMemory::kOwned));
    std::array<unsigned char, pages> resident{};
    ASSERT_EQ(mincore(mapped, pages * page, resident.data()), 0);
    for (std::size_t i = 0; i < pages; ++i) {
      EXPECT_EQ(resident[i] & 1, i >= 1 && i < 9 && i % 2 == 1 ? 1 : 0)
          << to_string(kernel.shape()) << ", page " << i;
    }
    munmap(mapped, pages * page);
  }
}

TEST_F(TouchKernels, WritersOfOtherWidthsBesideThemLoseNothing) {
  constexpr unsigned writes = kA64 ? 1000 : 8000;
  for (const TouchKernel& kernel : runnable()) {
    if (!is_value_preserving(kernel.shape().access)) continue;
    if (kernel.shape().result != RmwResult::kDiscard) continue;
    alignas(64) std::array<std::byte, 64> memory{};
    std::atomic<bool> stop{false};
    std::atomic<unsigned> passes{0};
    std::thread toucher([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        kernel.entry()(memory.data(), memory.data() + memory.size(), kernel.alignment());
        passes.fetch_add(1, std::memory_order_relaxed);
      }
    });
    while (passes.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
    // A byte, a half, a word and a double word of the bytes being touched, each its own.
    unsigned lost = 0;
    const auto write = [&]<typename T>(std::size_t offset, unsigned i, T) {
      auto* place = reinterpret_cast<volatile T*>(memory.data() + offset);
      const T value = static_cast<T>(i * 2654435761U);
      *place = value;
      // What was there before would be what a non-atomic toucher writes back.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      for (unsigned looks = 0; looks < 3; ++looks) lost += *place == value ? 0U : 1U;
    };
    for (unsigned i = 1; i <= writes; ++i) {
      write(1, i, std::uint8_t{});
      write(2, i, std::uint16_t{});
      write(4, i, std::uint32_t{});
      write(8, i, std::uint64_t{});
      if (i % (writes / 4) == 0) std::this_thread::yield();
    }
    stop = true;
    toucher.join();
    EXPECT_EQ(lost, 0U) << to_string(kernel.shape());
    EXPECT_EQ(memory[0], std::byte{0});
  }
}

TEST_F(TouchKernels, BadRangesAreRefusedBeforeAnythingIsTouched) {
  for (const TouchKernel& kernel : runnable()) {
    const std::size_t unit = kernel.alignment();
    alignas(2048) std::array<std::byte, 4096> memory{};
    memory.fill(std::byte{0x11});
    std::byte* start = memory.data();
    const auto code = [&](void* begin, void* end, std::size_t stride,
                          TouchedMemory use = TouchedMemory::kOwned, std::size_t chunk = 0) {
      const Result<> done = kernel.touch_in_chunks(begin, end, stride, use, chunk, {});
      return done ? std::optional<ErrorCode>{} : done.error().code;
    };
    EXPECT_EQ(code(start + 2048, start, 2048), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code(start, start + 2048, 0), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code(nullptr, start, 2048), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code(start, start + 4096, 2048, TouchedMemory::kOwned, 2049),
              ErrorCode::kInvalidArgument);
    if (unit > 1) {
      EXPECT_EQ(code(start + 1, start + 2048, 2048), ErrorCode::kMisaligned);
      EXPECT_EQ(code(start, start + 2048, 2047), ErrorCode::kMisaligned);
      EXPECT_EQ(code(start, start + unit - 1, 2048), ErrorCode::kOutOfRange);
    }
    if (!is_value_preserving(kernel.shape().access)) {
      EXPECT_EQ(code(start, start + 4096, 2048, TouchedMemory::kInUse), ErrorCode::kBusy);
    }
    EXPECT_EQ(code(start, start, 2048), std::nullopt);
    for (const std::byte byte : memory) ASSERT_EQ(byte, std::byte{0x11});
  }
}

TEST_F(TouchKernels, ChunksCanBeInterrupted) {
  const TouchShape shape{.access = TouchAccess::kStore,
                         .target = best_rmw_target(arch::cpu_features())};
  const TouchKernel kernel = TouchKernel::create(*cache_, shape).value();
  std::vector<std::uint64_t> memory(1024, 1);
  std::stop_source source;
  source.request_stop();
  const Result<> stopped = kernel.touch_in_chunks(memory.data(), memory.data() + memory.size(), 8,
                                                  TouchedMemory::kOwned, 800, source.get_token());
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(stopped.error().progress, 0U);
  EXPECT_EQ(memory[0], 1U);
  // From another thread, at some chunk: progress tells which places are done, and no more are.
  std::stop_source later;
  std::vector<std::uint64_t> large(std::size_t{1} << 20, 1);
  std::jthread stopper([&] {
    while (*static_cast<volatile std::uint64_t*>(&large[1000]) != 0) std::this_thread::yield();
    later.request_stop();
  });
  const Result<> partly = kernel.touch_in_chunks(large.data(), large.data() + large.size(), 8,
                                                 TouchedMemory::kOwned, 64, later.get_token());
  stopper.join();
  const std::size_t done = partly ? large.size() * 8 : partly.error().progress;
  EXPECT_GT(done, 8000U);
  for (std::size_t i = 0; i < large.size(); ++i) ASSERT_EQ(large[i], i * 8 < done ? 0U : 1U);
}

TEST_F(TouchKernels, PretouchRunsTheRegisteredOne) {
  const heap::TouchKernel& before = heap::default_touch_kernel();
  std::string name;
  {
    const auto registration = TouchKernelRegistration::create(*cache_);
    ASSERT_TRUE(registration) << registration.error().message();
    EXPECT_EQ(&heap::default_touch_kernel(), &registration->kernel().for_pretouch());
    const std::size_t length = 4 * arch::geometry().pmd;
    if (length > std::size_t{64} << 20) GTEST_SKIP() << "huge pages too large to try";
    void* mapped =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    const auto done = heap::pretouch(
        mapped, length, {.strategy = heap::PretouchStrategy::kAtomicRmw, .memory_in_use = true});
    ASSERT_TRUE(done) << done.error().error.message();
    EXPECT_EQ(done->bytes, length);
    name = done->touch_kernel;
    EXPECT_EQ(name, std::string("emitted ") + to_string(best_rmw_target(arch::cpu_features())) +
                        " add 8");
    munmap(mapped, length);
  }
  EXPECT_EQ(&heap::default_touch_kernel(), &before);
  const auto refused = TouchKernelRegistration::create(
      *cache_, {.access = TouchAccess::kSwap, .target = best_rmw_target(arch::cpu_features())});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_EQ(&heap::default_touch_kernel(), &before);
}

TEST_F(TouchKernels, TheyPrintThemselves) {
  const TouchKernel kernel =
      TouchKernel::create(*cache_, {.access = TouchAccess::kSet,
                                    .width = 4,
                                    .target = best_rmw_target(arch::cpu_features())})
          .value();
  const auto code = cache_->code_at(std::bit_cast<const void*>(kernel.entry()));
  ASSERT_TRUE(code);
  const auto text = disassemble_to_text(kHostInstructionSet, *code,
                                        std::bit_cast<std::uintptr_t>(kernel.entry()));
  ASSERT_TRUE(text);
  const bool lse = arch::cpu_features().has(arch::CpuFeature::kLse);
  const char* wanted = !kA64 ? "lock or dword ptr [rdi], r9d"
                       : lse ? "stset w4, [x0]"
                             : "stxr w9, w8, [x0]";
  EXPECT_NE(text->find(wanted), std::string::npos) << *text;
  EXPECT_NE(text->find("ret"), std::string::npos);
}

TEST(TouchNames, RoundTrip) {
  for (std::size_t i = 0; i < kTouchAccessCount; ++i) {
    EXPECT_EQ(parse_touch_access(to_string(static_cast<TouchAccess>(i))),
              static_cast<TouchAccess>(i));
  }
  EXPECT_EQ(parse_touch_access("no such"), std::nullopt);
  EXPECT_STREQ(to_string(static_cast<TouchAccess>(99)), "unknown");
}

}  // namespace
}  // namespace touchstone::jit
