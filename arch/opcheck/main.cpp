// SPDX-License-Identifier: MIT
#include <iostream>

#include "command.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  touchstone::arch::opcheck::Console console{.in = std::cin, .out = std::cout, .err = std::cerr};
  return touchstone::arch::opcheck::run_tool(argc, argv, console);
}
