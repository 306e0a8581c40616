// SPDX-License-Identifier: MIT
// Writes the generated kernel header to a file, for the tests that compile it.
#include <cstdio>
#include <fstream>

#include <touchstone/arch/a64/kernel_header.h>

int main(int argc, char** argv) {
  const auto text = touchstone::arch::a64::kernel_header();
  if (!text) {
    std::fprintf(stderr, "%s\n", text.error().message().c_str());
    return 1;
  }
  std::ofstream file(argc > 1 ? argv[1] : "/dev/stdout", std::ios::binary);
  file << *text;
  return file.flush() ? 0 : 1;
}
