// SPDX-License-Identifier: MIT
// touchstone-gc: run a program that allocates on the collector, and say what it cost.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <touchstone/heap/heap_listener.h>
#include <touchstone/tools/command_line.h>
#include <touchstone/tools/json_file.h>
#include <touchstone/tools/provenance.h>

#include "workload.h"

namespace {

using namespace touchstone;

constexpr const char* kName = "touchstone-gc";

struct Options {
  std::string workload = "binary-trees";
  std::optional<unsigned> depth;
  std::size_t heap_bytes = std::size_t{512} << 20U;
  unsigned threads = 2;
  unsigned workers = 0;
  bool verify = false;
  std::uint64_t stress = 0;
  std::string json_file;
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
  for (const gc::Workload& each : gc::all_workloads()) {
    names += names.empty() ? "" : ", ";
    names += each.name;
  }
  return names;
}

void declare(CLI::App& app, Options& options) {
  std::vector<std::string> names;
  std::string about = "What to run:";
  for (const gc::Workload& each : gc::all_workloads()) {
    names.emplace_back(each.name);
    about += fmt::format("\n{} (depth {}): {}", each.name, each.depth, each.description);
  }
  app.set_version_flag("--version", std::string(kName) + " " TOUCHSTONE_VERSION);
  app.add_option("--workload", options.workload, about)->check(CLI::IsMember(names));
  app.add_option("--depth", options.depth, "How much of it: trees' depth, or log2 of a count")
      ->check(CLI::Range(0U, 40U));
  app.add_option("--heap", options.heap_bytes, "The most the heap may grow to, as 256M (512M)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--threads", options.threads, "Mutators of gcbench-mt (2)")
      ->check(CLI::Range(1U, 256U));
  app.add_option("--workers", options.workers, "Threads that collect (one for each CPU)")
      ->check(CLI::Range(1U, 64U));
  app.add_flag("--verify", options.verify, "Check the heap before and after each collection");
  app.add_option("--stress", options.stress, "Collect at every Nth allocation, moving everything")
      ->check(CLI::Range(std::uint64_t{1}, ~std::uint64_t{0}));
  app.add_option("--json", options.json_file, "Write the result as JSON to this file; - prints");
}

int run(const Options& options, const std::string& command) {
  const gc::Workload& workload = *gc::find_workload(options.workload);
  const unsigned depth = options.depth.value_or(workload.depth);
  if (depth < workload.min_depth || depth > workload.max_depth) {
    tools::print_error(kName, fmt::format("--depth: {} takes {} to {}", workload.name,
                                          workload.min_depth, workload.max_depth));
    return tools::kExitUsage;
  }
  Printer printer;
  const auto heap = gc::GcHeap::create({.max_size = options.heap_bytes,
                                        .workers = options.workers,
                                        .verify = options.verify,
                                        .stress_interval = options.stress,
                                        .listener = &printer});
  if (!heap) {
    tools::print_error(kName, heap.error().message());
    return heap.error().code == ErrorCode::kInvalidArgument ? tools::kExitUsage
                                                            : tools::kExitFailure;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto result =
      workload.run(**heap, {.depth = depth, .threads = workload.threaded ? options.threads : 1});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!result) {
    tools::print_error(kName, fmt::format("{}: {}", workload.name, result.error().message()));
    return tools::kExitFailure;
  }
  const heap::HeapStatistics s = (*heap)->statistics();

  std::FILE* const out = options.json_file == "-" ? stderr : stdout;
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  fmt::print(out, "{} {}: {} {} in {:.3f} s{}\n", workload.name, depth, result->operations,
             workload.operation, seconds, result->correct ? "" : ", WRONG RESULT");
  fmt::print(out, "{:<22}{:>12.1f} MiB, {:.0f} MiB/s\n", "allocated", mib(s.allocated),
             mib(s.allocated) / seconds);
  fmt::print(out, "{:<22}{:>12} young, {} full, by {} worker{}\n", "collections",
             s.young_collections, s.full_collections, s.workers, s.workers == 1 ? "" : "s");
  fmt::print(out, "{:<22}{:>12.1f} ms in all, {:.2f} ms at most\n", "pauses",
             static_cast<double>(s.pause_ns) / 1e6, static_cast<double>(s.longest_pause_ns) / 1e6);
  fmt::print(out, "{:<22}{:>12.1f} MiB survived, {:.1f} promoted, {:.1f} compacted\n", "moved",
             mib(s.copied), mib(s.promoted), mib(s.compacted));
  fmt::print(out, "{:<22}{:>12.1f} MiB of {:.0f}, tables {:.1f}\n", "committed", mib(s.committed),
             mib(s.max_size), mib(s.side_tables));

  if (!options.json_file.empty()) {
    tools::Json document = tools::json_document("touchstone.gc", 2);
    tools::add_provenance(document, tools::provenance_of(command));
    document["workload"] = workload.name;
    document["depth"] = depth;
    document["threads"] = workload.threaded ? options.threads : 1;
    document["verify"] = options.verify;
    document["stress"] = options.stress;
    document["seconds"] = seconds;
    document["operations"] = result->operations;
    document["checksum"] = result->checksum;
    document["correct"] = result->correct;
    document["heap"] = tools::Json::parse(to_json(s));
    if (auto written = tools::write_json_file(options.json_file, document); !written) {
      tools::print_error(kName, written.error().message());
      return tools::kExitFailure;
    }
  }
  return result->correct && s.violations == 0 ? tools::kExitSuccess : tools::kExitFailure;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Runs a program that allocates on Touchstone's collector. There are: " + workload_names(),
      kName};
  Options options;
  declare(app, options);
  if (const auto code = tools::parse_command_line(app, argc, argv)) return *code;
  return run(options, tools::command_text(argc, argv));
}
