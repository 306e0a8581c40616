// SPDX-License-Identifier: MIT
// The thread sanitizer sees neither emitted accesses nor their order; what threads do to each other
// here goes through std::atomic and the cache's own lock, which it does see.
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <elf.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/system_calls.h>
#include <touchstone/jit/code_cache.h>
#include <touchstone/jit/instruction_set.h>

#include "small_functions.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier)
extern "C" {
struct jit_code_entry {
  jit_code_entry* next_entry;
  jit_code_entry* prev_entry;
  const char* symfile_addr;
  std::uint64_t symfile_size;
};
struct jit_descriptor {
  std::uint32_t version;
  std::uint32_t action_flag;
  jit_code_entry* relevant_entry;
  jit_code_entry* first_entry;
};
extern jit_descriptor __jit_debug_descriptor;
}
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)

namespace touchstone::jit {
namespace {

using heap::SystemCalls;

constexpr bool kA64 = kHostInstructionSet == InstructionSet::kA64;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr CodeCacheOptions kSmall{.capacity = std::size_t{256} << 10};

std::unique_ptr<CodeCache> make(const CodeCacheOptions& options = kSmall) {
  auto cache = CodeCache::create(options);
  if (!cache) {
    ADD_FAILURE() << cache.error().message();
    return nullptr;
  }
  return *std::move(cache);
}

struct Mapping {
  std::uintptr_t start = 0;
  std::uintptr_t end = 0;
  std::string permissions;
  std::string rest;
};

std::vector<Mapping> mappings() {
  std::vector<Mapping> all;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    Mapping mapping;
    char permissions[8] = {};
    unsigned long start = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %7s", &start, &end, permissions) != 3) continue;
    mapping.start = start;
    mapping.end = end;
    mapping.permissions = permissions;
    mapping.rest = line;
    all.push_back(mapping);
  }
  return all;
}

std::string permissions_at(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Mapping& mapping : mappings()) {
    if (at >= mapping.start && at < mapping.end) return mapping.permissions;
  }
  return "";
}

/// Runs `body` in a forked child and expects it to exit with `wanted`.
void expect_exit(int wanted, const std::function<int()>& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(body());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), wanted);
}

/// Calls `body` in a child and returns the signal that killed it, or 0.
int signal_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    // A sanitizer's handler would turn the signal into an exit.
    for (const int signal : {SIGILL, SIGTRAP, SIGSEGV, SIGBUS}) std::signal(signal, SIG_DFL);
    body();
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/// A replaced table, for as long as it lives.
class Injected {
 public:
  explicit Injected(const std::function<void(SystemCalls&)>& change)
      : table_(heap::kernel_calls()) {
    change(table_);
    heap::replace_system_calls(&table_);
  }
  ~Injected() { heap::replace_system_calls(nullptr); }
  Injected(const Injected&) = delete;
  Injected& operator=(const Injected&) = delete;

 private:
  SystemCalls table_;
};

// ---- Permissions ----

TEST(CodeCacheViews, NoPageIsEverWritableAndExecutable) {
  for (const bool execute_only : {false, true}) {
    CodeCacheOptions options = kSmall;
    options.execute_only = execute_only;
    const auto cache = make(options);
    ASSERT_TRUE(cache);
    const auto check = [&](const char* when) {
      std::size_t views = 0;
      for (const Mapping& mapping : mappings()) {
        EXPECT_FALSE(mapping.permissions[1] == 'w' && mapping.permissions[2] == 'x')
            << when << ": " << mapping.rest;
        if (mapping.rest.find("touchstone-code") != std::string::npos) ++views;
      }
      EXPECT_GE(views, 2U) << when;
    };
    check("empty");
    const Result<CodePlace> place = cache->reserve(64);
    ASSERT_TRUE(place);
    check("reserved");
    ASSERT_TRUE(cache->publish(*place, constant_function(7), "seven"));
    check("published");
    EXPECT_EQ(call(place->address), 7U);
    EXPECT_EQ(permissions_at(place->address), execute_only ? "--xs" : "r-xs");
    ASSERT_TRUE(cache->release(place->address));
    check("released");
  }
}

TEST(CodeCacheViews, ExecuteOnlyIsSaidToBeAndRuns) {
  CodeCacheOptions options = kSmall;
  options.execute_only = true;
  const auto cache = make(options);
  ASSERT_TRUE(cache);
  std::atomic<const void*> slot{nullptr};
  const auto first = cache->add(constant_function(1), "one", &slot);
  ASSERT_TRUE(first);
  const auto second = cache->add(constant_function(2), "two");
  ASSERT_TRUE(second);
  // Both lie in one page, which was opened for the second and closed again.
  EXPECT_EQ(permissions_at(*first), "--xs");
  EXPECT_EQ(call(slot.load()), 1U);
  EXPECT_EQ(call(*second), 2U);
  const auto code = cache->code_at(*first);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().code, ErrorCode::kNotPermitted);
}

