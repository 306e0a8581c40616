// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_SRC_CALLBACK_SCOPE_H_
#define TOUCHSTONE_SRC_CALLBACK_SCOPE_H_

namespace touchstone::heap::detail {

/// While it lives, this thread is in what the heap may call the embedder from: the heap cannot be
/// used there, and what would wait for ever is refused.
class CallbackScope {
 public:
  explicit CallbackScope(const void* heap) noexcept : heap_(heap), outer_(innermost_) {
    innermost_ = this;
  }
  ~CallbackScope() { innermost_ = outer_; }
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

  [[nodiscard]] static bool entered(const void* heap) noexcept {
    for (const CallbackScope* scope = innermost_; scope != nullptr; scope = scope->outer_) {
      if (scope->heap_ == heap) return true;
    }
    return false;
  }

 private:
  const void* heap_;
  const CallbackScope* outer_;
  inline static thread_local const CallbackScope* innermost_ = nullptr;
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_SRC_CALLBACK_SCOPE_H_
