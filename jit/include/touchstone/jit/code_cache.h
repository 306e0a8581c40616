// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_CODE_CACHE_H_
#define TOUCHSTONE_JIT_CODE_CACHE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <touchstone/arch/error.h>

/// Memory for emitted code.
///
///     auto cache = CodeCache::create().value();
///     auto place = cache->reserve(code.size()).value();   // its final address, for relocation
///     cache->publish(place, code, "my_stub", &entry);     // callable through `entry` from here on
///     cache->release(place.address);                      // reused when every thread has left it
///
/// The memory is one memfd seen twice: a view that can be written and never executed, known to the
/// cache alone, and one that can be executed and never written. What no thread can reach yet is
/// written, flushed, synchronised with all cores, and then made reachable by one aligned store.
namespace touchstone::jit {

/// How cores are made to drop instructions they fetched before a publication.
enum class CodeSynchronisation : std::uint8_t {
  /// kMembarrier, and kVisitCpus where that is refused, then or later.
  kAutomatic,
  /// membarrier(PRIVATE_EXPEDITED_SYNC_CORE), Linux 4.16 on.
  kMembarrier,
  /// The publishing thread runs once on each CPU it may use (sched_setaffinity): whatever thread
  /// of the process ran there was switched out, and comes back through an exception return. Slower
  /// by far, and blind to threads that another cpuset lets run elsewhere.
  kVisitCpus,
};

struct CodeCacheOptions {
  /// Bytes of code space: rounded up to pages, or to huge pages where it is at least one. Memory is
  /// taken as it is used. On arm64 a direct branch reaches 128 MiB.
  std::size_t capacity = std::size_t{64} << 20;
  /// Map code without read permission. On arm64 it is readable while it is published, as cache
  /// maintenance needs that; on x86-64 without protection keys the hardware lets it be read anyway.
  bool execute_only = false;
  /// mseal both views, so that nothing in the process can unmap them or change their protection;
  /// they then stay until it ends. kUnsupported before Linux 6.10, and with execute_only on arm64.
  bool seal = false;
  /// Back whole PMD-sized parts by huge pages, when capacity has any and the kernel gives them.
  bool huge_pages = true;
  CodeSynchronisation synchronisation = CodeSynchronisation::kAutomatic;
  /// Append published code to `/tmp/perf-<pid>.map`, so that perf names it.
  bool perf_map = false;
  /// Tell debuggers of published code by GDB's JIT interface.
  bool debugger = false;
};

/// A place in the cache: where code will run. Nothing is callable there yet.
struct CodePlace {
  const std::byte* address = nullptr;
  std::size_t size = 0;
};

struct CodeCacheStatistics {
  std::size_t capacity = 0;
  /// Bytes reserved or published.
  std::size_t used = 0;
  /// Bytes released that a thread may still be in.
  std::size_t retired = 0;
  /// Bytes from the start that were ever used: what the cache takes of memory at most.
  std::size_t high_water = 0;
  /// Bytes of code space in huge pages, where the kernel tells (PAGEMAP_SCAN, Linux 6.7 on).
  std::size_t huge = 0;
  /// Functions published now, and ever.
  std::size_t functions = 0;
  std::uint64_t publications = 0;
  /// Whether the last synchronisation was by visiting CPUs.
  bool visits_cpus = false;
};

/// Thread-safe but for its destruction. After fork the child's cache is frozen: everything that
/// would change code is kFrozen, since the memory is the parent's too. Code published before runs
/// on in the child.
class CodeCache {
 public:
  /// Errors: kInvalidArgument for a capacity of 0; kOutOfMemory; kNotPermitted where memfds or
  /// executable mappings are forbidden (vm.memfd_noexec, SELinux, seccomp); kUnsupported for seal
  /// and for kMembarrier where the kernel has none.
  [[nodiscard]] static Result<std::unique_ptr<CodeCache>> create(
      const CodeCacheOptions& options = {});

  CodeCache(const CodeCache&) = delete;
  CodeCache& operator=(const CodeCache&) = delete;
  /// Unmaps everything, unless sealed. No thread may be in the code or register any more.
  ~CodeCache();

  /// Takes `size` bytes, at a multiple of kCodeAlignment. Errors: kInvalidArgument for 0;
  /// kOutOfMemory when the cache is full or the kernel has no memory left; kFrozen.
  [[nodiscard]] Result<CodePlace> reserve(std::size_t size);

