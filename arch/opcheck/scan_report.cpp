// SPDX-License-Identifier: MIT
#include "scan_report.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <touchstone/arch/a64/classify.h>

namespace touchstone::arch::opcheck {
namespace {

// Names come from files: what a terminal or a JSON reader must not see is escaped.
std::string clean(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e) {
      fmt::format_to(std::back_inserter(text), "\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text;
}

// An address as a person finds it again: as it is, or as section and offset.
std::string place_of(const CodeImage& image, std::uint64_t address) {
  const CodeRange* const range = image.find_range(address);
  if (!image.relocatable || range == nullptr) return fmt::format("0x{:x}", address);
  const CodeContainer& container = image.containers[range->container];
  return fmt::format("{}+0x{:x}", clean(container.name), address - container.base);
}

std::string function_name(const CodeImage& image, std::uint64_t address) {
  const CodeSymbol* const symbol = image.find_function(address);
  if (symbol != nullptr) return clean(symbol->name);
  for (const CodeSymbol& external : image.externals) {
    if (external.address == address) return clean(external.name);
  }
  return "";
}

std::string in_member(std::string_view member, std::string_view text) {
  return member.empty() ? std::string(text) : fmt::format("{}({})", clean(member), text);
}

std::string megabytes(std::uint64_t bytes) {
  return bytes < 100'000 ? fmt::format("{} bytes", bytes)
                         : fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string stride_text(const TouchLoop& loop) {
  return loop.stride ? fmt::format("every {} bytes", *loop.stride)
                     : std::string("at a stride known at run time only");
}

}  // namespace

void ScanReport::set_members(std::size_t arm64, std::size_t x86, std::size_t not_elf) {
  is_archive_ = kind_ == "archive";
  members_ = arm64;
  x86_ = x86;
  not_elf_ = not_elf;
}

void ScanReport::add(std::string_view member, const CodeImage& image, std::uint64_t min_stride) {
  code_bytes_ += image.code_bytes();
  for (const std::string& note : image.notes) {
    // An archive has many members without code; that is nothing to remark.
    if (member.empty()) notes_.push_back(note);
  }
  has_execute_only_ |= image.execute_only;
  for (const CodeContainer& container : image.containers) {
    if (container.execute_only) execute_only_.push_back(in_member(member, clean(container.name)));
  }
  const CodeInventory inventory = take_inventory(image);
  totals_.words += inventory.words;
  totals_.lse_atomics += inventory.lse_atomics;
  totals_.inline_atomics += inventory.inline_atomics;
  totals_.inline_store_exclusives += inventory.inline_store_exclusives;
  totals_.outline_helpers += inventory.outline_helpers;
  totals_.outline_calls += inventory.outline_calls;
  for (std::size_t i = 0; i < inventory.groups.size(); ++i) {
    totals_.groups[i] += inventory.groups[i];
  }
  for (const FunctionInventory& function : inventory.functions) {
    const std::string name = function.symbol != nullptr ? clean(function.symbol->name) : "";
    functions_.push_back({.name = in_member(member, name.empty() ? "code without a symbol" : name),
                          .place = place_of(image, function.address),
                          .groups = function.groups,
                          .total = std::accumulate(function.groups.begin(), function.groups.end(),
                                                   std::uint64_t{0})});
  }
  const TouchLoops touch = find_touch_loops(image, min_stride);
  too_large_ += touch.functions_too_large;
  for (const TouchLoop& loop : touch.loops) {
    const auto word = image.word_at(loop.atomic);
    const std::string name = function_name(image, loop.site);
    loops_.push_back({.function = in_member(member, name.empty() ? "code without a symbol" : name),
                      .place = place_of(image, loop.site),
                      .loop_place = place_of(image, loop.loop),
                      .instruction = word ? std::string(a64::format_mnemonic(*word).view()) : "",
                      .callee = loop.callee != 0 ? function_name(image, loop.callee) : "",
                      .found = loop});
    if (loop.callee != 0 && loops_.back().callee.empty()) {
      loops_.back().callee = place_of(image, loop.callee);
    }
  }
}

std::string ScanReport::style() const {
  std::vector<std::string> parts;
  if (totals_.inline_atomics != 0) {
    parts.push_back(fmt::format("LSE ({} instructions)", totals_.inline_atomics));
  }
  if (totals_.outline_helpers != 0 || totals_.outline_calls != 0) {
    parts.push_back(fmt::format("outline atomics ({} helpers, {} calls)", totals_.outline_helpers,
                                totals_.outline_calls));
  }
  if (totals_.inline_store_exclusives != 0) {
    parts.push_back(fmt::format("LL/SC ({} store-exclusives)", totals_.inline_store_exclusives));
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string ScanReport::text(std::size_t functions) const {
  std::string text;
  const auto out = std::back_inserter(text);
  if (members_ == 0 && x86_ != 0) {
    fmt::format_to(out,
                   "{}: x86, not arm64: nothing to decode (an x86 atomic takes one write fault)\n",
                   clean(subject_));
    return text;
  }
  fmt::format_to(out, "{}: arm64 {}, {} of code\n", clean(subject_), kind_, megabytes(code_bytes_));
  if (is_archive_) {
    fmt::format_to(out, "  members: {} arm64, {} x86, {} not ELF\n", members_, x86_, not_elf_);
  }
  for (const std::string& note : notes_) fmt::format_to(out, "  note: {}\n", note);
  fmt::format_to(out, "  atomics: {}\n", style());
  std::string groups;
  for (std::size_t i = 0; i < totals_.groups.size(); ++i) {
    if (totals_.groups[i] == 0) continue;
    fmt::format_to(std::back_inserter(groups), "{}{} {}", groups.empty() ? "" : ", ",
                   a64::to_string(static_cast<a64::Group>(i)), totals_.groups[i]);
  }
  fmt::format_to(out, "  groups: {}\n", groups.empty() ? "none" : groups);
  fmt::format_to(out, "  execute-only code: {}\n",
                 !has_execute_only_      ? "none"
                 : execute_only_.empty() ? "yes"
                                         : fmt::format("{}", fmt::join(execute_only_, ", ")));
  fmt::format_to(out, "  pre-touch loops: {}\n", loops_.size());
  for (const Loop& loop : loops_) {
    std::string how{to_string(loop.found.style)};
    if (!loop.callee.empty()) {
      how += loop.found.indirect ? ", through a pointer to " : ", in ";
      how += loop.callee;
    }
    fmt::format_to(out, "    {} at {}: {}, {} bytes, {} ({}); confidence {}\n", loop.function,
                   loop.place, loop.found.operation, loop.found.width, stride_text(loop.found), how,
                   to_string(loop.found.confidence));
  }
  if (too_large_ != 0) {
    fmt::format_to(out, "  note: {} functions are too large to look for loops in\n", too_large_);
  }
  if (functions != 0 && !functions_.empty()) {
    std::vector<const Function*> most;
    most.reserve(functions_.size());
    for (const Function& function : functions_) most.push_back(&function);
    // Of equals the first comes first; the pointers are in that order.
    std::sort(most.begin(), most.end(), [](const Function* a, const Function* b) {
      return a->total != b->total ? a->total > b->total : a < b;
    });
    most.resize(std::min(most.size(), functions));
    fmt::format_to(out, "  functions: {} of {} that access memory so\n", most.size(),
                   functions_.size());
    for (const Function* function : most) {
      fmt::format_to(out, "    {:>6}  {} at {}\n", function->total, function->name,
                     function->place);
    }
  }
  return text;
}

nlohmann::ordered_json ScanReport::json() const {
  const auto groups_of = [](const GroupCounts& counts) {
    nlohmann::ordered_json groups = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) continue;
      groups[std::string(a64::to_string(static_cast<a64::Group>(i)))] = counts[i];
    }
    return groups;
  };
  nlohmann::ordered_json entry{{"subject", clean(subject_)}};
  if (members_ == 0 && x86_ != 0) {
    entry["status"] = "x86";
    return entry;
  }
  entry["status"] = "scanned";
  entry["kind"] = kind_;
  if (is_archive_) {
    entry["members"] = {{"arm64", members_}, {"x86", x86_}, {"not_elf", not_elf_}};
  }
  entry["notes"] = notes_;
  entry["code_bytes"] = code_bytes_;
  entry["words"] = totals_.words;
  entry["atomics"] = {{"summary", style()},
                      {"lse_instructions", totals_.lse_atomics},
                      {"inline_atomics", totals_.inline_atomics},
                      {"outline_helpers", totals_.outline_helpers},
                      {"outline_calls", totals_.outline_calls},
                      {"inline_store_exclusives", totals_.inline_store_exclusives}};
  entry["groups"] = groups_of(totals_.groups);
  entry["execute_only"] = has_execute_only_;
  entry["execute_only_places"] = execute_only_;
  entry["functions_too_large"] = too_large_;
  entry["touch_loops"] = nlohmann::ordered_json::array();
  for (const Loop& loop : loops_) {
    nlohmann::ordered_json item{
        {"function", loop.function},       {"address", loop.place},
        {"loop", loop.loop_place},         {"operation", loop.found.operation},
        {"instruction", loop.instruction}, {"style", to_string(loop.found.style)},
        {"width", loop.found.width}};
    if (!loop.callee.empty()) {
      item["callee"] = loop.callee;
      item["through_pointer"] = loop.found.indirect;
    }
    item["stride"] = loop.found.stride ? nlohmann::ordered_json(*loop.found.stride)
                                       : nlohmann::ordered_json(nullptr);
    item["confidence"] = to_string(loop.found.confidence);
    entry["touch_loops"].push_back(std::move(item));
  }
  entry["functions"] = nlohmann::ordered_json::array();
  for (const Function& function : functions_) {
    entry["functions"].push_back({{"name", function.name},
                                  {"address", function.place},
                                  {"groups", groups_of(function.groups)}});
  }
  return entry;
}

}  // namespace touchstone::arch::opcheck
