// SPDX-License-Identifier: MIT
// Runs every combination that this CPU can run: against a model over edge values, against
// std::atomic, and under contention. Emitted accesses are invisible to the thread sanitizer: where
// threads meet here they meet in emitted code alone, and what is read afterwards is ordered by
// joining them.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <touchstone/arch/machine.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/rmw_function.h>

#include "inline_wrapper.h"
#include "rmw_shapes.h"

namespace touchstone::jit {
namespace {

__extension__ using U128 = unsigned __int128;
__extension__ using S128 = __int128;

U128 join(RmwValue value) {
  return U128{value.high} << 64U | value.low;
}
RmwValue split(U128 value) {
  return {.low = static_cast<std::uint64_t>(value),
          .high = static_cast<std::uint64_t>(value >> 64U)};
}

template <typename Unsigned>
struct SignedOf {
  using Type = std::make_signed_t<Unsigned>;
};
template <>
struct SignedOf<U128> {
  using Type = S128;
};

/// What the operation stores, by the definitions of RmwOp.
template <typename T>
T model(RmwOp op, T memory, T operand, T expected) {
  using S = typename SignedOf<T>::Type;
  switch (op) {
    case RmwOp::kAdd:
      return static_cast<T>(memory + operand);
    case RmwOp::kClear:
      return static_cast<T>(memory & static_cast<T>(~operand));
    case RmwOp::kSet:
      return static_cast<T>(memory | operand);
    case RmwOp::kEor:
      return static_cast<T>(memory ^ operand);
    case RmwOp::kSmax:
      return static_cast<S>(memory) > static_cast<S>(operand) ? memory : operand;
    case RmwOp::kSmin:
      return static_cast<S>(memory) < static_cast<S>(operand) ? memory : operand;
    case RmwOp::kUmax:
      return memory > operand ? memory : operand;
    case RmwOp::kUmin:
      return memory < operand ? memory : operand;
    case RmwOp::kSwap:
      return operand;
    case RmwOp::kCompareSwap:
      return memory == expected ? operand : memory;
  }
  return memory;
}

/// The same by std::atomic, where it has the operation.
template <typename T>
bool by_std_atomic(RmwOp op, std::atomic<T>& memory, T operand, T expected, T& before) {
  switch (op) {
    case RmwOp::kAdd:
      before = memory.fetch_add(operand);
      return true;
    case RmwOp::kClear:
      before = memory.fetch_and(static_cast<T>(~operand));
      return true;
    case RmwOp::kSet:
      before = memory.fetch_or(operand);
      return true;
    case RmwOp::kEor:
      before = memory.fetch_xor(operand);
      return true;
    case RmwOp::kSwap:
      before = memory.exchange(operand);
      return true;
    case RmwOp::kCompareSwap:
      before = expected;
      memory.compare_exchange_strong(before, operand);
      return true;
    default:
      return false;
  }
}

class RmwExecution : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cache_ = CodeCache::create({.capacity = std::size_t{4} << 20}).value().release();
  }
  static void TearDownTestSuite() {
    delete cache_;
    cache_ = nullptr;
  }
  static std::vector<RmwShape> runnable() {
    std::vector<RmwShape> shapes;
    const arch::CpuFeatures features = arch::cpu_features();
    for (const RmwShape& shape : all_rmw_shapes()) {
      if (can_run(shape.target, features)) shapes.push_back(shape);
    }
    return shapes;
  }
  static CodeCache* cache_;
};
CodeCache* RmwExecution::cache_ = nullptr;

template <typename T>
std::vector<T> edge_values() {
  const unsigned bits = sizeof(T) * 8;
  const T one{1};
  const T sign = static_cast<T>(one << (bits - 1));
  const T ones = static_cast<T>(~T{0});
  std::vector<T> values{T{0},
                        one,
                        T{2},
                        static_cast<T>(ones - 1),
                        ones,
                        sign,
                        static_cast<T>(sign - 1),
                        static_cast<T>(sign + 1),
                        static_cast<T>(ones / 3),
                        static_cast<T>(ones / 5 * 4)};
  // Around the middle, where the halves of a pair carry and borrow.
  values.push_back(static_cast<T>(one << (bits / 2)));
  values.push_back(static_cast<T>((one << (bits / 2)) - 1));
  values.push_back(static_cast<T>(sign | ((one << (bits / 2)) - 1)));
  return values;
}

