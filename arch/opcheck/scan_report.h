// SPDX-License-Identifier: MIT
// What `scan` says of one file or process, as text and as JSON.
#ifndef TOUCHSTONE_ARCH_OPCHECK_SCAN_REPORT_H_
#define TOUCHSTONE_ARCH_OPCHECK_SCAN_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "code_inventory.h"
#include "touch_loops.h"

namespace touchstone::arch::opcheck {

/// Collects the programs of one file (an archive has many) or one process. Holds nothing of theirs.
class ScanReport {
 public:
  /// `subject`: the path, or "process PID".
  explicit ScanReport(std::string subject) : subject_(std::move(subject)) {}

  /// Takes stock of one program and looks for touch loops in it. `member`: its name in the
  /// archive, or "".
  void add(std::string_view member, const CodeImage& image, std::uint64_t min_stride);

  void set_kind(std::string_view kind) { kind_ = kind; }
  /// Members of an archive: with arm64 code, for x86, and no ELF files at all.
  void set_members(std::size_t arm64, std::size_t x86, std::size_t not_elf);

  /// Lines for a person. `functions`: how many functions to list, those with the most first.
  [[nodiscard]] std::string text(std::size_t functions) const;
  /// All of it. Keys are described in the manual page.
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  struct Function {
    std::string name;
    std::string place;
    GroupCounts groups{};
    std::uint64_t total = 0;
  };
  struct Loop {
    std::string function;
    std::string place;
    std::string loop_place;
    std::string instruction;
    std::string callee;
    TouchLoop found;
  };
  [[nodiscard]] std::string style() const;

  std::string subject_;
  std::string kind_;
  std::size_t members_ = 0;
  std::size_t x86_ = 0;
  std::size_t not_elf_ = 0;
  bool is_archive_ = false;
  std::vector<std::string> notes_;
  std::uint64_t code_bytes_ = 0;
  CodeInventory totals_;
  std::vector<Function> functions_;
  std::vector<Loop> loops_;
  std::vector<std::string> execute_only_;
  bool has_execute_only_ = false;
  std::size_t too_large_ = 0;
};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_SCAN_REPORT_H_
