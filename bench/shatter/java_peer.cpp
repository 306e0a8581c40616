// SPDX-License-Identifier: MIT
#include "java_peer.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include <touchstone/tools/child_process.h>

namespace touchstone::shatter {
namespace {

std::expected<tools::ChildProcess, std::string> run_java(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "java");
  auto finished = tools::run_child_process(arguments);
  if (!finished) return std::unexpected(finished.error().message());
  if (finished->exit_code != 0) {
    return std::unexpected(
        fmt::format("java failed: {}", finished->output.substr(0, finished->output.find('\n'))));
  }
  return std::move(*finished);
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