  /// Copies `code` to the place, makes it visible to every core, and then stores the place's
  /// address to `*slot`, if given; any thread may call through the slot from then on. `name` is for
  /// perf and debuggers. Only then is read permission dropped, where code is execute-only.
  ///
  /// Errors: kInvalidArgument for a place that is not reserved (any more) or published already;
  /// kOutOfRange for more code than the place holds; kNotPermitted or kUnsupported where cores
  /// cannot be synchronised; kFrozen. The slot is then unchanged, the place is free again and holds
  /// trapping instructions, and nothing of it was ever callable.
  [[nodiscard]] Result<> publish(const CodePlace& place, std::span<const std::byte> code,
                                 std::string_view name, std::atomic<const void*>* slot = nullptr);

  /// reserve() and publish() of code that does not depend on where it lies.
  [[nodiscard]] Result<const void*> add(std::span<const std::byte> code, std::string_view name,
                                        std::atomic<const void*>* slot = nullptr);

  /// Gives back a place, reserved or published. Nothing may lead to it any more: no slot, no
  /// branch. It is overwritten with trapping instructions and reused once every registered
  /// CodeThread has passed a quiescent point after this. Errors: kInvalidArgument for an address
  /// that is none; kFrozen.
  [[nodiscard]] Result<> release(const void* address);

  /// Frees what threads have left meanwhile, and returns those bytes. reserve() and release() do
  /// this too. Errors: kFrozen.
  [[nodiscard]] Result<std::size_t> reclaim();

  /// Publishes a jump to `target`, which patch_branch can change while threads run through it.
  /// Errors: as reserve and publish; kOutOfRange where the target cannot be reached.
  [[nodiscard]] Result<const void*> add_jump(const void* target, std::string_view name);

  /// Makes the jump of add_jump(), or a direct branch within published code, lead to `target`, by
  /// one aligned store; running threads take the old or the new way, and after return all cores
  /// take the new one. `site` is the address add_jump() gave; or on arm64 that of a B or BL; or on
  /// x86-64 that of a JMP or CALL rel32 whose displacement is 4-byte aligned. Errors:
  /// kInvalidArgument where there is no such branch; kMisaligned; kOutOfRange; as publish where
  /// cores cannot be synchronised (the branch is changed by then).
  [[nodiscard]] Result<> patch_branch(const void* site, const void* target);

  /// Whether the address lies in the executable view.
  [[nodiscard]] bool contains(const void* address) const noexcept;

  /// Published code as bytes, for disassembly. Readable unless execute-only. Errors:
  /// kInvalidArgument for an address that is no published function; kNotPermitted where it is
  /// execute-only.
  [[nodiscard]] Result<std::span<const std::byte>> code_at(const void* address) const;

  [[nodiscard]] CodeCacheStatistics statistics() const;

 private:
  friend class CodeThread;
  struct State;
  explicit CodeCache(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// Every place starts at a multiple of this and has it to itself, so that writing one never touches
/// a cache line that another core may be executing. Bytes.
inline constexpr std::size_t kCodeAlignment = 64;

/// A thread that runs code of a cache, as long as this object lives. Code is reused only after each
/// of them said that it holds no code: at quiesce(), while offline, or by its end. Threads without
/// one must not run code that may be released.
///
/// To be used by the thread it stands for, and to end before the cache.
class CodeThread {
 public:
  /// Registers, online. Errors: kOutOfMemory; kFrozen.
  [[nodiscard]] static Result<CodeThread> attach(CodeCache& cache);

  CodeThread(CodeThread&& other) noexcept;
  CodeThread& operator=(CodeThread&& other) noexcept;
  CodeThread(const CodeThread&) = delete;
  CodeThread& operator=(const CodeThread&) = delete;
  ~CodeThread();

  /// Says that the thread is in no code and holds no address of code that it did not load from a
  /// slot anew. A few instructions; a safepoint is a good place.
  void quiesce() noexcept;

  /// Around blocking calls: the thread runs no code until online().
  void offline() noexcept;
  void online() noexcept;

 private:
  struct Slot;
  friend class CodeCache;
  CodeThread(CodeCache* cache, std::shared_ptr<Slot> slot) noexcept;
  void detach() noexcept;
  CodeCache* cache_ = nullptr;
  std::shared_ptr<Slot> slot_;
};

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_CODE_CACHE_H_
