// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_PRETOUCH_H_
#define TOUCHSTONE_HEAP_PRETOUCH_H_

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>
#include <touchstone/arch/machine.h>
#include <touchstone/heap/residency.h>

/// Pre-touch: have the kernel back a range with memory now, so that no mutator faults on it later.
///
///     auto done = pretouch(heap_start, heap_size);   // automatic strategy and thread count
///     if (!done) report(done.error().error.message());
///
/// How to choose a strategy by hand: heap/README.md.
namespace touchstone::heap {

// ---- Strategies
// --------------------------------------------------------------------------------------

/// How a page is touched. "Owned" strategies are for memory that nobody else uses yet; see
/// safe_beside_mutators().
enum class PretouchStrategy : std::uint8_t {
  /// Nothing: the pages come when the mutators fault on them.
  kNone,
  /// Stores a zero byte into each base page. Owned; destroys what is there.
  kStore,
  /// A read-modify-write that changes no value in each base page: the touch kernel of the options,
  /// else
  /// the registered one, else the compiler's __atomic_fetch_add of 0. On arm64 it faults twice a
  /// page
  /// and shatters huge pages, except on kernels that know better.
  kAtomicRmw,
  /// madvise(MADV_POPULATE_WRITE), Linux 5.14 on. Reads and keeps what is there.
  kPopulateWrite,
  /// madvise(MADV_POPULATE_READ), which maps the zero page, then kStore. Owned.
  kPopulateReadThenStore,
  /// A load, then a store, in each base page: what arm64 hardware makes of an atomic, on any
  /// machine.
  /// Owned. For measuring, not for use.
  kLoadThenStore,
  /// MADV_POPULATE_WRITE of one page of each huge page, then madvise(MADV_COLLAPSE) over it
  /// (Linux 6.1
  /// on): huge pages even where faults give none. Keeps what is there. What is not a whole huge
  /// page
  /// at either end is populated page by page.
  kCollapse,
  /// What choose_pretouch_strategy() finds best here. Unless PretouchOptions::memory_in_use says
  /// otherwise that may be kStore, which destroys what is there.
  kAutomatic,
};

/// All of them, kAutomatic last.
[[nodiscard]] TOUCHSTONE_API std::span<const PretouchStrategy> all_pretouch_strategies() noexcept;

/// "none", "store", "atomic_rmw", "populate_write", "populate_read_then_store", "load_then_store",
/// "collapse", "automatic". Never null.
[[nodiscard]] TOUCHSTONE_API const char* to_string(PretouchStrategy strategy) noexcept;

/// The strategy of that name; nullopt for any other.
[[nodiscard]] TOUCHSTONE_API std::optional<PretouchStrategy> parse_pretouch_strategy(
    std::string_view name) noexcept;

/// Whether other threads may read and write the same memory meanwhile. True of kNone, kAtomicRmw
/// (with a value-preserving kernel), kPopulateWrite, kCollapse and kAutomatic (which then picks
/// among these).
[[nodiscard]] TOUCHSTONE_API bool safe_beside_mutators(PretouchStrategy strategy) noexcept;

// ---- The slot for an emitted touch kernel
// -------------------------------------------------------------

/// A loop that touches one location every `stride` bytes of [begin, end): what kAtomicRmw runs.
/// Plain data, so that this library needs no code generator; touchstone::jit makes such kernels.
struct TouchKernel {
  /// `begin` and `end` are multiples of the base page, `stride` is the base page. Must not fail.
  /// Called by several threads at once, each on a range of its own.
  void (*touch)(void* begin, void* end, std::size_t stride) = nullptr;
  /// For reports, such as "a64 ldadd". Lives as long as the kernel.
  const char* name = "";
  /// Whether it leaves every value as it finds it, atomically. Required for memory in use.
  bool value_preserving = false;
};

/// The one that the compiler makes: __atomic_fetch_add(p, 0, relaxed) on a 64-bit word. On arm64
/// without -march=armv8.1-a the compiler calls its outline atomics, which take LSE where the CPU
/// has it.
[[nodiscard]] TOUCHSTONE_API const TouchKernel& compiler_touch_kernel() noexcept;

/// Makes `kernel` the process-wide default for kAtomicRmw and returns the one before;
/// null restores compiler_touch_kernel(). The kernel must outlive every pre-touch that may use it.
/// One whose `touch` is null is ignored. Thread-safe.
TOUCHSTONE_API const TouchKernel* register_touch_kernel(const TouchKernel* kernel) noexcept;

/// The kernel in force. Thread-safe.
[[nodiscard]] TOUCHSTONE_API const TouchKernel& default_touch_kernel() noexcept;

// ---- Options
// ----------------------------------------------------------------------------------------------

/// What to say to the kernel about huge pages on the range before the first touch.
enum class HugePageAdvice : std::uint8_t {
  kLeave,   ///< Nothing.
  kHuge,    ///< madvise(MADV_HUGEPAGE).
  kNoHuge,  ///< madvise(MADV_NOHUGEPAGE).
};

/// What to do when the range is larger than what the memory limits leave.
///
/// The limits are those of arch::cgroup_memory(), arch::available_memory(), and RLIMIT_AS. What of
/// the range is resident already is not counted. A limit that cannot be read is no limit, and
/// PretouchResult::limits says so.
enum class LimitPolicy : std::uint8_t {
  kRefuse,  ///< kLimitExceeded before the first touch. The process lives.
  kClamp,   ///< Touch as much from the start as fits, in whole huge pages; clamped_bytes tells the
            ///< rest.
  kIgnore,  ///< Do not look.
};

/// How far a pre-touch is. Both figures only grow.
struct PretouchProgress {
  /// Bytes done, wherever they lie.
  std::size_t done = 0;
  /// Bytes done from the start of the range on without a gap.
  std::size_t prefix = 0;
  /// Bytes to do.
  std::size_t total = 0;
};

/// The most threads one pre-touch takes.
inline constexpr unsigned kMaxPretouchThreads = 1024;

struct PretouchOptions {
  PretouchStrategy strategy = PretouchStrategy::kAutomatic;
  /// 0: as many as there are CPUs for this process (arch::usable_cpus()). Never more than there are
  /// chunks. Above kMaxPretouchThreads is kInvalidArgument. The calling thread is one of them;
  /// where the system gives fewer threads the rest do the work, and PretouchResult::threads tells
  /// how many.
  unsigned threads = 0;
  HugePageAdvice huge_pages = HugePageAdvice::kLeave;
  /// Other threads may use the range meanwhile. Strategies that are not safe then are kBusy.
  bool memory_in_use = false;
  LimitPolicy limits = LimitPolicy::kRefuse;
  /// For kAtomicRmw; null is default_touch_kernel().
  const TouchKernel* touch_kernel = nullptr;
  /// Sizes to work by; all zero is arch::geometry().
  arch::Geometry geometry{};
  /// Bytes that a thread takes at a time, a multiple of the PMD size; 0 is 16 MiB or the PMD size,
  /// whichever is larger.
  std::size_t chunk = 0;
  /// Check after every madvise that the pages are there (see residency_of()), so that one that
  /// returns success and does nothing is kIneffective. Costs well under 1%.
  bool verify = true;
  /// Take vmstat before and after (PretouchResult::system_wide).
  bool count_system_wide = false;
  /// Called on the thread that called pretouch(), or on the background thread, after each of its
  /// own chunks and once at the end. Must not throw.
  std::function<void(const PretouchProgress&)> on_progress{};
  /// Asks for an early stop, at the next chunk: kCancelled.
  std::stop_token stop{};
  /// Where the limits and modes are read from.
  arch::SystemRoots roots{};
};

// ---- The choice of automatic
// ------------------------------------------------------------------------------

/// What one strategy did on a scratch range.
struct PretouchTrial {
  PretouchStrategy strategy = PretouchStrategy::kNone;
  std::size_t length = 0;
  /// What went wrong, kIneffective included; nullopt if nothing did.
  std::optional<Error> error{};
  std::uint64_t minor_faults = 0;
  /// Faults that one touch per mapped page would take: 1 per huge page, else 1 per base page.
  std::uint64_t expected_faults = 0;
  std::size_t populated = 0;
  /// Bytes in huge pages; nullopt where no source tells.
  std::optional<std::size_t> huge{};
  /// CPU time of the touching, the best of the runs.
  double seconds = 0;
  /// Populated wholly, without double faults, and by as many huge pages as the best of the round
  /// got.
  bool sound = false;
};

/// What automatic picked, and why.
struct PretouchChoice {
  PretouchStrategy strategy = PretouchStrategy::kStore;
  /// One or two sentences for a person.
  std::string reason{};
  /// The evidence, in the order tried.
  std::vector<PretouchTrial> trials{};
};

/// Tries the strategies that are fit for use on scratch memory of a few huge pages, advised as
/// `options` says, and picks the fastest among those that leave the memory whole: populated, in
/// huge pages where any strategy gets some, without double faults. Judged by residency and fault
/// counts after the call, never by errno or version alone. Where no scratch can be had the choice
/// is kStore, or kAtomicRmw for memory in use.
///
/// Of `options` it reads memory_in_use, huge_pages, touch_kernel, geometry and roots. The answer is
/// kept for the process, one per combination of these and the THP mode. Thread-safe. Errors:
/// kInvalidArgument for an invalid geometry.
[[nodiscard]] TOUCHSTONE_API Result<PretouchChoice> choose_pretouch_strategy(
    const PretouchOptions& options = {});

/// Forgets the choices kept, so that the next one is tried anew. Thread-safe.
TOUCHSTONE_API void forget_pretouch_choices() noexcept;

// ---- Pre-touch
// ----------------------------------------------------------------------------------------------

/// Bytes [offset, offset + length) of a pre-touched range.
struct PretouchedPart {
  std::size_t offset = 0;
  std::size_t length = 0;

