// SPDX-License-Identifier: MIT
// touchstone-gc: run a program that allocates on the collector, and say what it cost.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <touchstone/bench/page.h>
#include <touchstone/heap/gc_log.h>
#include <touchstone/heap/heap_listener.h>
#include <touchstone/tools/command_line.h>
#include <touchstone/tools/json_file.h>
#include <touchstone/tools/provenance.h>

#include "peers.h"
#include "targets.h"
#include "timeline.h"
#include "workload.h"

namespace {

using namespace touchstone;

constexpr const char* kName = "touchstone-gc";
constexpr std::size_t kMaxHeap = heap::Reservation::kMaxSize / 2;

struct Options {
  std::string workload;
  std::optional<unsigned> depth;
  std::size_t heap_bytes = std::size_t{512} << 20U;
  std::size_t young_bytes = 0;
  bool base_pages = false;
  std::string api = "cpp";
  unsigned threads = 2;
  unsigned workers = 0;
  bool verify = false;
  std::uint64_t stress = 0;
  bool peers = false;
  std::vector<std::string> targets;
  unsigned rounds = 3;
  bool log = false;
  std::string json_file;
  std::string html_file;
};

/// Prints what verification finds, the first few times.
class Printer final : public heap::HeapListener {
 public:
  void on_violation(const heap::Violation& violation) noexcept override {
    if (++count_ > 10) return;
    std::fprintf(stderr, "%s: %s: object %#zx, field %#zx, value %#zx, collection %llu\n", kName,
                 violation.what, violation.object, violation.field, violation.value,
                 static_cast<unsigned long long>(violation.collection));
  }

