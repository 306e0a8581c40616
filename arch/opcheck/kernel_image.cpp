// SPDX-License-Identifier: MIT
#include "kernel_image.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace touchstone::arch::opcheck {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kFlagsAt = 24;
constexpr std::size_t kMagicAt = 56;
constexpr std::size_t kPeOffsetAt = 60;
// PE: signature, COFF header, then 40 bytes a section.
constexpr std::size_t kCoffBytes = 24;
constexpr std::size_t kSectionBytes = 40;
constexpr std::uint32_t kSectionIsExecutable = 0x20000000;
constexpr std::uint16_t kPeArm64 = 0xaa64;

Error bad(const char* detail) {
  return {.code = ErrorCode::kInvalidArgument, .operation = "kernel image", .detail = detail};
}

std::uint16_t half_at(std::span<const std::byte> bytes, std::size_t offset) noexcept {
  std::uint16_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

void add_code(CodeImage& image, std::span<const std::byte> file, std::size_t offset,
              std::size_t size, std::string name) {
  const std::size_t start = (offset + 3) & ~std::size_t{3};
  const std::size_t end = (offset + size) & ~std::size_t{3};
  if (start >= end) return;
  image.ranges.push_back({.address = start,
                          .bytes = file.subspan(start, end - start),
                          .container = static_cast<std::uint32_t>(image.containers.size())});
  image.containers.push_back({.name = std::move(name)});
}

}  // namespace

bool is_kernel_image(std::span<const std::byte> file) noexcept {
  return file.size() >= kHeaderBytes && std::memcmp(file.data() + kMagicAt, "ARM\x64", 4) == 0;
}

Result<CodeImage> read_kernel_image(std::span<const std::byte> file) {
  if (!is_kernel_image(file)) return std::unexpected(bad("no arm64 kernel image"));
  if ((load_word(file, kFlagsAt) & 1) != 0) {
    return std::unexpected(Error{.code = ErrorCode::kUnsupported,
                                 .operation = "kernel image",
                                 .detail = "big-endian arm64"});
  }
  CodeImage image;
  image.kind = "kernel image";
  const std::size_t pe = load_word(file, kPeOffsetAt);
  const bool has_pe = pe >= kHeaderBytes && pe <= file.size() && file.size() - pe >= kCoffBytes &&
                      std::memcmp(file.data() + pe, "PE\0\0", 4) == 0 &&
                      half_at(file, pe + 4) == kPeArm64;
  if (has_pe) {
    const std::size_t count = half_at(file, pe + 6);
    const std::size_t table = pe + kCoffBytes + half_at(file, pe + 20);
    if (table > file.size() || count * kSectionBytes > file.size() - table) {
      return std::unexpected(bad("PE section headers past the end of the file"));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t header = table + i * kSectionBytes;
      if ((load_word(file, header + 36) & kSectionIsExecutable) == 0) continue;
      const std::size_t size = load_word(file, header + 16);
      const std::size_t offset = load_word(file, header + 20);
      if (offset > file.size() || size > file.size() - offset) {
        return std::unexpected(bad("a PE code section past the end of the file"));
      }
      const auto* const name = reinterpret_cast<const char*>(file.data()) + header;
      add_code(image, file, offset, size, std::string(name, strnlen(name, 8)));
    }
    std::sort(image.ranges.begin(), image.ranges.end(),
              [](const CodeRange& a, const CodeRange& b) { return a.address < b.address; });
    for (std::size_t i = 1; i < image.ranges.size(); ++i) {
      if (image.ranges[i].address < image.ranges[i - 1].end()) {
        return std::unexpected(bad("PE code sections overlap"));
      }
    }
    if (image.ranges.empty()) image.notes.emplace_back("holds no code");
  } else {
    add_code(image, file, 0, file.size(), "image");
    image.notes.emplace_back("no PE header: the whole image is decoded, data in it included");
  }
  return image;
}

}  // namespace touchstone::arch::opcheck
