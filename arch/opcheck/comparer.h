// SPDX-License-Identifier: MIT
// Compares, word by word, what rules say with what oracles say.
#ifndef TOUCHSTONE_ARCH_OPCHECK_COMPARER_H_
#define TOUCHSTONE_ARCH_OPCHECK_COMPARER_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <touchstone/arch/a64/classify.h>

#include "reading.h"
#include "sweep.h"
#include "sweep_result.h"

namespace touchstone::arch::opcheck {

/// True where the reading names the access that the rules name: family, kind, order, width as far
/// as the reading tells it, and mnemonic, with the ST<op> forms equal to LD<op> of register 31.
[[nodiscard]] bool agrees(const Rules& rules, const a64::MemoryAccess& access, std::uint32_t word,
                          const Reading& reading);

/// The comparisons of one thread. The oracles whose readings it is given outlive it.
class Comparer {
 public:
  explicit Comparer(const SweepPlan& plan);

  /// readings[o][i] is what oracle o of the plan said of words[i].
  void compare(std::span<const std::uint32_t> words,
               std::span<const std::vector<const Reading*>> readings);

  /// What has been counted since the last call.
  [[nodiscard]] SweepResult take();

 private:
  // A disagreement in terms of addresses, which are cheap to look up.
  struct RawDisagreement {
    const a64::Encoding* row = nullptr;
    const Reading* reading = nullptr;
    std::size_t oracle = 0;
    friend auto operator<=>(const RawDisagreement&, const RawDisagreement&) = default;
  };
  enum class Verdict : std::uint8_t { kSilent, kConfirmed, kGap, kContradicted };
  // A remembered answer of agrees(), which depends on nothing else.
  struct Remembered {
    const a64::Encoding* row = nullptr;
    const Reading* reading = nullptr;
    std::uint32_t details = 0;
    bool agrees = false;
  };

  Verdict judge(const a64::MemoryAccess& access, std::uint32_t word, const Reading* reading,
                std::size_t oracle);
  bool agrees_remembered(const a64::MemoryAccess& access, std::uint32_t word,
                         const Reading& reading);
  // The index of a known gap that explains the disagreement, or -1.
  [[nodiscard]] std::ptrdiff_t find_gap(std::size_t oracle, const a64::MemoryAccess& access,
                                        std::uint32_t word, const Reading* reading) const;
  void compare_forced(const a64::MemoryAccess& access, std::uint32_t word,
                      std::span<const Reading* const> readings, std::span<const Verdict> verdicts);

  const SweepPlan& plan_;
  // For each oracle, the gaps of the plan that cover its release.
  std::array<std::vector<std::size_t>, kMostOracles> gaps_;
  std::vector<Remembered> memory_;
  SweepResult tally_;
  std::map<RawDisagreement, Bucket> raw_;
};

}  // namespace touchstone::arch::opcheck

#endif  // TOUCHSTONE_ARCH_OPCHECK_COMPARER_H_
