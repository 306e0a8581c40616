// SPDX-License-Identifier: GPL-2.0-only
#include "touch.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report.h"

namespace lab {
namespace {

// Register fields of the words: Rs or Rt2 in bits 20-16, Rn = x0 in bits 9-5, Rt in bits 4-0.
constexpr uint32_t rs_rt(uint32_t base, uint32_t rs, uint32_t rt) {
  return base | rs << 16 | rt;
}

// LD<op>/SWP: size in bits 31-30, acquire in bit 23, release in bit 22; x3 in, old value to x4.
constexpr uint32_t kByte = 0x38200000, kHalf = 0x78200000, kWord = 0xb8200000, kDouble = 0xf8200000;
constexpr uint32_t kAcquire = 1u << 23, kRelease = 1u << 22;
constexpr uint32_t lse(uint32_t size, uint32_t opcode, uint32_t order = 0) {
  return rs_rt(size | opcode << 12 | order, 3, 4);
}
constexpr uint32_t lse_store(uint32_t size, uint32_t opcode, uint32_t order = 0) {
  return rs_rt(size | opcode << 12 | order, 3, 31);
}
constexpr uint32_t kSwap = 8;

constexpr uint32_t kExpectedToX4 = 0xaa0803e4;  // mov x4, x8
constexpr uint32_t kAddOperand = 0x8b030084;    // add x4, x4, x3
constexpr uint32_t kRetryTwo = 0x35ffffc5;      // cbnz w5, .-8
constexpr uint32_t kRetryThree = 0x35ffffa5;    // cbnz w5, .-12
constexpr uint32_t kMissToX4 = 0xaa2803e4;      // mvn x4, x8
constexpr uint32_t kOperandToX3 = 0xaa0603e3;   // mov x3, x6
constexpr uint32_t kOperandToX4 = 0xaa0703e4;   // mov x4, x7

template <uint32_t... kWords>
constexpr std::array<uint32_t, sizeof...(kWords)> kCode = {kWords...};

#define WORDS(...) std::span<const uint32_t>(kCode<__VA_ARGS__>)

constexpr auto kRmw = TouchKind::kRmw;
constexpr auto kExclusive = TouchKind::kExclusive;

const std::array kTouches = {
    // What is compared against.
    Touch{"load", "plain", TouchKind::kRead, Effect::kKept, 8, true, WORDS(0xf9400004)},
    Touch{"load-vector", "plain", TouchKind::kRead, Effect::kKept, 8, false, WORDS(0x3dc00004)},
    Touch{"ldar", "ordered", TouchKind::kRead, Effect::kKept, 8, false, WORDS(0xc8dffc04)},
    Touch{"ldapr", "ordered", TouchKind::kRead, Effect::kKept, 8, true, WORDS(0xf8bfc004)},
    Touch{"ldxr", "exclusive", TouchKind::kRead, Effect::kKept, 8, true, WORDS(0xc85f7c04)},
    Touch{"store", "plain", TouchKind::kWrite, Effect::kOperand, 8, true, WORDS(0xf9000003)},
    Touch{"stlr", "ordered", TouchKind::kWrite, Effect::kOperand, 8, false, WORDS(0xc89ffc03)},
    Touch{"dc-zva", "block", TouchKind::kWrite, Effect::kZero, 8, true, WORDS(0xd50b7420)},
    Touch{"load-then-store", "plain", TouchKind::kExclusive, Effect::kAdd, 8, true,
          WORDS(0xf9400004, kAddOperand, 0xf9000004)},

    // Load-exclusive/store-exclusive loops.
    Touch{"ldxr-stxr", "exclusive", kExclusive, Effect::kAdd, 8, true,
          WORDS(0xc85f7c04, kAddOperand, 0xc8057c04, kRetryThree)},
    Touch{"ldaxr-stlxr", "exclusive", kExclusive, Effect::kAdd, 8, false,
          WORDS(0xc85ffc04, kAddOperand, 0xc805fc04, kRetryThree)},
    Touch{"ldaxrb-stlxrb", "exclusive", kExclusive, Effect::kAdd, 1, false,
          WORDS(0x085ffc04, kAddOperand, 0x0805fc04, kRetryThree)},
    Touch{"ldxp-stxp", "exclusive", kExclusive, Effect::kKept, 8, false,
          WORDS(0xc87f1804, 0xc8251804, kRetryTwo)},
    Touch{"prfm-ldxr-stxr", "exclusive", kExclusive, Effect::kAdd, 8, false,
          WORDS(0xf9800011, 0xc85f7c04, kAddOperand, 0xc8057c04, kRetryThree)},

    // LSE.
    Touch{"ldadd", "LSE", kRmw, Effect::kAdd, 8, true, WORDS(lse(kDouble, 0))},
    Touch{"ldclr", "LSE", kRmw, Effect::kClear, 8, false, WORDS(lse(kDouble, 1))},
    Touch{"ldeor", "LSE", kRmw, Effect::kXor, 8, false, WORDS(lse(kDouble, 2))},
    Touch{"ldset", "LSE", kRmw, Effect::kSet, 8, false, WORDS(lse(kDouble, 3))},
    Touch{"ldsmax", "LSE", kRmw, Effect::kSmax, 8, false, WORDS(lse(kDouble, 4))},
    Touch{"ldsmin", "LSE", kRmw, Effect::kSmin, 8, false, WORDS(lse(kDouble, 5))},
    Touch{"ldumax", "LSE", kRmw, Effect::kUmax, 8, false, WORDS(lse(kDouble, 6))},
    Touch{"ldumin", "LSE", kRmw, Effect::kUmin, 8, false, WORDS(lse(kDouble, 7))},
    Touch{"ldadda", "LSE", kRmw, Effect::kAdd, 8, false, WORDS(lse(kDouble, 0, kAcquire))},
    Touch{"ldaddl", "LSE", kRmw, Effect::kAdd, 8, false, WORDS(lse(kDouble, 0, kRelease))},
    Touch{"ldaddal", "LSE", kRmw, Effect::kAdd, 8, false,
          WORDS(lse(kDouble, 0, kAcquire | kRelease))},
    Touch{"ldaddb", "LSE", kRmw, Effect::kAdd, 1, false, WORDS(lse(kByte, 0))},
    Touch{"ldaddh", "LSE", kRmw, Effect::kAdd, 2, false, WORDS(lse(kHalf, 0))},
    Touch{"ldadd-w", "LSE", kRmw, Effect::kAdd, 4, false, WORDS(lse(kWord, 0))},
    Touch{"stadd", "LSE", kRmw, Effect::kAdd, 8, true, WORDS(lse_store(kDouble, 0))},
    Touch{"stclr", "LSE", kRmw, Effect::kClear, 8, false, WORDS(lse_store(kDouble, 1))},
    Touch{"steor", "LSE", kRmw, Effect::kXor, 8, false, WORDS(lse_store(kDouble, 2))},
    Touch{"stset", "LSE", kRmw, Effect::kSet, 8, false, WORDS(lse_store(kDouble, 3))},
    Touch{"stsmax", "LSE", kRmw, Effect::kSmax, 8, false, WORDS(lse_store(kDouble, 4))},
    Touch{"stsmin", "LSE", kRmw, Effect::kSmin, 8, false, WORDS(lse_store(kDouble, 5))},
    Touch{"stumax", "LSE", kRmw, Effect::kUmax, 8, false, WORDS(lse_store(kDouble, 6))},
    Touch{"stumin", "LSE", kRmw, Effect::kUmin, 8, false, WORDS(lse_store(kDouble, 7))},
    Touch{"swp", "LSE", kRmw, Effect::kOperand, 8, true, WORDS(lse(kDouble, kSwap))},
    Touch{"swpal", "LSE", kRmw, Effect::kOperand, 8, false,
          WORDS(lse(kDouble, kSwap, kAcquire | kRelease))},
    Touch{"swpb", "LSE", kRmw, Effect::kOperand, 1, false, WORDS(lse(kByte, kSwap))},
    Touch{"cas-hit", "LSE", kRmw, Effect::kOperand, 8, true, WORDS(kExpectedToX4, 0xc8a47c03)},
    Touch{"cas-miss", "LSE", kRmw, Effect::kKept, 8, true, WORDS(kMissToX4, 0xc8a47c03)},
    Touch{"casal-hit", "LSE", kRmw, Effect::kOperand, 8, false, WORDS(kExpectedToX4, 0xc8e4fc03)},
    Touch{"casb-hit", "LSE", kRmw, Effect::kOperand, 1, false, WORDS(kExpectedToX4, 0x08a47c03)},
    Touch{"casp-hit", "LSE", kRmw, Effect::kOperand, 8, true, WORDS(kExpectedToX4, 0x48247c06)},
    Touch{"casp-miss", "LSE", kRmw, Effect::kKept, 8, false, WORDS(kMissToX4, 0x48247c06)},

    // 128-bit LSE: the pair x3, x4 with memory.
    Touch{"ldclrp", "LSE128", kRmw, Effect::kClear, 8, false,
          WORDS(kOperandToX3, kOperandToX4, rs_rt(0x19201000, 4, 3))},
    Touch{"ldsetp", "LSE128", kRmw, Effect::kSet, 8, false,
          WORDS(kOperandToX3, kOperandToX4, rs_rt(0x19203000, 4, 3))},
    Touch{"swpp", "LSE128", kRmw, Effect::kOperand, 8, false,
          WORDS(kOperandToX3, kOperandToX4, rs_rt(0x19208000, 4, 3))},

    // Read-check-write (FEAT_THE), and their 128-bit forms (FEAT_D128).
    Touch{"rcwclr", "THE", kRmw, Effect::kClear, 8, false, WORDS(rs_rt(0x38209000, 3, 4))},
    Touch{"rcwswp", "THE", kRmw, Effect::kOperand, 8, false, WORDS(rs_rt(0x3820a000, 3, 4))},
    Touch{"rcwset", "THE", kRmw, Effect::kSet, 8, false, WORDS(rs_rt(0x3820b000, 3, 4))},
    Touch{"rcwcas", "THE", kRmw, Effect::kOperand, 8, false,
          WORDS(kExpectedToX4, rs_rt(0x19200800, 4, 3))},
    Touch{"rcwcasp", "THE", kRmw, Effect::kOperand, 8, false,
          WORDS(kExpectedToX4, rs_rt(0x19200c00, 4, 6))},
    Touch{"rcwclrp", "D128", kRmw, Effect::kClear, 8, false,
          WORDS(kOperandToX3, kOperandToX4, rs_rt(0x19209000, 4, 3))},
    Touch{"rcwswpp", "D128", kRmw, Effect::kOperand, 8, false,
          WORDS(kOperandToX3, kOperandToX4, rs_rt(0x1920a000, 4, 3))},
    Touch{"rcwsetp", "D128", kRmw, Effect::kSet, 8, false,
          WORDS(kOperandToX3, kOperandToX4, rs_rt(0x1920b000, 4, 3))},

    // Unprivileged atomics.
    Touch{"ldtadd", "LSUI", kRmw, Effect::kAdd, 8, false, WORDS(rs_rt(0x59200400, 3, 4))},
    Touch{"ldtclr", "LSUI", kRmw, Effect::kClear, 8, false, WORDS(rs_rt(0x59201400, 3, 4))},
    Touch{"ldtset", "LSUI", kRmw, Effect::kSet, 8, false, WORDS(rs_rt(0x59203400, 3, 4))},
    Touch{"swpt", "LSUI", kRmw, Effect::kOperand, 8, false, WORDS(rs_rt(0x59208400, 3, 4))},
    Touch{"cast", "LSUI", kRmw, Effect::kOperand, 8, false,
          WORDS(kExpectedToX4, rs_rt(0xc9807c00, 4, 3))},
    Touch{"caspt", "LSUI", kRmw, Effect::kOperand, 8, false,
          WORDS(kExpectedToX4, rs_rt(0x49807c00, 4, 6))},
    Touch{"ldtxr-sttxr", "LSUI", kExclusive, Effect::kAdd, 8, false,
          WORDS(0xc95f7c04, kAddOperand, 0xc9057c04, kRetryThree)},

    // Floating-point atomics: d3 holds zero, as does fresh memory.
    Touch{"ldfadd", "LSFE", kRmw, Effect::kKept, 8, false, WORDS(rs_rt(0xfc200000, 3, 4))},
    Touch{"stfadd", "LSFE", kRmw, Effect::kKept, 8, false, WORDS(rs_rt(0xfc208000, 3, 31))},

    // The kernel populates.
    Touch{"populate-read", "madvise", TouchKind::kPopulate, Effect::kKept, 8, true, {}},
    Touch{"populate-write", "madvise", TouchKind::kPopulate, Effect::kKept, 8, true, {}},
};

uint64_t mask_of(unsigned width) {
  return width == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * width) - 1;
}

}  // namespace

