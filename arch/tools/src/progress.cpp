// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <touchstone/tools/progress.h>

namespace touchstone::tools {
namespace {

int columns_of(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::ceil(seconds));
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string rate_text(double rate) {
  if (rate >= 1e6) return fmt::format("{:.1f} M", rate / 1e6);
  if (rate >= 1e3) return fmt::format("{:.1f} k", rate / 1e3);
  return fmt::format("{:.1f} ", rate);
}

}  // namespace

Progress::Progress(std::uint64_t total, std::string_view unit, std::FILE* stream)
    : stream_(stream),
      terminal_(::isatty(::fileno(stream)) == 1),
      total_(std::max<std::uint64_t>(total, 1)),
      unit_(unit) {}

Progress::~Progress() {
  clear();
}

void Progress::advance(std::uint64_t steps) {
  done_.fetch_add(steps, std::memory_order_relaxed);
  draw();
}

void Progress::start_at(std::uint64_t steps) {
  const std::scoped_lock lock(mutex_);
  start_ = steps;
  done_.store(steps, std::memory_order_relaxed);
}

void Progress::describe(std::string_view text) {
  {
    const std::scoped_lock lock(mutex_);
    text_ = text;
  }
  draw();
}

void Progress::clear() {
  if (!terminal_) return;
  const std::scoped_lock lock(mutex_);
  std::fputs("\r\033[K", stream_);
  std::fflush(stream_);
}

std::string Progress::render(double seconds, int columns) const {
  const std::uint64_t done = std::min(done_.load(std::memory_order_relaxed), total_);
  const double share = static_cast<double>(done) / static_cast<double>(total_);
  std::string tail = fmt::format(" {:3.0f}%", std::floor(share * 100));
  if (done > start_ && seconds > 0) {
    const double rate = static_cast<double>(done - start_) / seconds;
    if (!unit_.empty()) tail += fmt::format(" {}{}/s", rate_text(rate), unit_);
    tail += fmt::format(" {} left", clock_text(static_cast<double>(total_ - done) / rate));
  }
  if (!text_.empty()) tail += " " + text_;
  const auto width = static_cast<std::size_t>(std::max(columns - 1, 20));
  const std::size_t bar =
      std::clamp<std::size_t>(width > tail.size() + 2 ? width - tail.size() - 2 : 0, 10, 40);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar));
  std::string line = "[" + std::string(filled, '#') + std::string(bar - filled, '.') + "]" + tail;
  if (line.size() > width) line.resize(width);
  return line;
}

void Progress::draw() {
  if (!terminal_) return;
  const std::scoped_lock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  fmt::print(stream_, "\r{}\033[K", render(seconds, columns_of(stream_)));
  std::fflush(stream_);
}

}  // namespace touchstone::tools
