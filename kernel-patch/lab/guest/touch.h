// SPDX-License-Identifier: GPL-2.0-only
// The ways of touching memory that the lab compares, as A64 words, and the loops made of them.
#ifndef TOUCHSTONE_LAB_TOUCH_H
#define TOUCHSTONE_LAB_TOUCH_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lab {

// How a touch relates to the fault it takes.
enum class TouchKind {
  kRead,       // never writes
  kWrite,      // writes, and says so at once
  kRmw,        // one instruction that reads and writes
  kExclusive,  // a load-exclusive/store-exclusive loop
  kPopulate,   // madvise() instead of an instruction
};

// The word at the touched address afterwards.
enum class Effect { kKept, kAdd, kClear, kXor, kSet, kSmax, kSmin, kUmax, kUmin, kOperand, kZero };

// One way of touching. The words run once per page with
//   x0 the address, x3 the operand, x4 = x8 what memory is expected to hold, x5 = x8 as well,
//   x6 = x7 the operand; x4 to x7, x9 and d3, d4 may be overwritten.
struct Touch {
  std::string_view name;
  std::string_view group;
  TouchKind kind;
  Effect effect;
  unsigned width;  // bytes of the operand
  bool headline;   // also measured at full size
  std::span<const uint32_t> words;
};

// Every touch, in the order it is reported.
std::span<const Touch> all_touches();

// The touch of that name, which must be one of them.
const Touch& touch_named(std::string_view name);

// What a word that held `before` holds after the touch with `operand`, both `touch.width` wide.
uint64_t expected_after(const Touch& touch, uint64_t before, uint64_t operand);

// A loop that runs a touch's words at every `stride` bytes of [begin, end).
using TouchLoop = void (*)(std::byte* begin, std::byte* end, size_t stride, uint64_t operand,
                           uint64_t expected);

// Builds loops in pages of their own, each mapped from a file in memory, as text is. Execute-only
// text denies data accesses from user space where the CPU has FEAT_EPAN; elsewhere it is readable
// like any other.
class LoopPage {
 public:
  enum class Text { kNormal, kExecuteOnly };

  LoopPage(const Touch& touch, Text text);
  ~LoopPage();
  LoopPage(const LoopPage&) = delete;
  LoopPage& operator=(const LoopPage&) = delete;

  [[nodiscard]] TouchLoop loop() const;
  [[nodiscard]] const void* address() const { return page_; }

  // The file that the text is mapped from, and where the touch's first word is in it.
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] size_t offset_of_touch() const { return offset_of_touch_; }

  // Unmaps the text, to be mapped again when it is next executed; beside running threads, too.
  void evict() const;

 private:
  int file_ = -1;
  void* page_ = nullptr;
  size_t size_ = 0;
  size_t offset_of_touch_ = 0;
};

// Whether the CPU executes the touch's words (a child is sent ahead and may die of SIGILL).
bool executes(const Touch& touch);

// Whether PROT_EXEC alone keeps user space from reading, as it does with FEAT_EPAN.
bool execute_only_is_enforced();

// The kinds of text that differ on this CPU; reports the one that is left out.
std::span<const LoopPage::Text> texts_to_run();

}  // namespace lab

#endif  // TOUCHSTONE_LAB_TOUCH_H
