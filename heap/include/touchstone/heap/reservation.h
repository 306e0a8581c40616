// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_RESERVATION_H_
#define TOUCHSTONE_HEAP_RESERVATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>
#include <touchstone/heap/memory_range.h>

namespace touchstone::heap {

/// Whether the kernel should back a range with transparent huge pages.
enum class HugePages : std::uint8_t {
  kDefault,  ///< As /sys/kernel/mm/transparent_hugepage/enabled says.
  kPrefer,   ///< MADV_HUGEPAGE: wherever the mode is not "never".
  kAvoid,    ///< MADV_NOHUGEPAGE: base pages only.
};

/// What a child process made by fork() finds at the addresses of a reservation.
enum class ForkBehaviour : std::uint8_t {
  kInherit,  ///< A copy of its own, made page by page when either side writes.
  kWipe,     ///< Zeroes (MADV_WIPEONFORK).
  kOmit,     ///< Nothing (MADV_DONTFORK): a touch faults, and fork() has no page tables to copy.
};

/// What may be done with committed memory.
enum class Protection : std::uint8_t {
  kNone,       ///< Any access faults; the contents stay.
  kRead,       ///< Reads only.
  kReadWrite,  ///< Reads and writes.
};

/// When the kernel takes discarded pages.
enum class DiscardPolicy : std::uint8_t {
  kAtOnce,  ///< MADV_DONTNEED: gone on return; the next read sees zero.
  kLazily,  ///< MADV_FREE: when memory runs short; until then a read may see the old bytes. Where
            ///< the kernel refuses it, kAtOnce.
};

/// What to reserve.
struct ReservationOptions {
  /// Bytes; a multiple of page_size, at most Reservation::kMaxSize.
  std::size_t size = 0;
  /// The start is a multiple of this: a power of two, at least page_size. 0 means page_size.
  std::size_t alignment = 0;
  /// The base page to work in: a power of two, at least the machine's. 0 means the machine's
  /// (arch::base_page_size()). A
  /// larger value makes this machine behave, for alignment checks, as one with such pages.
  std::size_t page_size = 0;
  /// Shown by /proc/PID/maps as [anon:NAME] where the kernel can (CONFIG_ANON_VMA_NAME); see
  /// Reservation::named(). Up to 79 printable characters without any of \`$[]; null for none. Only
  /// read during the call.
  const char* name = "touchstone";
  HugePages huge_pages = HugePages::kDefault;
  ForkBehaviour fork = ForkBehaviour::kInherit;
  /// Not 0: take the memory from the kernel's pool of hugetlb pages of this many bytes, all of it
  /// at once. page_size and alignment are then at least this. Fails with ErrorCode::kPoolEmpty when
  /// the pool has too few.
  std::size_t hugetlb_page = 0;
  /// Told what a destructor or a move assignment could not unmap, as destroy() would have returned
  /// it. Null writes one line to standard error.
  void (*on_abandoned)(const Error& error) noexcept = nullptr;
};

/// What commit() found.
struct Commitment {
  /// Every byte of the range reads zero until it is written.
  bool zeroed = false;
};

/// A contiguous run of addresses that belongs to the holder, and the seven verbs that decide what
/// is behind them: commit, uncommit, discard, protect, seal, rename, advise_huge_pages.
///
/// An address is *reserved* (an access faults; costs no memory), and after commit() *committed*
/// (readable and writable; costs memory page by page on the first touch). Ranges given to the verbs
/// must lie within the reservation, start and end on multiples of page_size() and not be empty:
/// otherwise kInvalidArgument, kMisaligned, kOverflow or kOutOfRange is returned before any system
/// call.
///
/// A failed verb returns an Error whose `progress` is exact: the bytes from the start of the range
/// for which it took effect. Unless its description says otherwise what lies behind is untouched,
/// the reservation is as usable as before, and the verb may be repeated. EINTR and EAGAIN are
/// retried some times before they count as failures. ENOMEM from mprotect or mseal commonly is
/// vm.max_map_count: the range needs more mappings than the process may have.
///
/// Thread safety: the verbs and queries may be called from several threads at once on ranges that
/// do not overlap. Moving, destroying and the destructor need the object alone. In a child after
/// fork() the object is usable if no other thread was inside a call; with ForkBehaviour::kOmit its
/// verbs return kFrozen there and destruction leaves the child's address space alone.
class TOUCHSTONE_API Reservation {
 public:
  /// The largest size and alignment: 2^47 bytes, the user half of the address space that every
  /// x86-64 kernel has (Documentation/arch/x86/x86_64/mm.rst).
  static constexpr std::size_t kMaxSize = std::size_t{1} << 47U;

