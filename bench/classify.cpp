// SPDX-License-Identifier: MIT
// How many A64 words a second can be classified on one core? Asked of all words in order of a
// multiplicative walk (three in four are no loads or stores), of words of the load/store space
// alone, and of forced writes alone.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include <touchstone/arch/a64/classify.h>

namespace {

namespace a64 = touchstone::arch::a64;

enum class Mix : std::uint8_t { kAll, kLoadStore, kForced };

/// 64 Ki words: they fit the second-level cache and defeat branch history.
std::vector<std::uint32_t> words_of(Mix mix) {
  constexpr std::size_t kCount = std::size_t{1} << 16U;
  std::vector<std::uint32_t> words;
  words.reserve(kCount);
  for (std::uint64_t i = 1; words.size() < kCount; ++i) {
    auto word = static_cast<std::uint32_t>((i * 0x9e3779b97f4a7c15ULL) >> 32U);
    if (mix == Mix::kLoadStore) word = (word | 0x08000000U) & ~0x02000000U;
    if (mix == Mix::kForced) {
      const a64::Encoding& row = a64::kEncodings[i % a64::kEncodings.size()];
      word = row.cube.value | (word & ~row.cube.mask);
      if (!a64::is_forced_write(word)) continue;
    }
    words.push_back(word);
  }
  return words;
}

template <typename Predicate>
void run(benchmark::State& state, Predicate predicate) {
  const std::vector<std::uint32_t> words = words_of(static_cast<Mix>(state.range(0)));
  for (auto _ : state) {
    std::uint64_t found = 0;
    for (const std::uint32_t word : words) found += predicate(word);
    benchmark::DoNotOptimize(found);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(words.size()));
  constexpr std::array<const char*, 3> kNames{"all", "load/store", "forced"};
  state.SetLabel(kNames[static_cast<std::size_t>(state.range(0))]);
}

void is_forced_write(benchmark::State& state) {
  run(state, [](std::uint32_t word) { return a64::is_forced_write(word) ? 1U : 0U; });
}
void v5_is_forced_write(benchmark::State& state) {
  run(state, [](std::uint32_t word) { return a64::v5::is_forced_write(word) ? 1U : 0U; });
}
void classify(benchmark::State& state) {
  run(state, [](std::uint32_t word) {
    const a64::MemoryAccess access = a64::classify(word);
    return static_cast<unsigned>(access.width) + static_cast<unsigned>(access.order) +
           static_cast<unsigned>(access.first_fault);
  });
}
void format_mnemonic(benchmark::State& state) {
  run(state,
      [](std::uint32_t word) { return static_cast<unsigned>(a64::format_mnemonic(word).size); });
}

BENCHMARK(is_forced_write)->DenseRange(0, 2);
BENCHMARK(v5_is_forced_write)->DenseRange(0, 2);
BENCHMARK(classify)->DenseRange(0, 2);
BENCHMARK(format_mnemonic)->DenseRange(0, 2);

}  // namespace

BENCHMARK_MAIN();
