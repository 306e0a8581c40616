// SPDX-License-Identifier: MIT
#include "child_process.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <expected>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace touchstone::arch::opcheck {
namespace {

std::string error_text(int number) {
  const char* const text = strerrordesc_np(number);
  return text != nullptr ? text : fmt::format("errno {}", number);
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { reset(); }
  [[nodiscard]] int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// The environment of the child: ours, but for the locale.
std::vector<std::string> child_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("LC_") && !text.starts_with("LANG")) variables.emplace_back(text);
  }
  variables.emplace_back("LC_ALL=C");
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

int spawn(std::vector<std::string> arguments, int output, pid_t& child) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<std::string> environment = child_environment();
  const int status = posix_spawnp(&child, arguments[0].c_str(), &actions, &attributes,
                                  pointers_to(arguments).data(), pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return status;
}

// Calls on_line for each line that `fd` gives; returns 0 or an errno.
int read_lines(int fd, const std::function<void(std::string_view)>& on_line) {
  std::vector<char> buffer(std::size_t{1} << 16);
  std::string rest;
  while (true) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) break;
    std::string_view text(buffer.data(), static_cast<std::size_t>(count));
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      if (rest.empty()) {
        on_line(text.substr(0, end));
      } else {
        rest += text.substr(0, end);
        on_line(rest);
        rest.clear();
      }
      text.remove_prefix(end + 1);
    }
    rest += text;
  }
  if (!rest.empty()) on_line(rest);
  return 0;
}

}  // namespace

std::expected<void, std::string> run_program(
    const std::vector<std::string>& arguments,
    const std::function<void(std::string_view line)>& on_line) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return std::unexpected(fmt::format("pipe: {}", error_text(errno)));
  }
  FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  pid_t child = 0;
  if (const int status = spawn(arguments, writer.get(), child); status != 0) {
    return std::unexpected(fmt::format("cannot run {}: {}", arguments[0], error_text(status)));
  }
  writer.reset();
  const int read_status = read_lines(reader.get(), on_line);
  reader.reset();
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      return std::unexpected(fmt::format("waiting for {}: {}", arguments[0], error_text(errno)));
    }
  }
  if (read_status != 0) {
    return std::unexpected(
        fmt::format("reading from {}: {}", arguments[0], error_text(read_status)));
  }
  if (WIFSIGNALED(status)) {
    return std::unexpected(
        fmt::format("{} was ended by signal {}", arguments[0], WTERMSIG(status)));
  }
  // A shell's status for a program that is not there, and posix_spawn's own where the child is a
  // real fork, as under an emulator.
  if (WEXITSTATUS(status) == 127) {
    return std::unexpected(fmt::format("cannot run {}: exit status 127", arguments[0]));
  }
  if (WEXITSTATUS(status) != 0) {
    return std::unexpected(
        fmt::format("{} ended with exit status {}", arguments[0], WEXITSTATUS(status)));
  }
  return {};
}

}  // namespace touchstone::arch::opcheck