  /// Reserves addresses. Nothing is committed and no memory is used, except for hugetlb.
  ///
  /// Errors: kInvalidArgument, kMisaligned, kOverflow, kLimitExceeded (over kMaxSize, or over
  /// RLIMIT_AS), kOutOfMemory (address space, mappings or bookkeeping), kPoolEmpty, kUnsupported
  /// (huge page advice, fork behaviour or hugetlb page size that this kernel lacks). On error
  /// nothing stays mapped.
  [[nodiscard]] static Result<Reservation> reserve(const ReservationOptions& options) noexcept;

  /// Holds nothing.
  Reservation() noexcept;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  /// As destroy(); a failure goes to ReservationOptions::on_abandoned.
  ~Reservation();

  /// Makes a range readable and writable. What is committed already keeps its contents; the rest
  /// reads zero. Costs no memory until the first touch.
  [[nodiscard]] Result<Commitment> commit(MemoryRange range) noexcept;

  /// Gives the memory of a range back and makes every access to it fault: reserved again, and
  /// zeroed when next committed. Harmless on what is not committed. When it fails, memory behind
  /// `progress` may have been given back (it then reads zero) while still committed.
  [[nodiscard]] Result<> uncommit(MemoryRange range) noexcept;

  /// Gives the memory of a range back and leaves it committed. A hint: afterwards each page reads
  /// as zero or, with DiscardPolicy::kLazily, as before until it is written. When it fails, pages
  /// behind `progress` may have been given back as well.
  [[nodiscard]] Result<> discard(MemoryRange range,
                                 DiscardPolicy policy = DiscardPolicy::kAtOnce) noexcept;

  /// Sets what may be done with a committed range; the contents stay. kInvalidArgument where part
  /// of it is not committed.
  [[nodiscard]] Result<> protect(MemoryRange range, Protection protection) noexcept;

  /// Forbids, until the process ends, that a range is unmapped, moved or given another protection,
  /// by anyone (mseal, Linux 6.10). kUnsupported where the kernel lacks it. commit, uncommit and
  /// protect then fail with kNotPermitted, and so does discard where the memory is not writable.
  [[nodiscard]] Result<> seal(MemoryRange range) noexcept;

  /// Names a range in /proc/PID/maps; null removes the name. Rules for the name as in
  /// ReservationOptions. kUnsupported where the kernel lacks it.
  [[nodiscard]] Result<> rename(MemoryRange range, const char* name) noexcept;

  /// Asks for or against huge pages in a range from now on. kDefault cannot be had back:
  /// kInvalidArgument. kAvoid also succeeds on a kernel without huge pages.
  [[nodiscard]] Result<> advise_huge_pages(MemoryRange range, HugePages huge_pages) noexcept;

  /// Unmaps everything, after which the object holds nothing. Succeeds on one that holds nothing.
  ///
  /// Sealed ranges cannot be unmapped. Everything else is, the object holds nothing, and the Error
  /// has kNotPermitted and the first sealed range as `address` and `length`; sealed_ranges() still
  /// lists all that stays mapped. Any other Error (kOutOfMemory, where unmapping would split a
  /// mapping beyond vm.max_map_count) has the whole as its range and the exact progress: what lies
  /// behind is still held, and destroy() may be repeated.
  [[nodiscard]] Result<> destroy() noexcept;

  /// The reserved addresses; empty if the object holds nothing.
  [[nodiscard]] MemoryRange range() const noexcept;
  [[nodiscard]] std::byte* data() const noexcept { return range().data(); }
  /// Bytes reserved.
  [[nodiscard]] std::size_t size() const noexcept { return range().size(); }
  /// The unit of all ranges, in bytes; 0 if the object holds nothing.
  [[nodiscard]] std::size_t page_size() const noexcept;
  /// Whether the address lies within.
  [[nodiscard]] bool contains(const void* address) const noexcept;
  /// Bytes committed now.
  [[nodiscard]] std::size_t committed_bytes() const noexcept;
  /// The sealed ranges in order of address, merged where they touch; after destroy(), what it had
  /// to leave mapped. Throws std::bad_alloc.
  [[nodiscard]] std::vector<MemoryRange> sealed_ranges() const;
  /// Whether the kernel took the name given to reserve().
  [[nodiscard]] bool named() const noexcept;

 private:
  struct State;
  explicit Reservation(std::unique_ptr<State> state) noexcept;
  void abandon() noexcept;
  [[nodiscard]] Result<> check(const char* operation, MemoryRange range) const noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_RESERVATION_H_
