// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TOOLS_PROGRESS_H_
#define TOUCHSTONE_TOOLS_PROGRESS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace touchstone::tools {

/// A progress bar on a terminal, with what is being done, the rate and the time left; silent where
/// the stream is a pipe or a file. Thread-safe: any thread may advance it.
class Progress {
 public:
  /// total: how many steps in all. unit: what a step is called, such as "words"; empty shows no
  /// rate.
  Progress(std::uint64_t total, std::string_view unit, std::FILE* stream = stderr);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Adds steps done, and redraws at most ten times a second.
  void advance(std::uint64_t steps);
  /// Steps done before this run (a resumed sweep): they count for the bar, not for the rate.
  void start_at(std::uint64_t steps);
  /// What is being done now, shown behind the bar.
  void describe(std::string_view text);
  /// Wipes the bar from the terminal.
  void clear();

  /// The line as it would be drawn, for a terminal of that many columns. For tests.
  [[nodiscard]] std::string render(double seconds, int columns) const;

 private:
  void draw();

  std::FILE* stream_;
  bool terminal_;
  std::uint64_t total_;
  std::uint64_t start_ = 0;
  std::string unit_;
  std::atomic<std::uint64_t> done_{0};
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::string text_;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace touchstone::tools

#endif  // TOUCHSTONE_TOOLS_PROGRESS_H_
