// SPDX-License-Identifier: MIT
#include <array>
#include <cstddef>

#include <touchstone/jit/rmw.h>
#include <touchstone/jit/rmw_assembler.h>

int main() {
  using namespace touchstone::jit;
  std::array<std::byte, kMaxRmwFunctionSize> buffer{};
  const auto size = emit_rmw_function({.target = RmwTarget::kA64Lse}, buffer);
  return size && *size > 0 ? 0 : 1;
}
