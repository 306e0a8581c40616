// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_ROOTS_H_
#define TOUCHSTONE_HEAP_ROOTS_H_

#include <cstddef>
#include <cstdint>

#include <touchstone/arch/export.h>
#include <touchstone/heap/mutator.h>
#include <touchstone/heap/root_visitor.h>

namespace touchstone::heap {

namespace detail {
class LocalBase {
 public:
  /// Where things lie, for C programs' roots of this kind.
  [[nodiscard]] static consteval std::size_t value_offset() noexcept {
    return offsetof(LocalBase, value_);
  }
  [[nodiscard]] static consteval std::size_t previous_offset() noexcept {
    return offsetof(LocalBase, previous_);
  }

  LocalBase(const LocalBase&) = delete;
  LocalBase& operator=(const LocalBase&) = delete;

 protected:
  LocalBase(Mutator& mutator, std::uintptr_t value) noexcept : value_(value), mutator_(&mutator) {
    LocalBase* self = this;
    // GCC 12 does not see that the destructor takes the address out again.
    asm("" : "+r"(self));
    // A store of its own: two words that are put together in a vector register first are slow to
    // read back a few instructions later.
    __atomic_store_n(&previous_, mutator.locals, __ATOMIC_RELAXED);
    mutator.locals = self;
  }
  ~LocalBase() { mutator_->locals = previous_; }

  std::uintptr_t value_;
  Mutator* mutator_;
  LocalBase* previous_;

 private:
  friend class HeapCore;
};

/// A root in a list of the heap's, see GlobalRoot and WeakRoot.
class TOUCHSTONE_API RootNode {
 public:
  RootNode(const RootNode&) = delete;
  RootNode& operator=(const RootNode&) = delete;

 protected:
  RootNode(HeapCore& heap, std::uintptr_t value, bool weak) noexcept;
  ~RootNode();

  std::uintptr_t value_;

 private:
  friend class HeapCore;
  HeapCore* heap_;
  RootNode* previous_ = nullptr;
  RootNode* next_ = nullptr;
  bool weak_;
};
}  // namespace detail

/// A root on a mutator's stack: keeps an object alive and follows it when it moves. Locals of a
/// mutator are destroyed in the reverse of their order of creation, as scopes do, by its own
/// thread. Costs two stores.
template <typename T>
class Local : detail::LocalBase {
 public:
  explicit Local(Mutator& mutator, T* object = nullptr) noexcept
      : LocalBase(mutator, reinterpret_cast<std::uintptr_t>(object)) {}
  Local& operator=(T* object) noexcept {
    value_ = reinterpret_cast<std::uintptr_t>(object);
    return *this;
  }
  [[nodiscard]] T* get() const noexcept { return detail::at<T>(value_); }
  T* operator->() const noexcept { return get(); }
  T& operator*() const noexcept { return *get(); }
  explicit operator bool() const noexcept { return value_ != 0; }
};

/// A root that lives as long as it likes. Must be destroyed before the heap is. Creation,
/// destruction and use need a running mutator (or no collection under way); thread-safe.
template <typename T>
class GlobalRoot : detail::RootNode {
 public:
  explicit GlobalRoot(detail::HeapCore& heap, T* object = nullptr) noexcept
      : RootNode(heap, reinterpret_cast<std::uintptr_t>(object), false) {}
  GlobalRoot& operator=(T* object) noexcept {
    value_ = reinterpret_cast<std::uintptr_t>(object);
    return *this;
  }
  [[nodiscard]] T* get() const noexcept { return detail::at<T>(value_); }
  T* operator->() const noexcept { return get(); }
};

/// Follows an object without keeping it alive, and becomes null when the object dies: before a
/// finalizer may bring it back. As GlobalRoot otherwise.
template <typename T>
class WeakRoot : detail::RootNode {
 public:
  explicit WeakRoot(detail::HeapCore& heap, T* object = nullptr) noexcept
      : RootNode(heap, reinterpret_cast<std::uintptr_t>(object), true) {}
  WeakRoot& operator=(T* object) noexcept {
    value_ = reinterpret_cast<std::uintptr_t>(object);
    return *this;
  }
  /// The object, or null. It stays alive only if it is put into a root before the next safepoint.
  [[nodiscard]] T* get() const noexcept { return detail::at<T>(value_); }
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_ROOTS_H_
