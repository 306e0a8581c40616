// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_GC_PEERS_H_
#define TOUCHSTONE_BENCH_GC_PEERS_H_

#include <cstddef>
#include <string>
#include <vector>

#include <touchstone/tools/json_file.h>

#include "../spread.h"
#include "programs.h"

namespace touchstone::gc {

/// A program to run in a process of its own, on one memory.
struct Contestant {
  std::string name;
  std::string skipped;             ///< Not empty: why it cannot be run here.
  std::vector<std::string> words;  ///< Its command line, with {workload}, {depth}, ... in it.
};

/// This program through touchstone.h.
inline constexpr const char* kThroughC = "touchstone C";

/// This program first, through heap.h and through touchstone.h, then libgc, malloc, mimalloc and
/// OpenJDK with each of its collectors.
[[nodiscard]] std::vector<Contestant> contestants();

struct Comparison {
  std::string name;
  std::string skipped;  ///< Not empty: why there are no figures.
  bench::Spread seconds;
  double cpu_seconds = 0;    ///< Median.
  std::size_t peak_rss = 0;  ///< The most of all rounds.
  double ratio = 0;          ///< Of its median to ours: above 1, ours is faster.
};

struct PeerSettings {
  unsigned depth = 0;
  unsigned threads = 1;
  unsigned workers = 0;
  std::size_t heap_bytes = 0;
  unsigned rounds = 3;
};

/// Runs a workload on each contestant by turns. One whose checksum is not ours is not compared.
[[nodiscard]] std::vector<Comparison> compare_with_peers(const WorkloadTraits& workload,
                                                         const PeerSettings& settings,
                                                         const std::vector<Contestant>& all);

[[nodiscard]] std::string comparison_text(const WorkloadTraits& workload,
                                          const PeerSettings& settings,
                                          const std::vector<Comparison>& rows);
[[nodiscard]] tools::Json comparison_json(const WorkloadTraits& workload,
                                          const PeerSettings& settings,
                                          const std::vector<Comparison>& rows);

}  // namespace touchstone::gc

#endif  // TOUCHSTONE_BENCH_GC_PEERS_H_
