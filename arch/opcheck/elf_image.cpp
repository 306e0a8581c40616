// SPDX-License-Identifier: MIT
#include "elf_image.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <elf.h>
#include <gelf.h>
#include <libelf.h>

namespace touchstone::arch::opcheck {
namespace {

// Newer than the elf.h of the oldest distribution this is built on.
constexpr std::uint32_t kShtRelr = 19;
constexpr std::uint64_t kShfAarch64PureCode = 0x20000000;

// Sections of a relocatable file are laid out this far apart at least, so that branch distances
// within one never reach another by accident.
constexpr std::uint64_t kRelocatableSpacing = 0x10000;
constexpr std::uint64_t kRelocatableStart = 0x10000;
// Where functions outside a relocatable file are given addresses: above all of user and kernel
// text.
constexpr std::uint64_t kExternalStart = 0x8000'0000'0000'0000;

Error bad(const char* detail) {
  return {.code = ErrorCode::kInvalidArgument, .operation = "ELF", .detail = detail};
}

Error unsupported(const char* detail) {
  return {.code = ErrorCode::kUnsupported, .operation = "ELF", .detail = detail};
}

struct ElfEnd {
  void operator()(Elf* elf) const noexcept { elf_end(elf); }
};
using ElfHandle = std::unique_ptr<Elf, ElfEnd>;

template <typename T>
T load_as(std::span<const std::byte> bytes, std::size_t offset) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

struct Section {
  std::string_view name{};
  std::uint32_t type = 0;
  std::uint32_t link = 0;
  std::uint32_t info = 0;
  std::uint64_t flags = 0;
  std::uint64_t address = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  // Address in the image: as the file says or, if relocatable, as laid out here.
  std::uint64_t base = 0;
  std::uint32_t container = 0;
  bool is_code = false;
};

struct Segment {
  std::uint32_t type = 0;
  std::uint32_t flags = 0;
  std::uint64_t address = 0;
  std::uint64_t offset = 0;
  std::uint64_t file_size = 0;
};

struct MappingSymbol {
  std::size_t section = 0;
  std::uint64_t address = 0;
  std::size_t order = 0;  // in the symbol table: of two at one place the later counts
  bool is_code = false;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  Result<CodeImage> read() {
    using Step = Result<> (Reader::*)();
    for (const Step step :
         {&Reader::check_header, &Reader::read_headers, &Reader::place_code, &Reader::read_symbols,
          &Reader::cut_ranges, &Reader::read_relocations, &Reader::read_unwind_table}) {
      if (auto done = (this->*step)(); !done) return std::unexpected(done.error());
    }
    return std::move(image_);
  }

 private:
  // Header and table sizes, before libelf sees the file.
  Result<> check_header() {
    if (auto usable = check_arm64_elf(file_); !usable) return usable;
    if (file_.size() < sizeof(Elf64_Ehdr)) return std::unexpected(bad("truncated header"));
    header_ = load_as<Elf64_Ehdr>(file_, 0);
    switch (header_.e_type) {
      case ET_REL:
        image_.kind = "relocatable file";
        image_.relocatable = true;
        break;
      case ET_EXEC:
        image_.kind = "executable";
        break;
      case ET_DYN:
        image_.kind = "shared object";
        break;
      case ET_CORE:
        image_.kind = "core file";
        break;
      default:
        return std::unexpected(bad("unknown file type"));
    }
    std::uint64_t sections = header_.e_shnum;
    std::uint64_t segments = header_.e_phnum;
    if (header_.e_shoff != 0) {
      if (header_.e_shentsize != sizeof(Elf64_Shdr)) {
        return std::unexpected(bad("section headers of a wrong size"));
      }
      if (!inside(header_.e_shoff, sizeof(Elf64_Shdr))) {
        return std::unexpected(bad("section headers past the end of the file"));
      }
      const auto first = load_as<Elf64_Shdr>(file_, static_cast<std::size_t>(header_.e_shoff));
      if (sections == 0) sections = first.sh_size;
      if (segments == PN_XNUM) segments = first.sh_info;
      if (sections > file_.size() / sizeof(Elf64_Shdr) ||
          !inside(header_.e_shoff, sections * sizeof(Elf64_Shdr))) {
        return std::unexpected(bad("section headers past the end of the file"));
      }
    } else if (sections != 0) {
      return std::unexpected(bad("sections without section headers"));
    }
    if (segments != 0) {
      if (header_.e_phentsize != sizeof(Elf64_Phdr)) {
        return std::unexpected(bad("program headers of a wrong size"));
      }
      if (segments > file_.size() / sizeof(Elf64_Phdr) ||
          !inside(header_.e_phoff, segments * sizeof(Elf64_Phdr))) {
        return std::unexpected(bad("program headers past the end of the file"));
      }
    }
    return {};
  }

