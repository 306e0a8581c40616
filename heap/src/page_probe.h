// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_PAGE_PROBE_H_
#define TOUCHSTONE_HEAP_SRC_PAGE_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include <touchstone/arch/error.h>
#include <touchstone/heap/residency.h>

#include "proc_file.h"

namespace touchstone::heap {

/// What a run of pages is. What the source cannot tell is false.
struct PageState {
  bool present = false;
  bool zero = false;
  bool swapped = false;
  bool huge = false;

  [[nodiscard]] bool populated() const noexcept { return (present && !zero) || swapped; }
};

/// One opened source of residency. Thread-safe once made.
class PageProbe {
 public:
  /// Opens the source and checks that it tells the truth of one touched and one untouched page.
  [[nodiscard]] static Result<PageProbe> open(ResidencySource source);
  /// The first of PAGEMAP_SCAN, pagemap and mincore that works.
  [[nodiscard]] static Result<PageProbe> open_best();

  [[nodiscard]] ResidencySource source() const noexcept { return source_; }

  /// Calls `visit(bytes, state)` for runs that together make up [address, address + length), in
  /// order, until it returns false. Both are multiples of the base page.
  using Visit = std::function<bool(std::size_t bytes, PageState state)>;
  [[nodiscard]] Result<> walk(const void* address, std::size_t length, const Visit& visit) const;

  [[nodiscard]] Result<Residency> residency(const void* address, std::size_t length) const;
  [[nodiscard]] Result<std::size_t> populated_prefix(const void* address, std::size_t length) const;

 private:
  PageProbe(ResidencySource source, std::optional<ProcFile> file) noexcept;

  [[nodiscard]] Result<> walk_scan(std::uintptr_t begin, std::uintptr_t end,
                                   const Visit& visit) const;
  [[nodiscard]] Result<> walk_pagemap(std::uintptr_t begin, std::uintptr_t end,
                                      const Visit& visit) const;
  [[nodiscard]] Result<> walk_mincore(std::uintptr_t begin, std::uintptr_t end,
                                      const Visit& visit) const;
  /// Splits a run of anonymous huge pages into real ones and the huge zero page.
  [[nodiscard]] Result<bool> visit_huge(std::uintptr_t begin, std::uintptr_t end,
                                        const Visit& visit) const;
  [[nodiscard]] Result<> check() const;

  ResidencySource source_;
  /// /proc/self/pagemap; none for mincore.
  std::optional<ProcFile> file_;
  int descriptor_ = -1;
  std::size_t base_page_;
  std::size_t pmd_;
};

/// Errors that every function on a range gives: kInvalidArgument, kMisaligned, kOverflow.
[[nodiscard]] Result<> check_range(const char* operation, const void* address, std::size_t length,
                                   std::size_t base_page) noexcept;

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_PAGE_PROBE_H_
