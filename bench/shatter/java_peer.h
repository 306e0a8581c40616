// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_SHATTER_JAVA_PEER_H_
#define TOUCHSTONE_BENCH_SHATTER_JAVA_PEER_H_

#include <cstddef>
#include <expected>
#include <string>

#include "experiment.h"

/// OpenJDK's own pre-touch as a peer of ours, over a heap of the same size.
namespace touchstone::shatter {

struct JavaComparison {
  /// First line of `java -version`.
  std::string version;
  std::size_t bytes = 0;
  unsigned rounds = 0;
  /// Wall time of `java -version` with AlwaysPreTouch, and without.
  Spread with_pretouch;
  Spread without;
  /// Time of the automatic strategy over as many bytes, huge pages advised, every CPU.
  Spread automatic;

  /// What Java's pre-touch costs, by medians.
  [[nodiscard]] double java_seconds() const noexcept {
    return with_pretouch.median - without.median;
  }
  /// How many times as fast automatic is.
  [[nodiscard]] double ratio() const noexcept { return java_seconds() / automatic.median; }
};

/// Runs the three in turn, `rounds` times after one round that is thrown away. The error is one
/// line: no java on PATH, one that fails with these options, or too little memory.
[[nodiscard]] std::expected<JavaComparison, std::string> compare_with_java(
    std::size_t bytes, unsigned rounds, const arch::Geometry& geometry, unsigned threads);

[[nodiscard]] std::string java_text(const JavaComparison& comparison);

}  // namespace touchstone::shatter

#endif  // TOUCHSTONE_BENCH_SHATTER_JAVA_PEER_H_