  Result<> read_headers() {
    if (elf_version(EV_CURRENT) == EV_NONE) return std::unexpected(bad("libelf is too old"));
    // libelf takes the image as writable, and does not write to it unless told to.
    elf_.reset(elf_memory(const_cast<char*>(reinterpret_cast<const char*>(file_.data())),  // NOLINT
                          file_.size()));
    if (!elf_ || elf_kind(elf_.get()) != ELF_K_ELF) {
      return std::unexpected(bad("libelf refuses the file"));
    }
    std::size_t segment_count = 0;
    std::size_t section_count = 0;
    if (elf_getphdrnum(elf_.get(), &segment_count) != 0 ||
        elf_getshdrnum(elf_.get(), &section_count) != 0) {
      return std::unexpected(bad("libelf refuses the headers"));
    }
    for (std::size_t i = 0; i < segment_count; ++i) {
      GElf_Phdr segment;
      if (gelf_getphdr(elf_.get(), static_cast<int>(i), &segment) == nullptr) {
        return std::unexpected(bad("an unreadable program header"));
      }
      segments_.push_back({.type = segment.p_type,
                           .flags = segment.p_flags,
                           .address = segment.p_vaddr,
                           .offset = segment.p_offset,
                           .file_size = segment.p_filesz});
      if (segment.p_type == PT_INTERP && header_.e_type == ET_DYN) {
        image_.kind = "position-independent executable";
      }
      if (segment.p_type == PT_LOAD) {
        image_.segments.push_back(
            {.address = segment.p_vaddr, .offset = segment.p_offset, .size = segment.p_filesz});
      }
      if (segment.p_type == PT_LOAD && (segment.p_flags & (PF_X | PF_R)) == PF_X) {
        image_.execute_only = true;
      }
    }
    std::vector<std::uint32_t> names(section_count);
    for (std::size_t i = 0; i < section_count; ++i) {
      GElf_Shdr section;
      Elf_Scn* const handle = elf_getscn(elf_.get(), i);
      if (handle == nullptr || gelf_getshdr(handle, &section) == nullptr) {
        return std::unexpected(bad("an unreadable section header"));
      }
      names[i] = section.sh_name;
      sections_.push_back({.type = section.sh_type,
                           .link = section.sh_link,
                           .info = section.sh_info,
                           .flags = section.sh_flags,
                           .address = section.sh_addr,
                           .offset = section.sh_offset,
                           .size = section.sh_size});
    }
    std::size_t names_index = 0;
    if (section_count == 0 || elf_getshdrstrndx(elf_.get(), &names_index) != 0 ||
        names_index == SHN_UNDEF) {
      return {};
    }
    if (names_index >= section_count || sections_[names_index].type != SHT_STRTAB) {
      return std::unexpected(bad("section names in no string table"));
    }
    const auto table = contents(sections_[names_index]);
    if (!table) return std::unexpected(table.error());
    for (std::size_t i = 0; i < section_count; ++i) {
      const auto name = string_at(*table, names[i]);
      if (!name) return std::unexpected(bad("a section name outside its string table"));
      sections_[i].name = *name;
    }
    return {};
  }

