// SPDX-License-Identifier: MIT
// The scanner on any bytes: reading, counting and looking for loops. The input ends where readable
// memory does, so that libelf, which no sanitizer sees into, cannot read past it unnoticed either.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include <sys/mman.h>
#include <unistd.h>

#include "code_inventory.h"
#include "code_source.h"
#include "touch_loops.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace touchstone::arch::opcheck;  // NOLINT(google-build-using-namespace)
  if (size == 0) return 0;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t room = (size + page - 1) / page * page;
  void* const map =
      ::mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) std::abort();
  auto* const start = static_cast<std::byte*>(map);
  if (::mprotect(start + room, page, PROT_NONE) != 0) std::abort();
  std::byte* const input = start + (room - size);
  std::memcpy(input, data, size);
  if (::mprotect(start, room, PROT_READ) != 0) std::abort();
  const auto source = read_code(std::span<const std::byte>(input, size),
                                [](std::string_view, const CodeImage& image) {
                                  const CodeInventory inventory = take_inventory(image);
                                  const TouchLoops loops = find_touch_loops(image);
                                  if (inventory.words * 4 != image.code_bytes()) std::abort();
                                  for (const TouchLoop& loop : loops.loops) {
                                    if (!image.word_at(loop.site)) std::abort();
                                  }
                                });
  if (!source && *source.error().detail == '\0') std::abort();
  ::munmap(map, room + page);
  return 0;
}
