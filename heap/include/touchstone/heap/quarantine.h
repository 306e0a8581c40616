// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_QUARANTINE_H_
#define TOUCHSTONE_HEAP_QUARANTINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <signal.h>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>
#include <touchstone/heap/memory_range.h>

namespace touchstone::heap {

/// How a block is made inaccessible, and what that costs.
///
/// | | mappings (VMAs) a block adds | its memory | contents at release |
/// |---|---|---|---|
/// | kProtect | up to 2 | stays in use | as they were |
/// | kGuard | none | given back | zero |
/// | kRemap | up to 2 | given back | zero |
///
/// A block in the middle of a mapping splits it in three, hence two more; neighbouring blocks
/// merge. The number of mappings is limited by vm.max_map_count, 65530 unless set otherwise.
enum class QuarantineMechanism : std::uint8_t {
  kProtect,  ///< mprotect(PROT_NONE).
  kGuard,    ///< Guard regions (MADV_GUARD_INSTALL, Linux 6.13): markers in the page tables.
  kRemap,    ///< A fresh PROT_NONE mapping in the block's place. It loses what the old one was told
           ///< (name, huge-page advice, fork behaviour), and while that differs the released block
           ///< stays a mapping of its own. For memory that was told nothing.
};

/// A name such as "guard". Never null.
[[nodiscard]] TOUCHSTONE_API const char* to_string(QuarantineMechanism mechanism) noexcept;

/// How to keep freed blocks away.
struct QuarantineOptions {
  /// Unset: kGuard where it works, else kProtect.
  std::optional<QuarantineMechanism> mechanism{};
  /// Collections (calls of Quarantine::advance()) that a block stays for; at least 1.
  std::uint64_t epochs = 2;
  /// Bytes and blocks held at most.
  std::size_t max_bytes = std::size_t{256} << 20U;
  std::size_t max_blocks = 1024;
};

/// A block that has left quarantine: readable and writable again.
struct ReleasedBlock {
  MemoryRange range{};
  std::uint64_t tag = 0;
  std::uint64_t freed_epoch = 0;
  bool zeroed = false;  ///< Every byte reads zero until it is written.
};

/// What a faulting access hit.
struct FaultExplanation {
  std::uintptr_t address = 0;     ///< The access.
  std::uintptr_t block = 0;       ///< Start of the block that was freed.
  std::size_t block_size = 0;     ///< Bytes.
  std::size_t offset = 0;         ///< address - block.
  std::uint64_t freed_epoch = 0;  ///< The collection in which it was freed.
  std::uint64_t age = 0;          ///< Collections since.
  std::uint64_t tag = 0;          ///< What put() was given: an allocation site, say.

  /// Writes one line, ended by a newline and not by a NUL, and returns its length; it is cut to
  /// fit. Async-signal-safe.
  TOUCHSTONE_API std::size_t describe(std::span<char> line) const noexcept;
};

/// What freed block a SIGSEGV or SIGBUS hit, over all quarantines of the process; nothing if none,
/// or if the signal was sent by somebody (si_code <= 0). Async-signal-safe and lock-free, so that
/// it can be called from any handler; installs none. See fault_handler.h for one.
[[nodiscard]] TOUCHSTONE_API std::optional<FaultExplanation> explain_fault(
    const siginfo_t& info) noexcept;

/// Keeps freed large blocks inaccessible for some collections, so that a use after free faults and
/// can be explained, where it would otherwise read or spoil what was allocated there next.
///
/// The owner of the memory frees a block with put() and may use its addresses again only when
/// release() has handed it back, first in, first out:
///
///     while (true) {
///       auto oldest = quarantine->release(block.size());  // Makes room for the block as well.
///       if (!oldest) return oldest.error();
///       if (!*oldest) break;
///       reuse((*oldest)->range);
///     }
///     if (auto put = quarantine->put(block, site); !put) reuse(block);  // Not quarantined.
///
/// Destruction touches no memory: what is still held stays inaccessible, for its owner to unmap;
/// take it out with release_any() beforehand where it is to be used again.
///
/// Thread safety: all members may be called from several threads at once. No lock is held while
/// anything of the caller's runs.
class TOUCHSTONE_API Quarantine {
 public:
  /// Errors: kInvalidArgument (a limit is 0), kUnsupported (the mechanism was named and does not
  /// work here), kOutOfMemory (bookkeeping).
  [[nodiscard]] static Result<std::unique_ptr<Quarantine>> create(
      const QuarantineOptions& options) noexcept;

  /// Whether a mechanism works here. Found out by its effect on a page of its own, as emulators
  /// and kernels that know other advice by the same number report success.
  [[nodiscard]] static bool available(QuarantineMechanism mechanism) noexcept;

  /// Mappings that a block adds at most: the table at QuarantineMechanism.
  [[nodiscard]] static std::size_t mappings_per_block(QuarantineMechanism mechanism) noexcept;

  ~Quarantine();
  Quarantine(const Quarantine&) = delete;
  Quarantine& operator=(const Quarantine&) = delete;

  /// Makes a freed block of private anonymous memory inaccessible. It must be readable and
  /// writable, and nobody's any more: its contents are lost even when this fails.
  ///
  /// Errors: kInvalidArgument, kMisaligned, kOverflow; kBusy if part of it is in quarantine already
  /// (a double free); kLimitExceeded if there is no room (see release()) or can never be, the block
  /// being larger than max_bytes. When the kernel refuses (kOutOfMemory at vm.max_map_count), the
  /// block is accessible and the caller's again, unless the Error's detail says otherwise.
  [[nodiscard]] Result<> put(MemoryRange block, std::uint64_t tag) noexcept;

  /// Notes that a collection has ended, and returns its number, from 1.
  std::uint64_t advance() noexcept;

  /// Hands back the oldest block if it has stayed for its collections, or if without that `room`
  /// more bytes (and one more block, unless 0) would not fit. Otherwise nothing.
  ///
  /// When the kernel refuses to make it accessible the block stays, `progress` says how much of it
  /// is accessible already, and the call may be repeated.
  [[nodiscard]] Result<std::optional<ReleasedBlock>> release(std::size_t room = 0) noexcept;

  /// Hands back the oldest block, whatever its age; nothing if there is none. Errors as release().
  [[nodiscard]] Result<std::optional<ReleasedBlock>> release_any() noexcept;

  /// The block that an address lies in. Async-signal-safe and lock-free.
  [[nodiscard]] std::optional<FaultExplanation> explain(std::uintptr_t address) const noexcept;

  [[nodiscard]] QuarantineMechanism mechanism() const noexcept { return mechanism_; }
  /// The number of the last collection that ended, 0 at first.
  [[nodiscard]] std::uint64_t epoch() const noexcept;
  [[nodiscard]] std::size_t held_bytes() const noexcept;
  [[nodiscard]] std::size_t held_blocks() const noexcept;

 private:
  friend std::optional<FaultExplanation> explain_fault(const siginfo_t& info) noexcept;
  struct State;
  struct Registry;
  Quarantine(QuarantineMechanism mechanism, std::unique_ptr<State> state) noexcept;
  [[nodiscard]] Result<std::optional<ReleasedBlock>> release_if(std::size_t room,
                                                                bool whatever_age) noexcept;

  const QuarantineMechanism mechanism_;
  const std::unique_ptr<State> state_;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_QUARANTINE_H_
