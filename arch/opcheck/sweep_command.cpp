// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <expected>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include <touchstone/tools/json_file.h>
#include <touchstone/tools/progress.h>
#include <touchstone/tools/provenance.h>

#include "command.h"
#include "oracle.h"
#include "oracle_options.h"
#include "rules.h"
#include "sweep.h"
#include "sweep_report.h"
#include "sweep_state.h"
#include "word_space.h"

namespace touchstone::arch::opcheck {
namespace {

// How often the state is saved while the sweep runs, against what no signal announces.
constexpr std::chrono::seconds kSaveEvery{30};

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

extern "C" void on_interrupt(int /*signal*/) {
  interrupted.store(true, std::memory_order_relaxed);
}

// While it lives, the first SIGINT or SIGTERM asks the sweep to stop; the second one ends the tool.
class InterruptHandler {
 public:
  InterruptHandler() {
    interrupted.store(false);
    struct sigaction action{};
    action.sa_handler = &on_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &old_interrupt_);
    sigaction(SIGTERM, &action, &old_terminate_);
  }
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;
  ~InterruptHandler() {
    sigaction(SIGINT, &old_interrupt_, nullptr);
    sigaction(SIGTERM, &old_terminate_, nullptr);
  }

 private:
  struct sigaction old_interrupt_{};
  struct sigaction old_terminate_{};
};

struct SweepOptions {
  bool all = false;
  bool sample = false;
  OracleChoice oracles;
  std::string rules = "full";
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  std::string json;
  std::string state;
  std::string resume;
};

int finish(const SweepOptions& options, const SweepPlan& plan, const SweepResult& result,
           double seconds, Console& console) {
  if (options.json != "-") print_sweep(console.out, plan, result, seconds);
  if (!options.json.empty()) {
    tools::Json json = sweep_json(plan, result, seconds);
    tools::add_provenance(json, tools::provenance_of(console.command));
    const std::string document = json.dump(2) + "\n";
    if (options.json == "-") {
      console.out << document;
    } else if (auto written = tools::write_text_file(options.json, document); !written) {
      report_error(console, fmt::format("{}: {}", options.json, written.error().message()));
      return kExitBadUse;
    }
  }
  return is_clean(result) ? kExitSuccess : kExitFindings;
}

// Why no file can be made at `path`, or "".
std::string cannot_write(const std::string& path) {
  if (path.empty() || path == "-") return "";
  std::error_code ignored;
  const bool special =
      std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  const std::string folder = std::filesystem::path(path).parent_path();
  const std::string& target = special ? path : folder;
  if (access(target.empty() ? "." : target.c_str(), W_OK) == 0) return "";
  return fmt::format("{}: {}", path, strerrordesc_np(errno));
}

int run_sweep_command(const SweepOptions& options, Console& console) {
  const auto sources = choose_oracles(options.oracles);
  if (!sources) {
    report_error(console, sources.error());
    return kExitBadUse;
  }
  if (sources->empty()) {
    report_error(console, "a sweep needs at least one oracle");
    return kExitBadUse;
  }
  for (const std::string& path : {options.json, options.state}) {
    if (const std::string reason = cannot_write(path); !reason.empty()) {
      report_error(console, reason);
      return kExitBadUse;
    }
  }
  const SampleWords sample;
  const AllWords all;
  SweepPlan plan;
  plan.rules = options.rules == "v5" ? &kV5Rules : &kFullRules;
  plan.space = options.all ? static_cast<const WordSpace*>(&all) : &sample;
  for (const auto& source : *sources) plan.oracles.push_back(source.get());
  plan.jobs = options.jobs;

  const std::string& state = options.resume.empty() ? options.state : options.resume;
  SweepResult start;
  std::error_code ignored;
  if (!options.resume.empty() || (!state.empty() && std::filesystem::exists(state, ignored))) {
    auto loaded = load_state(state, plan);
    if (!loaded) {
      report_error(console, loaded.error());
      return kExitBadUse;
    }
    start = std::move(*loaded);
  }

  const InterruptHandler handler;
  tools::Progress progress(plan.space->size(), "words");
  progress.start_at(start.words);
  std::string save_error;
  auto saved_at = std::chrono::steady_clock::now();
  const auto save = [&](const SweepResult& result) {
    auto saved = save_state(state, plan, result);
    if (!saved) save_error = std::move(saved.error());
    saved_at = std::chrono::steady_clock::now();
  };
  const SweepHooks hooks{.stop = &interrupted,
                         .on_words = [&](std::uint64_t words) { progress.advance(words); },
                         .on_chunk =
                             [&](const SweepResult& result) {
                               const auto since = std::chrono::steady_clock::now() - saved_at;
                               if (!state.empty() && since >= kSaveEvery) save(result);
                             }};
  const auto begin = std::chrono::steady_clock::now();
  const auto result = run_sweep(plan, std::move(start), hooks);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  progress.clear();
  if (!result) {
    report_error(console, result.error());
    return kExitBadUse;
  }
  if (!result->complete()) {
    if (!state.empty()) save(*result);
    if (!save_error.empty()) {
      report_error(console, fmt::format("interrupted, and the state is lost: {}", save_error));
      return kExitBadUse;
    }
    report_error(console, fmt::format("interrupted after {} of {} words; {}", result->words,
                                      plan.space->size(),
                                      state.empty() ? "nothing is kept (--state FILE would keep it)"
                                                    : fmt::format("--resume {} goes on", state)));
    return kExitInterrupted;
  }
  if (!save_error.empty()) report_error(console, save_error);
  if (!state.empty()) std::filesystem::remove(state, ignored);
  return finish(options, plan, *result, seconds.count(), console);
}

}  // namespace

void register_sweep(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* const command = app.add_subcommand(
      "sweep", "Hold the table against disassemblers, over a sample or all 2^32 words");
  CLI::Option* const all = command->add_flag("--all", options->all, "All 2^32 words");
  command
      ->add_flag("--sample", options->sample,
                 "Every value of the bits that are no register, several of the registers (default)")
      ->excludes(all);
  command->add_option("--rules", options->rules, "full or v5 (default: full)")
      ->check(CLI::IsMember({"full", "v5"}))
      ->type_name("NAME");
  command->add_option("--jobs", options->jobs, "Threads (default: as many as processors)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->add_option("--json", options->json, "Write the result as JSON, to standard output for -")
      ->type_name("FILE");
  CLI::Option* const state =
      command
          ->add_option("--state", options->state,
                       "Keep the state here, and go on from it where the file exists")
          ->type_name("FILE");
  command->add_option("--resume", options->resume, "Go on from this state, which has to exist")
      ->type_name("FILE")
      ->excludes(state);
  add_oracle_options(*command, options->oracles);
  command->callback([options, &chosen] {
    chosen = [options](Console& console) { return run_sweep_command(*options, console); };
  });
}

}  // namespace touchstone::arch::opcheck
