// SPDX-License-Identifier: MIT
// Does this machine, or the emulator in its place, see code change in a dual-mapped page?
//
// One page of a memfd is mapped twice, writable and executable. A function that returns a number is
// rewritten through the writable view, with the cache maintenance that the architecture asks for:
// the lines cleaned by the address they were written at, invalidated by the address they run at.
// Each time it is called through the executable view. Prints how many calls ran an earlier version;
// exits 0 when none did, 1 when some did, 2 when the mappings could not be made.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kCalls = 1000, kReturn = 0xd65f03c0u };

static uintptr_t cache_line(unsigned shift) {
  uint64_t ctr;
  __asm__("mrs %0, ctr_el0" : "=r"(ctr));
  return (uintptr_t)4 << ((ctr >> shift) & 15);
}

static void publish(uintptr_t written, uintptr_t executed, uintptr_t length) {
  const uintptr_t data_line = cache_line(16), code_line = cache_line(0);
  for (uintptr_t line = written & ~(data_line - 1); line < written + length; line += data_line) {
    __asm__ volatile("dc cvau, %0" : : "r"(line) : "memory");
  }
  __asm__ volatile("dsb ish" : : : "memory");
  for (uintptr_t line = executed & ~(code_line - 1); line < executed + length; line += code_line) {
    __asm__ volatile("ic ivau, %0" : : "r"(line) : "memory");
  }
  __asm__ volatile("dsb ish\n\tisb" : : : "memory");
}

int main(void) {
  const size_t length = (size_t)sysconf(_SC_PAGESIZE);
  const int memory = memfd_create("stale-code", MFD_CLOEXEC);
  if (memory < 0 || ftruncate(memory, (off_t)length) != 0) {
    perror("memfd");
    return 2;
  }
  uint32_t* written = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  void* executed = mmap(NULL, length, PROT_READ | PROT_EXEC, MAP_SHARED, memory, 0);
  if (written == MAP_FAILED || executed == MAP_FAILED) {
    perror("mmap");
    return 2;
  }
  union {
    void* address;
    unsigned (*call)(void);
  } function = {executed};

  unsigned stale = 0;
  for (unsigned i = 0; i < kCalls; ++i) {
    written[0] = 0x52800000u | (i << 5);  // mov w0, #i
    written[1] = kReturn;
    publish((uintptr_t)written, (uintptr_t)executed, 2 * sizeof *written);
    stale += function.call() != i;
  }
  printf("%u of %u calls ran stale code\n", stale, (unsigned)kCalls);
  return stale != 0;
}