TEST(CodeCacheViews, SealedViewsCannotBeChanged) {
  CodeCacheOptions options = kSmall;
  options.seal = true;
  const auto made = CodeCache::create(options);
  if (!made && made.error().code == ErrorCode::kUnsupported) {
    EXPECT_STREQ(made.error().operation, "mseal");
    GTEST_SKIP() << "this kernel has no mseal: " << made.error().message();
  }
  ASSERT_TRUE(made) << made.error().message();
  const auto entry = (*made)->add(constant_function(3), "three");
  ASSERT_TRUE(entry);
  EXPECT_EQ(call(*entry), 3U);
  auto* page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(*entry) &
                                       ~(arch::base_page_size() - 1));
  EXPECT_EQ(mprotect(page, arch::base_page_size(), PROT_READ | PROT_WRITE | PROT_EXEC), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(munmap(page, arch::base_page_size()), -1);
  EXPECT_EQ(errno, EPERM);
  ASSERT_TRUE((*made)->release(*entry));
  options.execute_only = true;
  const auto both = CodeCache::create(options);
  ASSERT_EQ(both.has_value(), !kA64);
  if (!both) {
    EXPECT_EQ(both.error().code, ErrorCode::kUnsupported);
  }
}

TEST(CodeCacheViews, BranchTargetsAreGuardedWhereTheCpuCan) {
  if (!arch::cpu_features().has(arch::CpuFeature::kBti)) {
    GTEST_SKIP() << "this CPU has no BTI";
  }
  const auto cache = make();
  ASSERT_TRUE(cache);
  const auto guarded = cache->add(constant_function(5), "with BTI c");
  const auto bare = cache->add(constant_function(5, false), "without");
  ASSERT_TRUE(guarded && bare);
  EXPECT_EQ(call(*guarded), 5U);
  EXPECT_EQ(signal_of([&] { static_cast<void>(call(*bare)); }), SIGILL);
}

TEST(CodeCacheViews, LargeCachesLieInHugePages) {
  const arch::Geometry geometry = arch::geometry();
  if (geometry.pmd > 64 * kMiB) GTEST_SKIP() << "huge pages of this kernel are too large to try";
  const auto cache = make({.capacity = 2 * geometry.pmd});
  ASSERT_TRUE(cache);
  const auto entry = cache->add(constant_function(6), "six");
  ASSERT_TRUE(entry);
  EXPECT_EQ(call(*entry), 6U);
  if (cache->statistics().huge == 0) {
    GTEST_SKIP() << "this kernel gives no huge pages for memory files";
  }
  EXPECT_EQ(cache->statistics().huge, geometry.pmd);
  // The kernel's own account of the executable view.
  std::ifstream file("/proc/self/smaps");
  std::size_t huge = 0;
  bool told = false;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long start = 0;
    unsigned long end = 0;
    unsigned long kilobytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &start, &end) == 2) {
      const auto at = reinterpret_cast<std::uintptr_t>(*entry);
      inside = at >= start && at < end;
    } else if (inside && (std::sscanf(line.c_str(), "ShmemPmdMapped: %lu", &kilobytes) == 1)) {
      huge += kilobytes << 10U;
      told = true;
    }
  }
  if (!told) GTEST_SKIP() << "smaps tells nothing of huge pages here (an emulator's)";
  EXPECT_EQ(huge, geometry.pmd);
}

// ---- Allocation ----

TEST(CodeCacheSpace, ExhaustionIsAnErrorAndReleaseMendsIt) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  std::vector<const void*> entries;
  for (;;) {
    const auto entry = cache->add(constant_function(entries.size()), "filler");
    if (!entry) {
      EXPECT_EQ(entry.error().code, ErrorCode::kOutOfMemory);
      EXPECT_STREQ(entry.error().detail, "the code cache is full");
      break;
    }
    entries.push_back(*entry);
  }
  // All but the first line, which is kept.
  EXPECT_EQ(entries.size(), kSmall.capacity / kCodeAlignment - 1);
  for (std::size_t i = 0; i < entries.size(); ++i) ASSERT_EQ(call(entries[i]), i);
  ASSERT_TRUE(cache->release(entries[17]));
  const auto again = cache->add(constant_function(1234), "again");
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, entries[17]);
  EXPECT_EQ(call(*again), 1234U);
  EXPECT_FALSE(cache->reserve(kSmall.capacity));
  EXPECT_FALSE(cache->reserve(kSmall.capacity + 1));
  EXPECT_FALSE(cache->reserve(~std::size_t{0}));
  const auto none = cache->reserve(0);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInvalidArgument);
}