template <typename T>
void check_edges(const RmwFunction& function) {
  const RmwShape& shape = function.shape();
  struct alignas(16) Guarded {
    std::array<std::byte, 16> before;
    T memory;
    std::array<std::byte, 16> after;
  };
  for (const T memory : edge_values<T>()) {
    for (const T operand : edge_values<T>()) {
      for (const T expected : {memory, static_cast<T>(memory + 1)}) {
        if (expected != memory && shape.op != RmwOp::kCompareSwap) continue;
        Guarded place{};
        place.before.fill(std::byte{0xa5});
        place.after.fill(std::byte{0xa5});
        place.memory = memory;
        RmwValue given;
        RmwValue compared;
        if constexpr (sizeof(T) == 16) {
          given = split(operand);
          compared = split(expected);
        } else {
          // Bits above the width must not matter.
          const std::uint64_t junk =
              sizeof(T) == 8 ? 0 : std::uint64_t{0xdead'beef'cafe'f00d} << (sizeof(T) * 8 % 64);
          given.low = junk | operand;
          compared.low = junk | expected;
        }
        const Result<RmwValue> old = function(&place.memory, given, compared);
        ASSERT_TRUE(old);
        const T stored = model<T>(shape.op, memory, operand, expected);
        ASSERT_TRUE(place.memory == stored) << to_string(shape);
        if (shape.result == RmwResult::kFetch) {
          ASSERT_TRUE(join(*old) == memory) << to_string(shape);
        } else {
          ASSERT_EQ(*old, RmwValue{}) << to_string(shape);
        }
        for (const auto* guard : {&place.before, &place.after}) {
          for (const std::byte byte : *guard) ASSERT_EQ(byte, std::byte{0xa5}) << to_string(shape);
        }
        if constexpr (sizeof(T) <= 8) {
          std::atomic<T> reference{memory};
          T before{};
          if (by_std_atomic<T>(shape.op, reference, operand, expected, before)) {
            ASSERT_EQ(reference.load(), stored) << to_string(shape);
            ASSERT_EQ(before, memory) << to_string(shape);
          }
        }
      }
    }
  }
}

TEST_F(RmwExecution, EveryCombinationOverEdgeValues) {
  std::set<RmwTarget> ran;
  std::size_t shapes = 0;
  for (const RmwShape& shape : runnable()) {
    const Result<RmwFunction> function = RmwFunction::create(*cache_, shape);
    ASSERT_TRUE(function) << to_string(shape) << ": " << function.error().message();
    switch (shape.width) {
      case 1:
        check_edges<std::uint8_t>(*function);
        break;
      case 2:
        check_edges<std::uint16_t>(*function);
        break;
      case 4:
        check_edges<std::uint32_t>(*function);
        break;
      case 8:
        check_edges<std::uint64_t>(*function);
        break;
      default:
        check_edges<U128>(*function);
        break;
    }
    if (HasFatalFailure()) return;
    ran.insert(shape.target);
    ++shapes;
  }
  ASSERT_GE(shapes, 400U);
  for (std::size_t i = 0; i < kRmwTargetCount; ++i) {
    const auto target = static_cast<RmwTarget>(i);
    const bool here = is_a64(target) == (kHostInstructionSet == InstructionSet::kA64);
    if (here && !ran.contains(target)) {
      std::cout << "NOT EXECUTED here, only emitted and decoded: " << to_string(target)
                << " (the CPU has no such instructions)\n";
    }
  }
}

TEST_F(RmwExecution, InlineFormsWithEveryChoiceOfRegisters) {
  for (const RmwShape& shape : runnable()) {
    if (shape.order != RmwOrder::kAcqRel) continue;
    for (unsigned rotation = 0; rotation < 6; ++rotation) {
      const RmwRegisters registers = some_registers(shape, rotation);
      const Result<std::vector<std::byte>> code = wrap_inline(shape, registers);
      ASSERT_TRUE(code) << to_string(shape);
      const Result<const void*> entry = cache_->add(*code, "inline");
      ASSERT_TRUE(entry);
      const RmwValue memory{.low = 0x8000'0000'0000'00f0, .high = 0x7fff'0000'0000'0001};
      const RmwValue operand{.low = 0x7000'0000'0000'0137, .high = 0x8000'0000'0000'0000};
      alignas(16) RmwValue place = memory;
      InlineFrame frame{.in = {reinterpret_cast<std::uintptr_t>(&place), operand.low, operand.high,
                               memory.low, memory.high}};
      std::bit_cast<void (*)(InlineFrame*)> (*entry)(&frame);
      const U128 mask = shape.width == 16 ? ~U128{0} : (U128{1} << (shape.width * 8U)) - 1;
      const U128 kept = join(memory) & ~mask;
      const auto apply = [&]<typename T>(T) {
        return static_cast<U128>(model<T>(shape.op, static_cast<T>(join(memory)),
                                          static_cast<T>(join(operand)),
                                          static_cast<T>(join(memory))));
      };
      U128 stored = 0;
      switch (shape.width) {
        case 1:
          stored = apply(std::uint8_t{});
          break;
        case 2:
          stored = apply(std::uint16_t{});
          break;
        case 4:
          stored = apply(std::uint32_t{});
          break;
        case 8:
          stored = apply(std::uint64_t{});
          break;
        default:
          stored = apply(U128{});
          break;
      }
      EXPECT_TRUE(join(place) == (kept | stored)) << to_string(shape) << " rotation " << rotation;
      if (shape.result == RmwResult::kFetch) {
        const U128 old = U128{frame.result[1]} << 64U | frame.result[0];
        EXPECT_TRUE(old == (join(memory) & mask)) << to_string(shape) << " rotation " << rotation;
      }
      // Address, operand and expected value are left as they were.
      const std::array given{registers.address, registers.operand[0], registers.operand[1],
                             registers.expected[0], registers.expected[1]};
      for (std::size_t i = 0; i < given.size(); ++i) {
        if (given[i] == kNoRegister) continue;
        EXPECT_EQ(frame.out[i], frame.in[i])
            << to_string(shape) << " rotation " << rotation << ": input " << i << " was changed";
      }
      ASSERT_TRUE(cache_->release(*entry));
    }
  }
}

constexpr unsigned kThreads = 4;

/// Runs `body(thread)` on all threads from one start line.
template <typename Body>
void together(Body&& body) {
  std::atomic<unsigned> ready{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ready.fetch_add(1);
      while (ready.load() < kThreads) std::this_thread::yield();
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Emulated threads are some hundred times slower, and a count is as good a count when smaller.
constexpr unsigned kRounds = kHostInstructionSet == InstructionSet::kA64 ? 300 : 3000;

TEST_F(RmwExecution, ContendedAddsAccountForEveryValue) {
  for (const RmwShape& shape : runnable()) {
    if (shape.op != RmwOp::kAdd || shape.width < 4) continue;
    const RmwFunction function = RmwFunction::create(*cache_, shape).value();
    alignas(16) RmwValue memory{};
    if (shape.width == 16) memory.low = ~std::uint64_t{0} - kRounds;  // carries on the way
    const U128 start = join(memory);
    std::array<std::vector<U128>, kThreads> fetched;
    together([&](unsigned thread) {
      fetched[thread].reserve(kRounds);
      for (unsigned i = 0; i < kRounds; ++i) {
        fetched[thread].push_back(join(function(&memory, {.low = 1, .high = 0}).value()));
      }
    });
    const U128 total = U128{kThreads} * kRounds;
    ASSERT_TRUE(join(memory) == start + total) << to_string(shape);
    if (shape.result != RmwResult::kFetch) continue;
    std::vector<U128> all;
    for (const auto& part : fetched) {
      EXPECT_TRUE(std::is_sorted(part.begin(), part.end())) << to_string(shape);
      all.insert(all.end(), part.begin(), part.end());
    }
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(all[i] == start + i) << to_string(shape);
    }
  }
}

TEST_F(RmwExecution, ContendedSwapsPassEveryValueOn) {
  for (const RmwShape& shape : runnable()) {
    if (shape.op != RmwOp::kSwap || shape.width < 4 || shape.result != RmwResult::kFetch) continue;
    const RmwFunction function = RmwFunction::create(*cache_, shape).value();
    alignas(16) RmwValue memory{};
    std::array<std::vector<std::uint64_t>, kThreads> fetched;
    std::atomic<bool> torn{false};
    together([&](unsigned thread) {
      for (unsigned i = 0; i < kRounds; ++i) {
        const std::uint64_t mine = 1 + thread * kRounds + i;
        const RmwValue old = function(&memory, {.low = mine, .high = ~mine}).value();
        if (shape.width == 16 && old.low != 0 && old.high != ~old.low) torn = true;
        fetched[thread].push_back(old.low);
      }
    });
    EXPECT_FALSE(torn) << to_string(shape);
    std::set<std::uint64_t> seen{memory.low & 0xffff'ffff};
    std::size_t count = 1;
    for (const auto& part : fetched) {
      for (const std::uint64_t value : part) seen.insert(value);
      count += part.size();
    }
    // Each value stored comes out exactly once, and so does the zero at the start.
    EXPECT_EQ(seen.size(), count) << to_string(shape);
    EXPECT_EQ(*seen.begin(), 0U);
    EXPECT_EQ(*seen.rbegin(), std::uint64_t{kThreads} * kRounds);
  }
}

TEST_F(RmwExecution, ContendedCompareSwapsLoseNothing) {
  for (const RmwShape& shape : runnable()) {
    if (shape.op != RmwOp::kCompareSwap || shape.result != RmwResult::kFetch) continue;
    const RmwFunction function = RmwFunction::create(*cache_, shape).value();
    alignas(16) RmwValue memory{};
    std::array<std::uint64_t, kThreads> won{};
    together([&](unsigned thread) {
      const std::uint64_t mask =
          shape.width >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (shape.width * 8U)) - 1;
      RmwValue seen{};
      for (unsigned i = 0; i < kRounds;) {
        const RmwValue next{.low = (seen.low + 1) & mask,
                            .high = shape.width == 16 ? ~(seen.low + 1) : 0};
        const RmwValue old = function(&memory, next, seen).value();
        if (old == seen) {
          ++won[thread];
          ++i;
          seen = next;
        } else {
          seen = old;
        }
      }
    });
    const std::uint64_t total = std::uint64_t{kThreads} * kRounds;
    std::uint64_t stored = 0;
    std::memcpy(&stored, &memory, std::min<std::size_t>(shape.width, 8));
    const std::uint64_t mask =
        shape.width >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (shape.width * 8U)) - 1;
    EXPECT_EQ(stored, total & mask) << to_string(shape);
    for (const std::uint64_t count : won) EXPECT_EQ(count, kRounds);
  }
}

/// Each thread has a bit, or a lane, of its own in the word; what others do must not disturb it.
TEST_F(RmwExecution, ContendedBitsAndExtremesAreAllKept) {
  for (const RmwShape& shape : runnable()) {
    if (shape.order != RmwOrder::kRelaxed && shape.order != RmwOrder::kSeqCst) continue;
    const bool bits =
        shape.op == RmwOp::kClear || shape.op == RmwOp::kSet || shape.op == RmwOp::kEor;
    const bool extremes = shape.op == RmwOp::kSmax || shape.op == RmwOp::kSmin ||
                          shape.op == RmwOp::kUmax || shape.op == RmwOp::kUmin;
    if (!bits && !extremes) continue;
    const RmwFunction function = RmwFunction::create(*cache_, shape).value();
    alignas(16) RmwValue memory{};
    const bool starts_full = shape.op == RmwOp::kClear || shape.op == RmwOp::kUmin;
    if (starts_full) memory = {.low = ~std::uint64_t{0}, .high = ~std::uint64_t{0}};
    constexpr unsigned rounds = 101;  // odd, so that EOR leaves the bit set
    together([&](unsigned thread) {
      for (unsigned i = 0; i < rounds; ++i) {
        RmwValue operand{};
        if (bits) {
          operand.low = std::uint64_t{1} << (thread + 1);
          if (shape.width == 16) operand.high = operand.low;
        } else {
          const std::uint64_t step = 1 + (i * kThreads + thread) % 100;
          const bool down = shape.op == RmwOp::kSmin || shape.op == RmwOp::kUmin;
          operand.low = down ? ~step : step;
          operand.high = shape.width == 16 && down ? ~std::uint64_t{0} : 0;
        }
        ASSERT_TRUE(function(&memory, operand));
      }
    });
    std::uint64_t low = 0;
    std::memcpy(&low, &memory, std::min<std::size_t>(shape.width, 8));
    const std::uint64_t mask =
        shape.width >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (shape.width * 8U)) - 1;
    std::uint64_t wanted = 0;
    switch (shape.op) {
      case RmwOp::kClear:
        wanted = mask & ~std::uint64_t{0b11110};
        break;
      case RmwOp::kSet:
      case RmwOp::kEor:
        wanted = 0b11110;
        break;
      case RmwOp::kSmin:
      case RmwOp::kUmin:
        wanted = mask & ~std::uint64_t{100};
        break;
      default:
        wanted = 100;
        break;
    }
    EXPECT_EQ(low, wanted) << to_string(shape);
    if (shape.width == 16 && bits) {
      EXPECT_EQ(memory.high, memory.low) << to_string(shape);
    }
  }
}

