// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TOOLS_TEXT_TABLE_H_
#define TOUCHSTONE_TOOLS_TEXT_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace touchstone::tools {

/// Lines of cells as text, one line each: the first `left` columns aligned to the left, the others
/// to the right, as wide as their widest cell, two spaces between. A line may have fewer cells than
/// the first. `behind`, where it is given, has for each line what follows its last cell.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& lines,
                                     std::size_t left, const std::vector<std::string>& behind = {});

}  // namespace touchstone::tools

#endif  // TOUCHSTONE_TOOLS_TEXT_TABLE_H_
