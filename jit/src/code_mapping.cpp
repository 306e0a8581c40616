// SPDX-License-Identifier: MIT
#include "code_mapping.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include <sys/mman.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/residency.h>
#include <touchstone/heap/system_calls.h>
#include <touchstone/jit/instruction_set.h>

// Constants that older C libraries lack.
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
static_assert(MFD_EXEC == 0x0010U);
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
static_assert(MADV_POPULATE_WRITE == 23);
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
static_assert(MADV_COLLAPSE == 25);

namespace touchstone::jit {
namespace {

using heap::system_calls;

constexpr std::byte kNotForked{0x5a};
/// arm64's PROT_BTI (Linux, asm/mman.h).
constexpr int kProtBti = 0x10;
/// Memory is put behind the code space in steps of this many bytes.
constexpr std::size_t kPopulateStep = std::size_t{64} << 10;

Error error_of(const char* operation, int system_errno, const void* address, std::size_t length,
               const char* detail = "") noexcept {
  return {.code = code_of_errno(system_errno),
          .operation = operation,
          .address = reinterpret_cast<std::uintptr_t>(address),
          .length = length,
          .system_errno = system_errno,
          .detail = detail};
}

constexpr std::size_t round_up(std::size_t value, std::size_t to) noexcept {
  return (value + to - 1) / to * to;
}

/// A memfd that may be executed, of `size` bytes.
Result<int> open_memory(std::size_t size) noexcept {
  const auto& calls = system_calls();
  int fd = calls.memfd_create("touchstone-code", MFD_CLOEXEC | MFD_EXEC);
  // Linux before 6.3 knows no MFD_EXEC, and its memfds are all executable.
  if (fd < 0 && errno == EINVAL) fd = calls.memfd_create("touchstone-code", MFD_CLOEXEC);
  if (fd < 0) {
    const int why = errno;
    const char* detail =
        why == EACCES ? "vm.memfd_noexec forbids executable memory files" : "no memory for code";
    return std::unexpected(error_of("memfd_create", why, nullptr, size, detail));
  }
  if (calls.ftruncate(fd, static_cast<off_t>(size)) != 0) {
    const int why = errno;
    static_cast<void>(calls.close(fd));
    return std::unexpected(error_of("ftruncate(memfd)", why, nullptr, size));
  }
  return fd;
}

/// Bytes of the range in huge pages, or 0 where that cannot be told.
std::size_t huge_bytes(const void* address, std::size_t length) noexcept {
  try {
    const Result<heap::Residency> residency = heap::residency_of(address, length);
    return residency ? residency->huge.value_or(0) : 0;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

}  // namespace

CodeMapping::CodeMapping(CodeMapping&& other) noexcept
    : writable_(std::exchange(other.writable_, nullptr)),
      executable_(std::exchange(other.executable_, nullptr)),
      fork_mark_(std::exchange(other.fork_mark_, nullptr)),
      capacity_(other.capacity_),
      page_(other.page_),
      pmd_(other.pmd_),
      populated_(other.populated_),
      huge_(other.huge_),
      execute_protection_(other.execute_protection_),
      sealed_(other.sealed_) {}

CodeMapping::~CodeMapping() {
  const auto& calls = system_calls();
  // In a forked child the writable view is not there; unmapping nothing is no error. What is sealed
  // stays until the process ends, as its owner asked.
  if (!sealed_) {
    if (writable_ != nullptr && !is_forked()) static_cast<void>(calls.munmap(writable_, capacity_));
    if (executable_ != nullptr) static_cast<void>(calls.munmap(executable_, capacity_));
  }
  if (fork_mark_ != nullptr) static_cast<void>(calls.munmap(fork_mark_, page_));
}

Result<CodeMapping> CodeMapping::create(const Options& options) noexcept {
  const auto& calls = system_calls();
  CodeMapping mapping;
  const arch::Geometry geometry = arch::geometry();
  mapping.page_ = geometry.base_page;
  if (options.capacity == 0 || options.capacity > (std::size_t{1} << 40)) {
    return std::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                                 .operation = "CodeCache::create",
                                 .length = options.capacity,
                                 .detail = "the capacity is 0 or above 1 TiB"});
  }
  if (options.huge_pages && options.capacity >= geometry.pmd) mapping.pmd_ = geometry.pmd;
  mapping.capacity_ =
      round_up(options.capacity, mapping.pmd_ != 0 ? mapping.pmd_ : geometry.base_page);
  constexpr bool kA64 = kHostInstructionSet == InstructionSet::kA64;
  if (kA64 && options.seal && options.execute_only) {
    return std::unexpected(
        Error{.code = ErrorCode::kUnsupported,
              .operation = "CodeCache::create",
              .detail = "sealed execute-only code cannot be made readable for cache maintenance"});
  }
  mapping.execute_protection_ = options.execute_only ? PROT_EXEC : PROT_READ | PROT_EXEC;
  if (kA64 && arch::cpu_features().has(arch::CpuFeature::kBti)) {
    mapping.execute_protection_ |= kProtBti;
  }

  void* mark = calls.mmap(nullptr, mapping.page_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mark == MAP_FAILED) {
    return std::unexpected(error_of("mmap", errno, nullptr, mapping.page_));
  }
  mapping.fork_mark_ = static_cast<std::byte*>(mark);
  *mapping.fork_mark_ = kNotForked;
  if (calls.madvise(mark, mapping.page_, MADV_WIPEONFORK) != 0) {
    return std::unexpected(error_of("madvise(MADV_WIPEONFORK)", errno, mark, mapping.page_,
                                    "a forked child could not be told from its parent"));
  }

