// SPDX-License-Identifier: MIT
#include <cerrno>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/arch/error.h>

namespace touchstone {
namespace {

using ::testing::HasSubstr;

TEST(Error, MessageSaysWhatWhereWhyAndHowFar) {
  const Error error{.code = ErrorCode::kOutOfMemory,
                    .operation = "madvise(MADV_POPULATE_WRITE)",
                    .address = 0x7f0000000000,
                    .length = 4096 * 4,
                    .system_errno = ENOMEM,
                    .progress = 4096,
                    .detail = "cgroup limit"};
  const std::string text = error.message();
  EXPECT_THAT(text, HasSubstr("madvise(MADV_POPULATE_WRITE): out of memory (cgroup limit)"));
  EXPECT_THAT(text, HasSubstr("Cannot allocate memory (errno 12)"));
  EXPECT_THAT(text, HasSubstr("at 0x7f0000000000 + 16384 bytes, 4096 done"));
}

TEST(Error, MessageLeavesOutWhatThereIsNot) {
  const Error error{.code = ErrorCode::kUnsupported, .operation = "mseal"};
  EXPECT_EQ(error.message(), "mseal: unsupported");
}

TEST(Error, EveryCodeHasItsOwnName) {
  for (int a = 0; a <= static_cast<int>(ErrorCode::kSystem); ++a) {
    const std::string name = to_string(static_cast<ErrorCode>(a));
    EXPECT_NE(name, "unknown error");
    for (int b = 0; b < a; ++b) EXPECT_NE(name, to_string(static_cast<ErrorCode>(b)));
  }
}

TEST(Error, ErrnoMapsToCode) {
  EXPECT_EQ(code_of_errno(ENOMEM), ErrorCode::kOutOfMemory);
  EXPECT_EQ(code_of_errno(EPERM), ErrorCode::kNotPermitted);
  EXPECT_EQ(code_of_errno(ENOSYS), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of_errno(EIO), ErrorCode::kSystem);
}

}  // namespace
}  // namespace touchstone
