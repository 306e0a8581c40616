// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_HEAP_RESULT_ASSERTIONS_H_
#define TOUCHSTONE_TESTS_HEAP_RESULT_ASSERTIONS_H_

#include <gtest/gtest.h>

#include <touchstone/arch/error.h>

namespace touchstone::testing {

/// ASSERT_TRUE(ok(result)) prints the error's message when there is one.
template <typename T>
::testing::AssertionResult ok(const Result<T>& result) {
  if (result) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.error().message();
}

/// Whether a result is an error of this code.
template <typename T>
::testing::AssertionResult fails_with(ErrorCode code, const Result<T>& result) {
  if (result) return ::testing::AssertionFailure() << "it succeeded";
  if (result.error().code == code) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "wanted \"" << to_string(code) << "\", got " << result.error().message();
}

}  // namespace touchstone::testing

#endif  // TOUCHSTONE_TESTS_HEAP_RESULT_ASSERTIONS_H_
