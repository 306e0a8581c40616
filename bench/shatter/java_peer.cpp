// SPDX-License-Identifier: MIT
#include "java_peer.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace touchstone::shatter {
namespace {

struct Finished {
  double seconds = 0;
  /// Everything it printed, on either stream.
  std::string output;
};

std::unexpected<std::string> failed(const char* what, int code) {
  return std::unexpected(fmt::format("{}: {}", what, std::strerror(code)));
}

std::expected<Finished, std::string> run_java(const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed("pipe2", errno);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::string name = "java";
  std::vector<std::string> words = arguments;
  std::vector<char*> argv{name.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const auto start = std::chrono::steady_clock::now();
  pid_t child = 0;
  const int spawned = ::posix_spawnp(&child, "java", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (spawned != 0) {
    ::close(ends[0]);
    return failed("java", spawned);
  }
  Finished finished;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t got = ::read(ends[0], buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    finished.output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  finished.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return std::unexpected(
        fmt::format("java failed: {}", finished.output.substr(0, finished.output.find('\n'))));
  }
  return finished;
}

}  // namespace

std::expected<JavaComparison, std::string> compare_with_java(std::size_t bytes, unsigned rounds,
                                                             const arch::Geometry& geometry,
                                                             unsigned threads) {
  const std::string megabytes = fmt::format("{}m", bytes >> 20U);
  const std::vector<std::string> plain{"-Xms" + megabytes, "-Xmx" + megabytes, "-XX:+UseParallelGC",
                                       "-XX:+UseTransparentHugePages", "-version"};
  std::vector<std::string> touching = plain;
  touching.insert(touching.end() - 1, "-XX:+AlwaysPreTouch");

  Settings settings;
  settings.bytes = bytes;
  settings.geometry = geometry;
  const Case ours{
      .strategy = heap::PretouchStrategy::kAutomatic, .pages = Pages::kHuge, .threads = threads};
  JavaComparison comparison{.bytes = bytes, .rounds = rounds};
  std::vector<double> with_pretouch;
  std::vector<double> without;
  std::vector<double> automatic;
  for (unsigned round = 0; round <= rounds; ++round) {
    const auto touched = run_java(touching);
    if (!touched) return std::unexpected(touched.error());
    const auto untouched = run_java(plain);
    if (!untouched) return std::unexpected(untouched.error());
    const auto sample = run_case(ours, settings);
    if (!sample) return std::unexpected(sample.error());
    if (round == 0) {
      comparison.version = touched->output.substr(0, touched->output.find('\n'));
      continue;
    }
    with_pretouch.push_back(touched->seconds);
    without.push_back(untouched->seconds);
    automatic.push_back(sample->seconds);
  }
  comparison.with_pretouch = spread_of(std::move(with_pretouch));
  comparison.without = spread_of(std::move(without));
  comparison.automatic = spread_of(std::move(automatic));
  return comparison;
}

std::string java_text(const JavaComparison& comparison) {
  const auto spread = [](const Spread& s) {
    return fmt::format("{:.3f} s ({:.3f}-{:.3f})", s.median, s.min, s.max);
  };
  return fmt::format(
      "Peer: {}, {} GiB, ParallelGC, UseTransparentHugePages, {} round{}\n"
      "    java with AlwaysPreTouch {}, without {}: its pre-touch takes {:.3f} s\n"
      "    automatic takes {}: {:.2f} times as fast\n",
      comparison.version, comparison.bytes >> 30U, comparison.rounds,
      comparison.rounds == 1 ? "" : "s", spread(comparison.with_pretouch),
      spread(comparison.without), comparison.java_seconds(), spread(comparison.automatic),
      comparison.ratio());
}

}  // namespace touchstone::shatter
