// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_ROOT_VISITOR_H_
#define TOUCHSTONE_HEAP_ROOT_VISITOR_H_

#include <cstddef>

namespace touchstone::heap {

/// Shows the collector where references lie outside the heap.
class RootVisitor {
 public:
  RootVisitor() = default;
  RootVisitor(const RootVisitor&) = delete;
  RootVisitor& operator=(const RootVisitor&) = delete;

  /// The address of a word that holds null or the start of an object; the collector updates it.
  virtual void visit(void* slot) noexcept = 0;
  /// As many words, one behind the other.
  void visit_range(void* first, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) visit(static_cast<std::byte*>(first) + i * 8);
  }
  /// Memory that may hold addresses of objects, or of places inside them, among other things: a
  /// stack without maps. Each aligned word is looked at. What it hits stays alive and where it is.
  virtual void visit_ambiguous(const void* begin, const void* end) noexcept = 0;

 protected:
  ~RootVisitor() = default;
};

/// Called with the world stopped, more than once in a collection, on any of the collecting threads;
/// callbacks of one heap may run at once. It must show the same roots each time.
struct RootCallback {
  void (*visit_roots)(RootVisitor& visitor, void* context) noexcept = nullptr;
  void* context = nullptr;

  friend bool operator==(const RootCallback&, const RootCallback&) = default;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_ROOT_VISITOR_H_
