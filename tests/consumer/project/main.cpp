// SPDX-License-Identifier: MIT
#include <cstdio>

#include <touchstone/arch/error.h>
#include <touchstone/heap/system_calls.h>

int main() {
  const touchstone::Error error{.code = touchstone::ErrorCode::kUnsupported,
                                .operation = "consumer"};
  if (&touchstone::heap::system_calls() != &touchstone::heap::kernel_calls()) return 1;
  return std::puts(error.message().c_str()) < 0;
}
