// SPDX-License-Identifier: MIT
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include "child_process.h"
#include "oracle.h"

namespace touchstone::arch::opcheck {
namespace {

static_assert(std::endian::native == std::endian::little,
              "words are written as they lie in memory");

// A file that holds words and lives as long as this.
class WordFile {
 public:
  WordFile() = default;
  WordFile(const WordFile&) = delete;
  WordFile& operator=(const WordFile&) = delete;
  ~WordFile() {
    if (fd_ >= 0) {
      close(fd_);
      unlink(path_.c_str());
    }
  }

  std::expected<void, std::string> write_words(std::span<const std::uint32_t> words) {
    const char* const folder = std::getenv("TMPDIR");
    path_ = fmt::format("{}/touchstone-opcheck.XXXXXX",
                        folder != nullptr && *folder != '\0' ? folder : "/tmp");
    fd_ = mkostemp(path_.data(), O_CLOEXEC);
    if (fd_ < 0) return failure();
    std::span<const std::byte> rest = std::as_bytes(words);
    while (!rest.empty()) {
      const ssize_t count = write(fd_, rest.data(), rest.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return failure();
      rest = rest.subspan(static_cast<std::size_t>(count));
    }
    return {};
  }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[nodiscard]] std::unexpected<std::string> failure() const {
    return std::unexpected(fmt::format("{}: {}", path_, strerrordesc_np(errno)));
  }

  std::string path_;
  int fd_ = -1;
};

// The parts of a line such as "   4:\tldadd\tw1, w2, [x0]".
struct Line {
  std::uint64_t address = 0;
  std::string_view mnemonic;
  std::string_view operands;
};

std::optional<Line> parse_line(std::string_view text) {
  const std::size_t start = text.find_first_not_of(' ');
  if (start == std::string_view::npos) return std::nullopt;
  Line line;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data() + start, end, line.address, 16);
  if (status != std::errc{} || end - stop < 2 || stop[0] != ':' || stop[1] != '\t') {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(stop + 2 - text.data()));
  const std::size_t tab = text.find('\t');
  line.mnemonic = text.substr(0, tab);
  if (tab != std::string_view::npos) line.operands = text.substr(tab + 1);
  return line;
}

class ObjdumpOracle final : public Oracle {
 public:
  explicit ObjdumpOracle(std::string program) : program_(std::move(program)) {}

  std::expected<void, std::string> decode(std::span<const std::uint32_t> words,
                                          std::span<const Reading*> readings) override {
    return list(words, [&](std::size_t index, const Line& line) {
      readings[index] =
          line.mnemonic == ".inst" ? nullptr : table_.intern(line.mnemonic, line.operands);
    });
  }

  std::expected<std::optional<std::string>, std::string> text(std::uint32_t word) override {
    std::optional<std::string> text;
    auto done = list(std::span(&word, 1), [&](std::size_t, const Line& line) {
      if (line.mnemonic == ".inst") return;
      const std::string_view operands = line.operands.substr(0, line.operands.find('\t'));
      text = fmt::format("{} {}", line.mnemonic, operands);
    });
    if (!done) return std::unexpected(std::move(done.error()));
    return text;
  }

 private:
  template <typename OnLine>
  std::expected<void, std::string> list(std::span<const std::uint32_t> words, OnLine on_line) {
    WordFile file;
    if (auto written = file.write_words(words); !written) return written;
    std::size_t next = 0;
    auto done = run_program({program_, "-D", "-z", "-b", "binary", "-m", "aarch64", "-EL",
                             "--no-show-raw-insn", file.path()},
                            [&](std::string_view text) {
                              const std::optional<Line> line = parse_line(text);
                              if (!line || line->address != next * 4 || next == words.size())
                                return;
                              on_line(next++, *line);
                            });
    if (done && next != words.size()) {
      return std::unexpected(fmt::format("{} listed {} of {} words", program_, next, words.size()));
    }
    return done;
  }

  std::string program_;
  ReadingTable table_;
};

class ObjdumpSource final : public OracleSource {
 public:
  ObjdumpSource(std::string program, OracleVersion version)
      : program_(std::move(program)), version_(version) {}

  OracleKind kind() const override { return OracleKind::kObjdump; }
  OracleVersion version() const override { return version_; }
  std::string location() const override { return program_; }
  std::expected<std::unique_ptr<Oracle>, std::string> open() const override {
    return std::make_unique<ObjdumpOracle>(program_);
  }

 private:
  std::string program_;
  OracleVersion version_;
};

// The version at the end of "GNU objdump (GNU Binutils for Debian) 2.40"; nothing for another
// program's line.
std::optional<OracleVersion> parse_version(std::string_view line) {
  if (!line.starts_with("GNU objdump")) return std::nullopt;
  const std::size_t space = line.rfind(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const char* position = line.data() + space + 1;
  const char* const end = line.data() + line.size();
  OracleVersion version;
  for (unsigned* const part : {&version.major, &version.minor, &version.patch}) {
    const auto [stop, status] = std::from_chars(position, end, *part);
    if (status != std::errc{}) break;
    position = stop;
    if (position == end || *position != '.') break;
    ++position;
  }
  if (version == OracleVersion{}) return std::nullopt;
  return version;
}

std::expected<std::unique_ptr<OracleSource>, std::string> try_program(const std::string& program) {
  std::optional<OracleVersion> version;
  bool first = true;
  auto done = run_program({program, "--version"}, [&](std::string_view line) {
    if (std::exchange(first, false)) version = parse_version(line);
  });
  if (!done) return std::unexpected(std::move(done.error()));
  if (!version) return std::unexpected(fmt::format("{} is not GNU objdump", program));
  bool knows_arm64 = false;
  done = run_program({program, "-i"}, [&](std::string_view line) {
    if (line.find("elf64-littleaarch64") != std::string_view::npos) knows_arm64 = true;
  });
  if (!done) return std::unexpected(std::move(done.error()));
  if (!knows_arm64) return std::unexpected(fmt::format("{} does not know arm64", program));
  return std::make_unique<ObjdumpSource>(program, *version);
}

}  // namespace

std::expected<std::unique_ptr<OracleSource>, std::string> find_objdump(const std::string& program) {
  if (!program.empty()) return try_program(program);
  std::string reasons;
  for (const char* const name : {"aarch64-linux-gnu-objdump", "objdump"}) {
    auto source = try_program(name);
    if (source) return source;
    if (!reasons.empty()) reasons += "; ";
    reasons += source.error();
  }
  return std::unexpected(reasons);
}

}  // namespace touchstone::arch::opcheck
