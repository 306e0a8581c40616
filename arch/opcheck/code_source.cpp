// SPDX-License-Identifier: MIT
#include "code_source.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include <ar.h>
#include <libelf.h>

#include "elf_image.h"
#include "kernel_image.h"

namespace touchstone::arch::opcheck {
namespace {

Error bad(const char* operation, const char* detail) {
  return {.code = ErrorCode::kInvalidArgument, .operation = operation, .detail = detail};
}

Error unsupported(const char* operation, const char* detail) {
  return {.code = ErrorCode::kUnsupported, .operation = operation, .detail = detail};
}

bool starts_with(std::span<const std::byte> file, std::string_view magic,
                 std::size_t offset = 0) noexcept {
  return file.size() >= offset + magic.size() &&
         std::memcmp(file.data() + offset, magic.data(), magic.size()) == 0;
}

std::optional<std::uint64_t> decimal_field(std::string_view text) noexcept {
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');  // 10 digits at most: no overflow
  }
  return value;
}

// The number of members, from the chain of their headers, before libelf walks it: each whole, with
// a sane size, inside the file. libelf follows sizes as they are.
Result<std::size_t> check_archive(std::span<const std::byte> file) {
  std::size_t members = 0;
  std::size_t at = SARMAG;
  while (at < file.size()) {
    if (file.size() - at < sizeof(ar_hdr)) {
      return std::unexpected(bad("archive", "a truncated member header"));
    }
    ar_hdr header;
    std::memcpy(&header, file.data() + at, sizeof header);
    const auto size = decimal_field({header.ar_size, sizeof header.ar_size});
    if (std::memcmp(header.ar_fmag, ARFMAG, sizeof header.ar_fmag) != 0 || !size) {
      return std::unexpected(bad("archive", "a broken member header"));
    }
    // A name that starts so is the archive's symbol or name table; "/12" is a name in the latter.
    const std::string_view name(header.ar_name, sizeof header.ar_name);
    if (!name.starts_with("/ ") && !name.starts_with("// ") && !name.starts_with("/SYM64/")) {
      ++members;
    }
    at += sizeof header;
    if (*size > file.size() - at) {
      return std::unexpected(bad("archive", "a member past the end of the file"));
    }
    at += static_cast<std::size_t>(*size);
    at += at % 2;
  }
  return members;
}

struct ElfEnd {
  void operator()(Elf* elf) const noexcept { elf_end(elf); }
};
using ElfHandle = std::unique_ptr<Elf, ElfEnd>;

Result<CodeSource> read_archive(std::span<const std::byte> file, const CodeVisitor& visit) {
  const auto expected = check_archive(file);
  if (!expected) return std::unexpected(expected.error());
  if (elf_version(EV_CURRENT) == EV_NONE) {
    return std::unexpected(bad("archive", "libelf is too old"));
  }
  CodeSource source;
  source.kind = "archive";
  if (file.size() == SARMAG) return source;
  // libelf takes the image as writable, and does not write to it unless told to.
  const ElfHandle archive(
      elf_memory(const_cast<char*>(reinterpret_cast<const char*>(file.data())),  // NOLINT
                 file.size()));
  if (!archive || elf_kind(archive.get()) != ELF_K_AR) {
    return std::unexpected(bad("archive", "libelf refuses the archive"));
  }
  std::int64_t last_base = -1;
  std::size_t seen = 0;
  for (Elf_Cmd command = ELF_C_READ_MMAP; command != ELF_C_NULL;) {
    const ElfHandle member(elf_begin(-1, command, archive.get()));
    if (!member) break;
    const Elf_Arhdr* const header = elf_getarhdr(member.get());
    const std::int64_t base = elf_getbase(member.get());
    if (header == nullptr || base <= last_base || static_cast<std::uint64_t>(base) > file.size() ||
        header->ar_size < 0 ||
        static_cast<std::uint64_t>(header->ar_size) >
            file.size() - static_cast<std::uint64_t>(base)) {
      return std::unexpected(bad("archive", "a broken member header"));
    }
    last_base = base;
    const std::string_view name = header->ar_name != nullptr ? header->ar_name : "";
    const auto bytes =
        file.subspan(static_cast<std::size_t>(base), static_cast<std::size_t>(header->ar_size));
    if (name == "/" || name == "//" || name == "/SYM64/" || name.starts_with("__.SYMDEF")) {
      command = elf_next(member.get());
      continue;  // the archive's own tables
    }
    ++seen;
    if (is_x86_elf(bytes)) {
      ++source.x86;
    } else if (is_elf(bytes)) {
      auto image = read_elf(bytes);
      if (!image) return std::unexpected(image.error());
      ++source.members;
      visit(name, std::move(*image));
    } else {
      ++source.not_elf;
    }
    command = elf_next(member.get());
  }
  if (seen != *expected) return std::unexpected(bad("archive", "libelf refuses a member"));
  return source;
}

}  // namespace

Result<CodeSource> read_code(std::span<const std::byte> file, const CodeVisitor& visit) {
  if (starts_with(file, ARMAG)) return read_archive(file, visit);
  if (starts_with(file, "!<thin>\n")) {
    return std::unexpected(
        unsupported("archive", "a thin archive: give its members, which are files of their own"));
  }
  CodeSource source;
  if (is_x86_elf(file)) {
    source.kind = "x86 program";
    source.x86 = 1;
    return source;
  }
  Result<CodeImage> image = std::unexpected(Error{});
  if (is_elf(file)) {
    image = read_elf(file);
  } else if (is_kernel_image(file)) {
    image = read_kernel_image(file);
  } else if (starts_with(file, "\x1f\x8b") || starts_with(file, "zimg", 4)) {
    image = std::unexpected(
        unsupported("file", "compressed: if it is a kernel, unpack it to an Image first"));
  } else {
    image =
        std::unexpected(bad("file", "neither an ELF file, an archive nor an arm64 kernel image"));
  }
  if (!image) return std::unexpected(image.error());
  source.kind = image->kind;
  source.members = 1;
  visit("", std::move(*image));
  return source;
}

}  // namespace touchstone::arch::opcheck
