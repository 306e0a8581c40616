// SPDX-License-Identifier: MIT
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "code_inventory.h"
#include "code_source.h"
#include "elf_image.h"
#include "file_bytes.h"
#include "process_code.h"
#include "scan_elf_builder.h"
#include "touch_loops.h"

namespace touchstone::arch::opcheck {
namespace {

using testing::Bytes;
using ::testing::ElementsAre;
using testing::ElfBuilder;
using testing::get;
using ::testing::HasSubstr;
using testing::kLdaddZero;
using testing::kNop;
using testing::kRet;
using testing::make_archive;
using testing::make_kernel_image;
using testing::put;
using testing::touch_loop;

ElfBuilder touching_program() {
  ElfBuilder builder;
  builder.code = touch_loop();
  builder.symbols = {{.name = "touch", .value = ElfBuilder::kCode, .size = 20}};
  return builder;
}

std::string reason(const Bytes& file) {
  const auto source = read_code(file, [](std::string_view, CodeImage&&) {});
  return source ? "" : source.error().detail;
}

std::uint64_t lse_atomics(const Bytes& file) {
  std::uint64_t count = 0;
  const auto source = read_code(file, [&count](std::string_view, CodeImage&& image) {
    count += take_inventory(image).lse_atomics;
  });
  EXPECT_TRUE(source.has_value()) << source.error().detail;
  return count;
}

TEST(ScanElf, ReadsCodeSymbolsAndLoops) {
  ElfBuilder builder = touching_program();
  const Bytes file = builder.build();
  const auto image = read_elf(file);
  ASSERT_TRUE(image) << image.error().detail;
  ASSERT_EQ(image->ranges.size(), 1U);
  EXPECT_EQ(image->ranges[0].address, ElfBuilder::kCode);
  EXPECT_EQ(image->code_bytes(), 20U);
  ASSERT_NE(image->find_function(ElfBuilder::kCode + 16), nullptr);
  EXPECT_EQ(image->find_function(ElfBuilder::kCode + 16)->name, "touch");
  EXPECT_EQ(image->find_function(ElfBuilder::kCode + 20), nullptr);
  const TouchLoops found = find_touch_loops(*image);
  ASSERT_EQ(found.loops.size(), 1U);
  EXPECT_EQ(found.loops[0].site, ElfBuilder::kCode);
  EXPECT_EQ(found.loops[0].stride, 4096);
  EXPECT_EQ(found.loops[0].operation, "add 0");
}

TEST(ScanElf, MappingSymbolsTakeLiteralPoolsOut) {
  ElfBuilder builder;
  // Code, a pool whose words look like atomics, code again.
  builder.code = {kLdaddZero, kRet, kLdaddZero, kLdaddZero, kLdaddZero, kRet};
  EXPECT_EQ(lse_atomics(builder.build()), 4U);
  const auto mapping = [](const char* name, std::uint64_t offset) {
    return ElfBuilder::Symbol{
        .name = name, .value = ElfBuilder::kCode + offset, .type = STT_NOTYPE};
  };
  builder.symbols = {mapping("$x", 0), mapping("$d", 8), mapping("$x.7", 16)};
  EXPECT_EQ(lse_atomics(builder.build()), 2U);
  builder.symbols = {mapping("$d", 0)};
  EXPECT_EQ(lse_atomics(builder.build()), 0U);
  builder.symbols = {mapping("$dollar", 0)};  // an ordinary name
  EXPECT_EQ(lse_atomics(builder.build()), 4U);
}

TEST(ScanElf, WithoutSectionsOrSymbolsSegmentsAreDecoded) {
  ElfBuilder builder = touching_program();
  builder.with_sections = false;
  const Bytes file = builder.build();
  const auto image = read_elf(file);
  ASSERT_TRUE(image) << image.error().detail;
  EXPECT_THAT(image->notes, ElementsAre(HasSubstr("whole executable segments")));
  EXPECT_EQ(find_touch_loops(*image).loops.size(), 1U);
}

TEST(ScanElf, CoreFilesAreTakenBySegment) {
  ElfBuilder builder = touching_program();
  builder.with_sections = false;
  builder.type = ET_CORE;
  const Bytes file = builder.build();
  const auto image = read_elf(file);
  ASSERT_TRUE(image) << image.error().detail;
  EXPECT_EQ(image->kind, "core file");
  EXPECT_EQ(find_touch_loops(*image).loops.size(), 1U);
}

TEST(ScanElf, ExecuteOnlySegmentsAreTold) {
  ElfBuilder builder = touching_program();
  EXPECT_FALSE(read_elf(builder.build())->execute_only);
  builder.segment_flags = PF_X;
  const Bytes file = builder.build();
  const auto image = read_elf(file);
  ASSERT_TRUE(image);
  EXPECT_TRUE(image->execute_only);
  EXPECT_TRUE(image->containers.at(0).execute_only);
}

TEST(ScanElf, RelocatableFilesAndArchives) {
  ElfBuilder builder = touching_program();
  builder.type = ET_REL;
  builder.symbols[0].value = 0;
  const Bytes object = builder.build();
  ElfBuilder other = touching_program();
  other.machine = EM_X86_64;
  const Bytes archive =
      make_archive({{"a.o", object}, {"odd", Bytes(3)}, {"b.o", object}, {"x86.o", other.build()}});
  std::vector<std::string> members;
  std::size_t loops = 0;
  const auto source = read_code(archive, [&](std::string_view member, CodeImage&& image) {
    members.emplace_back(member);
    loops += find_touch_loops(image).loops.size();
    EXPECT_EQ(image.functions.at(0).name, "touch");
  });
  ASSERT_TRUE(source) << source.error().detail;
  EXPECT_THAT(members, ElementsAre("a.o", "b.o"));
  EXPECT_EQ(loops, 2U);
  EXPECT_EQ(source->kind, "archive");
  EXPECT_EQ(source->members, 2U);
  EXPECT_EQ(source->x86, 1U);
  EXPECT_EQ(source->not_elf, 1U);
}

TEST(ScanElf, BrokenArchives) {
  ElfBuilder builder = touching_program();
  const Bytes archive = make_archive({{"a.o", builder.build()}});
  Bytes cut = archive;
  cut.resize(cut.size() - 2);
  EXPECT_EQ(reason(cut), "a member past the end of the file");
  cut.resize(30);
  EXPECT_EQ(reason(cut), "a truncated member header");
  Bytes negative = archive;
  std::memcpy(negative.data() + 8 + 48, "-60       ", 10);
  EXPECT_EQ(reason(negative), "a broken member header");
  Bytes thin = archive;
  std::memcpy(thin.data(), "!<thin>\n", 8);
  EXPECT_THAT(reason(thin), HasSubstr("thin archive"));
}

TEST(ScanElf, KernelImages) {
  const Bytes file = make_kernel_image(touch_loop());
  std::size_t loops = 0;
  const auto source = read_code(file, [&loops](std::string_view, CodeImage&& image) {
    loops += find_touch_loops(image).loops.size();
  });
  ASSERT_TRUE(source) << source.error().detail;
  EXPECT_EQ(source->kind, "kernel image");
  EXPECT_EQ(loops, 1U);

  // With a PE header only its code section counts.
  Bytes with_pe = file;
  const std::size_t pe = with_pe.size();
  put(with_pe, 60, static_cast<std::uint32_t>(pe));
  put(with_pe, pe, std::uint32_t{0x00004550});
  put(with_pe, pe + 4, std::uint16_t{0xaa64});
  put(with_pe, pe + 6, std::uint16_t{1});
  put(with_pe, pe + 20, std::uint16_t{0});
  put(with_pe, pe + 24, std::array<char, 8>{'.', 't', 'e', 'x', 't'});
  put(with_pe, pe + 24 + 16, std::uint32_t{4});
  put(with_pe, pe + 24 + 20, std::uint32_t{64});
  put(with_pe, pe + 24 + 36, std::uint32_t{0x20000000});
  EXPECT_EQ(lse_atomics(with_pe), 1U);
  put(with_pe, pe + 24 + 16, std::uint32_t{1U << 30U});
  EXPECT_EQ(reason(with_pe), "a PE code section past the end of the file");

  Bytes big_endian = file;
  big_endian[24] = std::byte{1};
  EXPECT_EQ(reason(big_endian), "big-endian arm64");
}

TEST(ScanElf, OtherMachines) {
  ElfBuilder builder = touching_program();
  builder.machine = EM_ARM;
  EXPECT_EQ(reason(builder.build()), "32-bit ARM, not arm64");
  builder.machine = EM_RISCV;
  EXPECT_EQ(reason(builder.build()), "for another machine than arm64");
  builder.machine = EM_AARCH64;
  Bytes file = builder.build();
  file[EI_DATA] = std::byte{ELFDATA2MSB};
  std::swap(file[18], file[19]);
  EXPECT_EQ(reason(file), "big-endian arm64");
  file = builder.build();
  file[EI_CLASS] = std::byte{ELFCLASS32};
  EXPECT_EQ(reason(file), "ILP32 arm64");
  builder.machine = EM_X86_64;
  file = builder.build();
  const auto source = read_code(file, [](std::string_view, CodeImage&&) { FAIL(); });
  ASSERT_TRUE(source) << source.error().detail;
  EXPECT_EQ(source->x86, 1U);
  EXPECT_EQ(source->members, 0U);
}

TEST(ScanElf, EveryTruncationIsRefusedOrRead) {
  ElfBuilder builder = touching_program();
  const Bytes file = builder.build();
  for (std::size_t size = 0; size < file.size(); ++size) {
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    // The section headers come last, so nothing short of the whole can be right.
    EXPECT_NE(reason(cut), "") << size;
  }
  EXPECT_EQ(reason(file), "");
}

TEST(ScanElf, LyingHeaders) {
  ElfBuilder builder = touching_program();
  const Bytes file = builder.build();
  const auto with = [&](std::size_t section, std::size_t field, auto value) {
    Bytes broken = file;
    put(broken, builder.header_of(section) + field, value);
    return reason(broken);
  };
  constexpr std::size_t kOffset = offsetof(Elf64_Shdr, sh_offset);
  constexpr std::size_t kSize = offsetof(Elf64_Shdr, sh_size);
  constexpr std::size_t kLink = offsetof(Elf64_Shdr, sh_link);
  EXPECT_EQ(with(ElfBuilder::kTextSection, kSize, std::uint64_t{1} << 40U),
            "a code section past the end of the file");
  EXPECT_EQ(with(ElfBuilder::kTextSection, kOffset, ~std::uint64_t{0}),
            "a code section past the end of the file");
  EXPECT_EQ(with(ElfBuilder::kTextSection, offsetof(Elf64_Shdr, sh_addr), ~std::uint64_t{3}),
            "a code section past the end of the address space");
  EXPECT_EQ(with(ElfBuilder::kSymbolSection, kSize, ~std::uint64_t{0}),
            "a section past the end of the file");
  // Symbol loops: a table that names itself, or another, as its strings.
  EXPECT_EQ(with(ElfBuilder::kSymbolSection, kLink, std::uint32_t{ElfBuilder::kSymbolSection}),
            "a symbol table whose names are in no string table");
  EXPECT_EQ(with(ElfBuilder::kSymbolSection, kLink, std::uint32_t{99}),
            "a symbol table whose names are in no string table");
  EXPECT_EQ(with(ElfBuilder::kStringSection, kSize, std::uint64_t{1}),
            "a symbol name outside its string table");
  EXPECT_EQ(with(ElfBuilder::kStringSection, kSize, std::uint64_t{3}),  // no end within it
            "a symbol name outside its string table");
  EXPECT_EQ(with(ElfBuilder::kTextSection, offsetof(Elf64_Shdr, sh_name), std::uint32_t{1000}),
            "a section name outside its string table");
  // The string table made a second code section over the same bytes.
  Bytes overlapping = file;
  auto section = get<Elf64_Shdr>(file, builder.header_of(ElfBuilder::kTextSection));
  section.sh_addr += 0x1000;
  section.sh_offset += 4;
  section.sh_size -= 4;
  put(overlapping, builder.header_of(ElfBuilder::kSymbolSection), section);
  EXPECT_EQ(reason(overlapping), "code sections overlap in the file");
  section = get<Elf64_Shdr>(file, builder.header_of(ElfBuilder::kTextSection));
  section.sh_offset = 0;
  section.sh_size = 8;
  section.sh_addr += 4;
  put(overlapping, builder.header_of(ElfBuilder::kSymbolSection), section);
  EXPECT_EQ(reason(overlapping), "code sections overlap in memory");

  const auto with_header = [&](std::size_t field, auto value) {
    Bytes broken = file;
    put(broken, field, value);
    return reason(broken);
  };
  EXPECT_EQ(with_header(offsetof(Elf64_Ehdr, e_shoff), ~std::uint64_t{0}),
            "section headers past the end of the file");
  EXPECT_EQ(with_header(offsetof(Elf64_Ehdr, e_shnum), std::uint16_t{0xfeff}),
            "section headers past the end of the file");
  EXPECT_EQ(with_header(offsetof(Elf64_Ehdr, e_shentsize), std::uint16_t{8}),
            "section headers of a wrong size");
  EXPECT_EQ(with_header(offsetof(Elf64_Ehdr, e_phnum), std::uint16_t{0x7fff}),
            "program headers past the end of the file");
  EXPECT_EQ(with_header(offsetof(Elf64_Ehdr, e_shstrndx), std::uint16_t{1}),
            "section names in no string table");
  EXPECT_EQ(with_header(offsetof(Elf64_Ehdr, e_type), std::uint16_t{77}), "unknown file type");
}

TEST(ScanElf, FilesThatAreNone) {
  EXPECT_THAT(FileBytes::open("/nonexistent").error().message(), HasSubstr("No such file"));
  EXPECT_STREQ(FileBytes::open("/").error().detail, "a directory");
  EXPECT_STREQ(FileBytes::open("/dev/null").error().detail, "not a regular file");
  EXPECT_THAT(reason(Bytes(100)), HasSubstr("neither an ELF file"));
  Bytes compressed(20);
  compressed[0] = std::byte{0x1f};
  compressed[1] = std::byte{0x8b};
  EXPECT_THAT(reason(compressed), HasSubstr("compressed"));
}

// A process as procfs shows it, made of files.
class ScanProcess : public ::testing::Test {
 protected:
  ScanProcess() : directory_(::testing::TempDir() + "scan_process_" + std::to_string(getpid())) {
    std::filesystem::create_directories(directory_ + "/7/root");
  }
  ~ScanProcess() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const Bytes& bytes, std::streamoff at = 0) {
    std::ofstream file(directory_ + "/7/" + name, std::ios::binary);
    file.seekp(at);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  void write_maps(const std::string& text) { std::ofstream(directory_ + "/7/maps") << text; }

  std::string directory_;
};

TEST_F(ScanProcess, ExecutableMappingsOfAnArm64Process) {
  ElfBuilder builder = touching_program();
  write("exe", builder.build());
  const auto code = touch_loop();
  Bytes memory(code.size() * 4);
  std::memcpy(memory.data(), code.data(), memory.size());
  memory.resize(0x1000);
  write("mem", memory, 0x400000);
  write_maps(
      "00400000-00401000 --xp 00000000 00:00 0 \n"
      "00500000-00501000 rw-p 00000000 00:00 0          [heap]\n");
  const auto process = read_process(7, directory_);
  ASSERT_TRUE(process) << process.error().message();
  EXPECT_FALSE(process->is_x86);
  EXPECT_TRUE(process->image.execute_only);
  ASSERT_EQ(process->image.ranges.size(), 1U);
  const TouchLoops found = find_touch_loops(process->image);
  ASSERT_EQ(found.loops.size(), 1U);
  EXPECT_EQ(found.loops[0].site, 0x400000U);
}

TEST_F(ScanProcess, SymbolsComeFromTheMappedFileAndCodeFromMemory) {
  ElfBuilder builder = touching_program();
  const Bytes program = builder.build();
  write("exe", program);
  write("root/program", program);
  // In memory the atomic has been patched to a nop.
  Bytes memory = program;
  put(memory, 0x100, kNop);
  memory.resize(0x1000);
  write("mem", memory, 0x700000);
  struct stat status{};
  ASSERT_EQ(::stat((directory_ + "/7/root/program").c_str(), &status), 0);
  const auto maps = [&status](ino_t inode) {
    char line[128];
    std::snprintf(line, sizeof line, "00700000-00701000 r-xp 00000000 %02x:%02x %llu /program\n",
                  gnu_dev_major(status.st_dev), gnu_dev_minor(status.st_dev),
                  static_cast<unsigned long long>(inode));
    return std::string(line);
  };
  write_maps(maps(status.st_ino));
  auto process = read_process(7, directory_);
  ASSERT_TRUE(process) << process.error().message();
  ASSERT_EQ(process->image.ranges.size(), 1U);
  EXPECT_EQ(process->image.ranges[0].address, 0x700100U);
  EXPECT_EQ(process->image.ranges[0].bytes.size(), 20U);
  ASSERT_NE(process->image.find_function(0x700104), nullptr);
  EXPECT_EQ(process->image.find_function(0x700104)->name, "touch");
  EXPECT_EQ(find_touch_loops(process->image).loops.size(), 0U);

  // Another file has taken the place of the mapped one: its symbols are not believed.
  write_maps(maps(status.st_ino + 1));
  process = read_process(7, directory_);
  ASSERT_TRUE(process) << process.error().message();
  EXPECT_TRUE(process->image.functions.empty());
}

TEST_F(ScanProcess, OthersAreToldApart) {
  ElfBuilder builder = touching_program();
  builder.machine = EM_X86_64;
  write("exe", builder.build());
  auto process = read_process(7, directory_);
  ASSERT_TRUE(process);
  EXPECT_TRUE(process->is_x86);
  builder.machine = EM_ARM;
  write("exe", builder.build());
  process = read_process(7, directory_);
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().code, ErrorCode::kUnsupported);
  process = read_process(8, directory_);
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().system_errno, ENOENT);
}

}  // namespace
}  // namespace touchstone::arch::opcheck