TEST(CodeCacheSpace, AHundredThousandFunctionsDoNotGrowIt) {
  const auto cache = make({.capacity = 16 * kMiB, .huge_pages = false});
  ASSERT_TRUE(cache);
  constexpr std::size_t count = kA64 ? 20'000 : 100'000;
  constexpr std::size_t alive = 500;
  std::vector<const void*> entries(alive);
  for (std::size_t i = 0; i < count; ++i) {
    const void*& entry = entries[i * 7919 % alive];
    if (entry != nullptr) {
      ASSERT_TRUE(cache->release(entry));
    }
    // Sizes vary, so that holes do not fit by themselves.
    std::vector<std::byte> code = constant_function(i);
    code.resize(code.size() + (i * 31 % 5) * 64);
    entry = cache->add(code, "churn").value();
    ASSERT_EQ(call(entry), i);
  }
  const CodeCacheStatistics statistics = cache->statistics();
  EXPECT_EQ(statistics.publications, count);
  EXPECT_EQ(statistics.functions, alive);
  EXPECT_EQ(statistics.retired, 0U);
  // Twice the most that was ever alive at once.
  EXPECT_LE(statistics.high_water, 2 * alive * 6 * 64);
}

TEST(CodeCacheSpace, WhatIsNotPublishedTraps) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  const auto place = cache->reserve(200);
  ASSERT_TRUE(place);
  const int wanted = kA64 ? SIGILL : SIGTRAP;
  EXPECT_EQ(signal_of([&] { static_cast<void>(call(place->address)); }), wanted);
  ASSERT_TRUE(cache->publish(*place, constant_function(1), "one"));
  EXPECT_EQ(call(place->address), 1U);
  ASSERT_TRUE(cache->release(place->address));
  EXPECT_EQ(signal_of([&] { static_cast<void>(call(place->address)); }), wanted);
}

TEST(CodeCacheSpace, PlacesAreCheckedBeforeUse) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  const auto code = constant_function(9);
  const auto place = cache->reserve(code.size()).value();
  const auto is_invalid = [](const Result<>& result) {
    return !result && result.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(is_invalid(cache->publish({}, code, "null")));
  EXPECT_TRUE(is_invalid(
      cache->publish({.address = place.address + 1, .size = place.size}, code, "inside")));
  ASSERT_TRUE(cache->publish(place, code, "good"));
  EXPECT_TRUE(is_invalid(cache->publish(place, code, "twice")));
  EXPECT_TRUE(is_invalid(cache->release(place.address + 4)));
  EXPECT_TRUE(is_invalid(cache->release(&place)));
  ASSERT_TRUE(cache->release(place.address));
  EXPECT_TRUE(is_invalid(cache->release(place.address)));

  const auto small = cache->reserve(16).value();
  const std::vector<std::byte> large(65, std::byte{0x90});
  const auto too_long = cache->publish(small, large, "too long");
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(cache->statistics().used, 0U);
  const auto empty = cache->add({}, "empty");
  EXPECT_FALSE(empty);
  EXPECT_FALSE(CodeCache::create({.capacity = 0}));
}

TEST(CodeCacheSpace, CodeCanBeReadBack) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  const auto code = constant_function(0x0123'4567'89ab'cdef);
  const auto entry = cache->add(code, "constant").value();
  const auto read = cache->code_at(entry);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), code.size());
  EXPECT_EQ(std::memcmp(read->data(), code.data(), code.size()), 0);
  EXPECT_TRUE(cache->contains(entry));
  EXPECT_FALSE(cache->contains(&code));
  EXPECT_FALSE(cache->code_at(static_cast<const std::byte*>(entry) + 4));
}

// ---- What the kernel may refuse ----

TEST(CodeCacheRefused, MemoryFilesThatAreForbiddenAreATypedError) {
  const Injected injected([](SystemCalls& calls) {
    calls.memfd_create = [](const char*, unsigned) {
      errno = EACCES;
      return -1;
    };
  });
  const auto cache = CodeCache::create(kSmall);
  ASSERT_FALSE(cache);
  EXPECT_EQ(cache.error().code, ErrorCode::kNotPermitted);
  EXPECT_STREQ(cache.error().operation, "memfd_create");
  EXPECT_STREQ(cache.error().detail, "vm.memfd_noexec forbids executable memory files");
}

TEST(CodeCacheRefused, OldKernelsWithoutMfdExecWork) {
  static std::atomic<int> asked{0};
  asked = 0;
  const Injected injected([](SystemCalls& calls) {
    calls.memfd_create = [](const char* name, unsigned flags) {
      ++asked;
      if ((flags & MFD_EXEC) != 0) {
        errno = EINVAL;
        return -1;
      }
      return heap::kernel_calls().memfd_create(name, flags);
    };
  });
  const auto cache = CodeCache::create(kSmall);
  ASSERT_TRUE(cache);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(call((*cache)->add(constant_function(8), "eight").value()), 8U);
}

