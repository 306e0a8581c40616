// SPDX-License-Identifier: GPL-2.0-only
#include "report.h"

#include <atomic>
#include <cstdio>

namespace lab {
namespace {

std::atomic<bool> failed{false};

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

Line& Line::add(std::string_view name, std::string_view value) {
  text_ += (text_.empty() ? "" : ",") + quoted(name) + ":" + quoted(value);
  return *this;
}

Line& Line::add(std::string_view name, int64_t value) {
  text_ += "," + quoted(name) + ":" + std::to_string(value);
  return *this;
}

Line& Line::add(std::string_view name, bool value) {
  text_ += "," + quoted(name) + (value ? ":true" : ":false");
  return *this;
}

void Line::print() const {
  printf("@@ {%s}\n", text_.c_str());
  fflush(stdout);
}

void report_failure(std::string_view what) {
  failed = true;
  Line("failure").add("what", what).print();
}

bool any_failure() {
  return failed;
}

}  // namespace lab
