// SPDX-License-Identifier: MIT
// Writes small ELF files, right or wrong, for the scanner's tests and as seeds of its fuzzer.
#ifndef TOUCHSTONE_TESTS_ARCH_SCAN_ELF_BUILDER_H_
#define TOUCHSTONE_TESTS_ARCH_SCAN_ELF_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <elf.h>

namespace touchstone::arch::opcheck::testing {

using Bytes = std::vector<std::byte>;

template <typename T>
void put(Bytes& bytes, std::size_t offset, const T& value) {
  if (bytes.size() < offset + sizeof value) bytes.resize(offset + sizeof value);
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

template <typename T>
[[nodiscard]] T get(const Bytes& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// A linked program: one code section at kCode, with symbols. Fields may be changed before build(),
/// and bytes after it.
struct ElfBuilder {
  static constexpr std::uint64_t kCode = 0x10000;

  struct Symbol {
    std::string name;
    std::uint64_t value = 0;
    std::uint64_t size = 0;
    unsigned type = STT_FUNC;
    unsigned binding = STB_LOCAL;
  };

  std::uint16_t type = ET_DYN;
  std::uint16_t machine = EM_AARCH64;
  std::uint32_t segment_flags = PF_R | PF_X;
  std::vector<std::uint32_t> code;
  std::vector<Symbol> symbols;
  bool with_sections = true;

  /// Where build() put things, for tests that break them.
  std::size_t section_headers = 0;
  std::size_t program_headers = sizeof(Elf64_Ehdr);
  static constexpr std::size_t kTextSection = 1;
  static constexpr std::size_t kSymbolSection = 2;
  static constexpr std::size_t kStringSection = 3;
  static constexpr std::size_t kNameSection = 4;
  static constexpr std::size_t kSections = 5;

  [[nodiscard]] std::size_t header_of(std::size_t section) const {
    return section_headers + section * sizeof(Elf64_Shdr);
  }

  [[nodiscard]] Bytes build() {
    Bytes file;
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = type;
    header.e_machine = machine;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof header;
    const bool has_segment = type != ET_REL;
    const std::size_t text = 0x100;
    const std::size_t text_size = code.size() * 4;
    file.resize(text + text_size);
    std::memcpy(file.data() + text, code.data(), text_size);
    if (has_segment) {
      header.e_phoff = program_headers;
      header.e_phentsize = sizeof(Elf64_Phdr);
      header.e_phnum = 1;
      Elf64_Phdr segment{};
      segment.p_type = PT_LOAD;
      segment.p_flags = segment_flags;
      segment.p_offset = text;
      segment.p_vaddr = kCode;
      segment.p_filesz = segment.p_memsz = text_size;
      put(file, program_headers, segment);
    }
    if (with_sections) {
      std::string strings(1, '\0');
      const std::size_t symbol_table = (file.size() + 7) & ~std::size_t{7};
      put(file, symbol_table, Elf64_Sym{});
      for (const Symbol& symbol : symbols) {
        Elf64_Sym entry{};
        entry.st_name = static_cast<Elf64_Word>(strings.size());
        entry.st_info = static_cast<unsigned char>(ELF64_ST_INFO(symbol.binding, symbol.type));
        entry.st_shndx = kTextSection;
        entry.st_value = symbol.value;
        entry.st_size = symbol.size;
        put(file, file.size(), entry);
        strings += symbol.name;
        strings += '\0';
      }
      const std::size_t symbols_size = file.size() - symbol_table;
      const std::size_t string_table = append(file, strings);
      const std::string names("\0.text\0.symtab\0.strtab\0.shstrtab\0", 33);
      const std::size_t name_table = append(file, names);
      section_headers = (file.size() + 7) & ~std::size_t{7};
      header.e_shoff = section_headers;
      header.e_shentsize = sizeof(Elf64_Shdr);
      header.e_shnum = kSections;
      header.e_shstrndx = kNameSection;
      const auto section = [&](std::size_t index, std::uint32_t name, std::uint32_t section_type,
                               std::uint64_t flags, std::uint64_t address, std::size_t offset,
                               std::size_t size, std::uint32_t link, std::uint64_t entry_size) {
        Elf64_Shdr entry{};
        entry.sh_name = name;
        entry.sh_type = section_type;
        entry.sh_flags = flags;
        entry.sh_addr = address;
        entry.sh_offset = offset;
        entry.sh_size = size;
        entry.sh_link = link;
        entry.sh_entsize = entry_size;
        entry.sh_addralign = 4;
        put(file, header_of(index), entry);
      };
      section(0, 0, SHT_NULL, 0, 0, 0, 0, 0, 0);
      section(kTextSection, 1, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, has_segment ? kCode : 0,
              text, text_size, 0, 0);
      section(kSymbolSection, 7, SHT_SYMTAB, 0, 0, symbol_table, symbols_size, kStringSection,
              sizeof(Elf64_Sym));
      section(kStringSection, 15, SHT_STRTAB, 0, 0, string_table, strings.size(), 0, 0);
      section(kNameSection, 23, SHT_STRTAB, 0, 0, name_table, names.size(), 0, 0);
    }
    put(file, 0, header);
    return file;
  }

 private:
  static std::size_t append(Bytes& file, std::string_view text) {
    const std::size_t at = file.size();
    file.resize(at + text.size());
    std::memcpy(file.data() + at, text.data(), text.size());
    return at;
  }
};

/// An `ar` archive of the members, named as given (15 characters at most).
[[nodiscard]] inline Bytes make_archive(const std::vector<std::pair<std::string, Bytes>>& members) {
  std::string text = "!<arch>\n";
  for (const auto& [name, bytes] : members) {
    std::string header(60, ' ');
    const auto set = [&header](std::size_t at, std::string_view value) {
      header.replace(at, value.size(), value);
    };
    set(0, name + "/");
    set(16, "0");
    set(28, "0");
    set(34, "0");
    set(40, "644");
    set(48, std::to_string(bytes.size()));
    set(58, "`\n");
    text += header;
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (bytes.size() % 2 != 0) text += '\n';
  }
  Bytes file(text.size());
  std::memcpy(file.data(), text.data(), text.size());
  return file;
}

/// A kernel image of `code` behind the 64-byte header, without a PE header.
[[nodiscard]] inline Bytes make_kernel_image(const std::vector<std::uint32_t>& code) {
  Bytes file(64 + code.size() * 4);
  std::memcpy(file.data() + 56, "ARM\x64", 4);
  std::memcpy(file.data() + 64, code.data(), code.size() * 4);
  return file;
}

// Words of the code below, as GNU as assembles them.
inline constexpr std::uint32_t kRet = 0xd65f03c0;
inline constexpr std::uint32_t kNop = 0xd503201f;
inline constexpr std::uint32_t kLdaddZero = 0xb83f0002;  // ldadd wzr, w2, [x0]

/// void touch(char* x0, char* x1): do { ldadd wzr, w2, [x0]; x0 += 4096; } while (x0 < x1);
[[nodiscard]] inline std::vector<std::uint32_t> touch_loop() {
  return {kLdaddZero,  // ldadd wzr, w2, [x0]
          0x91400400,  // add x0, x0, #1, lsl #12
          0xeb01001f,  // cmp x0, x1
          0x54ffffa3,  // b.lo .-12
          kRet};
}

}  // namespace touchstone::arch::opcheck::testing

#endif  // TOUCHSTONE_TESTS_ARCH_SCAN_ELF_BUILDER_H_
