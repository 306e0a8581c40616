// SPDX-License-Identifier: MIT
// touchstone-shatter: compare what each way of pre-touching does to faults, huge pages and time.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/pretouch.h>
#include <touchstone/heap/reservation.h>
#include <touchstone/jit/rmw.h>
#include <touchstone/jit/rmw_function.h>
#include <touchstone/jit/touch_kernel.h>
#include <touchstone/tools/command_line.h>
#include <touchstone/tools/json_file.h>
#include <touchstone/tools/progress.h>
#include <touchstone/tools/provenance.h>

#include "emitted_kernel.h"
#include "experiment.h"
#include "report.h"
#include "verdict.h"

namespace {

using namespace touchstone;
using shatter::Pages;

constexpr const char* kName = "touchstone-shatter";
constexpr std::size_t kDefaultBytes = std::size_t{512} << 20U;
/// Without --size the mappings are made small enough that all rounds take about this long.
constexpr double kDefaultSeconds = 60;
/// The heap that Java is compared over.
constexpr std::size_t kPeerBytes = std::size_t{4} << 30U;

struct Options {
  std::size_t bytes = 0;
  std::vector<std::string> strategies;
  std::vector<unsigned> threads;
  std::string pages = "both";
  unsigned repeat = 5;
  std::string op = "add";
  unsigned width = 8;
  std::string target;
  std::string result = "discard";
  bool emulate_arm64 = false;
  bool peers = false;
  std::string json_file;
  std::string html_file;
};

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  names.reserve(heap::all_pretouch_strategies().size());
  for (const auto strategy : heap::all_pretouch_strategies()) {
    names.emplace_back(heap::to_string(strategy));
  }
  return names;
}

std::vector<std::string> access_names() {
  std::vector<std::string> names;
  names.reserve(jit::kTouchAccessCount);
  for (std::size_t i = 0; i < jit::kTouchAccessCount; ++i) {
    names.emplace_back(jit::to_string(static_cast<jit::TouchAccess>(i)));
  }
  return names;
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < jit::kRmwTargetCount; ++i) {
    const auto target = static_cast<jit::RmwTarget>(i);
    if (jit::is_a64(target) == (jit::kHostInstructionSet == jit::InstructionSet::kA64)) {
      names.emplace_back(jit::to_string(target));
    }
  }
  return names;
}

jit::TouchShape shape_of(const Options& options, const arch::Machine& machine) {
  return {
      .access = jit::parse_touch_access(options.op).value_or(jit::TouchAccess::kAdd),
      .width = static_cast<std::uint8_t>(options.width),
      .target = jit::parse_rmw_target(options.target).value_or(jit::best_rmw_target(machine.cpu)),
      .result = options.result == "fetch" ? jit::RmwResult::kFetch : jit::RmwResult::kDiscard};
}

