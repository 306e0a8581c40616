// SPDX-License-Identifier: MIT
#include "process_code.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "elf_image.h"

namespace touchstone::arch::opcheck {
namespace {

// Executable memory beyond this is left out, and said so.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30U;
constexpr std::size_t kChunk = std::size_t{1} << 20U;

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

struct Mapping {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  dev_t device = 0;
  std::uint64_t inode = 0;
  bool readable = false;
  std::string path;
};

Error system_error(const char* operation) {
  return {.code = code_of_errno(errno), .operation = operation, .system_errno = errno};
}

std::optional<Mapping> parse_mapping(const std::string& line) {
  Mapping mapping;
  std::array<char, 5> permissions{};
  unsigned major_number = 0;
  unsigned minor_number = 0;
  int path_at = 0;
  // NOLINTNEXTLINE(*-string-to-number-conversion): written by the kernel, and counted
  if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n",
                  &mapping.start, &mapping.end, permissions.data(), &mapping.offset, &major_number,
                  &minor_number, &mapping.inode, &path_at) < 7 ||
      mapping.start >= mapping.end) {
    return std::nullopt;
  }
  mapping.device = makedev(major_number, minor_number);
  mapping.readable = permissions[0] == 'r';
  if (path_at > 0 && static_cast<std::size_t>(path_at) < line.size()) {
    mapping.path = line.substr(static_cast<std::size_t>(path_at));
  }
  if (permissions[2] != 'x') return std::nullopt;
  return mapping;
}

// As much of the mapping as can be read from its start.
std::vector<std::byte> read_memory(int memory, std::uint64_t start, std::uint64_t size) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::pread(memory, bytes.data() + have, std::min(kChunk, bytes.size() - have),
                                static_cast<off_t>(start + have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

class Collector {
 public:
  Collector(std::string root, ProcessCode& code) : root_(std::move(root)), code_(code) {}

  void add(const Mapping& mapping, std::span<const std::byte> bytes) {
    CodeImage& image = code_.image;
    container_ = static_cast<std::uint32_t>(image.containers.size());
    image.containers.push_back({.name = mapping.path.empty() ? "anonymous memory" : mapping.path,
                                .execute_only = !mapping.readable});
    image.execute_only |= !mapping.readable;
    const CodeImage* const file = file_of(mapping);
    if (file == nullptr || !add_from_file(*file, mapping, bytes)) {
      add_range(mapping.start, mapping.start + bytes.size(), mapping, bytes);
    }
  }

 private:
  // The file the mapping shows, if it is still there and is arm64 ELF.
  const CodeImage* file_of(const Mapping& mapping) {
    if (mapping.inode == 0 || mapping.path.empty() || mapping.path[0] != '/') return nullptr;
    const auto known = std::find_if(images_.begin(), images_.end(),
                                    [&](const auto& entry) { return entry.first == mapping.path; });
    if (known != images_.end()) return known->second.get();
    auto& entry = images_.emplace_back(mapping.path, nullptr);
    const std::string path = root_ + mapping.path;
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0 || status.st_dev != mapping.device ||
        status.st_ino != mapping.inode) {
      return nullptr;
    }
    auto bytes = FileBytes::open(path);
    if (!bytes || !is_elf(bytes->bytes())) return nullptr;
    code_.files.push_back(std::move(*bytes));
    auto image = read_elf(code_.files.back().bytes());
    if (!image) return nullptr;
    entry.second = std::make_unique<CodeImage>(std::move(*image));
    return entry.second.get();
  }

  bool add_from_file(const CodeImage& file, const Mapping& mapping,
                     std::span<const std::byte> bytes) {
    for (const CodeImage::Segment& segment : file.segments) {
      if (mapping.offset < (segment.offset & ~std::uint64_t{0xfff}) ||
          mapping.offset >= segment.offset + segment.size) {
        continue;
      }
      // Address in the process minus address in the file, modulo 2^64.
      const std::uint64_t bias =
          mapping.start - (segment.address + (mapping.offset - segment.offset));
      for (const CodeRange& range : file.ranges) {
        add_range(range.address + bias, range.end() + bias, mapping, bytes);
      }
      for (CodeSymbol symbol : file.functions) {
        symbol.address += bias;
        if (symbol.address >= mapping.start && symbol.address < mapping.end) {
          code_.image.functions.push_back(symbol);
        }
      }
      return true;
    }
    return false;
  }

  void add_range(std::uint64_t start, std::uint64_t end, const Mapping& mapping,
                 std::span<const std::byte> bytes) {
    start = std::max(start, mapping.start);
    end = std::min(end, mapping.start + bytes.size()) & ~std::uint64_t{3};
    if (start >= end || start % 4 != 0) return;
    code_.image.ranges.push_back(
        {.address = start,
         .bytes = bytes.subspan(static_cast<std::size_t>(start - mapping.start),
                                static_cast<std::size_t>(end - start)),
         .container = container_});
  }

  std::string root_;
  ProcessCode& code_;
  std::uint32_t container_ = 0;
  std::vector<std::pair<std::string, std::unique_ptr<CodeImage>>> images_;
};

}  // namespace

Result<ProcessCode> read_process(pid_t pid, const std::string& proc) {
  const std::string directory = proc + "/" + std::to_string(pid);
  const Descriptor program(::open((directory + "/exe").c_str(), O_RDONLY | O_CLOEXEC));
  if (program.get() < 0) return std::unexpected(system_error("open /proc/PID/exe"));
  std::array<std::byte, 64> header{};
  const ssize_t got = ::read(program.get(), header.data(), header.size());
  if (got < 0) return std::unexpected(system_error("read /proc/PID/exe"));
  const auto start = std::span<const std::byte>(header).first(static_cast<std::size_t>(got));
  ProcessCode code;
  code.image.kind = "process";
  if (is_x86_elf(start)) {
    code.is_x86 = true;
    return code;
  }
  if (const auto usable = check_arm64_elf(start); !usable) return std::unexpected(usable.error());

  std::ifstream maps(directory + "/maps");
  if (!maps) return std::unexpected(system_error("open /proc/PID/maps"));
  const Descriptor memory(::open((directory + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  if (memory.get() < 0) return std::unexpected(system_error("open /proc/PID/mem"));
  Collector collector(directory + "/root", code);
  std::uint64_t total = 0;
  bool incomplete = false;
  for (std::string line; std::getline(maps, line);) {
    const auto mapping = parse_mapping(line);
    if (!mapping) continue;
    const std::uint64_t size = mapping->end - mapping->start;
    if (size > kMaxBytes - total) {
      incomplete = true;
      continue;
    }
    auto bytes = read_memory(memory.get(), mapping->start, size);
    incomplete |= bytes.size() < size;
    if (bytes.empty()) continue;
    total += bytes.size();
    code.memory.push_back(std::move(bytes));
    collector.add(*mapping, code.memory.back());
  }
  if (incomplete) code.image.notes.emplace_back("some executable memory could not be read");
  if (code.image.ranges.empty()) code.image.notes.emplace_back("holds no code");
  std::sort(code.image.ranges.begin(), code.image.ranges.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.address < b.address; });
  // Two sections of a hostile file may cover one another: what comes later is cut.
  std::uint64_t covered = 0;
  std::erase_if(code.image.ranges, [&covered](const CodeRange& range) {
    if (range.address < covered) return true;
    covered = range.end();
    return false;
  });
  sort_functions(code.image.functions);
  return code;
}

}  // namespace touchstone::arch::opcheck
