// SPDX-License-Identifier: MIT
#include <array>
#include <string_view>
#include <utility>

#include <touchstone/bench/page.h>

#include "embedded.h"

namespace touchstone::bench {
namespace {

/// JSON that can stand in a script element: "</" would end it, "<!--" would change how it is read.
std::string script_safe(const tools::Json& data) {
  const std::string text = data.dump(-1, ' ', false, tools::Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string render_page(Page page, const tools::Json& data) {
  const std::string json = script_safe(data);
  const std::array<std::pair<std::string_view, std::string_view>, 4> parts{
      {{"@STYLE@", page_style()},
       {"@CHART_LIBRARY@", chart_library()},
       {"@PAGE_SCRIPT@", page_script()},
       {"@DATA@", json}}};
  // One pass, so that nothing that is put in is itself searched.
  std::string text;
  std::string_view rest = page_body(page);
  while (!rest.empty()) {
    const std::size_t at = rest.find('@');
    text += rest.substr(0, at);
    if (at == std::string_view::npos) break;
    rest.remove_prefix(at);
    bool found = false;
    for (const auto& [name, value] : parts) {
      if (!rest.starts_with(name)) continue;
      text += value;
      rest.remove_prefix(name.size());
      found = true;
      break;
    }
    if (!found) {
      text += '@';
      rest.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace touchstone::bench