void declare(CLI::App& app, Options& options) {
  app.set_version_flag("--version", std::string(kName) + " " TOUCHSTONE_VERSION);
  app.add_option(
         "--size", options.bytes,
         "Bytes of each mapping, as 512M or 2G; rounded up to whole huge pages (default: 512M, "
         "or less where memory is short or faults are so slow that it takes minutes)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option(
         "--strategy", options.strategies,
         "Only these, comma-separated: " + fmt::format("{}", fmt::join(strategy_names(), ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(strategy_names()));
  app.add_option("--threads", options.threads,
                 "Thread counts, comma-separated (default: 1 and the number of CPUs)")
      ->delimiter(',')
      ->check(CLI::Range(1U, heap::kMaxPretouchThreads));
  app.add_option("--pages", options.pages, "base, huge or both")
      ->check(CLI::IsMember({"base", "huge", "both"}));
  app.add_option("--repeat", options.repeat, "Rounds that count, after one that is thrown away")
      ->check(CLI::Range(1U, 1000U));
  app.add_option("--op", options.op,
                 "What atomic_rmw does to each page, with an operand that changes nothing where "
                 "there is one: " +
                     fmt::format("{}", fmt::join(access_names(), ", ")))
      ->check(CLI::IsMember(access_names()));
  app.add_option("--width", options.width, "Bytes that it accesses: 1, 2, 4, 8 or 16")
      ->check(CLI::IsMember({1U, 2U, 4U, 8U, 16U}));
  app.add_option("--target", options.target,
                 "Instructions to emit for it (default: the best this CPU has): " +
                     fmt::format("{}", fmt::join(target_names(), ", ")))
      ->check(CLI::IsMember(target_names()));
  app.add_option("--result", options.result, "Whether it fetches the value before or discards it")
      ->check(CLI::IsMember({"fetch", "discard"}));
  app.add_flag("--emulate-arm64", options.emulate_arm64,
               "Add load_then_store, which faults as an arm64 atomic does, on any machine");
  app.add_flag("--peers", options.peers,
               "Also compare automatic with OpenJDK's AlwaysPreTouch over 4 GiB");
  app.add_option("--json", options.json_file, "Write the results as JSON to this file; - prints");
  app.add_option("--html", options.html_file, "Write one self-contained page with charts");
}

std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

/// A quarter of what is free, at most kDefaultBytes: small enough for any machine, large enough to
/// be measured.
std::size_t default_bytes(const arch::Machine& machine) {
  std::size_t bytes = kDefaultBytes;
  if (machine.available_memory) {
    bytes = std::min<std::size_t>(bytes, *machine.available_memory / 4);
  }
  if (machine.cgroup_memory && *machine.cgroup_memory) {
    bytes = std::min<std::size_t>(bytes, (*machine.cgroup_memory)->headroom() / 4);
  }
  return std::max(bytes, 2 * machine.geometry.pmd);
}

/// Halves the size until the whole takes no longer than kDefaultSeconds here. Faults cost from a
/// tenth of a microsecond to tens of them, as the machine is real or virtual.
void fit_to_time(shatter::Settings& settings) {
  shatter::Settings trial = settings;
  trial.bytes = std::min(settings.bytes, 2 * settings.geometry.pmd);
  const auto sample = shatter::run_case(
      {.strategy = heap::PretouchStrategy::kStore, .pages = Pages::kBase, .threads = 1}, trial);
  if (!sample || sample->seconds <= 0) return;  // The rows will say what is wrong.
  const double rate = static_cast<double>(trial.bytes) / sample->seconds;
  while (settings.bytes >= 4 * settings.geometry.pmd &&
         shatter::seconds_of_all(settings, rate) > kDefaultSeconds) {
    settings.bytes = round_up(settings.bytes / 2, settings.geometry.pmd);
  }
}

shatter::Settings settings_of(const Options& options, const arch::Machine& machine) {
  shatter::Settings settings;
  settings.geometry = machine.geometry;
  settings.bytes =
      round_up(options.bytes != 0 ? options.bytes : default_bytes(machine), machine.geometry.pmd);
  settings.repeat = options.repeat;
  if (options.strategies.empty()) {
    for (const auto strategy : heap::all_pretouch_strategies()) {
      // none touches nothing, so there is nothing to compare unless someone asks for it.
      if (strategy == heap::PretouchStrategy::kNone) continue;
      if (strategy == heap::PretouchStrategy::kLoadThenStore && !options.emulate_arm64) continue;
      settings.strategies.push_back(strategy);
    }
  } else {
    for (const std::string& name : options.strategies) {
      if (const auto strategy = heap::parse_pretouch_strategy(name)) {
        settings.strategies.push_back(*strategy);
      }
    }
    if (options.emulate_arm64) {
      settings.strategies.push_back(heap::PretouchStrategy::kLoadThenStore);
    }
  }
  if (options.pages != "huge") settings.pages.push_back(Pages::kBase);
  if (options.pages != "base") settings.pages.push_back(Pages::kHuge);
  settings.threads = options.threads;
  if (settings.threads.empty()) {
    settings.threads.push_back(1);
    if (machine.cpus > 1) settings.threads.push_back(machine.cpus);
  }
  return settings;
}

int run(const Options& options, int argc, const char* const* argv) {
  shatter::Report report;
  report.provenance = tools::provenance_of(argc, argv);
  const arch::Machine& machine = report.provenance.machine;
  report.settings = settings_of(options, machine);
  const auto kernel = shatter::EmittedKernel::create(shape_of(options, machine));
  if (!kernel) {
    tools::print_error(kName, fmt::format("the touch kernel: {}", kernel.error().message()));
    return tools::kExitFailure;
  }
  report.settings.touch_kernel = kernel->kernel();
  report.kernel_listing = kernel->listing();
  if (options.bytes == 0) fit_to_time(report.settings);
  const shatter::Settings& settings = report.settings;

  // With the JSON on standard output everything else goes to standard error.
  std::FILE* out = options.json_file == "-" ? stderr : stdout;
  fmt::print(out, "{} MiB a mapping, {} round{} and a warm-up, kernel {}, {}\n",
             settings.bytes >> 20U, settings.repeat, settings.repeat == 1 ? "" : "s",
             tools::kernel_text(machine), report.provenance.cpu);
  const bool runs_kernel =
      std::find(settings.strategies.begin(), settings.strategies.end(),
                heap::PretouchStrategy::kAtomicRmw) != settings.strategies.end();
  if (runs_kernel) {
    fmt::print(out, "atomic_rmw runs {}, emitted:\n{}", kernel->instruction(), kernel->listing());
  }
  std::fflush(out);

  {
    tools::Progress progress(shatter::cases_of(settings).size() * (settings.repeat + 1), "");
    bool first = true;
    report.rows = shatter::run_all(settings, [&](const shatter::Case& next) {
      if (!first) progress.advance(1);
      first = false;
      progress.describe(fmt::format("{}, {}, {} thread{}", heap::to_string(next.strategy),
                                    shatter::pages_name(next.pages, settings.geometry),
                                    next.threads, next.threads == 1 ? "" : "s"));
    });
  }
  report.verdicts = shatter::verdicts_of(report.rows, machine);
  fmt::print(out, "\n{}\n{}", shatter::table_text(report), shatter::verdict_text(report));

  if (options.peers) {
    report.java =
        shatter::compare_with_java(kPeerBytes, settings.repeat, settings.geometry, machine.cpus);
    fmt::print(out, "{}",
               *report.java ? shatter::java_text(**report.java)
                            : fmt::format("Peer: Java is left out: {}\n", report.java->error()));
  }

  int exit_code = tools::kExitSuccess;
  const auto save = [&](const std::string& file, const Result<>& written) {
    if (written) return;
    tools::print_error(kName, fmt::format("{}: {}", file, written.error().message()));
    exit_code = tools::kExitFailure;
  };
  if (!options.json_file.empty()) {
    save(options.json_file,
         tools::write_json_file(options.json_file, shatter::report_json(report)));
  }
  if (!options.html_file.empty()) {
    save(options.html_file,
         tools::write_text_file(options.html_file, shatter::report_html(report)));
  }
  if (std::all_of(report.rows.begin(), report.rows.end(),
                  [](const shatter::Row& row) { return !row.error.empty(); })) {
    tools::print_error(kName, fmt::format("nothing could be measured: {}", report.rows[0].error));
    exit_code = tools::kExitFailure;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Compares what each way of pre-touching heap memory does to page faults, huge pages "
      "and time on this machine.",
      kName};
  Options options;
  declare(app, options);
  if (const auto code = tools::parse_command_line(app, argc, argv)) return *code;
  if (app.count("--size") != 0 && options.bytes == 0) {
    tools::print_error(kName, "--size: 0 is no size (accepted: bytes such as 512M or 2G)");
    return tools::kExitUsage;
  }
  if (options.bytes > heap::Reservation::kMaxSize) {
    tools::print_error(kName, fmt::format("--size: {} is more than the {} TiB that can be reserved",
                                          options.bytes, heap::Reservation::kMaxSize >> 40U));
    return tools::kExitUsage;
  }
  return run(options, argc, argv);
}