 private:
  unsigned count_ = 0;
};

std::string workload_names() {
  std::string names;
  for (const gc::WorkloadTraits& each : gc::kWorkloads) {
    names += names.empty() ? "" : ", ";
    names += each.name;
  }
  return names;
}

void declare(CLI::App& app, Options& options) {
  std::vector<std::string> names;
  std::string about = "What to run (binary-trees; with --peers, all):";
  for (const gc::WorkloadTraits& each : gc::kWorkloads) {
    names.emplace_back(each.name);
    about += fmt::format("\n{} (depth {}): {}", each.name, each.depth, each.description);
  }
  app.set_version_flag("--version", std::string(kName) + " " TOUCHSTONE_VERSION);
  app.add_option("--workload", options.workload, about)->check(CLI::IsMember(names));
  app.add_option("--depth", options.depth, "How much of it: trees' depth, or log2 of a count")
      ->check(CLI::Range(0U, 40U));
  app.add_option("--heap", options.heap_bytes, "The most the heap may grow to, as 256M (512M)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--young", options.young_bytes,
                 "Allocate this much between two young collections (as sizing has it)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--api", options.api,
                 "Through which interface: cpp, or c, with a model of functions")
      ->check(CLI::IsMember({"cpp", "c"}));
  app.add_flag("--base-pages", options.base_pages, "Do not ask for huge pages");
  app.add_option("--threads", options.threads, "Mutators of gcbench-mt (2)")
      ->check(CLI::Range(1U, 256U));
  app.add_option("--workers", options.workers, "Threads that collect (0: one for each CPU)")
      ->check(CLI::Range(0U, 64U));
  app.add_flag("--verify", options.verify, "Check the heap before and after each collection");
  app.add_option("--stress", options.stress, "Collect at every Nth allocation, moving everything")
      ->check(CLI::Range(std::uint64_t{1}, ~std::uint64_t{0}));
  auto* const peers = app.add_flag(
      "--peers", options.peers,
      "Compare with libgc, malloc, mimalloc and OpenJDK, those that are there, by turns");
  std::vector<std::string> groups = gc::target_groups();
  groups.emplace_back("all");
  app.add_option("--targets", options.targets,
                 "Measure what the collector has to reach, each figure with its limit; 1 if one is "
                 "missed. Takes minutes and 5 GiB")
      ->delimiter(',')
      ->check(CLI::IsMember(groups))
      ->excludes(peers);
  app.add_option("--repeat", options.rounds, "Rounds of a comparison, or of --targets (3)")
      ->check(CLI::Range(1U, 1000U));
  app.add_flag("--log", options.log, "Print a [gc] line for each event, on standard error");
  app.add_option("--html", options.html_file,
                 "Write a page to this file that draws the heap over time: occupancy, pauses, huge "
                 "pages");
  app.add_option("--json", options.json_file, "Write the result as JSON to this file; - prints");
}

int wrong_depth(const gc::WorkloadTraits& workload) {
  tools::print_error(kName, fmt::format("--depth: {} takes {} to {}", workload.name,
                                        workload.min_depth, workload.max_depth));
  return tools::kExitUsage;
}

bool fits(const gc::WorkloadTraits& workload, unsigned depth) {
  return depth >= workload.min_depth && depth <= workload.max_depth;
}

int write_document(const Options& options, const tools::Json& document) {
  if (options.json_file.empty()) return tools::kExitSuccess;
  const auto written = tools::write_json_file(options.json_file, document);
  if (written) return tools::kExitSuccess;
  tools::print_error(kName, written.error().message());
  return tools::kExitFailure;
}

/// The last figure of a peer's line says how many times as long it took.
int compare(const Options& options, const std::string& command) {
  std::FILE* const out = options.json_file == "-" ? stderr : stdout;
  tools::Json document = tools::json_document("touchstone.gc-peers", 1);
  tools::add_provenance(document, tools::provenance_of(command));
  document["comparisons"] = tools::Json::array();
  const std::vector<gc::Contestant> contestants = gc::contestants();
  bool ran = true;
  for (const gc::WorkloadTraits& workload : gc::kWorkloads) {
    if (!options.workload.empty() && options.workload != workload.name) continue;
    const gc::PeerSettings settings{.depth = options.depth.value_or(workload.peer_depth),
                                    .threads = options.threads,
                                    .workers = options.workers,
                                    .heap_bytes = options.heap_bytes,
                                    .rounds = options.rounds};
    if (!fits(workload, settings.depth)) return wrong_depth(workload);
    const auto rows = gc::compare_with_peers(workload, settings, contestants);
    fmt::print(out, "{}", gc::comparison_text(workload, settings, rows));
    std::fflush(out);
    document["comparisons"].push_back(gc::comparison_json(workload, settings, rows));
    ran = ran && rows.front().skipped.empty();
  }
  const int written = write_document(options, document);
  return ran ? written : tools::kExitFailure;
}

int measure(const Options& options, const std::string& command) {
  std::FILE* const out = options.json_file == "-" ? stderr : stdout;
  tools::Json document = tools::json_document("touchstone.gc-targets", 1);
  tools::add_provenance(document, tools::provenance_of(command));
  document["targets"] = tools::Json::array();
  bool met = true;
  for (const std::string& group : gc::target_groups()) {
    if (std::ranges::find(options.targets, group) == options.targets.end() &&
        std::ranges::find(options.targets, "all") == options.targets.end()) {
      continue;
    }
    const auto done = gc::measure_targets(group, options.rounds, [&](const gc::Target& target) {
      fmt::print(out, "{}", gc::target_text(target));
      std::fflush(out);
      document["targets"].push_back(gc::target_json(target));
      met = met && (!target.unavailable.empty() || target.met());
    });
    if (!done) {
      tools::print_error(kName, fmt::format("{}: {}", group, done.error().message()));
      return tools::kExitFailure;
    }
  }
  const int written = write_document(options, document);
  return met ? written : tools::kExitFailure;
}

int run(const Options& options, const std::string& command) {
  const gc::WorkloadTraits& workload =
      *gc::find_workload(options.workload.empty() ? "binary-trees" : options.workload);
  const unsigned depth = options.depth.value_or(workload.depth);
  if (!fits(workload, depth)) return wrong_depth(workload);
  Printer printer;
  gc::Timeline timeline(printer, !options.html_file.empty());
  heap::GcLog log(stderr, &timeline);
  const heap::HeapOptions wanted{
      .max_size = options.heap_bytes,
      .young_size = options.young_bytes,
      .workers = options.workers,
      .verify = options.verify,
      .stress_interval = options.stress,
      .huge_pages = options.base_pages ? heap::HugePages::kAvoid : heap::HugePages::kPrefer,
      .listener = options.log ? static_cast<heap::HeapListener*>(&log) : &timeline};
  const auto run_on = options.api == "c" ? gc::run_in_c : gc::run_in_cpp;
  const auto run =
      run_on(wanted, workload, {.depth = depth, .threads = options.threads}, &timeline);
  if (!run) {
    tools::print_error(kName, fmt::format("{}: {}", workload.name, run.error().message()));
    return run.error().code == ErrorCode::kInvalidArgument ? tools::kExitUsage
                                                           : tools::kExitFailure;
  }
  const gc::WorkloadResult& result = run->result;
  const double seconds = run->seconds;
  const tools::Json s = tools::Json::parse(run->statistics);
  const auto count = [&](const char* name) { return s.at(name).get<std::uint64_t>(); };

  std::FILE* const out = options.json_file == "-" ? stderr : stdout;
  const auto mib = [&](const char* name) { return static_cast<double>(count(name)) / (1 << 20); };
  const auto ms = [&](const char* name) { return static_cast<double>(count(name)) / 1e6; };
  fmt::print(out, "{} {}: {} {} in {:.3f} s{}\n", workload.name, depth, result.operations,
             workload.operation, seconds, result.correct ? "" : ", WRONG RESULT");
  fmt::print(out, "{:<22}{:>12.1f} MiB, {:.0f} MiB/s\n", "allocated", mib("allocated"),
             mib("allocated") / seconds);
  fmt::print(out, "{:<22}{:>12} young, {} full, by {} worker{}\n", "collections",
             count("young_collections"), count("full_collections"), count("workers"),
             count("workers") == 1 ? "" : "s");
  fmt::print(out, "{:<22}{:>12.1f} ms in all, {:.2f} ms at most\n", "pauses", ms("pause_ns"),
             ms("longest_pause_ns"));
  fmt::print(out, "{:<22}{:>12.1f} MiB survived, {:.1f} promoted, {:.1f} compacted\n", "moved",
             mib("copied"), mib("promoted"), mib("compacted"));
  fmt::print(out, "{:<22}{:>12.1f} MiB of {:.0f}, tables {:.1f}\n", "committed", mib("committed"),
             mib("max_size"), mib("side_tables"));

  tools::Json document = tools::json_document("touchstone.gc", 2);
  tools::add_provenance(document, tools::provenance_of(command));
  document["workload"] = workload.name;
  document["api"] = options.api;
  document["depth"] = depth;
  document["threads"] = workload.threaded ? options.threads : 1;
  document["verify"] = options.verify;
  document["stress"] = options.stress;
  document["seconds"] = seconds;
  document["operations"] = result.operations;
  document["checksum"] = result.checksum;
  document["correct"] = result.correct;
  document["heap"] = s;
  if (options.api == "cpp") document["pauses"] = timeline.pauses();
  if (!options.html_file.empty()) {
    tools::Json data = document;
    data["timeline"] = timeline.json();
    if (auto written =
            tools::write_text_file(options.html_file, bench::render_page(bench::Page::kGc, data));
        !written) {
      tools::print_error(kName, written.error().message());
      return tools::kExitFailure;
    }
  }
  if (const int written = write_document(options, document); written != tools::kExitSuccess) {
    return written;
  }
  return result.correct && count("violations") == 0 ? tools::kExitSuccess : tools::kExitFailure;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Runs a program that allocates on Touchstone's collector. There are: " + workload_names(),
      kName};
  Options options;
  declare(app, options);
  if (const auto code = tools::parse_command_line(app, argc, argv)) return *code;
  if (options.heap_bytes < heap::kMinHeap || options.heap_bytes > kMaxHeap) {
    tools::print_error(kName, fmt::format("--heap: from {} MiB to {} TiB", heap::kMinHeap >> 20U,
                                          kMaxHeap >> 40U));
    return tools::kExitUsage;
  }
  const bool one_run = !options.peers && options.targets.empty();
  if ((options.log || !options.html_file.empty()) && (!one_run || options.api != "cpp")) {
    tools::print_error(kName, "--log and --html go with one run and --api cpp");
    return tools::kExitUsage;
  }
  const std::string command = tools::command_text(argc, argv);
  if (options.peers) return compare(options, command);
  return options.targets.empty() ? run(options, command) : measure(options, command);
}
