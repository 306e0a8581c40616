// SPDX-License-Identifier: MIT
// LLVM is loaded at run time through its C API, which has kept the same shape since LLVM 3: the
// tool starts without it, and one build can be held against any release. Its C++ API changes with
// each.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <expected>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#include "oracle.h"

namespace touchstone::arch::opcheck {
namespace {

constexpr unsigned kNewestLlvm = 22;
constexpr unsigned kOldestLlvm = 14;

// The functions of llvm-c/Target.h, Disassembler.h and Core.h that are used. LLVMDisasmContextRef
// is an opaque pointer.
struct LlvmApi {
  void (*initialize_target_info)() = nullptr;
  void (*initialize_target_mc)() = nullptr;
  void (*initialize_disassembler)() = nullptr;
  void* (*create)(const char* triple, const char* cpu, const char* features, void* info,
                  int tag_type, void* get_info, void* lookup) = nullptr;
  std::size_t (*disassemble)(void* context, std::uint8_t* bytes, std::uint64_t size,
                             std::uint64_t pc, char* text, std::size_t text_size) = nullptr;
  void (*dispose)(void* context) = nullptr;
  // Absent before LLVM 16.
  void (*get_version)(unsigned* major, unsigned* minor, unsigned* patch) = nullptr;
};

template <typename Function>
bool load_symbol(void* library, const char* name, Function& function) {
  void* const symbol = dlsym(library, name);
  static_assert(sizeof symbol == sizeof function);
  std::memcpy(&function, &symbol, sizeof symbol);
  return symbol != nullptr;
}

// The number after "LLVM-" in a library's file name, as in libLLVM-14.so.1.
unsigned version_of_file_name(std::string_view path) {
  constexpr std::string_view kMark = "LLVM-";
  const std::size_t mark = path.rfind(kMark);
  unsigned version = 0;
  if (mark != std::string_view::npos) {
    std::from_chars(path.data() + mark + kMark.size(), path.data() + path.size(), version);
  }
  return version;
}

class LlvmOracle final : public Oracle {
 public:
  LlvmOracle(const LlvmApi& api, void* context) : api_(api), context_(context) {}
  ~LlvmOracle() override { api_.dispose(context_); }

  std::expected<void, std::string> decode(std::span<const std::uint32_t> words,
                                          std::span<const Reading*> readings) override {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!disassemble(words[i])) {
        readings[i] = nullptr;
        continue;
      }
      const auto [mnemonic, operands] = split();
      readings[i] = table_.intern(mnemonic, operands);
    }
    return {};
  }

  std::expected<std::optional<std::string>, std::string> text(std::uint32_t word) override {
    if (!disassemble(word)) return std::nullopt;
    const auto [mnemonic, operands] = split();
    return fmt::format("{} {}", mnemonic, operands);
  }

 private:
  bool disassemble(std::uint32_t word) {
    auto bytes = std::bit_cast<std::array<std::uint8_t, 4>>(word);
    return api_.disassemble(context_, bytes.data(), bytes.size(), 0, text_.data(), text_.size()) !=
           0;
  }

  // The text is "\tmnemonic\toperands".
  std::pair<std::string_view, std::string_view> split() const {
    std::string_view text = text_.data();
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    const std::size_t tab = text.find('\t');
    if (tab == std::string_view::npos) return {text, {}};
    return {text.substr(0, tab), text.substr(tab + 1)};
  }

  LlvmApi api_;
  void* context_;
  std::array<char, 256> text_{};
  ReadingTable table_;
};

class LlvmSource final : public OracleSource {
 public:
  LlvmSource(const LlvmApi& api, OracleVersion version, std::string location)
      : api_(api), version_(version), location_(std::move(location)) {}

  OracleKind kind() const override { return OracleKind::kLlvm; }
  OracleVersion version() const override { return version_; }
  std::string location() const override { return location_; }

  std::expected<std::unique_ptr<Oracle>, std::string> open() const override {
    // Before LLVM 15 there is no "+all", and features have to be listed.
    const char* const features =
        version_.major >= 15
            ? "+all"
            : "+v9.3a,+lse,+lse2,+rcpc,+rcpc-immo,+ls64,+mops,+mte,+lor,+sve2,+flagm";
    static std::mutex mutex;  // Creation registers command-line options and targets.
    const std::scoped_lock lock(mutex);
    void* const context =
        api_.create("aarch64-linux-gnu", "generic", features, nullptr, 0, nullptr, nullptr);
    if (context == nullptr) {
      return std::unexpected(fmt::format("{} has no arm64 disassembler", location_));
    }
    return std::make_unique<LlvmOracle>(api_, context);
  }

 private:
  LlvmApi api_;
  OracleVersion version_;
  std::string location_;
};

// The names under which distributions ship a release's shared library.
std::vector<std::string> candidate_names(const std::string& library) {
  if (!library.empty()) return {library};
  std::vector<std::string> names;
  for (unsigned version = kNewestLlvm; version >= kOldestLlvm; --version) {
    // From 18 on, the SONAME holds the minor version.
    if (version >= 18) {
      names.push_back(fmt::format("libLLVM.so.{}.1", version));
    }
    names.push_back(fmt::format("libLLVM-{}.so.1", version));
    names.push_back(fmt::format("libLLVM-{}.so", version));
  }
  return names;
}

}  // namespace

std::expected<std::unique_ptr<OracleSource>, std::string> find_llvm(const std::string& library) {
  void* handle = nullptr;
  for (const std::string& name : candidate_names(library)) {
    handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
  }
  if (handle == nullptr) {
    if (library.empty()) {
      return std::unexpected(fmt::format("no shared libLLVM from {} down to {} is installed",
                                         kNewestLlvm, kOldestLlvm));
    }
    const char* const reason = dlerror();
    return std::unexpected(reason != nullptr ? reason : fmt::format("cannot load {}", library));
  }
  // The library stays loaded: LLVM does not support being unloaded.
  LlvmApi api;
  const bool complete =
      load_symbol(handle, "LLVMInitializeAArch64TargetInfo", api.initialize_target_info) &&
      load_symbol(handle, "LLVMInitializeAArch64TargetMC", api.initialize_target_mc) &&
      load_symbol(handle, "LLVMInitializeAArch64Disassembler", api.initialize_disassembler) &&
      load_symbol(handle, "LLVMCreateDisasmCPUFeatures", api.create) &&
      load_symbol(handle, "LLVMDisasmInstruction", api.disassemble) &&
      load_symbol(handle, "LLVMDisasmDispose", api.dispose);
  Dl_info symbol{};
  std::string location = library;
  if (complete) {
    void* address = nullptr;
    std::memcpy(&address, &api.create, sizeof address);
    if (dladdr(address, &symbol) != 0 && symbol.dli_fname != nullptr) location = symbol.dli_fname;
  }
  if (!complete) {
    return std::unexpected(fmt::format("{} is no libLLVM with an arm64 disassembler",
                                       library.empty() ? "the libLLVM found" : library));
  }
  OracleVersion version;
  if (load_symbol(handle, "LLVMGetVersion", api.get_version)) {
    api.get_version(&version.major, &version.minor, &version.patch);
  } else {
    version.major = version_of_file_name(location);
  }
  api.initialize_target_info();
  api.initialize_target_mc();
  api.initialize_disassembler();
  return std::make_unique<LlvmSource>(api, version, std::move(location));
}

}  // namespace touchstone::arch::opcheck