  // Finds executable sections, or segments where there are none, and gives them their addresses.
  Result<> place_code() {
    std::uint64_t next = kRelocatableStart;
    for (Section& section : sections_) {
      section.base = section.address;
      constexpr std::uint64_t kCode = SHF_ALLOC | SHF_EXECINSTR;
      if ((section.flags & kCode) != kCode || section.type == SHT_NOBITS ||
          section.type == SHT_NULL || section.size == 0) {
        continue;
      }
      if ((section.flags & SHF_COMPRESSED) != 0) {
        return std::unexpected(bad("a compressed code section"));
      }
      if (!inside(section.offset, section.size)) {
        return std::unexpected(bad("a code section past the end of the file"));
      }
      if (image_.relocatable) {
        section.base = next;
        next += (section.size + 2 * kRelocatableSpacing - 1) & ~(kRelocatableSpacing - 1);
      }
      if (section.base + section.size < section.base) {
        return std::unexpected(bad("a code section past the end of the address space"));
      }
      section.is_code = true;
      section.container = static_cast<std::uint32_t>(image_.containers.size());
      const bool pure = (section.flags & kShfAarch64PureCode) != 0;
      image_.execute_only |= pure;
      image_.containers.push_back({.name = std::string(section.name),
                                   .base = image_.relocatable ? section.base : 0,
                                   .execute_only = pure || in_execute_only(section)});
      pieces_.push_back({section.offset, section.size, section.base});
    }
    if (pieces_.empty()) {
      for (std::size_t i = 0; i < segments_.size(); ++i) {
        const Segment& segment = segments_[i];
        if (segment.type != PT_LOAD || (segment.flags & PF_X) == 0 || segment.file_size == 0) {
          continue;
        }
        // A file of debugging information keeps program headers for what it no longer holds.
        if (has_emptied_code()) break;
        if (!inside(segment.offset, segment.file_size)) {
          return std::unexpected(bad("an executable segment past the end of the file"));
        }
        if (segment.address + segment.file_size < segment.address) {
          return std::unexpected(bad("an executable segment past the end of the address space"));
        }
        segment_code_.push_back(i);
        image_.containers.push_back(
            {.name = "segment " + std::to_string(i), .execute_only = (segment.flags & PF_R) == 0});
        pieces_.push_back({segment.offset, segment.file_size, segment.address});
      }
      if (!pieces_.empty() && header_.e_type != ET_CORE) {
        image_.notes.emplace_back(
            "no code sections: whole executable segments are decoded, data in them included");
      }
    }
    if (pieces_.empty()) image_.notes.emplace_back("holds no code");
    // The same bytes or the same addresses twice would be counted twice.
    if (header_.e_type != ET_CORE && overlaps([](const Piece& piece) { return piece.offset; })) {
      return std::unexpected(bad("code sections overlap in the file"));
    }
    if (overlaps([](const Piece& piece) { return piece.address; })) {
      return std::unexpected(bad("code sections overlap in memory"));
    }
    return {};
  }

  Result<> read_symbols() {
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      if (sections_[i].type != SHT_SYMTAB && sections_[i].type != SHT_DYNSYM) continue;
      if (auto done = read_symbol_table(i); !done) return done;
    }
    return {};
  }

  Result<> read_symbol_table(std::size_t index) {
    const Section& section = sections_[index];
    const auto symbols = contents(section);
    if (!symbols) return std::unexpected(symbols.error());
    if (section.link == index || section.link >= sections_.size() ||
        sections_[section.link].type != SHT_STRTAB) {
      return std::unexpected(bad("a symbol table whose names are in no string table"));
    }
    const auto names = contents(sections_[section.link]);
    if (!names) return std::unexpected(names.error());
    std::span<const std::byte> extended;
    for (const Section& other : sections_) {
      if (other.type != SHT_SYMTAB_SHNDX || other.link != index) continue;
      const auto found = contents(other);
      if (!found) return std::unexpected(found.error());
      extended = *found;
    }
    const bool is_static = section.type == SHT_SYMTAB;
    if (is_static) has_symbol_table_ = true;
    const std::size_t count = symbols->size() / sizeof(Elf64_Sym);
    for (std::size_t i = 0; i < count; ++i) {
      const auto symbol = load_as<Elf64_Sym>(*symbols, i * sizeof(Elf64_Sym));
      const unsigned type = ELF64_ST_TYPE(symbol.st_info);
      const bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC;
      const bool is_untyped = is_static && type == STT_NOTYPE;
      if (!is_function && !is_untyped) continue;
      const auto place = section_of(symbol, i, extended);
      if (!place || !sections_[*place].is_code) continue;
      const auto name = string_at(*names, symbol.st_name);
      if (!name) return std::unexpected(bad("a symbol name outside its string table"));
      const Section& home = sections_[*place];
      const std::uint64_t address =
          image_.relocatable ? home.base + symbol.st_value : symbol.st_value;
      if (is_untyped && is_mapping_name(*name)) {
        mapping_.push_back({.section = *place,
                            .address = address,
                            .order = mapping_.size(),
                            .is_code = (*name)[1] == 'x'});
      } else if (!name->empty() && (*name)[0] != '$' && !name->starts_with(".L")) {
        if (address - home.base >= home.size) continue;  // not where it says
        image_.functions.push_back(
            {.address = address,
             .size = std::min(symbol.st_size, home.base + home.size - address),
             .name = *name,
             .is_label = is_untyped});
      }
    }
    return {};
  }

