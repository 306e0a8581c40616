// SPDX-License-Identifier: GPL-2.0-only
// A 32-bit process that touches fresh memory and prints how many faults that took. It has no C
// library: a compiler for 32-bit Arm is enough to build it.
//
// One of the instructions is an A32 load whose word is an LDADD in A64: a kernel that looks at it
// without asking for the state the CPU was in takes its faults for writes.
#include <stdint.h>

#define PAGES 256u

enum {
  SYS_EXIT = 1,
  SYS_WRITE = 4,
  SYS_GETRUSAGE = 77,
  SYS_MUNMAP = 91,
  SYS_MMAP2 = 192,
  SYS_MADVISE = 220
};
enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22, NO_HUGE_PAGE = 15 };

static long call(long number, long a, long b, long c, long d, long e, long f) {
  register long r0 __asm__("r0") = a;
  register long r1 __asm__("r1") = b;
  register long r2 __asm__("r2") = c;
  register long r3 __asm__("r3") = d;
  register long r4 __asm__("r4") = e;
  register long r5 __asm__("r5") = f;
  register long r7 __asm__("r7") = number;
  __asm__ volatile("svc 0"
                   : "+r"(r0)
                   : "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5), "r"(r7)
                   : "memory");
  return r0;
}

static long minor_faults(void) {
  long usage[18];
  call(SYS_GETRUSAGE, 0, (long)usage, 0, 0, 0, 0);
  return usage[8];
}

typedef void (*touch_fn)(volatile uint32_t*);

static void by_load(volatile uint32_t* word) {
  uint32_t value;
  __asm__ volatile("ldr %0, [%1]" : "=r"(value) : "r"(word) : "memory");
}

static void by_store(volatile uint32_t* word) {
  __asm__ volatile("str %0, [%1]" : : "r"(1), "r"(word) : "memory");
}

static void by_exclusives(volatile uint32_t* word) {
  uint32_t value, failed;
  __asm__ volatile("1: ldrex %0, [%2]\n add %0, %0, #1\n strex %1, %0, [%2]\n cmp %1, #0\n bne 1b"
                   : "=&r"(value), "=&r"(failed)
                   : "r"(word)
                   : "cc", "memory");
}

// ldmcc r0!, {r4}: 0x38b00010
static void by_disguised_load(volatile uint32_t* word) {
  register volatile uint32_t* r0 __asm__("r0") = word;
  __asm__ volatile("cmn r0, #0\n .inst 0x38b00010" : "+r"(r0) : : "r4", "cc", "memory");
}

static char line[160];
static unsigned used;

static void put(const char* text) {
  while (*text != '\0' && used < sizeof line) line[used++] = *text++;
}

static void put_number(long value) {
  char digits[12];
  unsigned at = sizeof digits;
  digits[--at] = '\0';
  do {
    digits[--at] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0);
  put(digits + at);
}

// Division by a constant needs no library; the page size comes in a register from the kernel.
static void run(const char* name, touch_fn touch, unsigned long page) {
  const long bytes = (long)((PAGES + 1) * page);
  const long mapped = call(SYS_MMAP2, 0, bytes, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
  char* const memory = (char*)mapped;
  long start, touched, stored;
  unsigned i;

  if (mapped < 0 && mapped > -4096) call(SYS_EXIT, 1, 0, 0, 0, 0, 0);
  call(SYS_MADVISE, mapped, bytes, NO_HUGE_PAGE, 0, 0, 0);
  // The last page is not counted: it has the code and the stack come in.
  touch((volatile uint32_t*)(memory + PAGES * page));
  by_store((volatile uint32_t*)(memory + PAGES * page));
  start = minor_faults();
  for (i = 0; i < PAGES; ++i) touch((volatile uint32_t*)(memory + i * page));
  touched = minor_faults();
  for (i = 0; i < PAGES; ++i) by_store((volatile uint32_t*)(memory + i * page));
  stored = minor_faults();
  call(SYS_MUNMAP, mapped, bytes, 0, 0, 0, 0);

  used = 0;
  put("@@ {\"type\":\"compat\",\"touch\":\"");
  put(name);
  put("\",\"pages\":");
  put_number(PAGES);
  put(",\"faults\":");
  put_number(touched - start);
  put(",\"faults_of_stores_after\":");
  put_number(stored - touched);
  put("}\n");
  call(SYS_WRITE, 1, (long)line, (long)used, 0, 0, 0);
}

// The kernel's own start of a process: argc, argv, 0, environment, 0, auxiliary vector.
__attribute__((used, noreturn)) void start_with(unsigned long* stack) {
  unsigned long page = 4096;
  unsigned long* at = stack + 1 + stack[0] + 1;

  while (*at != 0) ++at;
  for (++at; at[0] != 0; at += 2) {
    if (at[0] == 6) page = at[1];  // AT_PAGESZ
  }
  minor_faults();
  run("ldr", by_load, page);
  run("str", by_store, page);
  run("ldrex-strex", by_exclusives, page);
  run("ldm that is A64's ldadd", by_disguised_load, page);
  call(SYS_EXIT, 0, 0, 0, 0, 0, 0);
  __builtin_unreachable();
}

__asm__(".text\n.global _start\n_start:\n mov r0, sp\n bic sp, sp, #7\n b start_with\n");
