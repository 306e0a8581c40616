// SPDX-License-Identifier: MIT
// Writes the seeds of the scanner's fuzzer into a folder: one of each kind of file that it reads.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "scan_elf_builder.h"

namespace {

using namespace touchstone::arch::opcheck::testing;  // NOLINT(google-build-using-namespace)

bool write(const std::string& folder, const std::string& name, const Bytes& bytes) {
  std::ofstream file(folder + "/" + name, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return file.good();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: scan_fuzz_seeds FOLDER\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  ElfBuilder builder;
  builder.code = touch_loop();
  builder.symbols = {
      {.name = "touch", .value = ElfBuilder::kCode, .size = 20},
      {.name = "$x", .value = ElfBuilder::kCode, .type = STT_NOTYPE},
      {.name = "$d", .value = ElfBuilder::kCode + 16, .type = STT_NOTYPE},
      {.name = "__aarch64_ldadd4_relax", .value = ElfBuilder::kCode + 8},
  };
  bool good = write(folder, "shared", builder.build());
  builder.type = ET_REL;
  for (auto& symbol : builder.symbols) symbol.value -= ElfBuilder::kCode;
  const Bytes object = builder.build();
  good &= write(folder, "relocatable", object);
  good &= write(folder, "archive", make_archive({{"a.o", object}, {"b.o", object}}));
  builder.type = ET_CORE;
  builder.with_sections = false;
  good &= write(folder, "core", builder.build());
  good &= write(folder, "kernel", make_kernel_image(touch_loop()));
  // A compare-and-swap loop of exclusives in a loop, with a call and a stack slot.
  builder.type = ET_DYN;
  builder.code = {0xa9be7bfd, 0xf9000fe0, 0xf9400fe0, 0xb9400002, 0x885ffc03, 0x6b02007f,
                  0x54000061, 0x8804fc02, 0x35ffff84, 0x97fffff7, 0xf9400fe0, 0x91400400,
                  0xf9000fe0, 0xeb01001f, 0x54fffe83, 0xa8c27bfd, kRet};
  good &= write(folder, "exclusives", builder.build());
  return good ? 0 : 1;
}
