// SPDX-License-Identifier: MIT
#include <iostream>

#include <unistd.h>

#include "command.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  touchstone::arch::opcheck::Console console{.in = std::cin,
                                             .out = std::cout,
                                             .err = std::cerr,
                                             .err_is_terminal = isatty(STDERR_FILENO) == 1};
  return touchstone::arch::opcheck::run_tool(argc, argv, console);
}