/// Fails each call of one kind in turn, and expects a typed error and no mapping left behind.
TEST(CodeCacheRefused, EachFailingCallIsATypedErrorAndLeavesNothing) {
  static std::atomic<int> countdown{0};
  const auto fails = [] { return countdown.fetch_sub(1) == 0; };
  static const auto now = fails;
  const std::array<std::pair<const char*, std::function<void(SystemCalls&)>>, 4> kinds{{
      {"mmap",
       [](SystemCalls& calls) {
         calls.mmap = [](void* address, std::size_t length, int protection, int flags, int fd,
                         off_t offset) -> void* {
           if (now()) {
             errno = ENOMEM;
             return MAP_FAILED;
           }
           return heap::kernel_calls().mmap(address, length, protection, flags, fd, offset);
         };
       }},
      {"ftruncate",
       [](SystemCalls& calls) {
         calls.ftruncate = [](int fd, off_t length) {
           if (now()) {
             errno = ENOSPC;
             return -1;
           }
           return heap::kernel_calls().ftruncate(fd, length);
         };
       }},
      {"madvise",
       [](SystemCalls& calls) {
         calls.madvise = [](void* address, std::size_t length, int advice) {
           if (now()) {
             errno = ENOMEM;
             return -1;
           }
           return heap::kernel_calls().madvise(address, length, advice);
         };
       }},
      {"mseal",
       [](SystemCalls& calls) {
         calls.mseal = [](void*, std::size_t, unsigned long) {
           errno = ENOSYS;
           return -1;
         };
       }},
  }};
  for (const bool huge : {false, true}) {
    for (const auto& [name, change] : kinds) {
      for (int nth = 0; nth < 8; ++nth) {
        const auto views = [] {
          std::size_t count = 0;
          for (const Mapping& mapping : mappings()) {
            if (mapping.rest.find("touchstone-code") != std::string::npos) ++count;
          }
          return count;
        };
        const std::size_t before = views();
        countdown = nth;
        const Injected injected(change);
        const auto cache = CodeCache::create(
            {.capacity = huge ? 4 * kMiB : kSmall.capacity, .seal = std::string(name) == "mseal"});
        if (cache) {
          // Past the last call of this kind: now a call made by use fails, or none does.
          const auto entry = (*cache)->add(constant_function(1), "one");
          if (!entry) {
            EXPECT_EQ(entry.error().code, ErrorCode::kOutOfMemory);
            EXPECT_EQ((*cache)->statistics().used, 0U);
          } else {
            EXPECT_EQ(call(*entry), 1U);
          }
          continue;
        }
        EXPECT_NE(cache.error().system_errno, 0) << name;
        EXPECT_NE(std::string(cache.error().operation).find(name), std::string::npos)
            << cache.error().message();
        EXPECT_EQ(views(), before) << name << " " << nth;
      }
    }
  }
}

TEST(CodeCacheRefused, NoMemoryForCodeIsAnErrorNotASignal) {
  const auto cache = make({.capacity = kSmall.capacity, .huge_pages = false});
  ASSERT_TRUE(cache);
  const Injected injected([](SystemCalls& calls) {
    calls.madvise = [](void*, std::size_t, int) {
      errno = ENOMEM;
      return -1;
    };
  });
  const auto place = cache->reserve(64);
  ASSERT_FALSE(place);
  EXPECT_EQ(place.error().code, ErrorCode::kOutOfMemory);
  EXPECT_STREQ(place.error().detail, "no memory to put code into");
}

TEST(CodeCacheRefused, PermissionsThatCannotBeDroppedUndoThePublication) {
  if (!kA64) GTEST_SKIP() << "execute-only code never changes its permissions on x86-64";
  CodeCacheOptions options = kSmall;
  options.execute_only = true;
  const auto cache = make(options);
  ASSERT_TRUE(cache);
  static int allowed = 0;
  for (const int allow : {0, 1}) {
    allowed = allow;
    std::atomic<const void*> slot{nullptr};
    {
      const Injected injected([](SystemCalls& calls) {
        calls.mprotect = [](void* address, std::size_t length, int protection) {
          if (allowed-- > 0) return heap::kernel_calls().mprotect(address, length, protection);
          errno = EACCES;
          return -1;
        };
      });
      const auto entry = cache->add(constant_function(1), "one", &slot);
      ASSERT_FALSE(entry);
      EXPECT_EQ(entry.error().code, ErrorCode::kNotPermitted);
      EXPECT_STREQ(entry.error().operation, "mprotect");
    }
    EXPECT_EQ(slot.load(), nullptr);
    EXPECT_EQ(cache->statistics().functions, 0U);
    EXPECT_EQ(cache->statistics().used, 0U);
  }
  EXPECT_TRUE(cache->add(constant_function(1), "one"));
}

int refuse_membarrier(int, unsigned, int) {
  errno = EPERM;
  return -1;
}

