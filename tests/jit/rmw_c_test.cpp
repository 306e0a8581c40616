// SPDX-License-Identifier: MIT
#include "rmw_c_test.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <gtest/gtest.h>

#include <touchstone/arch/error.h>
#include <touchstone/jit/rmw.h>

namespace touchstone::jit {
namespace {

TEST(RmwC, EmitsTheSameBytesAsTheCppInterface) {
  for (const int target : {TOUCHSTONE_RMW_A64_LSE, TOUCHSTONE_RMW_A64_LSE128, TOUCHSTONE_RMW_X86_64,
                           TOUCHSTONE_RMW_X86_64_CX16}) {
    std::array<unsigned char, kMaxRmwSize> from_c{};
    touchstone_jit_error error{};
    const std::size_t size = emit_from_c(4, target, from_c.data(), from_c.size(), &error);
    ASSERT_NE(size, 0U) << error.detail;
    const RmwShape shape{.op = RmwOp::kAdd,
                         .width = 4,
                         .order = RmwOrder::kAcqRel,
                         .target = static_cast<RmwTarget>(target)};
    RmwRegisters registers{.address = 7, .operand = {6, kNoRegister}};
    registers.result[0] = 8;
    std::array<std::byte, kMaxRmwSize> from_cpp{};
    ASSERT_EQ(emit_rmw(shape, registers, from_cpp), size);
    EXPECT_EQ(std::memcmp(from_c.data(), from_cpp.data(), size), 0);
  }
}

TEST(RmwC, RefusalsNameTheReason) {
  std::array<unsigned char, kMaxRmwSize> buffer{};
  touchstone_jit_error error{};
  EXPECT_EQ(emit_from_c(16, TOUCHSTONE_RMW_X86_64, buffer.data(), buffer.size(), &error), 0U);
  EXPECT_EQ(error.code, static_cast<int>(ErrorCode::kUnsupported));
  EXPECT_STREQ(error.code_name, "unsupported");
  EXPECT_STREQ(error.detail, "16 bytes on x86-64 need CMPXCHG16B");
  // 260 would be 4 in eight bits.
  EXPECT_EQ(emit_from_c(260, TOUCHSTONE_RMW_A64_LSE, buffer.data(), buffer.size(), &error), 0U);
  EXPECT_EQ(error.code, static_cast<int>(ErrorCode::kInvalidArgument));
  EXPECT_EQ(emit_from_c(4, 99, buffer.data(), buffer.size(), &error), 0U);
  EXPECT_EQ(error.code, static_cast<int>(ErrorCode::kInvalidArgument));
  EXPECT_EQ(emit_from_c(4, TOUCHSTONE_RMW_A64_LLSC, buffer.data(), buffer.size(), &error), 0U);
  EXPECT_STREQ(error.detail, "a scratch register is missing or cannot be used");
  EXPECT_EQ(emit_from_c(4, TOUCHSTONE_RMW_A64_LSE, buffer.data(), 3, &error), 0U);
  EXPECT_EQ(error.code, static_cast<int>(ErrorCode::kOutOfRange));
  EXPECT_EQ(emit_from_c(4, TOUCHSTONE_RMW_A64_LSE, nullptr, 3, nullptr), 0U);
  EXPECT_FALSE(touchstone_rmw_get_requirements(nullptr, nullptr, &error));
  EXPECT_STREQ(error.detail, "an argument is a null pointer");
}

TEST(RmwC, RequirementsAreThoseOfTheCppInterface) {
  const touchstone_rmw_shape shape{TOUCHSTONE_RMW_UMAX, 16, TOUCHSTONE_RMW_SEQ_CST,
                                   TOUCHSTONE_RMW_DISCARD, TOUCHSTONE_RMW_A64_LSE};
  touchstone_rmw_requirements needs{};
  ASSERT_TRUE(touchstone_rmw_get_requirements(&shape, &needs, nullptr));
  EXPECT_TRUE(needs.pair);
  EXPECT_FALSE(needs.result);
  EXPECT_EQ(needs.scratch_count, 6);
  EXPECT_EQ(needs.scratch_even_pairs, 2);
  std::array<std::byte, kMaxRmwFunctionSize> buffer{};
  std::size_t size = 0;
  ASSERT_TRUE(touchstone_rmw_emit_function(&shape, buffer.data(), buffer.size(), &size, nullptr));
  EXPECT_GT(size, 0U);
}

}  // namespace
}  // namespace touchstone::jit
