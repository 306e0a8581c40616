// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <touchstone/tools/provenance.h>

#include "code_source.h"
#include "command.h"
#include "file_bytes.h"
#include "process_code.h"
#include "scan_report.h"

namespace touchstone::arch::opcheck {
namespace {

constexpr std::size_t kDefaultFunctions = 10;
constexpr std::uint64_t kMaxStride = std::uint64_t{1} << 40U;

struct ScanOptions {
  std::vector<std::string> files;
  pid_t pid = 0;
  bool json = false;
  std::size_t functions = kDefaultFunctions;
  std::uint64_t min_stride = kSmallestPage;
};

// The clause that says what is wrong, without what the reader of a one-line message can do without.
std::string reason_of(const Error& error) {
  return *error.detail != '\0' ? std::string(error.detail) : error.message();
}

Result<ScanReport> scan_file(const std::string& path, const ScanOptions& options) {
  ScanReport report(path);
  const auto file = FileBytes::open(path);
  if (!file) return std::unexpected(file.error());
  const auto source =
      read_code(file->bytes(), [&](std::string_view member, const CodeImage& image) {
        report.add(member, image, options.min_stride);
      });
  if (!source) return std::unexpected(source.error());
  report.set_kind(source->kind);
  report.set_members(source->members, source->x86, source->not_elf);
  return report;
}

Result<ScanReport> scan_process(pid_t pid, const ScanOptions& options) {
  const auto code = read_process(pid);
  if (!code) return std::unexpected(code.error());
  ScanReport report(fmt::format("process {}", pid));
  report.set_kind("process");
  report.set_members(code->is_x86 ? 0 : 1, code->is_x86 ? 1 : 0, 0);
  if (!code->is_x86) report.add("", code->image, options.min_stride);
  return report;
}

int run_scan(const ScanOptions& options, Console& console) {
  nlohmann::ordered_json document = json_header("scan", 2);
  if (options.json) tools::add_provenance(document, tools::provenance_of(console.command));
  document["files"] = nlohmann::ordered_json::array();
  bool all_usable = true;
  const auto finish = [&](const std::string& subject, const Result<ScanReport>& report) {
    if (!report) {
      all_usable = false;
      const std::string reason = reason_of(report.error());
      report_error(console, fmt::format("{}: {}", subject, reason));
      document["files"].push_back(
          {{"subject", subject}, {"status", "unusable"}, {"reason", reason}});
    } else if (options.json) {
      document["files"].push_back(report->json());
    } else {
      console.out << report->text(options.functions);
    }
  };
  if (options.pid != 0) {
    finish(fmt::format("process {}", options.pid), scan_process(options.pid, options));
  }
  for (const std::string& file : options.files) finish(file, scan_file(file, options));
  if (options.json) {
    // Paths may hold any byte: what is no UTF-8 is replaced rather than refused.
    console.out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  return all_usable ? kExitSuccess : kExitBadUse;
}

}  // namespace

void register_scan(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ScanOptions>();
  CLI::App* const command = app.add_subcommand(
      "scan", "Count the atomics of arm64 programs, and find loops that pre-touch memory");
  command->add_option("FILE", options->files,
                      "ELF files (also relocatable and core files), ar archives, kernel images");
  command->add_option("--pid", options->pid, "Scan the executable memory of this process")
      ->check(CLI::Range(1, std::numeric_limits<pid_t>::max()));
  command->add_flag("--json", options->json, "Print JSON");
  command
      ->add_option("--functions", options->functions,
                   "Functions to list, those with the most first (JSON has all)")
      ->capture_default_str();
  command
      ->add_option("--min-stride", options->min_stride,
                   "Smallest step, in bytes, of a loop that counts as pre-touch")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, kMaxStride));
  command->callback([options, &chosen] {
    if (options->files.empty() && options->pid == 0) {
      throw CLI::RequiredError("a FILE or --pid");
    }
    chosen = [options](Console& console) { return run_scan(*options, console); };
  });
}

}  // namespace touchstone::arch::opcheck