TEST(CodeCacheRefused, MembarrierRefusedFallsBackOrIsATypedError) {
  const Injected injected([](SystemCalls& calls) { calls.membarrier = refuse_membarrier; });
  CodeCacheOptions options = kSmall;
  options.synchronisation = CodeSynchronisation::kMembarrier;
  const auto strict = CodeCache::create(options);
  ASSERT_FALSE(strict);
  EXPECT_EQ(strict.error().code, ErrorCode::kNotPermitted);
  EXPECT_STREQ(strict.error().detail, "other cores cannot be made to see new code");

  const auto cache = make();
  ASSERT_TRUE(cache);
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(call(cache->add(constant_function(4), "four").value()), 4U);
  EXPECT_TRUE(cache->statistics().visits_cpus);
  cpu_set_t after;
  CPU_ZERO(&after);
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after)) << "the thread's CPUs were not put back";
}

TEST(CodeCacheRefused, MembarrierRefusedLaterFallsBackToo) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  ASSERT_TRUE(cache->add(constant_function(1), "one"));
  if (cache->statistics().visits_cpus) GTEST_SKIP() << "membarrier is refused here already";
  const Injected injected([](SystemCalls& calls) { calls.membarrier = refuse_membarrier; });
  EXPECT_EQ(call(cache->add(constant_function(2), "two").value()), 2U);
  EXPECT_TRUE(cache->statistics().visits_cpus);
}

TEST(CodeCacheRefused, NothingIsPublishedWhenCoresCannotBeSynchronised) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  std::atomic<const void*> slot{nullptr};
  const auto old = cache->add(constant_function(1), "old", &slot);
  ASSERT_TRUE(old);
  const auto place = cache->reserve(64).value();
  {
    const Injected injected([](SystemCalls& calls) {
      calls.membarrier = refuse_membarrier;
      calls.set_affinity = [](std::size_t, const unsigned long*) {
        errno = EPERM;
        return -1;
      };
    });
    const auto published = cache->publish(place, constant_function(2), "new", &slot);
    ASSERT_FALSE(published);
    EXPECT_EQ(published.error().code, ErrorCode::kNotPermitted);
    EXPECT_STREQ(published.error().operation, "sched_setaffinity");
  }
  EXPECT_EQ(slot.load(), *old);
  EXPECT_EQ(call(slot.load()), 1U);
  EXPECT_EQ(cache->statistics().functions, 1U);
  EXPECT_EQ(signal_of([&] { static_cast<void>(call(place.address)); }), kA64 ? SIGILL : SIGTRAP);
}

TEST(CodeCacheRefused, UnderSeccompCodeIsStillPublished) {
  expect_exit(0, [] {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{.len = 4, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      std::puts("NOT EXECUTED: seccomp filters cannot be installed here (an emulator has none)");
      std::fflush(stdout);
      return 0;
    }
    if (syscall(__NR_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) != -1) return 1;
    const auto cache = CodeCache::create(kSmall);
    if (!cache) return 2;
    const auto entry = (*cache)->add(constant_function(21), "filtered");
    if (!entry || call(*entry) != 21) return 3;
    return (*cache)->statistics().visits_cpus ? 0 : 4;
  });
}

TEST(CodeCacheRefused, TheNoexecSettingOfTheKernelIsRespectedAndNamed) {
  // Level 1 makes memfds non-executable unless MFD_EXEC is given, 2 refuses MFD_EXEC. The setting
  // belongs to the PID namespace, so a child in one of its own tries it.
  for (const int level : {1, 2}) {
    expect_exit(0, [level] {
      const auto skip = [](const char* why) {
        std::printf("NOT EXECUTED: vm.memfd_noexec: %s\n", why);
        std::fflush(stdout);
        return 0;
      };
      if (unshare(CLONE_NEWPID) != 0) return skip("no PID namespace to be had");
      const pid_t inner = fork();
      if (inner < 0) return 1;
      if (inner == 0) {
        std::FILE* setting = std::fopen("/proc/sys/vm/memfd_noexec", "w");
        if (setting == nullptr) _exit(skip("the kernel has no such setting"));
        std::fprintf(setting, "%d\n", level);
        if (std::fclose(setting) != 0) _exit(skip("it cannot be changed"));
        const auto cache = CodeCache::create(kSmall);
        if (level == 1) _exit(cache && (*cache)->add(constant_function(1), "one") ? 0 : 2);
        _exit(!cache && cache.error().code == ErrorCode::kNotPermitted &&
                      cache.error().system_errno == EACCES
                  ? 0
                  : 3);
      }
      int status = 0;
      waitpid(inner, &status, 0);
      return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
    });
  }
}

// ---- Fork ----