  // Makes the ranges: each code section without what its mapping symbols call data.
  Result<> cut_ranges() {
    std::sort(mapping_.begin(), mapping_.end(), [](const MappingSymbol& a, const MappingSymbol& b) {
      return std::tie(a.section, a.address, a.order) < std::tie(b.section, b.address, b.order);
    });
    auto mark = mapping_.begin();
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      const Section& section = sections_[i];
      if (!section.is_code) continue;
      while (mark != mapping_.end() && mark->section < i) ++mark;
      std::uint64_t start = section.base;
      bool is_code = true;
      for (; mark != mapping_.end() && mark->section == i; ++mark) {
        if (mark->address - section.base > section.size) continue;
        if (is_code)
          add_range(start, mark->address, section.base, section.offset, section.container);
        start = mark->address;
        is_code = mark->is_code;
      }
      if (is_code) {
        add_range(start, section.base + section.size, section.base, section.offset,
                  section.container);
      }
    }
    for (std::size_t i = 0; i < segment_code_.size(); ++i) {
      const Segment& segment = segments_[segment_code_[i]];
      add_range(segment.address, segment.address + segment.file_size, segment.address,
                segment.offset, static_cast<std::uint32_t>(i));
    }
    merge_neighbours();
    sort_functions(image_.functions);
    return {};
  }

  void add_range(std::uint64_t start, std::uint64_t end, std::uint64_t base, std::uint64_t offset,
                 std::uint32_t container) {
    start = (start + 3) & ~std::uint64_t{3};
    end &= ~std::uint64_t{3};
    if (start >= end || start < base) return;
    image_.ranges.push_back({.address = start,
                             .bytes = file_.subspan(static_cast<std::size_t>(offset + start - base),
                                                    static_cast<std::size_t>(end - start)),
                             .container = container});
  }

  // $x after $x only ends a range to start it again.
  void merge_neighbours() {
    std::sort(image_.ranges.begin(), image_.ranges.end(),
              [](const CodeRange& a, const CodeRange& b) { return a.address < b.address; });
    std::vector<CodeRange> merged;
    for (const CodeRange& range : image_.ranges) {
      if (!merged.empty() && merged.back().container == range.container &&
          merged.back().end() == range.address &&
          merged.back().bytes.data() + merged.back().bytes.size() == range.bytes.data()) {
        merged.back().bytes = {merged.back().bytes.data(),
                               merged.back().bytes.size() + range.bytes.size()};
      } else {
        merged.push_back(range);
      }
    }
    image_.ranges = std::move(merged);
  }

