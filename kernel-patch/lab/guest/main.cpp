// SPDX-License-Identifier: GPL-2.0-only
// The lab's guest program. As the first process of a guest it mounts what it needs, runs what the
// kernel command line says after "--", and powers the machine off; elsewhere it runs its arguments.
#include <algorithm>
#include <cstdio>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cost.h"
#include "machine.h"
#include "matrix.h"
#include "report.h"
#include "runtime.h"
#include "scan.h"
#include "signals.h"
#include "stress.h"
#include "touch.h"
#include "uffd.h"
#include "uprobe.h"

namespace {

using lab::Line;

void mount_all() {
  struct {
    const char* type;
    const char* at;
  } const mounts[] = {
      {"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}};
  for (const auto& m : mounts) {
    mkdir(m.at, 0755);
    if (mount("none", m.at, m.type, 0, nullptr) != 0 && errno != EBUSY) {
      perror(m.at);
      exit(1);
    }
  }
}

// "name=number" to its number, or -1.
long long number_of(std::string_view argument, std::string_view name) {
  if (!argument.starts_with(name) || argument.size() <= name.size() || argument[name.size()] != '=')
    return -1;
  const std::string digits(argument.substr(name.size() + 1));
  char* end = nullptr;
  const long long value = strtoll(digits.c_str(), &end, 10);
  return *end == '\0' && value >= 0 ? value : -1;
}

int usage(std::string_view argument = {}) {
  if (!argument.empty())
    fprintf(stderr, "guest: what is '%.*s'?\n", static_cast<int>(argument.size()), argument.data());
  fprintf(stderr,
          "usage: guest matrix [headline-mib=N] [cross-mib=N] [instructions=1]\n"
          "       guest costs\n"
          "       guest populate [mib=N] [rounds=N]\n"
          "       guest signals\n"
          "       guest uffd\n"
          "       guest protected-meanwhile\n"
          "       guest scans\n"
          "       guest uprobes\n"
          "       guest compat\n"
          "       guest stress [threads=N] [seconds=N] [forced=1]\n"
          "       guest exec PROGRAM [ARGUMENTS]\n"
          "       guest seed NAME, which is /seeds/NAME\n"
          "       guest runtime NAME [sample=1] [thp=always] PROGRAM [ARGUMENTS]\n"
          "       guest script FILE, which holds one of these a line\n"
          "A + between two of them runs one after the other.\n");
  return 2;
}

int run(std::span<char*> arguments);

// Runs the lines of a file, each split at spaces; empty lines and comments are left out.
int run_script(const char* path) {
  if (access(path, R_OK) != 0) {
    perror(path);
    return 2;
  }
  std::istringstream lines(lab::read_file(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> words;
    std::istringstream split(line);
    for (std::string word; split >> word;) words.push_back(word);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    if (const int status = run(arguments); status != 0) return status;
  }
  return lab::any_failure() ? 1 : 0;
}

// Runs another program; its exit status, or 128 and the signal that ended it.
int execute(std::span<char*> arguments) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const std::string program = arguments[0];
    std::vector<char*> words(arguments.begin(), arguments.end());
    words.push_back(nullptr);
    execv(program.c_str(), words.data());
    perror(program.c_str());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  Line("exec").add("program", arguments[0]).add("status", code).print();
  return code;
}

// Runs a seed's bench, whose clock counts instructions here, and prints its JSON as one line.
int run_seed(const std::string& name) {
  const char* const file = "/tmp/seed.json";
  std::string words[] = {"/seeds/" + name, "--count-instructions", "--json", file};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  if (const int code = execute(arguments); code != 0) return code;
  std::istringstream lines(lab::read_file(file));
  std::string document;
  for (std::string line; std::getline(lines, line);) {
    document.append(line, std::min(line.find_first_not_of(' '), line.size()));
  }
  printf("@@ {\"type\":\"seed\",\"name\":\"%s\",\"document\":%s}\n", name.c_str(),
         document.c_str());
  fflush(stdout);
  return 0;
}

int run_one(std::span<char*> arguments) {
  if (arguments.empty()) return usage();
  const std::string_view verb = arguments[0];
  if (verb == "matrix") {
    lab::MatrixOptions options;
    for (const std::string_view argument : arguments.subspan(1)) {
      if (const auto n = number_of(argument, "headline-mib"); n > 0) {
        options.headline_bytes = static_cast<size_t>(n) << 20;
      } else if (const auto m = number_of(argument, "cross-mib"); m >= 0) {
        options.cross_bytes = static_cast<size_t>(m) << 20;
      } else if (const auto i = number_of(argument, "instructions"); i >= 0) {
        options.instructions = i != 0;
      } else {
        return usage(argument);
      }
    }
    lab::run_matrix(options);
    return 0;
  }
  if (verb == "populate") {
    size_t bytes = size_t{1} << 30;
    unsigned rounds = 100;
    for (const std::string_view argument : arguments.subspan(1)) {
      if (const auto n = number_of(argument, "mib"); n > 0) {
        bytes = static_cast<size_t>(n) << 20;
      } else if (const auto r = number_of(argument, "rounds"); r >= 0) {
        rounds = static_cast<unsigned>(r);
      } else {
        return usage(argument);
      }
    }
    lab::run_populate(bytes, rounds);
    return 0;
  }
  if (verb == "stress") {
    lab::StressOptions options;
    bool expect_forced = false;
    for (const std::string_view argument : arguments.subspan(1)) {
      if (const auto n = number_of(argument, "threads"); n > 0) {
        options.threads = static_cast<unsigned>(n);
      } else if (const auto s = number_of(argument, "seconds"); s > 0) {
        options.seconds = static_cast<unsigned>(s);
      } else if (const auto f = number_of(argument, "forced"); f >= 0) {
        expect_forced = f != 0;
      } else {
        return usage(argument);
      }
    }
    lab::run_stress(options, expect_forced);
    return 0;
  }
  if (verb == "seed" && arguments.size() == 2) return run_seed(arguments[1]);
  if (verb == "exec" && arguments.size() > 1) return execute(arguments.subspan(1));
  if (verb == "compat" && arguments.size() == 1) {
    char program[] = "/compat";
    char* words[] = {program};
    if (access(program, X_OK) == 0) return execute(words);
    Line("skipped")
        .add("what", "a 32-bit process")
        .add("why", "the lab found no compiler for 32-bit Arm")
        .print();
    return 0;
  }
  if (verb == "runtime" && arguments.size() > 2) {
    lab::RuntimeOptions options;
    auto program = arguments.subspan(2);
    for (; !program.empty(); program = program.subspan(1)) {
      const std::string_view argument = program[0];
      if (const auto s = number_of(argument, "sample"); s >= 0) {
        options.sample = s > 0;
      } else if (argument == "thp=always") {
        options.thp_always = true;
      } else {
        break;
      }
    }
    return program.empty() ? usage() : lab::run_runtime(arguments[1], program, options);
  }
  if (verb == "script" && arguments.size() == 2) return run_script(arguments[1]);
  if (arguments.size() != 1) return usage();
  constexpr std::pair<std::string_view, void (*)()> kPlainVerbs[] = {
      {"costs", lab::run_fault_costs}, {"signals", lab::run_signals},
      {"uffd", lab::run_uffd},         {"protected-meanwhile", lab::run_protected_meanwhile},
      {"scans", lab::run_scans},       {"uprobes", lab::run_uprobes},
  };
  for (const auto& [name, function] : kPlainVerbs) {
    if (verb != name) continue;
    function();
    return 0;
  }
  return usage();
}

int run(std::span<char*> arguments) {
  while (true) {
    size_t end = 0;
    while (end < arguments.size() && std::string_view(arguments[end]) != "+") ++end;
    if (const int status = run_one(arguments.first(end)); status != 0) return status;
    if (end == arguments.size()) return lab::any_failure() ? 1 : 0;
    arguments = arguments.subspan(end + 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::span<char*> arguments(argv + 1, static_cast<size_t>(argc - 1));
  if (getpid() != 1) return run(arguments);
  // What is meant for the program comes after this word; words that the kernel's own parameters
  // leave over come before it.
  while (!arguments.empty() && std::string_view(arguments[0]) != "touchstone")
    arguments = arguments.subspan(1);
  if (!arguments.empty()) arguments = arguments.subspan(1);

  mount_all();
  utsname name = {};
  uname(&name);
  Line("begin")
      .add("release", name.release)
      .add("machine", name.machine)
      .add("page_size", uint64_t{lab::page_size()})
      .add("pmd_size", uint64_t{lab::pmd_size()})
      .add("epan", lab::execute_only_is_enforced())
      .print();
  // A child of its own, so that a crash of it is reported rather than a panic.
  const pid_t child = fork();
  if (child == 0) _exit(run(arguments));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Line end("end");
  if (WIFEXITED(status)) {
    end.add("status", WEXITSTATUS(status));
  } else {
    end.add("status", 128 + WTERMSIG(status)).add("signal", strsignal(WTERMSIG(status)));
  }
  end.print();
  fflush(stdout);
  sync();
  reboot(RB_POWER_OFF);
  return 1;
}