TEST(CodeCacheFork, MemoryFilesAreSharedWithAChild) {
  // Why all of this is needed: without it a child's write would be the parent's code.
  const int fd = memfd_create("shared", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  void* view = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(view, MAP_FAILED);
  auto* byte = static_cast<volatile char*>(view);
  *byte = 1;
  expect_exit(0, [&] {
    *byte = 2;
    return 0;
  });
  EXPECT_EQ(*byte, 2);
  munmap(view, 4096);
  close(fd);
}

TEST(CodeCacheFork, TheChildIsFrozenAndTheParentUnchanged) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  std::atomic<const void*> slot{nullptr};
  const auto entry = cache->add(constant_function(11), "eleven", &slot).value();
  const auto reserved = cache->reserve(64).value();
  const auto jump = cache->add_jump(entry, "jump").value();
  auto thread = CodeThread::attach(*cache).value();
  void* probe = mmap(nullptr, arch::base_page_size(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(probe, MAP_FAILED);
  ASSERT_EQ(madvise(probe, arch::base_page_size(), MADV_DONTFORK), 0);
  const bool dont_fork_works =
      signal_of([&] { *static_cast<volatile char*>(probe) = 1; }) == SIGSEGV;
  munmap(probe, arch::base_page_size());
  const auto frozen = [](const auto& result) {
    return !result && result.error().code == ErrorCode::kFrozen;
  };
  expect_exit(0, [&] {
    if (call(entry) != 11) return 1;
    if (!frozen(cache->reserve(64))) return 2;
    if (!frozen(cache->publish(reserved, constant_function(12), "twelve", &slot))) return 3;
    if (!frozen(cache->add(constant_function(12), "twelve"))) return 4;
    if (!frozen(cache->release(entry))) return 5;
    if (!frozen(cache->reclaim())) return 6;
    if (!frozen(cache->patch_branch(jump, reserved.address))) return 7;
    if (!frozen(CodeThread::attach(*cache))) return 8;
    if (slot.load() != entry || call(entry) != 11 || call(jump) != 11) return 9;
    // The writable view is not even there.
    if (!dont_fork_works) std::puts("NOT EXECUTED: MADV_DONTFORK does nothing under this emulator");
    std::fflush(stdout);
    for (const Mapping& mapping : mappings()) {
      if (mapping.rest.find("touchstone-code") == std::string::npos) continue;
      if (dont_fork_works && mapping.permissions[1] == 'w') return 10;
    }
    if (permissions_at(entry) != "r-xs") return 11;
    thread.quiesce();
    thread.offline();
    thread.online();
    // A cache of the child's own works.
    const auto own = CodeCache::create(kSmall);
    if (!own || call((*own)->add(constant_function(13), "own").value()) != 13) return 12;
    return 0;
  });
  EXPECT_EQ(call(entry), 11U);
  EXPECT_EQ(call(jump), 11U);
  EXPECT_TRUE(cache->release(entry));
}

TEST(CodeCacheFork, AChildCanDestroyItsCopy) {
  auto cache = make();
  ASSERT_TRUE(cache);
  const auto entry = cache->add(constant_function(11), "eleven").value();
  expect_exit(0, [&] {
    cache.reset();
    return 0;
  });
  EXPECT_EQ(call(entry), 11U);
}

// ---- Threads ----

TEST(CodeThreads, CodeIsReusedOnlyAfterEveryThreadHasLeft) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  auto first = CodeThread::attach(*cache).value();
  auto second = CodeThread::attach(*cache).value();
  const auto entry = cache->add(constant_function(1), "one").value();
  ASSERT_TRUE(cache->release(entry));
  EXPECT_EQ(cache->statistics().retired, kCodeAlignment);
  EXPECT_EQ(cache->reclaim().value(), 0U);
  // Still whole: a thread may be in it.
  EXPECT_EQ(call(entry), 1U);
  first.quiesce();
  EXPECT_EQ(cache->reclaim().value(), 0U);
  EXPECT_NE(cache->add(constant_function(2), "two").value(), entry);
  EXPECT_EQ(call(entry), 1U);
  second.quiesce();
  EXPECT_EQ(cache->reclaim().value(), kCodeAlignment);
  EXPECT_EQ(cache->statistics().retired, 0U);

  // Offline threads hold back nothing, and those that come back later neither.
  const auto other = cache->add(constant_function(3), "three").value();
  first.offline();
  ASSERT_TRUE(cache->release(other));
  second.quiesce();
  EXPECT_EQ(cache->reclaim().value(), kCodeAlignment);
  first.online();
  const auto last = cache->add(constant_function(4), "four").value();
  ASSERT_TRUE(cache->release(last));
  second.quiesce();
  EXPECT_EQ(cache->reclaim().value(), 0U);
  {
    const CodeThread ended = std::move(first);
  }
  EXPECT_EQ(cache->reclaim().value(), kCodeAlignment);
}

TEST(CodeThreads, NobodySeesATornStaleOrFreedFunction) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  constexpr std::uint64_t versions = kA64 ? 400 : 4000;
  constexpr unsigned readers = 3;
  // A value whose halves belong together, so that half of another version shows.
  const auto value_of = [](std::uint64_t version) {
    return version << 32U | (~version & 0xffff'ffff);
  };
  std::atomic<const void*> slot{nullptr};
  std::atomic<std::uint64_t> newest{0};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> wrong{0};
  ASSERT_TRUE(cache->add(constant_function(value_of(0)), "version", &slot));
  std::vector<std::thread> threads;
  std::atomic<unsigned> started{0};
  for (unsigned i = 0; i < readers; ++i) {
    threads.emplace_back([&] {
      auto registered = CodeThread::attach(*cache).value();
      std::uint64_t last = 0;
      ++started;
      while (!stop.load(std::memory_order_acquire)) {
        const std::uint64_t at_least = newest.load(std::memory_order_acquire);
        const std::uint64_t value = call(slot.load(std::memory_order_acquire));
        const std::uint64_t version = value >> 32U;
        // Not torn, not older than what was known to be published, never going back.
        if (value != value_of(version) || version < at_least || version < last) ++wrong;
        last = version;
        calls.fetch_add(1, std::memory_order_relaxed);
        registered.quiesce();
      }
    });
  }
  while (started < readers) std::this_thread::yield();
  for (std::uint64_t version = 1; version <= versions; ++version) {
    const void* old = slot.load();
    const auto entry = cache->add(constant_function(value_of(version)), "version", &slot);
    ASSERT_TRUE(entry) << entry.error().message();
    newest.store(version, std::memory_order_release);
    ASSERT_TRUE(cache->release(old));
    // Let each version be seen now and then, and reuse happen.
    if (version % 64 == 0) std::this_thread::yield();
  }
  while (calls < 1000) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GE(calls, 1000U);
  ASSERT_TRUE(cache->reclaim());
  EXPECT_EQ(cache->statistics().retired, 0U);
  EXPECT_EQ(cache->statistics().functions, 1U);
  EXPECT_LT(cache->statistics().high_water, kSmall.capacity);
}

TEST(CodeThreads, PatchedBranchesTakeTheOldOrTheNewWay) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  constexpr unsigned rounds = kA64 ? 300 : 3000;
  const auto first = cache->add(constant_function(100), "first").value();
  const auto second = cache->add(constant_function(200), "second").value();
  const auto jump = cache->add_jump(first, "jump").value();
  EXPECT_EQ(call(jump), 100U);
  std::atomic<bool> stop{false};
  std::atomic<unsigned> wrong{0};
  std::atomic<unsigned> calls{0};
  std::thread reader([&] {
    while (!stop) {
      const std::uint64_t value = call(jump);
      if (value != 100 && value != 200) ++wrong;
      ++calls;
    }
  });
  for (unsigned i = 0; i < rounds; ++i) {
    ASSERT_TRUE(cache->patch_branch(jump, i % 2 == 0 ? second : first));
    // The patching thread itself takes the new way at once.
    ASSERT_EQ(call(jump), i % 2 == 0 ? 200U : 100U);
  }
  while (calls < 100) std::this_thread::yield();
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(CodeThreads, BranchesThatCannotBePatchedAreRefused) {
  const auto cache = make();
  ASSERT_TRUE(cache);
  const auto target = cache->add(constant_function(1), "target").value();
  const auto jump = cache->add_jump(target, "jump").value();
  const auto refused = [&](const void* site, const void* to, ErrorCode code) {
    const Result<> patched = cache->patch_branch(site, to);
    return !patched && patched.error().code == code;
  };
  const auto* bytes = static_cast<const std::byte*>(jump);
  EXPECT_TRUE(refused(&target, target, ErrorCode::kInvalidArgument));
  EXPECT_TRUE(refused(target, jump, ErrorCode::kInvalidArgument));
  EXPECT_TRUE(
      refused(bytes + 1, target, kA64 ? ErrorCode::kMisaligned : ErrorCode::kInvalidArgument));
  EXPECT_TRUE(refused(bytes + 8, target, ErrorCode::kInvalidArgument));
  const auto* far = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(jump) ^
                                                  (std::uintptr_t{1} << 46));
  EXPECT_TRUE(refused(jump, far, ErrorCode::kOutOfRange));
  const auto distant = cache->add_jump(far, "far");
  ASSERT_FALSE(distant);
  EXPECT_EQ(distant.error().code, ErrorCode::kOutOfRange);
  if (kA64) {
    EXPECT_TRUE(refused(jump, static_cast<const std::byte*>(target) + 2, ErrorCode::kMisaligned));
  } else {
    // E9 at an address whose displacement does not lie at a multiple of 4.
    std::vector<std::byte> code{std::byte{0xe9}, std::byte{0}, std::byte{0}, std::byte{0},
                                std::byte{0}};
    const auto odd = cache->add(code, "odd").value();
    EXPECT_TRUE(refused(odd, target, ErrorCode::kMisaligned));
  }
  EXPECT_EQ(call(jump), 1U);
}

