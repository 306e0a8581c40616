// SPDX-License-Identifier: GPL-2.0-only
// The guest's side of the report: one JSON object a line, marked, so that the host finds it among
// whatever else the console says.
#ifndef TOUCHSTONE_LAB_REPORT_H
#define TOUCHSTONE_LAB_REPORT_H

#include <cstdint>
#include <string>
#include <string_view>

namespace lab {

// One JSON object with scalar members, in the order they are added.
class Line {
 public:
  explicit Line(std::string_view type) { add("type", type); }

  Line& add(std::string_view name, std::string_view value);
  Line& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
  Line& add(std::string_view name, int64_t value);
  Line& add(std::string_view name, int value) { return add(name, static_cast<int64_t>(value)); }
  Line& add(std::string_view name, unsigned value) { return add(name, int64_t{value}); }
  Line& add(std::string_view name, uint64_t value) {
    return add(name, static_cast<int64_t>(value));
  }
  Line& add(std::string_view name, bool value);

  // Writes the line out.
  void print() const;

 private:
  std::string text_;
};

// Prints a failed check; the program's exit status is then 1.
void report_failure(std::string_view what);
bool any_failure();

}  // namespace lab

#endif  // TOUCHSTONE_LAB_REPORT_H