TEST_F(RmwExecution, SixteenBytesNeverTear) {
  for (const RmwShape& shape : runnable()) {
    if (shape.width != 16 || shape.op != RmwOp::kSwap || shape.order != RmwOrder::kAcqRel ||
        shape.result != RmwResult::kFetch) {
      continue;
    }
    const RmwFunction swap = RmwFunction::create(*cache_, shape).value();
    // A compare_swap that fails is the atomic read of 16 bytes.
    RmwShape reading = shape;
    reading.op = RmwOp::kCompareSwap;
    const RmwFunction read = RmwFunction::create(*cache_, reading).value();
    alignas(16) RmwValue memory{};
    std::atomic<unsigned> torn{0};
    std::atomic<unsigned> reads{0};
    together([&](unsigned thread) {
      for (unsigned i = 0; i < kRounds; ++i) {
        if (thread % 2 == 0) {
          const std::uint64_t value = thread * kRounds + i;
          if (!swap(&memory, {.low = value, .high = value})) ++torn;
        } else {
          const RmwValue never{.low = 1, .high = 2};
          const RmwValue seen = read(&memory, never, never).value();
          if (seen.low != seen.high) ++torn;
          ++reads;
        }
      }
    });
    EXPECT_EQ(torn, 0U) << to_string(shape);
    EXPECT_EQ(reads, 2 * kRounds);
  }
}