  Result<> read_relocations() {
    for (const Section& section : sections_) {
      if (image_.relocatable || section.name != ".got") continue;
      got_start_ = section.address;
      got_size_ = section.size;
    }
    for (const Section& section : sections_) {
      if (section.type != SHT_RELA) continue;
      const bool links_code =
          image_.relocatable && section.info < sections_.size() && sections_[section.info].is_code;
      const bool links_data = !image_.relocatable && (section.flags & SHF_ALLOC) != 0;
      if (!links_code && !links_data) continue;
      if (auto done = read_relocation_table(section); !done) return done;
    }
    if (!image_.relocatable) read_pointers_in_place();
    std::sort(image_.branch_links.begin(), image_.branch_links.end());
    std::sort(image_.code_pointers.begin(), image_.code_pointers.end());
    std::sort(image_.got.begin(), image_.got.end());
    for (const auto& [symbol, address] : externals_) {
      image_.externals.push_back({.address = address, .name = symbol});
    }
    std::sort(image_.externals.begin(), image_.externals.end(),
              [](const CodeSymbol& a, const CodeSymbol& b) { return a.address < b.address; });
    return {};
  }

  Result<> read_relocation_table(const Section& section) {
    const auto entries = contents(section);
    if (!entries) return std::unexpected(entries.error());
    std::span<const std::byte> symbols;
    std::span<const std::byte> names;
    std::span<const std::byte> extended;
    if (section.link != SHN_UNDEF) {
      if (section.link >= sections_.size() || (sections_[section.link].type != SHT_SYMTAB &&
                                               sections_[section.link].type != SHT_DYNSYM)) {
        return std::unexpected(bad("a relocation table without a symbol table"));
      }
      const Section& table = sections_[section.link];
      const auto found = contents(table);
      // read_symbols has checked the name table already.
      const auto found_names = contents(sections_[table.link]);
      if (!found || !found_names) return std::unexpected(bad("a symbol table outside the file"));
      symbols = *found;
      names = *found_names;
      for (const Section& other : sections_) {
        if (other.type == SHT_SYMTAB_SHNDX && other.link == section.link) {
          extended = contents(other).value_or(extended);
        }
      }
    }
    const std::uint64_t base = image_.relocatable ? sections_[section.info].base : 0;
    for (std::size_t at = 0; at + sizeof(Elf64_Rela) <= entries->size(); at += sizeof(Elf64_Rela)) {
      const auto entry = load_as<Elf64_Rela>(*entries, at);
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(entry.r_info));
      const std::uint64_t from = base + entry.r_offset;
      const auto addend = static_cast<std::uint64_t>(entry.r_addend);
      const bool is_branch = type == R_AARCH64_CALL26 || type == R_AARCH64_JUMP26 ||
                             type == R_AARCH64_CONDBR19 || type == R_AARCH64_TSTBR14;
      const bool is_pointer =
          type == R_AARCH64_ABS64 || type == R_AARCH64_GLOB_DAT || type == R_AARCH64_JUMP_SLOT;
      if (!image_.relocatable && type == R_AARCH64_RELATIVE) {
        add_pointer(from, addend);
        continue;
      }
      if (image_.relocatable ? !is_branch : !is_pointer) continue;
      const std::uint64_t index = ELF64_R_SYM(entry.r_info);
      if (index >= symbols.size() / sizeof(Elf64_Sym)) {
        return std::unexpected(bad("a relocation against a symbol that is not there"));
      }
      const auto symbol =
          load_as<Elf64_Sym>(symbols, static_cast<std::size_t>(index) * sizeof(Elf64_Sym));
      if (!image_.relocatable) {
        if (symbol.st_shndx != SHN_UNDEF) add_pointer(from, symbol.st_value + addend);
        continue;
      }
      const auto place = section_of(symbol, static_cast<std::size_t>(index), extended);
      if (place && sections_[*place].is_code) {
        image_.branch_links.push_back(
            {.from = from, .to = sections_[*place].base + symbol.st_value + addend});
      } else if (symbol.st_shndx == SHN_UNDEF) {
        const auto name = string_at(names, symbol.st_name);
        if (!name) return std::unexpected(bad("a symbol name outside its string table"));
        const auto [external, is_new] =
            externals_.try_emplace(*name, kExternalStart + 16 * externals_.size());
        image_.branch_links.push_back({.from = from, .to = external->second});
      }
    }
    return {};
  }

  void add_pointer(std::uint64_t from, std::uint64_t to) {
    if (from - got_start_ < got_size_) image_.got.push_back({.from = from, .to = to});
    if (to % 4 == 0 && image_.find_range(to) != nullptr) {
      image_.code_pointers.push_back({.from = from, .to = to});
    }
  }

  // Pointers that need no relocation, or whose addend stands in place (RELR).
  void read_pointers_in_place() {
    if (image_.ranges.empty()) return;
    const bool in_place =
        header_.e_type == ET_EXEC ||
        std::any_of(sections_.begin(), sections_.end(),
                    [](const Section& section) { return section.type == kShtRelr; });
    if (!in_place) return;
    const std::uint64_t low = image_.ranges.front().address;
    const std::uint64_t high = image_.ranges.back().end();
    for (const Section& section : sections_) {
      if ((section.flags & SHF_WRITE) == 0 || (section.flags & SHF_ALLOC) == 0 ||
          section.type != SHT_PROGBITS || section.address % 8 != 0 ||
          !inside(section.offset, section.size)) {
        continue;
      }
      const auto bytes = file_.subspan(static_cast<std::size_t>(section.offset),
                                       static_cast<std::size_t>(section.size));
      for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
        const auto value = load_as<std::uint64_t>(bytes, at);
        if (value >= low && value < high) add_pointer(section.address + at, value);
      }
    }
  }

  // The search table of .eh_frame_hdr: where functions start, in files without a symbol table.
  Result<> read_unwind_table() {
    if (has_symbol_table_ || image_.relocatable) return {};
    for (const Segment& segment : segments_) {
      if (segment.type != PT_GNU_EH_FRAME) continue;
      if (!inside(segment.offset, segment.file_size)) {
        return std::unexpected(bad("an unwind table past the end of the file"));
      }
      const auto table = file_.subspan(static_cast<std::size_t>(segment.offset),
                                       static_cast<std::size_t>(segment.file_size));
      // Version 1; a 4-byte pointer, a 4-byte count, and pairs of 4-byte offsets from the table:
      // what all arm64 linkers write. Anything else is left alone.
      if (table.size() < 12 || table[0] != std::byte{1} ||
          (table[1] & std::byte{0x0f}) != std::byte{0x0b} || table[2] != std::byte{0x03} ||
          table[3] != std::byte{0x3b}) {
        continue;
      }
      const std::size_t count =
          std::min<std::size_t>(load_as<std::uint32_t>(table, 8), (table.size() - 12) / 8);
      for (std::size_t i = 0; i < count; ++i) {
        const auto offset = load_as<std::int32_t>(table, 12 + i * 8);
        const std::uint64_t start =
            segment.address + static_cast<std::uint64_t>(static_cast<std::int64_t>(offset));
        if (image_.find_range(start) != nullptr) image_.function_starts.push_back(start);
      }
    }
    std::sort(image_.function_starts.begin(), image_.function_starts.end());
    return {};
  }

  [[nodiscard]] bool inside(std::uint64_t offset, std::uint64_t size) const noexcept {
    return offset <= file_.size() && size <= file_.size() - offset;
  }

  [[nodiscard]] Result<std::span<const std::byte>> contents(const Section& section) const {
    if (section.type == SHT_NOBITS) return std::span<const std::byte>{};
    if (!inside(section.offset, section.size)) {
      return std::unexpected(bad("a section past the end of the file"));
    }
    return file_.subspan(static_cast<std::size_t>(section.offset),
                         static_cast<std::size_t>(section.size));
  }

  [[nodiscard]] static std::optional<std::string_view> string_at(std::span<const std::byte> table,
                                                                 std::uint64_t offset) noexcept {
    if (table.empty() && offset == 0) return std::string_view{};
    if (offset >= table.size()) return std::nullopt;
    const auto* const start =
        reinterpret_cast<const char*>(table.data()) + static_cast<std::size_t>(offset);
    const std::size_t room = table.size() - static_cast<std::size_t>(offset);
    const void* const end = std::memchr(start, 0, room);
    if (end == nullptr) return std::nullopt;
    return std::string_view(start, static_cast<std::size_t>(static_cast<const char*>(end) - start));
  }

  [[nodiscard]] std::optional<std::size_t> section_of(
      const Elf64_Sym& symbol, std::size_t index,
      std::span<const std::byte> extended) const noexcept {
    std::size_t section = symbol.st_shndx;
    if (section == SHN_XINDEX) {
      if (index >= extended.size() / 4) return std::nullopt;
      section = load_as<std::uint32_t>(extended, index * 4);
    } else if (section >= SHN_LORESERVE) {
      return std::nullopt;
    }
    if (section == SHN_UNDEF || section >= sections_.size()) return std::nullopt;
    return section;
  }

  [[nodiscard]] static bool is_mapping_name(std::string_view name) noexcept {
    return name.size() >= 2 && name[0] == '$' && (name[1] == 'x' || name[1] == 'd') &&
           (name.size() == 2 || name[2] == '.');
  }

  [[nodiscard]] bool in_execute_only(const Section& section) const noexcept {
    return !image_.relocatable &&
           std::any_of(segments_.begin(), segments_.end(), [&](const Segment& segment) {
             return segment.type == PT_LOAD && (segment.flags & (PF_X | PF_R)) == PF_X &&
                    section.address - segment.address < segment.file_size;
           });
  }

  // Are there code sections whose contents were taken out?
  [[nodiscard]] bool has_emptied_code() const noexcept {
    return std::any_of(sections_.begin(), sections_.end(), [](const Section& section) {
      return section.type == SHT_NOBITS && (section.flags & SHF_EXECINSTR) != 0;
    });
  }

  struct Piece {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint64_t address = 0;
  };

  template <typename Key>
  [[nodiscard]] bool overlaps(Key key) {
    std::sort(pieces_.begin(), pieces_.end(),
              [key](const Piece& a, const Piece& b) { return key(a) < key(b); });
    for (std::size_t i = 1; i < pieces_.size(); ++i) {
      if (key(pieces_[i]) - key(pieces_[i - 1]) < pieces_[i - 1].size) return true;
    }
    return false;
  }

  std::span<const std::byte> file_;
  Elf64_Ehdr header_{};
  ElfHandle elf_;
  std::vector<Section> sections_;
  std::vector<Segment> segments_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> segment_code_;
  std::vector<MappingSymbol> mapping_;
  std::unordered_map<std::string_view, std::uint64_t> externals_;
  std::uint64_t got_start_ = 0;
  std::uint64_t got_size_ = 0;
  bool has_symbol_table_ = false;
  CodeImage image_;
};

}  // namespace