std::span<const Touch> all_touches() {
  return kTouches;
}

const Touch& touch_named(std::string_view name) {
  const auto* const found = std::ranges::find(kTouches, name, &Touch::name);
  if (found == kTouches.end()) {
    fprintf(stderr, "guest: there is no touch '%.*s'\n", static_cast<int>(name.size()),
            name.data());
    exit(1);
  }
  return *found;
}

uint64_t expected_after(const Touch& touch, uint64_t before, uint64_t operand) {
  const uint64_t mask = mask_of(touch.width);
  const uint64_t old = before & mask, in = operand & mask;
  const auto is_less = [&](uint64_t a, uint64_t b) {
    return static_cast<int64_t>(a) < static_cast<int64_t>(b);
  };
  uint64_t now = old;
  switch (touch.effect) {
    case Effect::kKept:
      break;
    case Effect::kAdd:
      now = old + in;
      break;
    case Effect::kClear:
      now = old & ~in;
      break;
    case Effect::kXor:
      now = old ^ in;
      break;
    case Effect::kSet:
      now = old | in;
      break;
    case Effect::kSmax:
      now = is_less(old, in) ? in : old;
      break;
    case Effect::kSmin:
      now = is_less(old, in) ? old : in;
      break;
    case Effect::kUmax:
      now = std::max(old, in);
      break;
    case Effect::kUmin:
      now = std::min(old, in);
      break;
    case Effect::kOperand:
      now = in;
      break;
    case Effect::kZero:
      return 0;
  }
  return (before & ~mask) | (now & mask);
}

