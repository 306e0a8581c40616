// SPDX-License-Identifier: MIT
#include <array>
#include <string>

#include <touchstone/arch/machine.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace touchstone::arch {
namespace {

constexpr std::array<const char*, kCpuFeatureCount> kNames{
    "lse",  "lse2", "lse128", "lsfe",    "ls64",      "lrcpc", "lrcpc2",  "lrcpc3", "mops",  "mte",
    "mte3", "bti",  "pauth",  "gcs",     "poe",       "sve",   "sve2",    "cx16",   "erms",  "fsrm",
    "fzrm", "fsrs", "clzero", "movdiri", "movdir64b", "avx2",  "avx512f", "pku",    "shstk", "ibt"};

template <typename Word>
struct Bit {
  unsigned number;
  CpuFeature feature;
};

template <typename Word, std::size_t Count>
void add_bits(CpuFeatures& features, Word word, const std::array<Bit<Word>, Count>& bits) noexcept {
  for (const Bit<Word>& bit : bits) {
    if ((word >> bit.number & 1) != 0) features.add(bit.feature);
  }
}

using enum CpuFeature;

constexpr std::array<Bit<std::uint64_t>, 6> kHwcap{
    {{8, kLse}, {15, kLrcpc}, {22, kSve}, {25, kLse2}, {26, kLrcpc2}, {30, kPauth}}};
constexpr std::array<Bit<std::uint64_t>, 1> kHwcapHigh{{{32, kGcs}}};
constexpr std::array<Bit<std::uint64_t>, 8> kHwcap2{{{1, kSve2},
                                                     {17, kBti},
                                                     {18, kMte},
                                                     {22, kMte3},
                                                     {43, kMops},
                                                     {46, kLrcpc3},
                                                     {47, kLse128},
                                                     {63, kPoe}}};
constexpr std::array<Bit<std::uint64_t>, 2> kHwcap3{{{2, kLsfe}, {3, kLs64}}};

constexpr std::array<Bit<std::uint32_t>, 1> kLeaf1Ecx{{{13, kCx16}}};
constexpr std::array<Bit<std::uint32_t>, 1> kLeaf7Ebx{{{9, kErms}}};
constexpr std::array<Bit<std::uint32_t>, 4> kLeaf7Ecx{
    {{4, kPku}, {7, kShstk}, {27, kMovdiri}, {28, kMovdir64b}}};
constexpr std::array<Bit<std::uint32_t>, 2> kLeaf7Edx{{{4, kFsrm}, {20, kIbt}}};
constexpr std::array<Bit<std::uint32_t>, 2> kLeaf71Eax{{{10, kFzrm}, {11, kFsrs}}};
constexpr std::array<Bit<std::uint32_t>, 1> kLeaf80000008Ebx{{{0, kClzero}}};
constexpr unsigned kAvx2Bit = 5;
constexpr unsigned kAvx512fBit = 16;
// XCR0: SSE and AVX state; opmask and both upper halves of the ZMM registers besides.
constexpr std::uint64_t kYmmState = 0x06;
constexpr std::uint64_t kZmmState = 0xe6;

}  // namespace

const char* to_string(CpuFeature feature) noexcept {
  const auto index = static_cast<std::size_t>(feature);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string CpuFeatures::to_string() const {
  std::string text;
  for (unsigned i = 0; i < kCpuFeatureCount; ++i) {
    const auto feature = static_cast<CpuFeature>(i);
    if (!has(feature)) continue;
    if (!text.empty()) text += ' ';
    text += arch::to_string(feature);
  }
  return text;
}

CpuFeatures features_of_hwcaps(std::uint64_t hwcap, std::uint64_t hwcap2,
                               std::uint64_t hwcap3) noexcept {
  CpuFeatures features;
  add_bits(features, hwcap, kHwcap);
  add_bits(features, hwcap, kHwcapHigh);
  add_bits(features, hwcap2, kHwcap2);
  add_bits(features, hwcap3, kHwcap3);
  return features;
}

CpuFeatures features_of_cpuid(const CpuidLeaves& leaves) noexcept {
  CpuFeatures features;
  add_bits(features, leaves.leaf1_ecx, kLeaf1Ecx);
  add_bits(features, leaves.leaf7_ebx, kLeaf7Ebx);
  add_bits(features, leaves.leaf7_ecx, kLeaf7Ecx);
  add_bits(features, leaves.leaf7_edx, kLeaf7Edx);
  add_bits(features, leaves.leaf7_1_eax, kLeaf71Eax);
  add_bits(features, leaves.leaf80000008_ebx, kLeaf80000008Ebx);
  if ((leaves.leaf7_ebx >> kAvx2Bit & 1) != 0 && (leaves.xcr0 & kYmmState) == kYmmState) {
    features.add(kAvx2);
  }
  if ((leaves.leaf7_ebx >> kAvx512fBit & 1) != 0 && (leaves.xcr0 & kZmmState) == kZmmState) {
    features.add(kAvx512f);
  }
  return features;
}

#if defined(__x86_64__)

CpuFeatures cpu_features() noexcept {
  CpuidLeaves leaves;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) leaves.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    leaves.leaf7_ebx = ebx;
    leaves.leaf7_ecx = ecx;
    leaves.leaf7_edx = edx;
    const unsigned subleaves = eax;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
      leaves.leaf7_1_eax = eax;
    }
  }
  if (__get_cpuid(0x80000008, &eax, &ebx, &ecx, &edx) != 0) leaves.leaf80000008_ebx = ebx;
  constexpr std::uint32_t kOsxsave = 1U << 27;
  if ((leaves.leaf1_ecx & kOsxsave) != 0) {
    std::uint32_t low = 0;   // NOLINT(misc-const-correctness): the assembler writes it
    std::uint32_t high = 0;  // NOLINT(misc-const-correctness): the assembler writes it
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    leaves.xcr0 = std::uint64_t{high} << 32 | low;
  }
  return features_of_cpuid(leaves);
}

std::size_t zva_block_size() noexcept {
  return 0;
}

#elif defined(__aarch64__)

CpuFeatures cpu_features() noexcept {
  constexpr unsigned long kAtHwcap3 = 29;  // AT_HWCAP3, newer than the C libraries supported.
  return features_of_hwcaps(::getauxval(AT_HWCAP), ::getauxval(AT_HWCAP2), ::getauxval(kAtHwcap3));
}

std::size_t zva_block_size() noexcept {
  std::uint64_t dczid = 0;
  __asm__("mrs %0, dczid_el0" : "=r"(dczid));
  constexpr std::uint64_t kProhibited = 1U << 4;
  return (dczid & kProhibited) != 0 ? 0 : std::size_t{4} << (dczid & 0xf);
}

#endif

}  // namespace touchstone::arch
