// SPDX-License-Identifier: MIT
// The code of one program as the scanner sees it, whatever it was read from.
#ifndef TOUCHSTONE_ARCH_OPCHECK_CODE_IMAGE_H_
#define TOUCHSTONE_ARCH_OPCHECK_CODE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace touchstone::arch::opcheck {

/// A section, segment or mapping that code lies in.
struct CodeContainer {
  std::string name;
  /// What is subtracted from an address of the image to get an offset into the container.
  std::uint64_t base = 0;
  bool execute_only = false;
};

/// Consecutive instruction words, with no literal pool between them.
struct CodeRange {
  /// Address of the first word, a multiple of 4. In a relocatable file, whose sections all start
  /// at 0, each section has been given a place of its own.
  std::uint64_t address = 0;
  /// A multiple of 4 bytes, little-endian words.
  std::span<const std::byte> bytes;
  /// Index into CodeImage::containers.
  std::uint32_t container = 0;

  [[nodiscard]] std::uint64_t end() const noexcept { return address + bytes.size(); }
};

/// A symbol that names code. size is 0 where the file does not say it.
struct CodeSymbol {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::string_view name{};
  /// An untyped symbol, as assembly has them: it names what follows, perhaps in mid-function.
  bool is_label = false;
};

/// An address in the image that stands for another: a call site and where it is relocated to, or
/// a pointer in data and the code it points at.
struct AddressLink {
  std::uint64_t from = 0;
  std::uint64_t to = 0;

  friend bool operator<(const AddressLink& a, const AddressLink& b) noexcept {
    return a.from != b.from ? a.from < b.from : a.to < b.to;
  }
};

/// The code of a program with what names it and links it. Immutable once built, then safe to read
/// from any thread. The views point into the file (or process copy) it was built from, which must
/// live longer.
struct CodeImage {
  /// A loadable segment of the file.
  struct Segment {
    std::uint64_t address = 0;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  /// "executable", "shared object", "relocatable file", "core file", "kernel image", "process".
  std::string_view kind;
  std::vector<CodeContainer> containers;
  std::vector<Segment> segments;
  /// Sorted by address, never overlapping.
  std::vector<CodeRange> ranges;
  /// Sorted by address; one a place, the best name of those there.
  std::vector<CodeSymbol> functions;
  /// Further places where functions start, known from unwind tables. Sorted.
  std::vector<std::uint64_t> function_starts;
  /// Branch instructions whose target a relocation decides. Sorted.
  std::vector<AddressLink> branch_links;
  /// Pointers to code, by the address of the pointer, as the program starts with. Sorted.
  std::vector<AddressLink> code_pointers;
  /// Slots of the global offset table and what the dynamic linker puts there, where that is within
  /// the file. Sorted.
  std::vector<AddressLink> got;
  /// Names of functions outside the file that branch_links lead to. Sorted by address; they lie
  /// outside all ranges.
  std::vector<CodeSymbol> externals;
  /// Does any executable segment forbid reading?
  bool execute_only = false;
  /// Is the file a relocatable one, so that places are told as section and offset?
  bool relocatable = false;
  /// One clause each about what limits the result, such as missing section headers.
  std::vector<std::string> notes;

  /// The range that holds the address, or nullptr.
  [[nodiscard]] const CodeRange* find_range(std::uint64_t address) const noexcept;
  /// The word at the address, or nothing where there is no code.
  [[nodiscard]] std::optional<std::uint32_t> word_at(std::uint64_t address) const noexcept;
  /// The function symbol that covers the address, or nullptr. A symbol without a size reaches to
  /// the next one or to the end of its range.
  [[nodiscard]] const CodeSymbol* find_function(std::uint64_t address) const noexcept;
  /// Total bytes of all ranges.
  [[nodiscard]] std::uint64_t code_bytes() const noexcept;
};

/// Where a sorted list of links leads from an address, or nothing.
[[nodiscard]] std::optional<std::uint64_t> follow(const std::vector<AddressLink>& links,
                                                  std::uint64_t from) noexcept;

/// The little-endian word at `offset` of `bytes`, which holds it whole.
[[nodiscard]] std::uint32_t load_word(std::span<const std::byte> bytes,
                                      std::size_t offset) noexcept;

/// Sorts symbols by address and keeps one a place: a sized one before an unsized one, then a
/// function before a label, then the shortest name, then the first in order. Labels inside a
/// function whose size is known go.
void sort_functions(std::vector<CodeSymbol>& functions);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_CODE_IMAGE_H_
