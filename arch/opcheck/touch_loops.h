// SPDX-License-Identifier: MIT
// Finds loops that pre-touch memory with atomics.
#ifndef TOUCHSTONE_ARCH_OPCHECK_TOUCH_LOOPS_H_
#define TOUCHSTONE_ARCH_OPCHECK_TOUCH_LOOPS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "code_image.h"

namespace touchstone::arch::opcheck {

/// The smallest page of arm64, in bytes: a loop that steps by less does not pre-touch.
inline constexpr std::uint64_t kSmallestPage = 4096;

/// How an atomic is carried out.
enum class AtomicStyle : std::uint8_t {
  kLse,      ///< One instruction.
  kOutline,  ///< A call to a helper that chooses at run time.
  kLlSc,     ///< A loop of load-exclusive and store-exclusive.
};

/// How much is known of a finding.
enum class Confidence : std::uint8_t {
  kHigh,    ///< Operand and stride are constants in the code.
  kMedium,  ///< The stride does not change in the loop, its value is known at run time only.
  kLow,     ///< As kMedium, and reached through a pointer that the program may change.
};

/// A loop that changes nothing and reaches every page (or every few).
struct TouchLoop {
  std::uint64_t loop = 0;    ///< First instruction of the loop.
  std::uint64_t site = 0;    ///< The atomic in the loop, or the call that leads to it.
  std::uint64_t atomic = 0;  ///< The atomic (or store-exclusive); an external helper's is unknown.
  std::uint64_t callee = 0;  ///< Called at site, or 0.
  bool indirect = false;     ///< Called through a pointer in data.
  AtomicStyle style = AtomicStyle::kLse;
  std::string_view operation;  ///< "add 0", "or 0", "compare-and-swap with itself" …
  std::uint32_t width = 0;     ///< Bytes of an access.
  std::optional<std::int64_t> stride;
  Confidence confidence = Confidence::kHigh;
};

struct TouchLoops {
  std::vector<TouchLoop> loops;  ///< Sorted by site.
  /// Functions looked at, and those too large for it.
  std::size_t functions_analysed = 0;
  std::size_t functions_too_large = 0;
};

/// Looks through all code of an image. `min_stride` is in bytes.
[[nodiscard]] TouchLoops find_touch_loops(const CodeImage& image,
                                          std::uint64_t min_stride = kSmallestPage);

[[nodiscard]] std::string_view to_string(AtomicStyle style) noexcept;
[[nodiscard]] std::string_view to_string(Confidence confidence) noexcept;

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_TOUCH_LOOPS_H_
