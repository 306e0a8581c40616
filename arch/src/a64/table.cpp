// SPDX-License-Identifier: MIT
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <utility>

#include <touchstone/arch/a64/classify.h>
#include <touchstone/arch/a64/table.h>

namespace touchstone::arch::a64 {
namespace {

/// A pattern of the table as the manual would write it.
[[nodiscard]] std::string spell(std::string_view pattern, bool acquire) {
  std::string text;
  for (const char c : pattern) {
    switch (c) {
      case 'O':
        text += acquire ? "{A}{L}" : "{L}";
        break;
      case 'Z':
        text += "{B|H}";
        break;
      case 'C':
      case 'S':
        text += "{opt}";
        break;
      default:
        text += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        break;
    }
  }
  return text;
}

constexpr std::array<std::pair<Operands, std::string_view>, kOperandConditionCount> kConditions{{
    {Operands::kRtIs31, "Rt = 31"},
    {Operands::kRsIs31, "Rs = 31"},
    {Operands::kRnIs31, "Rn = 31"},
    {Operands::kRtAbove23, "Rt > 23"},
    {Operands::kRtIsRt2, "Rt = Rt2"},
    {Operands::kRtIsRs, "Rt = Rs"},
    {Operands::kRt2IsRs, "Rt2 = Rs"},
    {Operands::kRtIsRn, "Rt = Rn"},
    {Operands::kRsIsRn, "Rs = Rn"},
    {Operands::kRtIsBase, "Rt = Rn, not SP"},
    {Operands::kRsIsBase, "Rs = Rn, not SP"},
    {Operands::kRsNotOnes, "bits 20:16 not ones"},
    {Operands::kRt2NotOnes, "bits 14:10 not ones"},
}};

void append(std::string& list, std::string_view item) {
  if (!list.empty()) list += "; ";
  list += item;
}

[[nodiscard]] std::string conditions(Operands set) {
  std::string text;
  for (const auto& [condition, name] : kConditions) {
    if (contains(set, condition)) append(text, name);
  }
  return text;
}

/// Register fields of which only the low bit is fixed, at 0.
[[nodiscard]] std::string odd_registers(Cube cube) {
  std::string text;
  if ((cube.mask & 0x001f0000U) == 0x00010000U) append(text, "Rs odd");
  if ((cube.mask & 0x0000001fU) == 0x00000001U) append(text, "Rt odd");
  return text;
}

[[nodiscard]] std::string widths(const Encoding& encoding) {
  if (encoding.width == WidthRule::kVariable) return "variable";
  std::string text;
  for (std::uint32_t top = 0; top < 4; ++top) {
    const std::uint32_t word = top << 30U;
    if (((word ^ encoding.cube.value) & encoding.cube.mask & 0xc0000000U) != 0) continue;
    const std::string width = std::to_string(detail::width_of(encoding.width, word));
    if (text.ends_with(width)) continue;
    if (!text.empty()) text += ", ";
    text += width;
  }
  return text;
}

[[nodiscard]] std::string order(OrderRule rule) {
  switch (rule) {
    case OrderRule::kBits23And22:
      return "by A (bit 23), R (bit 22)";
    case OrderRule::kBits22And15:
      return "by L (bit 22), o0 (bit 15)";
    default:
      return std::string(to_string(detail::order_of(rule, 0)));
  }
}

[[nodiscard]] std::string hexadecimal(std::uint32_t value) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%08x", value);
  return text.data();
}

}  // namespace

TableRow table_row(const Encoding& encoding) {
  std::string unallocated = odd_registers(encoding.cube);
  if (const std::string excluded = conditions(encoding.excluded); !excluded.empty()) {
    append(unallocated, excluded);
  }
  const bool gcs = encoding.group == Group::kGcs;
  return {.mnemonic = spell(encoding.pattern, !encoding.pattern.starts_with("st")),
          .store_mnemonic = spell(encoding.store_pattern, false),
          .family = to_string(encoding.group),
          .feature = to_string(encoding.feature),
          .kind = to_string(encoding.kind),
          .cube = encoding.cube,
          .unallocated = std::move(unallocated),
          .constrained = conditions(encoding.constrained),
          .width = widths(encoding),
          .order = order(encoding.order),
          .reads = reads(encoding.kind),
          .writes = writes(encoding.kind),
          .el0 = encoding.el0,
          .forced_write = encoding.kind == Kind::kReadModifyWrite && !gcs,
          .wnr_unmapped = to_string(wnr_unmapped(encoding.kind)),
          .wnr_read_only = to_string(wnr_read_only(encoding.kind)),
          .section = encoding.section};
}

std::vector<TableRow> table_rows() {
  std::vector<TableRow> rows;
  rows.reserve(kEncodings.size());
  for (const Encoding& encoding : kEncodings) rows.push_back(table_row(encoding));
  return rows;
}

std::string markdown_table() {
  std::string text =
      "| instruction | family | feature | mask/value | not where | unpredictable where | bytes |"
      " order | does | WnR unmapped | WnR read-only | forced write | decode class |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const TableRow& row : table_rows()) {
    std::string name = row.mnemonic;
    if (!row.store_mnemonic.empty()) name += ", " + row.store_mnemonic;
    // A bar would end the cell.
    for (std::size_t at = 0; (at = name.find('|', at)) != std::string::npos; at += 2) {
      name.replace(at, 1, "\\|");
    }
    const std::string does = std::string(row.kind) + (row.el0 ? "" : ", not at EL0");
    const std::string bits =
        "`" + hexadecimal(row.cube.mask) + "/" + hexadecimal(row.cube.value) + "`";
    for (const std::string_view cell : std::initializer_list<std::string_view>{
             name, row.family, row.feature, bits, row.unallocated, row.constrained, row.width,
             row.order, does, row.wnr_unmapped, row.wnr_read_only, row.forced_write ? "yes" : "",
             row.section}) {
      text += "| ";
      text += cell;
      if (!cell.empty()) text += ' ';
    }
    text += "|\n";
  }
  return text;
}

}  // namespace touchstone::arch::a64