  friend bool operator==(const PretouchedPart&, const PretouchedPart&) = default;
};

/// The limits that were looked at before the first touch.
struct PretouchLimits {
  Result<std::optional<arch::CgroupMemory>> cgroup{};
  Result<std::uint64_t> available{};
  Result<std::optional<std::uint64_t>> address_space{};
};

/// A pre-touch that did all it was to do.
struct PretouchResult {
  /// Bytes from the start of the range on that are touched; 0 for kNone.
  std::size_t bytes = 0;
  /// Bytes at the end left out by LimitPolicy::kClamp.
  std::size_t clamped_bytes = 0;
  /// The strategy that did it: never kAutomatic.
  PretouchStrategy strategy = PretouchStrategy::kNone;
  /// The name of the touch kernel, or "" where none ran.
  const char* touch_kernel = "";
  /// Threads that took part.
  unsigned threads = 0;
  /// Bytes a thread took at a time.
  std::size_t chunk = 0;
  /// Faults of the threads that took part, while they did. kUnavailable where getrusage does not
  /// tell.
  Result<Faults> faults{};
  /// The touched bytes afterwards.
  Result<Residency> residency{};
  /// Bytes in huge pages afterwards: of `residency`, else of smaps where that is exact; else
  /// kUnavailable.
  Result<std::size_t> huge_bytes{};
  /// vmstat deltas over the operation, when asked for. The whole system's, other processes
  /// included.
  std::optional<Result<Vmstat>> system_wide{};
  /// Wall time of the touching alone: without the choice, the limits and the final residency.
  double seconds = 0;
  /// madvise calls that were repeated after EINTR or EAGAIN.
  std::uint64_t retries = 0;
  /// How kAutomatic came to `strategy`; nullopt when the caller chose.
  std::optional<PretouchChoice> choice{};
  /// nullopt with LimitPolicy::kIgnore and kNone.
  std::optional<PretouchLimits> limits{};
};

/// A pre-touch that stopped early.
struct PretouchFailure {
  /// The first cause; further ones in other threads are dropped. `progress` is exact: that many
  /// bytes from the start are touched, and the page after them is not. Only where no source of
  /// residency works at all is it a lower bound, in whole chunks.
  Error error{};
  /// Parts beyond error.progress that are touched all the same, as other threads were ahead: in
  /// order, apart from each other, each as long as it goes. Nothing else was touched.
  std::vector<PretouchedPart> beyond{};
  /// The strategy that failed.
  PretouchStrategy strategy = PretouchStrategy::kNone;
  /// See PretouchResult.
  std::optional<PretouchLimits> limits{};
};

using PretouchOutcome = std::expected<PretouchResult, PretouchFailure>;

/// Touches [address, address + length) and returns when that is done.
///
/// Errors before the first touch: kInvalidArgument (length of 0, thread count, chunk, geometry, a
/// touch kernel without a function), kMisaligned (address or length no multiple of the base page),
/// kOverflow, kBusy (strategy not safe beside mutators, memory in use), kLimitExceeded. On the way:
/// what madvise says, after EINTR and EAGAIN were retried and resumed; kIneffective when it says
/// success and the pages are not there; kCancelled. With kAutomatic a strategy that turns out
/// refused or ineffective on the way is replaced by the next best, and only when none is left does
/// that fail.
///
/// A huge-page advice that the kernel refuses is no failure when the kernel has no THP (EINVAL).
/// Touching memory that is not mapped readable and writable by other means than madvise is
/// undefined: the process gets the signal. Thread-safe; blocks.
[[nodiscard]] TOUCHSTONE_API PretouchOutcome pretouch(void* address, std::size_t length,
                                                      const PretouchOptions& options = {});

/// A pre-touch in the background. Moveable; a moved-from or default-constructed one is empty.
class TOUCHSTONE_API PretouchTask {
 public:
  PretouchTask() noexcept;
  PretouchTask(PretouchTask&& other) noexcept;
  PretouchTask& operator=(PretouchTask&& other) noexcept;
  PretouchTask(const PretouchTask&) = delete;
  PretouchTask& operator=(const PretouchTask&) = delete;
  /// Cancels and waits: the range may be unmapped afterwards.
  ~PretouchTask();

