// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_SANITIZERS_H_
#define TOUCHSTONE_HEAP_SRC_SANITIZERS_H_

#include <cstddef>

#include <touchstone/heap/detail/words.h>

/// What sanitizers have to know of a heap. All of it does nothing in a program without them: the
/// functions are weak, so that a library built without a sanitizer serves a program built with one.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the sanitizers' names
[[gnu::weak]] void* __asan_get_current_fake_stack();
[[gnu::weak]] void* __asan_addr_is_in_fake_stack(void* fake_stack, void* address, void** begin,
                                                 void** end);
[[gnu::weak]] void __lsan_register_root_region(const void* begin, std::size_t size);
[[gnu::weak]] void __lsan_unregister_root_region(const void* begin, std::size_t size);
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
}

namespace touchstone::heap::detail {

/// Where the address sanitizer puts the calling thread's variables whose address is taken, if it
/// looks for uses after return; null otherwise.
[[nodiscard]] inline void* current_fake_stack() noexcept {
  return &__asan_get_current_fake_stack != nullptr ? __asan_get_current_fake_stack() : nullptr;
}

struct FakeFrame {
  const void* begin = nullptr;
  const void* end = nullptr;
};
/// The frame on a fake stack that a word found on the real one leads to; null if none.
[[nodiscard]] inline FakeFrame fake_frame(void* fake_stack, Address word) noexcept {
  void* begin = nullptr;
  void* end = nullptr;
  if (__asan_addr_is_in_fake_stack(fake_stack, at<void>(word), &begin, &end) == nullptr) return {};
  return {.begin = begin, .end = end};
}

/// Has the leak sanitizer look for pointers in the heap: objects may hold what malloc() gave.
inline void declare_root_region(const void* begin, std::size_t size) noexcept {
  if (&__lsan_register_root_region != nullptr) __lsan_register_root_region(begin, size);
}
inline void undeclare_root_region(const void* begin, std::size_t size) noexcept {
  if (&__lsan_unregister_root_region != nullptr) __lsan_unregister_root_region(begin, size);
}

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_SRC_SANITIZERS_H_