// ---- Names ----

TEST(CodeNames, PerfFindsThem) {
  // A child, so that the file of this process is not left behind.
  const std::string path = "/tmp/perf-";
  const auto cache_options = CodeCacheOptions{.capacity = kSmall.capacity, .perf_map = true};
  expect_exit(0, [&] {
    const auto cache = CodeCache::create(cache_options);
    if (!cache) return 1;
    const auto code = constant_function(1);
    const auto entry = (*cache)->add(code, "first\nfunction");
    const auto other = (*cache)->add(code, "second function");
    if (!entry || !other) return 2;
    const std::string file = path + std::to_string(getpid()) + ".map";
    std::ifstream map(file);
    std::string one;
    std::string two;
    std::string three;
    std::getline(map, one);
    std::getline(map, two);
    const bool more = static_cast<bool>(std::getline(map, three));
    unlink(file.c_str());
    std::ostringstream wanted;
    wanted << std::hex << reinterpret_cast<std::uintptr_t>(*entry) << " " << code.size()
           << " first function";
    std::ostringstream wanted_next;
    wanted_next << std::hex << reinterpret_cast<std::uintptr_t>(*other) << " " << code.size()
                << " second function";
    if (one != wanted.str()) return 3;
    if (two != wanted_next.str()) return 4;
    return more ? 5 : 0;
  });
}

