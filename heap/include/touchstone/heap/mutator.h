// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_MUTATOR_H_
#define TOUCHSTONE_HEAP_MUTATOR_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/arch/export.h>
#include <touchstone/heap/detail/words.h>
#include <touchstone/heap/fast_path_layout.h>
#include <touchstone/heap/root_visitor.h>

namespace touchstone::heap {

struct MutatorDetach;
namespace detail {
class HeapCore;
class Graveyard;
class LocalBase;
}  // namespace detail

/// What FastPathLayout's offsets lead to: the start of every Mutator.
struct MutatorBlock {
  std::uintptr_t tlab_top = 0;
  std::uintptr_t tlab_end = 0;
  /// Both biased, see FastPathLayout.
  std::uintptr_t card_table = 0;
  std::uintptr_t mark_bitmap = 0;
  std::uint32_t safepoint_flag = 0;
  /// The object alignment less 1.
  std::uint32_t alignment_mask = 0;
  /// The newest Local.
  detail::LocalBase* locals = nullptr;
};

/// A thread that uses the heap: made by Heap::attach() on that thread, and used by it alone unless
/// a member says otherwise.
///
/// A mutator is *running*, or in a *native section* during which it touches no object and does not
/// hold up a collection. A running one polls often: a collection waits for it. Objects move only at
/// safepoints, which are: poll(), the slow path of an allocation, native sections, collect(),
/// trim(), attach() and detach(). Across these, references are to be in roots.
class TOUCHSTONE_API Mutator : private MutatorBlock {
 public:
  Mutator(const Mutator&) = delete;
  Mutator& operator=(const Mutator&) = delete;

  /// Takes zeroed bytes from the TLAB, or null where the slow path is needed. `size` is a multiple
  /// of the object alignment.
  [[gnu::always_inline]] std::byte* try_allocate(std::size_t size) noexcept {
    const std::uintptr_t object = tlab_top;
    // Of 0 nothing is left either.
    if (size - 1 >= tlab_end - object) [[unlikely]]
      return nullptr;
    // Spares callers a second comparison.
    if (object == 0) __builtin_unreachable();
    tlab_top = object + size;
    return detail::at<std::byte>(object);
  }

  /// The slow path of an allocation: a safepoint. Null on failure, see error().
  [[nodiscard]] std::byte* allocate_slow(std::size_t size) noexcept;

  /// To be called after a reference was stored into the heap at `slot`, with no safepoint in
  /// between. Into which object and of what generation does not matter.
  [[gnu::always_inline]] void write_barrier(const void* slot) noexcept {
    __atomic_store_n(
        detail::at<std::uint8_t>(card_table + (detail::address_of(slot) >> kCardShift)), kDirtyCard,
        __ATOMIC_RELAXED);
  }
  /// The same for a run of slots, such as after a copy.
  void write_barrier(const void* begin, std::size_t bytes) noexcept {
    if (bytes == 0) return;
    const std::uintptr_t first = detail::address_of(begin) >> kCardShift;
    const std::uintptr_t last = (detail::address_of(begin) + bytes - 1) >> kCardShift;
    for (std::uintptr_t card = first; card <= last; ++card) {
      __atomic_store_n(detail::at<std::uint8_t>(card_table + card), kDirtyCard, __ATOMIC_RELAXED);
    }
  }
  /// Stores a reference and marks its card.
  template <typename T>
  [[gnu::always_inline]] void write(T*& slot, T* value) noexcept {
    slot = value;
    write_barrier(&slot);
  }

