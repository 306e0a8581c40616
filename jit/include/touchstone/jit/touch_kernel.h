// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_TOUCH_KERNEL_H_
#define TOUCHSTONE_JIT_TOUCH_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include <touchstone/arch/error.h>
#include <touchstone/heap/pretouch.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/rmw.h>

/// Emitted loops that touch memory so that the kernel backs it with pages, each with one chosen
/// instruction: what pre-touch runs, and what the kernel lab measures.
namespace touchstone::jit {

/// What is done to each place. Down to kWriteBack the value there stays as it is, atomically, so
/// that mutators may use the memory meanwhile; from kSwap on the memory must be owned.
enum class TouchAccess : std::uint8_t {
  kAdd,            ///< Atomically adds 0.
  kClear,          ///< Atomically clears no bit.
  kSet,            ///< Atomically sets no bit.
  kEor,            ///< Atomically flips no bit.
  kSmax,           ///< Signed maximum with the least number.
  kSmin,           ///< Signed minimum with the greatest number.
  kUmax,           ///< Unsigned maximum with 0.
  kUmin,           ///< Unsigned minimum with all ones.
  kCompareSwap,    ///< Replaces 0 by 0, else leaves it.
  kWriteBack,      ///< Load-exclusive, then store-exclusive of what was loaded (arm64).
  kSwap,           ///< Atomically swaps with 0.
  kStore,          ///< Stores 0.
  kLoadThenStore,  ///< Loads, then stores what was loaded: no atomic, and takes two faults.
  kZeroBlock,      ///< DC ZVA (arm64): zeroes a block of arch::zva_block_size() bytes.
};
inline constexpr std::size_t kTouchAccessCount = 14;

/// "add", "compare_swap", "write_back", "load_then_store" and so on. Never null.
[[nodiscard]] const char* to_string(TouchAccess access) noexcept;
[[nodiscard]] std::optional<TouchAccess> parse_touch_access(std::string_view name) noexcept;

/// Whether the value stays as it is.
[[nodiscard]] constexpr bool is_value_preserving(TouchAccess access) noexcept {
  return access <= TouchAccess::kWriteBack;
}

/// One touch kernel. Atomics are relaxed; kA64Llsc makes loops of all of them.
struct TouchShape {
  TouchAccess access = TouchAccess::kAdd;
  /// Bytes accessed at each place: 1, 2, 4, 8 or 16; ignored by kZeroBlock.
  std::uint8_t width = 8;
  RmwTarget target = RmwTarget::kA64Lse;
  /// Whether a read-modify-write fetches the old value (LDADD) or discards it (STADD).
  RmwResult result = RmwResult::kDiscard;

  friend bool operator==(const TouchShape&, const TouchShape&) = default;
};

/// "a64_lse add 8".
[[nodiscard]] std::string to_string(const TouchShape& shape);

/// No touch kernel is longer, in bytes.
inline constexpr std::size_t kMaxTouchKernelSize = 192;

/// What emit_touch_kernel makes, by the target's C calling convention: touches begin, begin +
/// stride, … below end. Nothing is checked.
using TouchEntry = void (*)(void* begin, void* end, std::size_t stride);

/// Writes the kernel's code to `buffer` and returns the bytes written, on any host. Errors: as
/// emit_rmw; kUnsupported for kWriteBack and kZeroBlock on x86-64; kOutOfRange where the buffer is
/// too small. Thread-safe.
[[nodiscard]] Result<std::size_t> emit_touch_kernel(const TouchShape& shape,
                                                    std::span<std::byte> buffer) noexcept;

/// Whether other threads may use the memory while it is touched.
enum class TouchedMemory : std::uint8_t { kInUse, kOwned };

/// A touch kernel in a code cache, which must outlive it. Thread-safe.
class TouchKernel {
 public:
  /// Errors: as emit_touch_kernel and CodeCache::add; kUnsupported where this CPU cannot run the
  /// target, or prohibits DC ZVA.
  [[nodiscard]] static Result<TouchKernel> create(CodeCache& cache, const TouchShape& shape);

  TouchKernel(TouchKernel&&) noexcept;
  TouchKernel& operator=(TouchKernel&&) noexcept;
  TouchKernel(const TouchKernel&) = delete;
  TouchKernel& operator=(const TouchKernel&) = delete;
  ~TouchKernel();

  [[nodiscard]] const TouchShape& shape() const noexcept;
  /// What addresses and strides must be multiples of, in bytes.
  [[nodiscard]] std::size_t alignment() const noexcept;

  /// Touches [begin, end) every `stride` bytes. Errors, before anything is touched:
  /// kInvalidArgument (null, begin above end, a stride of 0), kMisaligned (begin or stride no
  /// multiple of alignment()), kOutOfRange (the last access would pass `end`), kBusy (memory in use
  /// and a kernel that does not preserve values).
  [[nodiscard]] Result<> touch(void* begin, void* end, std::size_t stride,
                               TouchedMemory memory) const noexcept;

  /// The same in chunks of `chunk` bytes, a multiple of the stride, that `stop` can end early:
  /// kCancelled, with `progress` the bytes from begin on that were touched.
  [[nodiscard]] Result<> touch_in_chunks(void* begin, void* end, std::size_t stride,
                                         TouchedMemory memory, std::size_t chunk,
                                         const std::stop_token& stop) const noexcept;

  /// The loop itself, unchecked.
  [[nodiscard]] TouchEntry entry() const noexcept;

  /// For heap::PretouchOptions::touch_kernel and heap::register_touch_kernel; lives as long as this
  /// object, wherever it is moved to.
  [[nodiscard]] const heap::TouchKernel& for_pretouch() const noexcept;

 private:
  struct State;
  explicit TouchKernel(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// Makes an emitted kernel the one that heap::pretouch's kAtomicRmw and kCollapse run, as long as
/// this object lives; then the one before is put back. No pre-touch may run on past its end.
class TouchKernelRegistration {
 public:
  /// With the best target for this CPU: an 8-byte add. Errors: as TouchKernel::create.
  [[nodiscard]] static Result<TouchKernelRegistration> create(CodeCache& cache);
  /// With a kernel of the caller's choice. kBusy for one that does not preserve values.
  [[nodiscard]] static Result<TouchKernelRegistration> create(CodeCache& cache,
                                                              const TouchShape& shape);

  TouchKernelRegistration(TouchKernelRegistration&& other) noexcept;
  TouchKernelRegistration& operator=(TouchKernelRegistration&&) = delete;
  TouchKernelRegistration(const TouchKernelRegistration&) = delete;
  TouchKernelRegistration& operator=(const TouchKernelRegistration&) = delete;
  ~TouchKernelRegistration();

  [[nodiscard]] const TouchKernel& kernel() const noexcept { return kernel_; }

 private:
  explicit TouchKernelRegistration(TouchKernel kernel) noexcept;
  TouchKernel kernel_;
  const heap::TouchKernel* before_ = nullptr;
  bool registered_ = false;
};

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_TOUCH_KERNEL_H_
