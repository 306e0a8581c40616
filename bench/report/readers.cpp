// SPDX-License-Identifier: MIT
#include "readers.h"

#include <array>

#include <fmt/format.h>

namespace touchstone::report {

std::span<const Reader> all_readers() {
  static constexpr std::array kReaders{
      Reader{"touchstone.shatter", 1, read_shatter},
      Reader{"touchstone.lab", 2, read_lab},
      Reader{"touchstone.seed", 1, read_seed},
      Reader{"touchstone.gc", 2, read_gc, conclude_gc},
      Reader{"touchstone.opcheck.sweep", 2, read_sweep},
      Reader{"touchstone.opcheck.scan", 2, read_scan},
  };
  return kReaders;
}

Source provenance_source(const tools::Json& document) {
  const tools::Json& machine = document.at("machine");
  return {.file = {},
          .facts = {{"Command", document.at("command")},
                    {"Kernel", machine.at("kernel")},
                    {"CPU", fmt::format("{}, {}, {} cores", machine.at("cpu").get<std::string>(),
                                        machine.at("architecture").get<std::string>(),
                                        machine.at("cores").get<unsigned>())},
                    {"THP", machine.at("thp_mode")},
                    {"Date", document.at("date")},
                    {"Touchstone", document.at("touchstone")}}};
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr double kKi = 1024;
  const auto value = static_cast<double>(bytes);
  if (value >= kKi * kKi * kKi) return fmt::format("{:.4g} GiB", value / (kKi * kKi * kKi));
  if (value >= kKi * kKi) return fmt::format("{:.4g} MiB", value / (kKi * kKi));
  return fmt::format("{:.4g} KiB", value / kKi);
}

}  // namespace touchstone::report
