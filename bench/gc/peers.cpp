// SPDX-License-Identifier: MIT
#include "peers.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <touchstone/tools/child_process.h>

namespace touchstone::gc {
namespace {

namespace fs = std::filesystem;

/// One run of a contestant, or why there was none.
struct Run {
  std::string failure;
  double seconds = 0;
  double cpu_seconds = 0;
  std::size_t peak_rss = 0;
  std::uint64_t checksum = 0;
};

void replace(std::string& text, std::string_view what, const std::string& by) {
  if (const std::size_t at = text.find(what); at != std::string::npos) {
    text.replace(at, what.size(), by);
  }
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// Has memory at hand that the next program will get: where a host takes back what a virtual
/// machine does not use, whoever is first to touch it afterwards would pay for those before. In a
/// process of its own, as a child's peak begins with its parent's.
void warm_memory(std::size_t bytes) {
  const pid_t child = ::fork();
  if (child == 0) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) {
      ::madvise(memory, bytes, MADV_HUGEPAGE);
      std::memset(memory, 1, bytes);
    }
    ::_exit(0);
  }
  if (child > 0) {
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

Run run_once(const Contestant& who, const WorkloadTraits& workload, const PeerSettings& settings) {
  std::vector<std::string> words = who.words;
  for (std::string& word : words) {
    replace(word, "{workload}", workload.name);
    replace(word, "{depth}", std::to_string(settings.depth));
    replace(word, "{bytes}", std::to_string(settings.heap_bytes));
    replace(word, "{megabytes}", std::to_string(settings.heap_bytes >> 20U));
    replace(word, "{threads}", std::to_string(settings.threads));
    replace(word, "{workers}", std::to_string(settings.workers));
  }
  warm_memory(settings.heap_bytes);
  const auto done = tools::run_child_process(words);
  if (!done) return {.failure = done.error().message()};
  // Runtimes may warn before.
  const std::size_t start = done->output.find('{');
  const auto answer = start == std::string::npos
                          ? tools::Json()
                          : tools::Json::parse(done->output.substr(start), nullptr, false);
  if (done->exit_code != 0 || !answer.is_object() || !answer.contains("seconds") ||
      !answer.contains("checksum")) {
    const std::string told = first_line(done->output);
    return {.failure = told.empty() ? fmt::format("it ended with {}", done->exit_code) : told};
  }
  return {.seconds = answer["seconds"].get<double>(),
          .cpu_seconds = done->cpu_seconds,
          .peak_rss = done->peak_rss,
          .checksum = answer["checksum"].get<std::uint64_t>()};
}

std::optional<std::string> java_version() {
  const auto done = tools::run_child_process({"java", "-version"});
  if (!done || done->exit_code != 0) return std::nullopt;
  return first_line(done->output);
}

}  // namespace

std::vector<Contestant> contestants() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path folder = self.parent_path() / "gc-peers";
  std::vector<Contestant> all;
  for (const char* const api : {"cpp", "c"}) {
    all.push_back({.name = api == std::string_view("cpp") ? "touchstone" : kThroughC,
                   .skipped = error ? error.message() : "",
                   .words = {self.string(), "--workload", "{workload}", "--depth", "{depth}",
                             "--heap", "{bytes}", "--threads", "{threads}", "--workers",
                             "{workers}", "--api", api, "--json", "-"}});
  }
  for (const char* const name : {"libgc", "malloc", "mimalloc"}) {
    const fs::path program = folder / name;
    all.push_back({.name = name,
                   .skipped = fs::exists(program, error)
                                  ? ""
                                  : fmt::format("not installed when this was built"),
                   .words = {program.string(), "{workload}", "{depth}", "{bytes}", "{threads}"}});
  }
  std::string no_java;
  if (!java_version()) {
    no_java = "no java that runs";
  } else if (!fs::exists(folder / "Programs.class", error)) {
    no_java = "no Java compiler when this was built";
  }
  for (const char* const collector : {"Serial", "Parallel", "G1"}) {
    all.push_back(
        {.name = fmt::format("java {}", collector),
         .skipped = no_java,
         .words = {"java", "-Xmx{megabytes}m", fmt::format("-XX:+Use{}GC", collector), "-cp",
                   folder.string(), "Programs", "{workload}", "{depth}", "{threads}"}});
  }
  return all;
}

std::vector<Comparison> compare_with_peers(const WorkloadTraits& workload,
                                           const PeerSettings& settings,
                                           const std::vector<Contestant>& all) {
  std::vector<Comparison> rows(all.size());
  std::vector<std::vector<double>> seconds(all.size());
  std::vector<std::vector<double>> cpu_seconds(all.size());
  std::optional<std::uint64_t> checksum;
  for (std::size_t i = 0; i < all.size(); ++i) {
    rows[i] = {.name = all[i].name, .skipped = all[i].skipped};
  }
  for (unsigned round = 0; round < settings.rounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!rows[i].skipped.empty()) continue;
      const Run run = run_once(all[i], workload, settings);
      if (!run.failure.empty()) {
        rows[i].skipped = run.failure;
        continue;
      }
      if (!checksum) checksum = run.checksum;
      if (run.checksum != *checksum) {
        rows[i].skipped = "its result is another one";
        continue;
      }
      seconds[i].push_back(run.seconds);
      cpu_seconds[i].push_back(run.cpu_seconds);
      rows[i].peak_rss = std::max(rows[i].peak_rss, run.peak_rss);
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!rows[i].skipped.empty()) continue;
    rows[i].seconds = bench::spread_of(std::move(seconds[i]));
    rows[i].cpu_seconds = bench::spread_of(std::move(cpu_seconds[i])).median;
    if (rows[0].skipped.empty()) rows[i].ratio = rows[i].seconds.median / rows[0].seconds.median;
  }
  return rows;
}

