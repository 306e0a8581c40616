// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_FAST_PATHS_H_
#define TOUCHSTONE_JIT_FAST_PATHS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <asmjit/arm/a64assembler.h>
#include <asmjit/core.h>
#include <asmjit/x86.h>

#include <touchstone/arch/error.h>
#include <touchstone/heap/fast_path_layout.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/rmw.h>

/// The pieces of code that a mutator runs all the time: TLAB allocation, the card-marking write
/// barrier, also for runs of slots and for atomics, mark-bit test-and-set, the safepoint poll.
/// Inline, for a runtime's own code generator, and as functions. What they work on is heap's
/// FastPathLayout, which also says what the code around them has to keep to.
namespace touchstone::jit {

/// Registers by number, as in RmwRegisters (SP and RSP are refused). All that are used must differ.
struct FastPathRegisters {
  /// The mutator block. Kept.
  std::uint8_t mutator = kNoRegister;
  /// Allocation by register: the size. The barrier: the address written to. Marking: the object.
  /// Kept.
  std::uint8_t input = kNoRegister;
  /// The barrier for a run of slots: how many bytes. Kept.
  std::uint8_t length = kNoRegister;
  /// Allocation: the object. Marking: 1 if the bit was set already, else 0.
  std::uint8_t result = kNoRegister;
  /// Spoilt: 2 for allocation and for the barrier; 3 for the barrier for a run of slots and for
  /// marking (2 on x86-64); 1 for the poll (none on x86-64).
  std::array<std::uint8_t, 3> scratch{kNoRegister, kNoRegister, kNoRegister};
};

/// Takes `size` bytes, rounded up to the object alignment, from the TLAB; jumps to `slow` with the
/// TLAB unchanged where it has not so many left. Nothing is initialised. At most 6 instructions on
/// arm64, 5 on x86-64, when it succeeds. Spoils the flags.
///
/// Errors of all of these: as FastPathLayout::check; kInvalidArgument for registers that are
/// missing, clash or cannot be used, and for a size of 0; kOutOfRange for a size above
/// max_tlab_object; kOutOfMemory. On error the assembler's position is where it was.
[[nodiscard]] Result<> emit_allocate(asmjit::a64::Assembler& assembler,
                                     const heap::FastPathLayout& layout,
                                     const FastPathRegisters& registers, std::size_t size,
                                     const asmjit::Label& slow) noexcept;
[[nodiscard]] Result<> emit_allocate(asmjit::x86::Assembler& assembler,
                                     const heap::FastPathLayout& layout,
                                     const FastPathRegisters& registers, std::size_t size,
                                     const asmjit::Label& slow) noexcept;

/// The same for a size in `input`, which has to be a multiple of the object alignment already. Any
/// value is safe: one too large for the TLAB goes to `slow`. At most 6 instructions on arm64, 7 on
/// x86-64.
[[nodiscard]] Result<> emit_allocate(asmjit::a64::Assembler& assembler,
                                     const heap::FastPathLayout& layout,
                                     const FastPathRegisters& registers,
                                     const asmjit::Label& slow) noexcept;
[[nodiscard]] Result<> emit_allocate(asmjit::x86::Assembler& assembler,
                                     const heap::FastPathLayout& layout,
                                     const FastPathRegisters& registers,
                                     const asmjit::Label& slow) noexcept;

/// Whether the barrier looks before it writes: fewer cache lines change hands between threads, for
/// a load and a branch more.
enum class CardBarrier : std::uint8_t { kAlwaysStore, kStoreIfClean };

/// Marks the card of the address in `input` dirty; to be put after the store of a reference. Spoils
/// the flags.
[[nodiscard]] Result<> emit_card_barrier(asmjit::a64::Assembler& assembler,
                                         const heap::FastPathLayout& layout,
                                         const FastPathRegisters& registers,
                                         CardBarrier kind) noexcept;
[[nodiscard]] Result<> emit_card_barrier(asmjit::x86::Assembler& assembler,
                                         const heap::FastPathLayout& layout,
                                         const FastPathRegisters& registers,
                                         CardBarrier kind) noexcept;

/// Marks the cards of `length` bytes from `input` on, of none if that is 0; to be put after a copy
/// of references. Spoils the flags.
[[nodiscard]] Result<> emit_bulk_barrier(asmjit::a64::Assembler& assembler,
                                         const heap::FastPathLayout& layout,
                                         const FastPathRegisters& registers) noexcept;
[[nodiscard]] Result<> emit_bulk_barrier(asmjit::x86::Assembler& assembler,
                                         const heap::FastPathLayout& layout,
                                         const FastPathRegisters& registers) noexcept;

/// The same for an object in `input` of `length` bytes whose fields have just been initialised:
/// nothing unless it is old at once (FastPathLayout::max_young_object). Where the size is a
/// constant, ask FastPathLayout::is_old_at_once().
[[nodiscard]] Result<> emit_initialising_barrier(asmjit::a64::Assembler& assembler,
                                                 const heap::FastPathLayout& layout,
                                                 const FastPathRegisters& registers) noexcept;
[[nodiscard]] Result<> emit_initialising_barrier(asmjit::x86::Assembler& assembler,
                                                 const heap::FastPathLayout& layout,
                                                 const FastPathRegisters& registers) noexcept;

/// Registers of an atomic on a slot that holds a reference. All that are used must differ; RAX may
/// be `expected` or `result` (also both) and nothing else where there is an `expected`.
struct ReferenceRmwRegisters {
  std::uint8_t mutator = kNoRegister;   ///< The mutator block. Kept.
  std::uint8_t slot = kNoRegister;      ///< The slot's address. Kept.
  std::uint8_t value = kNoRegister;     ///< The reference to store. Kept.
  std::uint8_t expected = kNoRegister;  ///< For compare-and-swap; kept unless it is RAX.
  std::uint8_t result = kNoRegister;    ///< What the slot held before.
  std::array<std::uint8_t, 2> scratch{kNoRegister, kNoRegister};  ///< Spoilt.
};

/// Swaps the reference in a slot and marks its card. Spoils the flags. Errors: as the others; those
/// of emit_rmw.
[[nodiscard]] Result<> emit_reference_swap(asmjit::a64::Assembler& assembler,
                                           const heap::FastPathLayout& layout,
                                           const ReferenceRmwRegisters& registers, RmwOrder order,
                                           RmwTarget target) noexcept;
[[nodiscard]] Result<> emit_reference_swap(asmjit::x86::Assembler& assembler,
                                           const heap::FastPathLayout& layout,
                                           const ReferenceRmwRegisters& registers) noexcept;

/// Stores the reference if the slot holds `expected`, and marks its card then; else jumps to
/// `failed`. Spoils the flags, and RAX on x86-64.
[[nodiscard]] Result<> emit_reference_compare_swap(asmjit::a64::Assembler& assembler,
                                                   const heap::FastPathLayout& layout,
                                                   const ReferenceRmwRegisters& registers,
                                                   RmwOrder order, RmwTarget target,
                                                   const asmjit::Label& failed) noexcept;
[[nodiscard]] Result<> emit_reference_compare_swap(asmjit::x86::Assembler& assembler,
                                                   const heap::FastPathLayout& layout,
                                                   const ReferenceRmwRegisters& registers,
                                                   const asmjit::Label& failed) noexcept;

/// Atomically sets the mark bit of the object in `input`, acquire-release, and gives in `result`
/// whether it was set: of all threads that mark an object exactly one sees 0. Spoils the flags.
/// `target` is an arm64 one.
[[nodiscard]] Result<> emit_mark(asmjit::a64::Assembler& assembler,
                                 const heap::FastPathLayout& layout,
                                 const FastPathRegisters& registers, RmwTarget target) noexcept;
[[nodiscard]] Result<> emit_mark(asmjit::x86::Assembler& assembler,
                                 const heap::FastPathLayout& layout,
                                 const FastPathRegisters& registers) noexcept;

/// Jumps to `slow` when the mutator is asked to stop. Spoils the flags on x86-64 alone.
[[nodiscard]] Result<> emit_safepoint_poll(asmjit::a64::Assembler& assembler,
                                           const heap::FastPathLayout& layout,
                                           const FastPathRegisters& registers,
                                           const asmjit::Label& slow) noexcept;
[[nodiscard]] Result<> emit_safepoint_poll(asmjit::x86::Assembler& assembler,
                                           const heap::FastPathLayout& layout,
                                           const FastPathRegisters& registers,
                                           const asmjit::Label& slow) noexcept;

/// What the functions below call when the fast path does not do: Mutator::allocate_slow_path and
/// Mutator::poll_slow_path, or what a runtime has in front of them.
struct SlowPaths {
  void* (*allocate)(void* mutator, std::size_t size) = nullptr;
  void (*safepoint)(void* mutator) = nullptr;
};

/// Which function emit_fast_path_function makes.
enum class FastPath : std::uint8_t {
  kAllocate,       ///< void* (void* mutator, std::size_t size), or what the slow path returns.
  kCardBarrier,    ///< void (void* mutator, void* address).
  kMark,           ///< bool (void* mutator, void* object): whether it was marked already.
  kSafepointPoll,  ///< void (void* mutator).
  kBulkBarrier,    ///< void (void* mutator, void* begin, std::size_t bytes).
  kReferenceSwap,  ///< void* (void* mutator, void* slot, void* value): what was there. Acq_rel.
  /// bool (void* mutator, void* slot, void* expected, void* value): whether it was swapped.
  kReferenceCompareSwap,
};
inline constexpr std::size_t kFastPathCount = 7;

/// No such function is longer, in bytes.
inline constexpr std::size_t kMaxFastPathSize = 160;

/// Writes one as a whole function of the target's C calling convention; on any host. It does not
/// depend on where it lies. Errors: kInvalidArgument for a slow path that is needed and null;
/// kOutOfRange where the buffer is too small. Thread-safe.
[[nodiscard]] Result<std::size_t> emit_fast_path_function(FastPath path,
                                                          const heap::FastPathLayout& layout,
                                                          const SlowPaths& slow, RmwTarget target,
                                                          std::span<std::byte> buffer) noexcept;

/// All as functions in a code cache, which must outlive them. Calling is thread-safe.
class FastPaths {
 public:
  using Allocate = void* (*)(void* mutator, std::size_t size);
  using Barrier = void (*)(void* mutator, void* address);
  using Mark = bool (*)(void* mutator, void* object);
  using Poll = void (*)(void* mutator);
  using BulkBarrier = void (*)(void* mutator, void* begin, std::size_t bytes);
  using Swap = void* (*)(void* mutator, void* slot, void* value);
  using CompareSwap = bool (*)(void* mutator, void* slot, void* expected, void* value);

  /// For this CPU. Errors: as emit_fast_path_function and CodeCache::add.
  [[nodiscard]] static Result<FastPaths> create(CodeCache& cache,
                                                const heap::FastPathLayout& layout,
                                                const SlowPaths& slow);
  FastPaths(FastPaths&& other) noexcept;
  FastPaths& operator=(FastPaths&&) = delete;
  FastPaths(const FastPaths&) = delete;
  FastPaths& operator=(const FastPaths&) = delete;
  ~FastPaths();

  /// `size` has to be a multiple of the object alignment.
  [[nodiscard]] Allocate allocate() const noexcept;
  [[nodiscard]] Barrier card_barrier() const noexcept;
  [[nodiscard]] Mark mark() const noexcept;
  [[nodiscard]] Poll safepoint_poll() const noexcept;
  [[nodiscard]] BulkBarrier bulk_barrier() const noexcept;
  [[nodiscard]] Swap reference_swap() const noexcept;
  [[nodiscard]] CompareSwap reference_compare_swap() const noexcept;

 private:
  explicit FastPaths(CodeCache& cache) noexcept : cache_(&cache) {}
  CodeCache* cache_ = nullptr;
  std::array<const void*, kFastPathCount> entries_{};
};

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_FAST_PATHS_H_
