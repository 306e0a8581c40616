// SPDX-License-Identifier: MIT
#include "reference.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace touchstone::shatter {
namespace {

constexpr std::size_t kLine = 64;

void fill_nontemporal(std::byte* begin, std::size_t bytes) {
#if defined(__x86_64__)
  const __m128i zero = _mm_setzero_si128();
  for (std::size_t at = 0; at < bytes; at += kLine) {
    auto* line = reinterpret_cast<__m128i*>(begin + at);
    _mm_stream_si128(line, zero);
    _mm_stream_si128(line + 1, zero);
    _mm_stream_si128(line + 2, zero);
    _mm_stream_si128(line + 3, zero);
  }
  _mm_sfence();
#elif defined(__aarch64__)
  for (std::size_t at = 0; at < bytes; at += kLine) {
    std::byte* line = begin + at;
    asm volatile(
        "stnp xzr, xzr, [%0]\n\t"
        "stnp xzr, xzr, [%0, #16]\n\t"
        "stnp xzr, xzr, [%0, #32]\n\t"
        "stnp xzr, xzr, [%0, #48]"
        :
        : "r"(line)
        : "memory");
  }
#endif
}

template <typename Fill>
double time_fill(std::byte* begin, std::size_t bytes, unsigned threads, Fill fill) {
  const std::size_t share = bytes / threads / kLine * kLine;
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> others;
    others.reserve(threads - 1);
    for (unsigned i = 1; i < threads; ++i) {
      const std::size_t end = i + 1 == threads ? bytes : share * (i + 1);
      others.emplace_back([=] { fill(begin + share * i, end - share * i); });
    }
    fill(begin, threads == 1 ? bytes : share);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double time_memset(std::byte* begin, std::size_t bytes, unsigned threads) {
  return time_fill(begin, bytes, threads, [](std::byte* at, std::size_t length) {
    std::memset(at, 0, length);
    // The stores must not be left out as dead.
    asm volatile("" : : "r"(at) : "memory");
  });
}

double time_nontemporal(std::byte* begin, std::size_t bytes, unsigned threads) {
  return time_fill(begin, bytes, threads, fill_nontemporal);
}

}  // namespace touchstone::shatter
