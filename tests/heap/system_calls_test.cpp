// SPDX-License-Identifier: MIT
#include <cerrno>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <touchstone/heap/system_calls.h>

namespace touchstone::heap {
namespace {

TEST(SystemCalls, TheKernelTableHasNoHole) {
  const auto* entries = reinterpret_cast<void* const*>(&kernel_calls());
  for (std::size_t i = 0; i < sizeof(SystemCalls) / sizeof(void*); ++i) {
    EXPECT_NE(entries[i], nullptr) << "entry " << i;
  }
}

TEST(SystemCalls, ReplacedEntriesAreUsedAndRestored) {
  SystemCalls failing = kernel_calls();
  failing.madvise = [](void*, std::size_t, int) {
    errno = EAGAIN;
    return -1;
  };
  const SystemCalls* before = replace_system_calls(&failing);
  EXPECT_EQ(before, &kernel_calls());
  EXPECT_EQ(system_calls().madvise(nullptr, 0, MADV_NORMAL), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(replace_system_calls(nullptr), &failing);
  EXPECT_EQ(&system_calls(), &kernel_calls());
  EXPECT_EQ(system_calls().madvise(nullptr, 0, MADV_NORMAL), 0);
}

}  // namespace
}  // namespace touchstone::heap