TEST(CodeNames, APerfMapThatCannotBeWrittenIsAnError) {
  expect_exit(0, [&] {
    const std::string file = "/tmp/perf-" + std::to_string(getpid()) + ".map";
    // Somebody else's link there must not be followed.
    if (symlink("/dev/null", file.c_str()) != 0) return 1;
    const auto cache = CodeCache::create({.capacity = kSmall.capacity, .perf_map = true});
    if (!cache) return 2;
    std::atomic<const void*> slot{nullptr};
    const auto entry = (*cache)->add(constant_function(1), "name", &slot);
    unlink(file.c_str());
    if (entry || entry.error().system_errno != ELOOP) return 3;
    return slot.load() == nullptr ? 0 : 4;
  });
}

TEST(CodeNames, DebuggersFindThem) {
  CodeCacheOptions options = kSmall;
  options.debugger = true;
  const auto cache = make(options);
  ASSERT_TRUE(cache);
  const auto code = constant_function(1);
  const auto entry = cache->add(code, "a_named_stub").value();
  EXPECT_EQ(__jit_debug_descriptor.version, 1U);
  EXPECT_EQ(__jit_debug_descriptor.action_flag, 1U);
  const jit_code_entry* registered = __jit_debug_descriptor.first_entry;
  ASSERT_NE(registered, nullptr);
  EXPECT_EQ(__jit_debug_descriptor.relevant_entry, registered);

  // As a debugger reads it: find the symbol table and its string table by the section headers.
  const char* image = registered->symfile_addr;
  Elf64_Ehdr header;
  ASSERT_GE(registered->symfile_size, sizeof header);
  std::memcpy(&header, image, sizeof header);
  ASSERT_EQ(std::memcmp(header.e_ident, ELFMAG, SELFMAG), 0);
  EXPECT_EQ(header.e_machine, kA64 ? EM_AARCH64 : EM_X86_64);
  bool found = false;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, image + header.e_shoff + i * sizeof section, sizeof section);
    Elf64_Shdr names;
    std::memcpy(&names, image + header.e_shoff + header.e_shstrndx * sizeof names, sizeof names);
    const std::string name = image + names.sh_offset + section.sh_name;
    if (name == ".text") {
      EXPECT_EQ(section.sh_addr, reinterpret_cast<std::uintptr_t>(entry));
      EXPECT_EQ(section.sh_size, code.size());
    }
    if (section.sh_type != SHT_SYMTAB) continue;
    EXPECT_EQ(name, ".symtab");
    ASSERT_LE(section.sh_offset + section.sh_size, registered->symfile_size);
    Elf64_Shdr strings;
    std::memcpy(&strings, image + header.e_shoff + section.sh_link * sizeof strings,
                sizeof strings);
    ASSERT_LE(strings.sh_offset + strings.sh_size, registered->symfile_size);
    Elf64_Sym symbol;
    std::memcpy(&symbol, image + section.sh_offset + sizeof symbol, sizeof symbol);
    EXPECT_STREQ(image + strings.sh_offset + symbol.st_name, "a_named_stub");
    EXPECT_EQ(symbol.st_value, reinterpret_cast<std::uintptr_t>(entry));
    EXPECT_EQ(symbol.st_size, code.size());
    EXPECT_EQ(ELF64_ST_TYPE(symbol.st_info), STT_FUNC);
    found = true;
  }
  EXPECT_TRUE(found);
  ASSERT_TRUE(cache->release(entry));
  EXPECT_EQ(__jit_debug_descriptor.first_entry, nullptr);
  EXPECT_EQ(__jit_debug_descriptor.action_flag, 2U);
}

}  // namespace
}  // namespace touchstone::jit