  const Result<int> fd = open_memory(mapping.capacity_);
  if (!fd) return std::unexpected(fd.error());
  const Result<> mapped = mapping.map_views(*fd);
  // The views keep the memory; without the descriptor no child can map it writable again.
  static_cast<void>(calls.close(*fd));
  if (!mapped) return std::unexpected(mapped.error());

  if (calls.madvise(mapping.writable_, mapping.capacity_, MADV_DONTFORK) != 0) {
    return std::unexpected(error_of("madvise(MADV_DONTFORK)", errno, mapping.writable_,
                                    mapping.capacity_,
                                    "a forked child could write its parent's code"));
  }
  if (options.seal) {
    for (std::byte* view : {mapping.writable_, mapping.executable_}) {
      if (calls.mseal(view, mapping.capacity_, 0) != 0) {
        return std::unexpected(error_of("mseal", errno, view, mapping.capacity_));
      }
    }
    mapping.sealed_ = true;
  }
  return mapping;
}

Result<> CodeMapping::map_views(int fd) noexcept {
  const auto& calls = system_calls();
  const auto map = [&](int protection) -> Result<std::byte*> {
    if (pmd_ == 0) {
      void* view = calls.mmap(nullptr, capacity_, protection, MAP_SHARED, fd, 0);
      if (view == MAP_FAILED) return std::unexpected(error_of("mmap", errno, nullptr, capacity_));
      return static_cast<std::byte*>(view);
    }
    // Both views have to start at a multiple of the huge page to be mapped by huge pages.
    const std::size_t wide = capacity_ + pmd_;
    void* area =
        calls.mmap(nullptr, wide, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) return std::unexpected(error_of("mmap", errno, nullptr, wide));
    auto* start = static_cast<std::byte*>(area);
    auto* aligned = start + (pmd_ - reinterpret_cast<std::uintptr_t>(start) % pmd_) % pmd_;
    void* view = calls.mmap(aligned, capacity_, protection, MAP_SHARED | MAP_FIXED, fd, 0);
    if (view == MAP_FAILED) {
      const int why = errno;
      static_cast<void>(calls.munmap(area, wide));
      return std::unexpected(error_of("mmap", why, aligned, capacity_));
    }
    const auto before = static_cast<std::size_t>(aligned - start);
    if (before != 0) static_cast<void>(calls.munmap(start, before));
    if (before != pmd_) {
      static_cast<void>(calls.munmap(aligned + capacity_, pmd_ - before));
    }
    return aligned;
  };
  const Result<std::byte*> writable = map(PROT_READ | PROT_WRITE);
  if (!writable) return std::unexpected(writable.error());
  writable_ = *writable;
  Result<std::byte*> executable = map(execute_protection_);
  if (!executable && executable.error().system_errno == EINVAL &&
      (execute_protection_ & kProtBti) != 0) {
    // The CPU has BTI and this kernel does not let programs use it.
    execute_protection_ &= ~kProtBti;
    executable = map(execute_protection_);
  }
  if (!executable) return std::unexpected(executable.error());
  executable_ = *executable;
  // Names are for /proc/self/maps alone, where the kernel takes them for such mappings at all.
  static_cast<void>(calls.set_vma_name(executable_, capacity_, "touchstone code"));
  return {};
}

bool CodeMapping::is_forked() const noexcept {
  return std::atomic_ref(*fork_mark_).load(std::memory_order_relaxed) != kNotForked;
}

Result<> CodeMapping::populate(std::size_t end) noexcept {
  const auto& calls = system_calls();
  while (populated_ < end) {
    std::byte* from = writable_ + populated_;
    const std::size_t step =
        pmd_ != 0 ? pmd_ : std::min(std::max(kPopulateStep, page_), capacity_ - populated_);
    while (calls.madvise(from, step, MADV_POPULATE_WRITE) != 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      // Linux before 5.14 cannot say beforehand; the first write then finds out.
      if (errno == EINVAL) break;
      return std::unexpected(error_of("madvise(MADV_POPULATE_WRITE)", errno, from, step,
                                      "no memory to put code into"));
    }
    // Collapsing needs the pages to be there, and works whatever shmem_enabled says. Where it is
    // refused the ordinary pages serve as well.
    if (pmd_ != 0 && calls.madvise(from, step, MADV_COLLAPSE) == 0) {
      // Mapped again first, as collapsing unmaps; and counted by its effect, since emulators say
      // success and do nothing.
      static_cast<void>(calls.madvise(from, step, MADV_POPULATE_WRITE));
      huge_ += huge_bytes(from, step);
    }
    populated_ += step;
  }
  return {};
}

Result<> CodeMapping::set_readable(std::size_t offset, std::size_t size, bool readable) noexcept {
  const std::size_t first = offset / page_ * page_;
  const std::size_t last = round_up(offset + size, page_);
  const int protection = execute_protection_ | (readable ? PROT_READ : 0);
  if (system_calls().mprotect(executable_ + first, last - first, protection) != 0) {
    return std::unexpected(
        error_of("mprotect", errno, executable_ + first, last - first, "code permissions"));
  }
  return {};
}

}  // namespace touchstone::jit
