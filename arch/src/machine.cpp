// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <touchstone/arch/machine.h>

#include "text_file.h"

namespace touchstone::arch {
namespace {

constexpr const char* kThpFolder = "/kernel/mm/transparent_hugepage";

template <typename Mode>
struct ModeWord {
  std::string_view word;
  Mode mode;
};

constexpr std::array<ModeWord<ThpMode>, 3> kThpModes{
    {{"always", ThpMode::kAlways}, {"madvise", ThpMode::kMadvise}, {"never", ThpMode::kNever}}};
constexpr std::array<ModeWord<ThpDefrag>, 5> kThpDefrags{
    {{"always", ThpDefrag::kAlways},
     {"defer", ThpDefrag::kDefer},
     {"defer+madvise", ThpDefrag::kDeferMadvise},
     {"madvise", ThpDefrag::kMadvise},
     {"never", ThpDefrag::kNever}}};
constexpr std::array<ModeWord<MthpMode>, 4> kMthpModes{{{"always", MthpMode::kAlways},
                                                        {"inherit", MthpMode::kInherit},
                                                        {"madvise", MthpMode::kMadvise},
                                                        {"never", MthpMode::kNever}}};

template <typename Words, typename Mode>
const char* word_of(const Words& words, Mode mode) noexcept {
  for (const auto& entry : words) {
    if (entry.mode == mode) return entry.word.data();
  }
  return "unknown";
}

/// Reads a file like "always [madvise] never".
template <typename Mode, std::size_t Count>
Result<Mode> read_mode(const std::string& path, const char* operation,
                       const std::array<ModeWord<Mode>, Count>& words) {
  const Result<std::string> text = read_text(path, operation);
  if (!text) return std::unexpected(text.error());
  const std::size_t open = text->find('[');
  const std::size_t close = text->find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) {
    return std::unexpected(malformed(operation));
  }
  const std::string_view chosen = std::string_view(*text).substr(open + 1, close - open - 1);
  for (const auto& entry : words) {
    if (entry.word == chosen) return entry.mode;
  }
  return std::unexpected(malformed(operation));
}

Result<std::uint64_t> read_number(const std::string& path, const char* operation) {
  const Result<std::string> text = read_text(path, operation);
  if (!text) return std::unexpected(text.error());
  const std::optional<std::uint64_t> value = parse_number(*text);
  if (!value) return std::unexpected(malformed(operation));
  return *value;
}

}  // namespace