LoopPage::LoopPage(const Touch& touch, Text text) : size_(static_cast<size_t>(getpagesize())) {
  std::vector<uint32_t> code = {
      0xaa0403e8,  // mov x8, x4: what memory is expected to hold
      0xaa0403e5,  // mov x5, x4
      0xaa0303e6,  // mov x6, x3
      0xaa0303e7,  // mov x7, x3
      0x9e6703e3,  // fmov d3, xzr
  };
  const size_t top = code.size();
  offset_of_touch_ = top * sizeof(uint32_t);
  code.insert(code.end(), touch.words.begin(), touch.words.end());
  code.push_back(0x8b020000);  // add x0, x0, x2
  code.push_back(0xeb01001f);  // cmp x0, x1
  const auto back = static_cast<uint32_t>(-static_cast<int32_t>(code.size() - top));
  code.push_back(0x54000003 | (back & 0x7ffff) << 5);  // b.lo top
  code.push_back(0xd65f03c0);                          // ret
  const size_t bytes = code.size() * sizeof(uint32_t);
  file_ = memfd_create("touchstone-loop", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(size_)) != 0 ||
      pwrite(file_, code.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    perror("file of a loop page");
    exit(1);
  }
  const int protection = text == Text::kNormal ? PROT_READ | PROT_EXEC : PROT_EXEC;
  page_ = mmap(nullptr, size_, protection, MAP_PRIVATE, file_, 0);
  if (page_ == MAP_FAILED) {
    perror("mmap of a loop page");
    exit(1);
  }
  // Have it in, so that the loop's first fault is its own: execute the last word.
  reinterpret_cast<void (*)()>(static_cast<std::byte*>(page_) + bytes - sizeof(uint32_t))();
}