std::string comparison_text(const WorkloadTraits& workload, const PeerSettings& settings,
                            const std::vector<Comparison>& rows) {
  std::string text = fmt::format(
      "{} {}, {} MiB{}, {} round{}\n", workload.name, settings.depth, settings.heap_bytes >> 20U,
      workload.threaded ? fmt::format(", {} threads", settings.threads) : "", settings.rounds,
      settings.rounds == 1 ? "" : "s");
  for (const Comparison& row : rows) {
    if (!row.skipped.empty()) {
      text += fmt::format("  {:<14} skipped: {}\n", row.name, row.skipped);
      continue;
    }
    text += fmt::format("  {:<14} {:>7.3f} s ({:.3f}-{:.3f}), CPU {:>7.3f} s, peak {:>5} MiB",
                        row.name, row.seconds.median, row.seconds.min, row.seconds.max,
                        row.cpu_seconds, row.peak_rss >> 20U);
    if (&row != rows.data() && row.ratio != 0) text += fmt::format("  {:>6.2f}", row.ratio);
    text += '\n';
  }
  return text;
}

tools::Json comparison_json(const WorkloadTraits& workload, const PeerSettings& settings,
                            const std::vector<Comparison>& rows) {
  tools::Json json{
      {"workload", workload.name},         {"depth", settings.depth},
      {"heap_bytes", settings.heap_bytes}, {"threads", workload.threaded ? settings.threads : 1},
      {"rounds", settings.rounds},         {"contestants", tools::Json::array()}};
  for (const Comparison& row : rows) {
    tools::Json one{{"name", row.name}};
    if (row.skipped.empty()) {
      one["seconds"] = {
          {"median", row.seconds.median}, {"min", row.seconds.min}, {"max", row.seconds.max}};
      one["cpu_seconds"] = row.cpu_seconds;
      one["peak_rss"] = row.peak_rss;
      one["ratio"] = row.ratio;
    } else {
      one["skipped"] = row.skipped;
    }
    json["contestants"].push_back(std::move(one));
  }
  return json;
}

}  // namespace touchstone::gc
