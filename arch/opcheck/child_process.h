// SPDX-License-Identifier: MIT
// Runs a program and hands over what it prints, line by line.
#ifndef TOUCHSTONE_ARCH_OPCHECK_CHILD_PROCESS_H_
#define TOUCHSTONE_ARCH_OPCHECK_CHILD_PROCESS_H_

#include <expected>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace touchstone::arch::opcheck {

/// Runs arguments[0], looked up in PATH, in the C locale, with no standard input and its standard
/// error dropped, and calls `on_line` with each line of its standard output, without the newline.
/// The program gets a process group of its own, so that an interrupt from the terminal does not
/// cut it short. An error says that it could not be started, or how it ended other than with exit
/// status 0. Thread-safe.
[[nodiscard]] std::expected<void, std::string> run_program(
    const std::vector<std::string>& arguments,
    const std::function<void(std::string_view line)>& on_line);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_CHILD_PROCESS_H_