LoopPage::~LoopPage() {
  munmap(page_, size_);
  close(file_);
}

void LoopPage::evict() const {
  madvise(page_, size_, MADV_DONTNEED);
}

TouchLoop LoopPage::loop() const {
  return reinterpret_cast<TouchLoop>(page_);
}

bool executes(const Touch& touch) {
  if (touch.kind == TouchKind::kPopulate) return true;
  const pid_t child = fork();
  if (child == 0) {
    alignas(64) static std::byte memory[64];
    const LoopPage page(touch, LoopPage::Text::kNormal);
    page.loop()(memory, memory + sizeof memory, sizeof memory, 0, 0);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool execute_only_is_enforced() {
  const pid_t child = fork();
  if (child == 0) {
    const LoopPage page(kTouches[0], LoopPage::Text::kExecuteOnly);
    const auto* word = static_cast<const volatile uint32_t*>(page.address());
    static_cast<void>(*word);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

std::span<const LoopPage::Text> texts_to_run() {
  static constexpr std::array kAll = {LoopPage::Text::kNormal, LoopPage::Text::kExecuteOnly};
  static const bool enforced = [] {
    const bool is_enforced = execute_only_is_enforced();
    if (!is_enforced) {
      Line("skipped")
          .add("what", "execute-only text")
          .add("why", "this CPU has no FEAT_EPAN")
          .print();
    }
    return is_enforced;
  }();
  return std::span(kAll).first(enforced ? 2 : 1);
}

}  // namespace lab