  /// Whether there is something to wait for.
  [[nodiscard]] bool valid() const noexcept;
  /// How far it is. All zero when empty. Thread-safe.
  [[nodiscard]] PretouchProgress progress() const noexcept;
  /// Whether wait() would return at once. Thread-safe.
  [[nodiscard]] bool finished() const noexcept;
  /// Asks it to stop at the next chunk. Does not wait. Thread-safe.
  void cancel() noexcept;
  /// Waits for the end, gives the outcome, and leaves the task empty. kInvalidArgument when empty.
  [[nodiscard]] PretouchOutcome wait();

 private:
  struct State;
  explicit PretouchTask(std::unique_ptr<State> state) noexcept;
  friend TOUCHSTONE_API Result<PretouchTask> start_pretouch(void* address, std::size_t length,
                                                            const PretouchOptions& options);
  std::unique_ptr<State> state_;
};

/// Starts pretouch() on a thread of its own and returns. Errors are those of pretouch() that come
/// before the first touch and need no look at the limits, and kOutOfMemory when no thread can be
/// had; the rest come from wait(). The range and the touch kernel must stay until then.
[[nodiscard]] TOUCHSTONE_API Result<PretouchTask> start_pretouch(
    void* address, std::size_t length, const PretouchOptions& options = {});

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_PRETOUCH_H_
