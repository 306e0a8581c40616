// SPDX-License-Identifier: MIT
#include <algorithm>

#include <fmt/format.h>

#include <touchstone/tools/text_table.h>

namespace touchstone::tools {

std::string text_table(const std::vector<std::vector<std::string>>& lines, std::size_t left,
                       const std::vector<std::string>& behind) {
  std::vector<std::size_t> widths;
  for (const auto& line : lines) {
    if (widths.size() < line.size()) widths.resize(line.size());
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string line;
    for (std::size_t j = 0; j < lines[i].size(); ++j) {
      line += j < left ? fmt::format("{:<{}}  ", lines[i][j], widths[j])
                       : fmt::format("{:>{}}  ", lines[i][j], widths[j]);
    }
    if (i < behind.size()) line += behind[i];
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace touchstone::tools
