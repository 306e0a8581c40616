// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_ARCH_FAKE_ROOTS_H_
#define TOUCHSTONE_TESTS_ARCH_FAKE_ROOTS_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <touchstone/arch/machine.h>

namespace touchstone::arch::testing {

/// A folder with a proc and a sys of its own, gone at the end.
class FakeRoots {
 public:
  FakeRoots() {
    std::string name = (std::filesystem::temp_directory_path() / "touchstone-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    folder_ = name;
    std::filesystem::create_directories(folder_ / "proc");
    std::filesystem::create_directories(folder_ / "sys");
  }
  FakeRoots(const FakeRoots&) = delete;
  FakeRoots& operator=(const FakeRoots&) = delete;
  ~FakeRoots() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  [[nodiscard]] SystemRoots roots() const {
    return {.prefix = folder_, .proc = folder_ / "proc", .sys = folder_ / "sys"};
  }

  /// Writes a file such as "sys/kernel/mm/transparent_hugepage/enabled".
  void write(const std::string& path, std::string_view text) const {
    const std::filesystem::path file = folder_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::trunc) << text;
  }
  /// A file that can be opened and not read, even by root: a folder.
  void make_unreadable(const std::string& path) const {
    std::filesystem::remove_all(folder_ / path);
    std::filesystem::create_directories(folder_ / path);
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(folder_ / path); }

  /// Files of the transparent_hugepage folder.
  void write_thp(const std::string& name, std::string_view text) const {
    write("sys/kernel/mm/transparent_hugepage/" + name, text);
  }

  /// This process in a v2 cgroup of that path, the tree mounted at /cg, showing `root`.
  void write_v2_membership(std::string_view path, std::string_view root = "/") const {
    write("proc/self/cgroup", "0::" + std::string(path) + "\n");
    write("proc/self/mountinfo", "22 1 0:20 / /proc rw shared:1 - proc proc rw\n30 22 0:26 " +
                                     std::string(root) +
                                     " /cg rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  /// The same for a v1 memory controller, beside a v2 tree without one.
  void write_v1_membership(std::string_view path, std::string_view root = "/") const {
    write("proc/self/cgroup",
          "3:cpu,cpuacct:/a\n2:memory:" + std::string(path) + "\n1:name=systemd:/\n0::/b\n");
    write("proc/self/mountinfo",
          "30 22 0:26 /b /cg2 rw - cgroup2 cgroup2 rw\n31 22 0:27 /a "
          "/cpu rw - cgroup cgroup rw,cpu,cpuacct\n32 22 0:28 " +
              std::string(root) + " /cg rw - cgroup cgroup rw,memory\n");
  }
  void write_v2_level(const std::string& path, std::string_view max, std::uint64_t current,
                      std::uint64_t file = 0, std::uint64_t slab = 0) const {
    write("cg" + path + "/memory.max", std::string(max) + "\n");
    write("cg" + path + "/memory.current", std::to_string(current) + "\n");
    write("cg" + path + "/memory.stat",
          "anon 4096\nfile " + std::to_string(file) + "\nactive_file " + std::to_string(file / 2) +
              "\ninactive_file " + std::to_string(file - file / 2) + "\nslab_reclaimable " +
              std::to_string(slab) + "\nslab_unreclaimable 8192\n");
  }
  void write_v1_level(const std::string& path, std::uint64_t limit, std::uint64_t usage,
                      std::uint64_t file = 0) const {
    write("cg" + path + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    write("cg" + path + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
    write("cg" + path + "/memory.stat",
          "cache 1\nactive_file 3\ntotal_cache 1\ntotal_active_file " + std::to_string(file) +
              "\ntotal_inactive_file 0\n");
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace touchstone::arch::testing

#endif  // TOUCHSTONE_TESTS_ARCH_FAKE_ROOTS_H_