std::size_t base_page_size() noexcept {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

Result<std::size_t> pmd_size(const SystemRoots& roots) {
  constexpr const char* kFile = "read transparent_hugepage/hpage_pmd_size";
  const Result<std::uint64_t> value =
      read_number(roots.sys + kThpFolder + "/hpage_pmd_size", kFile);
  if (!value) return std::unexpected(value.error());
  if (!std::has_single_bit(*value)) return std::unexpected(malformed(kFile));
  return static_cast<std::size_t>(*value);
}

Geometry geometry(const SystemRoots& roots) {
  const std::size_t base = base_page_size();
  const Geometry read{base, pmd_size(roots).value_or(0)};
  return read.valid() ? read : Geometry{base, base * (base / 8)};
}

const char* to_string(ThpMode mode) noexcept {
  return word_of(kThpModes, mode);
}

const char* to_string(ThpDefrag defrag) noexcept {
  return word_of(kThpDefrags, defrag);
}

const char* to_string(MthpMode mode) noexcept {
  return word_of(kMthpModes, mode);
}

Result<ThpMode> thp_mode(const SystemRoots& roots) {
  return read_mode(roots.sys + kThpFolder + "/enabled", "read transparent_hugepage/enabled",
                   kThpModes);
}

Result<ThpDefrag> thp_defrag(const SystemRoots& roots) {
  return read_mode(roots.sys + kThpFolder + "/defrag", "read transparent_hugepage/defrag",
                   kThpDefrags);
}

Result<bool> thp_uses_zero_page(const SystemRoots& roots) {
  constexpr const char* kFile = "read transparent_hugepage/use_zero_page";
  const Result<std::uint64_t> value = read_number(roots.sys + kThpFolder + "/use_zero_page", kFile);
  if (!value) return std::unexpected(value.error());
  if (*value > 1) return std::unexpected(malformed(kFile));
  return *value == 1;
}

Result<std::vector<MthpSize>> mthp_sizes(const SystemRoots& roots) {
  constexpr const char* kFile = "read transparent_hugepage/hugepages-*kB/enabled";
  constexpr std::string_view kPrefix = "hugepages-";
  constexpr std::string_view kSuffix = "kB";
  const std::string folder = roots.sys + kThpFolder;
  std::error_code failure;
  std::filesystem::directory_iterator entries(folder, failure);
  std::vector<MthpSize> sizes;
  for (; !failure && entries != std::filesystem::directory_iterator(); entries.increment(failure)) {
    const std::string name = entries->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::string_view digits = name;
    digits.remove_prefix(kPrefix.size());
    if (!digits.ends_with(kSuffix)) return std::unexpected(malformed(kFile));
    digits.remove_suffix(kSuffix.size());
    const std::optional<std::uint64_t> kilobytes = parse_number(digits);
    if (!kilobytes || *kilobytes == 0 || *kilobytes > (SIZE_MAX >> 10)) {
      return std::unexpected(malformed(kFile));
    }
    const Result<MthpMode> mode =
        read_mode((entries->path() / "enabled").string(), kFile, kMthpModes);
    // Sizes that only shared memory may have carry no file for anonymous memory.
    if (!mode && mode.error().system_errno == ENOENT) continue;
    if (!mode) return std::unexpected(mode.error());
    sizes.push_back({static_cast<std::size_t>(*kilobytes) << 10, *mode});
  }
  if (failure) {
    return std::unexpected(Error{
        .code = ErrorCode::kUnavailable, .operation = kFile, .system_errno = failure.value()});
  }
  std::ranges::sort(sizes, {}, &MthpSize::bytes);
  return sizes;
}

Result<KernelVersion> parse_kernel_version(std::string_view release) {
  const Error failure{.code = ErrorCode::kInvalidArgument,
                      .operation = "parse kernel release",
                      .detail = "not of the form major.minor[.patch][-rest]"};
  release = trimmed(release);
  KernelVersion version;
  version.release = release;
  unsigned* const parts[] = {&version.major, &version.minor, &version.patch};
  std::size_t count = 0;
  for (std::string_view rest = release; count < std::size(parts); ++count) {
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const std::optional<std::uint64_t> value = parse_number(rest.substr(0, digits));
    if (!value || *value > UINT32_MAX) break;
    *parts[count] = static_cast<unsigned>(*value);
    rest.remove_prefix(digits);
    if (!rest.starts_with('.')) {
      ++count;
      break;
    }
    rest.remove_prefix(1);
  }
  if (count < 2) return std::unexpected(failure);
  return version;
}

Result<KernelVersion> kernel_version(const SystemRoots& roots) {
  constexpr const char* kFile = "read sys/kernel/osrelease";
  Result<std::string> text = read_text(roots.proc + "/sys/kernel/osrelease", kFile);
  utsname names{};
  if (!text && roots.proc == SystemRoots{}.proc && ::uname(&names) == 0) text = names.release;
  if (!text) return std::unexpected(text.error());
  Result<KernelVersion> version = parse_kernel_version(*text);
  if (!version) return std::unexpected(malformed(kFile));
  return version;
}

unsigned usable_cpus() noexcept {
  // The kernel refuses a mask smaller than its own; 8192 is the most that Linux can be built for.
  constexpr int kMost = 8192;
  cpu_set_t* const set = CPU_ALLOC(kMost);
  if (set == nullptr) return 1;
  const std::size_t size = CPU_ALLOC_SIZE(kMost);
  const int count = ::sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 1;
  CPU_FREE(set);
  return static_cast<unsigned>(std::max(count, 1));
}

Result<std::uint64_t> available_memory(const SystemRoots& roots) {
  constexpr const char* kFile = "read meminfo";
  const Result<std::string> text = read_text(roots.proc + "/meminfo", kFile);
  if (!text) return std::unexpected(text.error());
  const std::optional<std::uint64_t> available = number_of_key(*text, "MemAvailable");
  const std::optional<std::uint64_t> swap = number_of_key(*text, "SwapFree");
  if (!available || !swap || *available > UINT64_MAX - *swap) {
    return std::unexpected(malformed(kFile));
  }
  return *available + *swap;
}

Result<std::size_t> max_map_count(const SystemRoots& roots) {
  const Result<std::uint64_t> value =
      read_number(roots.proc + "/sys/vm/max_map_count", "read sys/vm/max_map_count");
  if (!value) return std::unexpected(value.error());
  return static_cast<std::size_t>(*value);
}

Result<int> overcommit_mode(const SystemRoots& roots) {
  constexpr const char* kFile = "read sys/vm/overcommit_memory";
  const Result<std::uint64_t> value = read_number(roots.proc + "/sys/vm/overcommit_memory", kFile);
  if (!value) return std::unexpected(value.error());
  if (*value > 2) return std::unexpected(malformed(kFile));
  return static_cast<int>(*value);
}

Result<std::optional<std::uint64_t>> address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0) {
    return std::unexpected(Error{
        .code = code_of_errno(errno), .operation = "getrlimit(RLIMIT_AS)", .system_errno = errno});
  }
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

Machine read_machine(const SystemRoots& roots) {
  return {
#if defined(__x86_64__)
      .architecture = "x86_64",
#elif defined(__aarch64__)
      .architecture = "aarch64",
#endif
      .geometry = geometry(roots),
      .pmd_size = pmd_size(roots),
      .thp_mode = thp_mode(roots),
      .thp_defrag = thp_defrag(roots),
      .thp_uses_zero_page = thp_uses_zero_page(roots),
      .mthp_sizes = mthp_sizes(roots),
      .kernel = kernel_version(roots),
      .cpu = cpu_features(),
      .zva_block = zva_block_size(),
      .cpus = usable_cpus(),
      .cgroup_memory = cgroup_memory(roots),
      .available_memory = available_memory(roots),
      .max_map_count = max_map_count(roots),
      .overcommit_mode = overcommit_mode(roots),
      .address_space_limit = address_space_limit(),
  };
}

}  // namespace touchstone::arch
