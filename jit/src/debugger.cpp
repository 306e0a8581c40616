// SPDX-License-Identifier: MIT
#include "debugger.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

#include <elf.h>

#include <touchstone/jit/instruction_set.h>

// The names, types and values of this interface are GDB's. They are weak, since other code
// generators in the process (LLVM's) define the same ones, and there is one list for all.
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier,misc-use-internal-linkage)
extern "C" {
struct jit_code_entry {
  jit_code_entry* next_entry;
  jit_code_entry* prev_entry;
  const char* symfile_addr;
  std::uint64_t symfile_size;
};
struct jit_descriptor {
  std::uint32_t version;
  std::uint32_t action_flag;  // 0 none, 1 registered, 2 unregistered
  jit_code_entry* relevant_entry;
  jit_code_entry* first_entry;
};
/// Debuggers put a breakpoint here.
__attribute__((weak, noinline, visibility("default"))) void __jit_debug_register_code() {
  asm volatile("" : : : "memory");
}
__attribute__((weak, visibility("default"))) jit_descriptor __jit_debug_descriptor = {1, 0, nullptr,
                                                                                      nullptr};
}
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier,misc-use-internal-linkage)

namespace touchstone::jit {
namespace {

std::mutex& list_mutex() noexcept {
  static std::mutex mutex;
  return mutex;
}

/// An ELF image with one symbol: the function, at the address where it lies.
struct SymbolFile {
  Elf64_Ehdr header;
  Elf64_Shdr sections[5];
  Elf64_Sym symbols[2];
  char section_names[40];
};
constexpr char kSectionNames[] = "\0.text\0.symtab\0.strtab\0.shstrtab";
static_assert(sizeof kSectionNames <= sizeof SymbolFile::section_names);

std::vector<char> make_symbol_file(const void* address, std::size_t size, std::string_view name) {
  SymbolFile file{};
  std::memcpy(file.header.e_ident, ELFMAG, SELFMAG);
  file.header.e_ident[EI_CLASS] = ELFCLASS64;
  file.header.e_ident[EI_DATA] = ELFDATA2LSB;
  file.header.e_ident[EI_VERSION] = EV_CURRENT;
  file.header.e_type = ET_EXEC;
  file.header.e_machine = kHostInstructionSet == InstructionSet::kA64 ? EM_AARCH64 : EM_X86_64;
  file.header.e_version = EV_CURRENT;
  file.header.e_ehsize = sizeof file.header;
  file.header.e_shoff = offsetof(SymbolFile, sections);
  file.header.e_shentsize = sizeof(Elf64_Shdr);
  file.header.e_shnum = 5;
  file.header.e_shstrndx = 4;
  std::memcpy(file.section_names, kSectionNames, sizeof kSectionNames);
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  file.sections[1] = {.sh_name = 1,
                      .sh_type = SHT_NOBITS,
                      .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                      .sh_addr = start,
                      .sh_offset = 0,
                      .sh_size = size,
                      .sh_link = 0,
                      .sh_info = 0,
                      .sh_addralign = 16,
                      .sh_entsize = 0};
  file.sections[2] = {.sh_name = 7,
                      .sh_type = SHT_SYMTAB,
                      .sh_flags = 0,
                      .sh_addr = 0,
                      .sh_offset = offsetof(SymbolFile, symbols),
                      .sh_size = sizeof file.symbols,
                      .sh_link = 3,
                      .sh_info = 1,
                      .sh_addralign = 8,
                      .sh_entsize = sizeof(Elf64_Sym)};
  // The name follows the fixed part, behind the empty string that symbol 0 has.
  file.sections[3] = {.sh_name = 15,
                      .sh_type = SHT_STRTAB,
                      .sh_flags = 0,
                      .sh_addr = 0,
                      .sh_offset = sizeof file,
                      .sh_size = name.size() + 2,
                      .sh_link = 0,
                      .sh_info = 0,
                      .sh_addralign = 1,
                      .sh_entsize = 0};
  file.sections[4] = {.sh_name = 23,
                      .sh_type = SHT_STRTAB,
                      .sh_flags = 0,
                      .sh_addr = 0,
                      .sh_offset = offsetof(SymbolFile, section_names),
                      .sh_size = sizeof kSectionNames,
                      .sh_link = 0,
                      .sh_info = 0,
                      .sh_addralign = 1,
                      .sh_entsize = 0};
  file.symbols[1] = {.st_name = 1,
                     .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                     .st_other = STV_DEFAULT,
                     .st_shndx = 1,
                     .st_value = start,
                     .st_size = size};
  std::vector<char> bytes(sizeof file + name.size() + 2, '\0');
  std::memcpy(bytes.data(), &file, sizeof file);
  std::memcpy(bytes.data() + sizeof file + 1, name.data(), name.size());
  return bytes;
}

}  // namespace

struct DebuggerEntry::Record {
  std::vector<char> symbol_file;
  jit_code_entry entry{};
};

DebuggerEntry::DebuggerEntry() : record_(std::make_unique<Record>()) {}

Result<std::unique_ptr<DebuggerEntry>> DebuggerEntry::create(const void* address, std::size_t size,
                                                             std::string_view name) noexcept {
  try {
    std::unique_ptr<DebuggerEntry> made(new DebuggerEntry);
    Record& record = *made->record_;
    record.symbol_file = make_symbol_file(address, size, name);
    record.entry.symfile_addr = record.symbol_file.data();
    record.entry.symfile_size = record.symbol_file.size();
    const std::scoped_lock lock(list_mutex());
    record.entry.next_entry = __jit_debug_descriptor.first_entry;
    if (record.entry.next_entry != nullptr) record.entry.next_entry->prev_entry = &record.entry;
    __jit_debug_descriptor.first_entry = &record.entry;
    __jit_debug_descriptor.relevant_entry = &record.entry;
    __jit_debug_descriptor.action_flag = 1;
    __jit_debug_register_code();
    return made;
  } catch (const std::bad_alloc&) {
    return std::unexpected(
        Error{.code = ErrorCode::kOutOfMemory, .operation = "register code with debuggers"});
  }
}

DebuggerEntry::~DebuggerEntry() {
  jit_code_entry& entry = record_->entry;
  if (entry.symfile_addr == nullptr) return;  // never registered
  const std::scoped_lock lock(list_mutex());
  if (entry.prev_entry != nullptr) {
    entry.prev_entry->next_entry = entry.next_entry;
  } else {
    __jit_debug_descriptor.first_entry = entry.next_entry;
  }
  if (entry.next_entry != nullptr) entry.next_entry->prev_entry = entry.prev_entry;
  __jit_debug_descriptor.relevant_entry = &entry;
  __jit_debug_descriptor.action_flag = 2;
  __jit_debug_register_code();
}

}  // namespace touchstone::jit