  /// Swaps the reference in a slot, acquire-release, and marks its card. What was there before.
  template <typename T>
  [[gnu::always_inline]] T* exchange(T*& slot, T* value) noexcept {
    T* const before = __atomic_exchange_n(&slot, value, __ATOMIC_ACQ_REL);
    write_barrier(&slot);
    return before;
  }
  /// Stores `desired` in a slot that holds `expected`, acquire-release, and marks its card. False,
  /// with `expected` what is there, where it holds something else.
  template <typename T>
  [[gnu::always_inline]] bool compare_exchange(T*& slot, T*& expected, T* desired) noexcept {
    if (!__atomic_compare_exchange_n(&slot, &expected, desired, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
      return false;
    }
    write_barrier(&slot);
    return true;
  }
  /// Copies references, which may overlap, each as a whole, and marks the cards of where they go.
  template <typename T>
  void copy(T** to, T* const* from, std::size_t count) noexcept {
    const auto copy_one = [&](std::size_t i) {
      __atomic_store_n(to + i, __atomic_load_n(from + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    };
    if (detail::address_of(to) - detail::address_of(from) < count * sizeof(T*)) {
      for (std::size_t i = count; i-- > 0;) copy_one(i);
    } else {
      for (std::size_t i = 0; i < count; ++i) copy_one(i);
    }
    write_barrier(to, count * sizeof(T*));
  }

  /// A safepoint: one load when nobody wants to collect.
  [[gnu::always_inline]] void poll() noexcept {
    if (__atomic_load_n(&safepoint_flag, __ATOMIC_RELAXED) != 0) [[unlikely]]
      poll_slow();
  }
  void poll_slow() noexcept;

  /// From here on the thread touches no object, until leave_native(). Sections nest.
  void enter_native() noexcept;
  /// Waits for a collection that is under way.
  void leave_native() noexcept;
  [[nodiscard]] bool in_native() const noexcept;

  /// Roots of this mutator alone. Throws std::bad_alloc.
  void add_roots(const RootCallback& callback);
  /// False if there was no such.
  bool remove_roots(const RootCallback& callback) noexcept;

  /// Has the thread's stack, from where it stands at a safepoint up to `base`, and its registers
  /// looked at as ambiguous roots; null stops that. `base` is above all frames that matter.
  void scan_stack_from(const void* base) noexcept { stack_base_ = detail::address_of(base); }

  /// Ends the thread's part. kBusy, and nothing is done, while it has Locals. Otherwise the mutator
  /// is gone.
  [[nodiscard]] static Result<> detach(std::unique_ptr<Mutator, MutatorDetach>& mutator) noexcept;

  /// Why the last allocation failed.
  [[nodiscard]] const Error& error() const noexcept { return error_; }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] detail::HeapCore& heap() const noexcept { return *core_; }
  /// False of what has been detached and is kept, see HeapCore::keep_detached_mutators().
  [[nodiscard]] bool attached() const noexcept { return core_ != nullptr; }
  /// What emitted code gets in its mutator register.
  [[nodiscard]] MutatorBlock* block() noexcept { return this; }
  /// The mutator of a block.
  [[nodiscard]] static Mutator& of(MutatorBlock* block) noexcept {
    return *static_cast<Mutator*>(block);
  }
  /// The slow paths that emitted code calls, with a block; see SlowPaths of jit/fast_paths.h.
  static void* allocate_slow_path(void* block, std::size_t size) noexcept {
    return of(static_cast<MutatorBlock*>(block)).allocate_slow(size);
  }
  static void poll_slow_path(void* block) noexcept {
    of(static_cast<MutatorBlock*>(block)).poll_slow();
  }
  /// What is left of the TLAB, in bytes: so much can be allocated without the slow path.
  [[nodiscard]] std::size_t tlab_left() const noexcept { return tlab_end - tlab_top; }

  static constexpr unsigned kCardShift = 9;
  static constexpr std::uint8_t kDirtyCard = 0;
  static constexpr std::uint8_t kCleanCard = 0xff;

 private:
  friend class detail::HeapCore;
  friend class detail::Graveyard;
  friend class detail::LocalBase;
  friend struct MutatorDetach;
  enum State : std::uint32_t { kRunning, kNative, kParked };

  explicit Mutator(detail::HeapCore& core) noexcept : core_(&core) {}
  ~Mutator() = default;

  std::atomic<std::uint32_t> state_{kParked};
  detail::HeapCore* core_;
  std::uint32_t native_depth_ = 0;
  std::uintptr_t tlab_hard_end_ = 0;  // tlab_end may lie before: what is behind is not zeroed yet.
  bool tlab_zeroed_ = false;          // Up to the hard end.
  std::uintptr_t stack_base_ = 0;
  std::uintptr_t stack_top_ = 0;                     // At the safepoint.
  std::array<std::uintptr_t, 128> ending_frames_{};  // In a native section, so many words of it.
  std::size_t ending_words_ = 0;
  void* fake_stack_ = nullptr;  // The address sanitizer's, for variables whose address is taken.
  std::uint64_t id_ = 0;
  Mutator* next_ = nullptr;
  std::string name_;
  std::vector<RootCallback> callbacks_;
  Error error_{};
};

/// Detaches; see Mutator::detach(). Where that is refused the mutator stays, in native state and
/// with its roots, and HeapListener::on_abandoned_mutator() is called.
struct TOUCHSTONE_API MutatorDetach {
  void operator()(Mutator* mutator) const noexcept;
};
using MutatorPointer = std::unique_ptr<Mutator, MutatorDetach>;

/// A native section as a scope.
class NativeScope {
 public:
  explicit NativeScope(Mutator& mutator) noexcept : mutator_(mutator) { mutator_.enter_native(); }
  ~NativeScope() { mutator_.leave_native(); }
  NativeScope(const NativeScope&) = delete;
  NativeScope& operator=(const NativeScope&) = delete;

 private:
  Mutator& mutator_;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_MUTATOR_H_
