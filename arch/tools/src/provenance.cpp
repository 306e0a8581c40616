// SPDX-License-Identifier: MIT
#include <chrono>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <touchstone/tools/provenance.h>

namespace touchstone::tools {
namespace {

std::string replace(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string date_text() {
  return fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

std::string cpu_text() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

}  // namespace

std::string command_text(int argc, const char* const* argv) {
  std::string command;
  for (const char* argument : std::span(argv, static_cast<std::size_t>(argc))) {
    const std::string_view word = argument;
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-./,:=+@%") == std::string_view::npos;
    if (!command.empty()) command += ' ';
    if (command.empty() && word.find('/') != std::string_view::npos) {
      command += word.substr(word.rfind('/') + 1);  // Where it was built matters to nobody.
    } else if (plain) {
      command += word;
    } else {
      command += "'" + replace(std::string(word), "'", "'\\''") + "'";
    }
  }
  return command;
}

Provenance provenance_of(int argc, const char* const* argv) {
  return provenance_of(command_text(argc, argv));
}

Provenance provenance_of(std::string command) {
  return {.command = std::move(command),
          .date = date_text(),
          .cpu = cpu_text(),
          .machine = arch::read_machine()};
}

std::string kernel_text(const arch::Machine& machine) {
  return machine.kernel ? machine.kernel->release : "unknown";
}

void add_provenance(Json& document, const Provenance& provenance) {
  const arch::Machine& machine = provenance.machine;
  document["touchstone"] = TOUCHSTONE_VERSION;
  document["command"] = provenance.command;
  document["date"] = provenance.date;
  document["machine"] = {
      {"architecture", machine.architecture},
      {"kernel", kernel_text(machine)},
      {"cpu", provenance.cpu},
      {"cpu_features", machine.cpu.to_string()},
      {"cores", machine.cpus},
      {"page_bytes", machine.geometry.base_page},
      {"pmd_bytes", machine.pmd_size ? Json(*machine.pmd_size) : Json(nullptr)},
      {"thp_mode", machine.thp_mode ? arch::to_string(*machine.thp_mode) : "unknown"},
      {"thp_defrag", machine.thp_defrag ? arch::to_string(*machine.thp_defrag) : "unknown"}};
}

}  // namespace touchstone::tools
