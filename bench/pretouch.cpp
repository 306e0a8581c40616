// SPDX-License-Identifier: MIT
// How close does automatic come to the best single strategy of the same run, and how close do all
// of them come to filling memory that is resident already? 2 GiB of transparent huge pages, 1 and 2
// threads, one fresh mapping each; median and spread.
//
// The rounds interleave and the first is dropped, which Google Benchmark cannot do: the first touch
// of memory that a host has taken back is several times slower, and would fall on whichever
// strategy came first.
//
// usage: pretouch [MiB [ROUNDS]]
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/pretouch.h>

#include "reference.h"

namespace {

using touchstone::heap::HugePageAdvice;
using touchstone::heap::PretouchOptions;
using touchstone::heap::PretouchOutcome;
using touchstone::heap::PretouchStrategy;

constexpr double kGiB = 1 << 30;

/// An anonymous mapping that starts at a huge page.
class Mapping {
 public:
  Mapping(std::size_t length, std::size_t alignment)
      : whole_(length + alignment),
        mapping_(::mmap(nullptr, whole_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (mapping_ == MAP_FAILED) {
      static_cast<void>(std::fprintf(stderr, "pretouch: cannot map %zu MiB\n", whole_ >> 20U));
      std::exit(1);
    }
    const std::uintptr_t into = reinterpret_cast<std::uintptr_t>(mapping_) % alignment;
    begin_ = static_cast<std::byte*>(mapping_) + (alignment - into) % alignment;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(mapping_, whole_); }
  [[nodiscard]] std::byte* begin() const { return begin_; }

 private:
  std::size_t whole_;
  void* mapping_;
  std::byte* begin_ = nullptr;
};

/// One strategy, and the two fills of the memory it left resident.
struct Row {
  PretouchStrategy strategy = PretouchStrategy::kNone;
  std::vector<double> touch{};
  std::vector<double> memset{};
  std::vector<double> nontemporal{};
  std::string failure{};
  double huge = 0;
  PretouchStrategy used = PretouchStrategy::kNone;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void measure(Row& row, std::size_t length, unsigned threads, bool keep) {
  const touchstone::arch::Geometry geometry = touchstone::arch::geometry();
  const Mapping mapping(length, geometry.pmd);
  PretouchOptions options;
  options.strategy = row.strategy;
  options.threads = threads;
  options.huge_pages = HugePageAdvice::kHuge;
  const PretouchOutcome outcome = touchstone::heap::pretouch(mapping.begin(), length, options);
  if (!outcome) {
    row.failure = outcome.error().error.message();
    return;
  }
  const double memset = touchstone::shatter::time_memset(mapping.begin(), length, threads);
  const double nontemporal =
      touchstone::shatter::time_nontemporal(mapping.begin(), length, threads);
  row.huge = static_cast<double>(outcome->huge_bytes.value_or(0)) / static_cast<double>(length);
  row.used = outcome->strategy;
  if (!keep) return;
  row.touch.push_back(outcome->seconds);
  row.memset.push_back(memset);
  row.nontemporal.push_back(nontemporal);
}

void print(const std::vector<Row>& rows, std::size_t length, unsigned threads) {
  const double gibibytes = static_cast<double>(length) / kGiB;
  std::printf("\n%.2f GiB, THP, %u thread%s\n", gibibytes, threads, threads == 1 ? "" : "s");
  std::printf("%-26s %7s %7s %7s %7s %9s %9s\n", "strategy", "GiB/s", "slowest", "fastest", "huge",
              "memset", "non-temp.");
  std::optional<double> best;
  std::optional<double> automatic;
  for (const Row& row : rows) {
    if (row.touch.empty()) {
      std::printf("%-26s %s\n", to_string(row.strategy), row.failure.c_str());
      continue;
    }
    const double middle = median(row.touch);
    const auto [fastest, slowest] = std::ranges::minmax(row.touch);
    std::printf("%-26s %7.2f %7.2f %7.2f %6.0f%% %8.2fx %8.2fx", to_string(row.strategy),
                gibibytes / middle, gibibytes / slowest, gibibytes / fastest, row.huge * 100,
                median(row.memset) / middle, median(row.nontemporal) / middle);
    if (row.strategy == PretouchStrategy::kAutomatic) {
      automatic = middle;
      std::printf("  by %s", to_string(row.used));
    } else {
      best = std::min(best.value_or(middle), middle);
    }
    std::printf("\n");
  }
  if (best && automatic) {
    std::printf("automatic to the best single strategy: %.3f (target 0.95)\n", *best / *automatic);
  }
}

/// 0 for what is no positive number.
unsigned long positive(const char* text) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  return *end == '\0' && *text != '-' ? value : 0;
}

int run(int argc, char** argv) {
  const unsigned long mebibytes = argc > 1 ? positive(argv[1]) : 2048;
  const unsigned long rounds = argc > 2 ? positive(argv[2]) : 7;
  const std::size_t pmd = touchstone::arch::geometry().pmd;
  const std::size_t length = (mebibytes << 20U) / pmd * pmd;
  if (argc > 3 || length == 0 || rounds == 0 || mebibytes > (SIZE_MAX >> 21U)) {
    static_cast<void>(std::fprintf(
        stderr, "pretouch: usage: pretouch [MiB [ROUNDS]], MiB at least one huge page (%zu)\n",
        pmd >> 20U));
    return 2;
  }
  const auto kernel = touchstone::arch::kernel_version();
  std::printf("kernel %s, %u usable CPUs, %lu rounds after one of warm-up\n",
              kernel ? kernel->release.c_str() : "unknown", touchstone::arch::usable_cpus(),
              rounds);
  for (const unsigned threads : {1U, 2U}) {
    std::vector<Row> rows;
    for (const PretouchStrategy strategy : touchstone::heap::all_pretouch_strategies()) {
      if (strategy != PretouchStrategy::kNone) rows.push_back({.strategy = strategy});
    }
    for (unsigned long round = 0; round <= rounds; ++round) {
      // Each round starts with another one, so that none always follows the same.
      for (std::size_t i = 0; i < rows.size(); ++i) {
        measure(rows[(i + round) % rows.size()], length, threads, round != 0);
      }
    }
    print(rows, length, threads);
  }
  const auto choice =
      touchstone::heap::choose_pretouch_strategy({.huge_pages = HugePageAdvice::kHuge});
  if (choice) std::printf("\nautomatic: %s\n", choice->reason.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& failure) {
    static_cast<void>(std::fprintf(stderr, "pretouch: %s\n", failure.what()));
    return 1;
  }
}
