// SPDX-License-Identifier: MIT
// Disassemblers as judges of what a word is, behind one interface.
#ifndef TOUCHSTONE_ARCH_OPCHECK_ORACLE_H_
#define TOUCHSTONE_ARCH_OPCHECK_ORACLE_H_

#include <compare>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reading.h"

namespace touchstone::arch::opcheck {

/// A disassembler that the tool knows how to ask.
enum class OracleKind : std::uint8_t { kCapstone, kLlvm, kObjdump };

/// "capstone", "llvm" or "objdump".
[[nodiscard]] std::string_view to_string(OracleKind kind);

/// The kind that a name on the command line means, or nothing.
[[nodiscard]] std::optional<OracleKind> oracle_kind_of(std::string_view name);

/// A release of a disassembler.
struct OracleVersion {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;

  friend auto operator<=>(const OracleVersion&, const OracleVersion&) = default;
};

/// "22.1.8".
[[nodiscard]] std::string to_string(const OracleVersion& version);

/// Decodes words. One instance serves one thread; several instances may work at the same time.
class Oracle {
 public:
  Oracle() = default;
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;
  virtual ~Oracle() = default;

  /// Sets readings[i] to what words[i] is, or to null where the oracle decodes nothing. The
  /// readings live as long as this oracle. Both spans have the same length. An error is one clause
  /// about a disassembler that broke down, never about a word.
  [[nodiscard]] virtual std::expected<void, std::string> decode(
      std::span<const std::uint32_t> words, std::span<const Reading*> readings) = 0;

  /// The oracle's text of one word, such as "ldadd w1, w2, [x0]", or nothing where it decodes
  /// nothing.
  [[nodiscard]] virtual std::expected<std::optional<std::string>, std::string> text(
      std::uint32_t word) = 0;
};

/// An oracle that was found on this machine, from which any number of instances can be opened.
class OracleSource {
 public:
  OracleSource() = default;
  OracleSource(const OracleSource&) = delete;
  OracleSource& operator=(const OracleSource&) = delete;
  virtual ~OracleSource() = default;

  [[nodiscard]] virtual OracleKind kind() const = 0;
  [[nodiscard]] virtual OracleVersion version() const = 0;
  /// The library or program behind it, as a file name.
  [[nodiscard]] virtual std::string location() const = 0;
  /// A new instance. Thread-safe.
  [[nodiscard]] virtual std::expected<std::unique_ptr<Oracle>, std::string> open() const = 0;

  /// "llvm 22.1.8".
  [[nodiscard]] std::string name() const;
};

/// Where to look for the oracles that are not linked in.
struct OracleSearch {
  /// A libLLVM to load instead of the newest one found.
  std::string llvm_library;
  /// An objdump to run instead of the first one found that knows arm64.
  std::string objdump_program;
};

/// Capstone, which is linked in.
[[nodiscard]] std::unique_ptr<OracleSource> capstone_source();

/// LLVM's machine-code disassembler from a shared libLLVM, loaded when first asked for: the named
/// one, else the newest from 22 down to 14 that the dynamic loader finds. The error says what was
/// looked for.
[[nodiscard]] std::expected<std::unique_ptr<OracleSource>, std::string> find_llvm(
    const std::string& library);

/// GNU objdump as a child process: the named one, else aarch64-linux-gnu-objdump or objdump, if it
/// knows arm64. The error says what was looked for.
[[nodiscard]] std::expected<std::unique_ptr<OracleSource>, std::string> find_objdump(
    const std::string& program);

/// The oracle of one kind, or why there is none.
[[nodiscard]] std::expected<std::unique_ptr<OracleSource>, std::string> find_oracle(
    OracleKind kind, const OracleSearch& search);

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_ORACLE_H_
