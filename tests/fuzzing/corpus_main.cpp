// SPDX-License-Identifier: MIT
// main() for a fuzz target outside libFuzzer: runs each file of the folders named once, and the
// empty input. Exits 2 when a folder or a file cannot be read.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  std::size_t inputs = 1;
  LLVMFuzzerTestOneInput(nullptr, 0);
  for (int i = 1; i < argc; ++i) {
    std::error_code error;
    std::filesystem::recursive_directory_iterator folder(argv[i], error);
    for (const auto end = std::filesystem::recursive_directory_iterator(); !error && folder != end;
         folder.increment(error)) {
      if (!folder->is_regular_file()) continue;
      std::ifstream file(folder->path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      if (!file) {
        std::fprintf(stderr, "cannot read %s\n", folder->path().c_str());
        return 2;
      }
      // Named first, so that it is known which input a crash came from.
      std::printf("%s\n", folder->path().c_str());
      std::fflush(stdout);
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++inputs;
    }
    if (error) {
      std::fprintf(stderr, "cannot read %s: %s\n", argv[i], error.message().c_str());
      return 2;
    }
  }
  std::printf("%zu inputs\n", inputs);
  return 0;
}