TEST_F(RmwExecution, MisalignedAndNullAddressesAreRefused) {
  alignas(16) std::array<std::byte, 64> memory{};
  for (const RmwShape& shape : runnable()) {
    if (shape.op != RmwOp::kSet || shape.order != RmwOrder::kRelaxed) continue;
    const RmwFunction function = RmwFunction::create(*cache_, shape).value();
    for (std::size_t offset = 0; offset < 16; ++offset) {
      const auto done = function(memory.data() + offset, {.low = 0xff, .high = 0});
      if (offset % shape.width == 0) {
        EXPECT_TRUE(done);
        memory.fill({});
        continue;
      }
      ASSERT_FALSE(done) << to_string(shape) << " at " << offset;
      EXPECT_EQ(done.error().code, ErrorCode::kMisaligned);
      for (const std::byte byte : memory) ASSERT_EQ(byte, std::byte{0});
    }
    const auto null = function(nullptr, {});
    ASSERT_FALSE(null);
    EXPECT_EQ(null.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(RmwExecution, ATargetThisCpuCannotRunIsRefused) {
  const RmwShape other{.target = kHostInstructionSet == InstructionSet::kA64 ? RmwTarget::kX86_64
                                                                             : RmwTarget::kA64Lse};
  const auto function = RmwFunction::create(*cache_, other);
  ASSERT_FALSE(function);
  EXPECT_EQ(function.error().code, ErrorCode::kUnsupported);
  const auto best = RmwFunction::create_for_host(*cache_, other);
  ASSERT_TRUE(best);
  EXPECT_TRUE(can_run(best->shape().target, arch::cpu_features()));
}

TEST(RmwDispatch, FollowsTheFeatures) {
  arch::CpuFeatures none;
  arch::CpuFeatures lse;
  lse.add(arch::CpuFeature::kLse);
  arch::CpuFeatures lse128 = lse;
  lse128.add(arch::CpuFeature::kLse128);
  arch::CpuFeatures cx16;
  cx16.add(arch::CpuFeature::kCx16);
  constexpr auto a64 = InstructionSet::kA64;
  constexpr auto x86 = InstructionSet::kX86_64;
  EXPECT_EQ(best_rmw_target(none, a64), RmwTarget::kA64Llsc);
  EXPECT_EQ(best_rmw_target(lse, a64), RmwTarget::kA64Lse);
  EXPECT_EQ(best_rmw_target(lse128, a64), RmwTarget::kA64Lse128);
  EXPECT_EQ(best_rmw_target(none, x86), RmwTarget::kX86_64);
  EXPECT_EQ(best_rmw_target(cx16, x86), RmwTarget::kX86_64Cx16);
  EXPECT_FALSE(can_run(RmwTarget::kA64Lse, none, a64));
  EXPECT_FALSE(can_run(RmwTarget::kA64Lse128, lse, a64));
  EXPECT_FALSE(can_run(RmwTarget::kX86_64Cx16, none, x86));
  EXPECT_FALSE(can_run(RmwTarget::kA64Llsc, lse, x86));
}

}  // namespace
}  // namespace touchstone::jit