bool is_elf(std::span<const std::byte> file) noexcept {
  return file.size() >= SELFMAG && std::memcmp(file.data(), ELFMAG, SELFMAG) == 0;
}

bool is_x86_elf(std::span<const std::byte> file) noexcept {
  if (!is_elf(file) || file.size() < 20 || file[EI_DATA] != std::byte{ELFDATA2LSB}) return false;
  const auto machine = load_as<std::uint16_t>(file, 18);
  return machine == EM_X86_64 || machine == EM_386;
}

Result<> check_arm64_elf(std::span<const std::byte> file) {
  if (file.size() < EI_NIDENT + 4) return std::unexpected(bad("truncated header"));
  const auto identity = load_as<std::array<unsigned char, EI_NIDENT>>(file, 0);
  const bool is_big_endian = identity[EI_DATA] == ELFDATA2MSB;
  std::uint16_t machine = load_as<std::uint16_t>(file, 18);
  if (is_big_endian) machine = std::byteswap(machine);
  if (identity[EI_DATA] != ELFDATA2LSB && !is_big_endian) {
    return std::unexpected(bad("unknown byte order"));
  }
  if (machine == EM_ARM) return std::unexpected(unsupported("32-bit ARM, not arm64"));
  if (machine != EM_AARCH64) return std::unexpected(unsupported("for another machine than arm64"));
  if (is_big_endian) return std::unexpected(unsupported("big-endian arm64"));
  if (identity[EI_CLASS] == ELFCLASS32) return std::unexpected(unsupported("ILP32 arm64"));
  if (identity[EI_CLASS] != ELFCLASS64) return std::unexpected(bad("unknown class"));
  return {};
}

Result<CodeImage> read_elf(std::span<const std::byte> file) {
  return Reader(file).read();
}

}  // namespace touchstone::arch::opcheck
