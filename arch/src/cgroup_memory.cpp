// SPDX-License-Identifier: MIT
#include <cerrno>
#include <vector>

#include <sys/stat.h>

#include <touchstone/arch/machine.h>

#include "text_file.h"

namespace touchstone::arch {
namespace {

constexpr const char* kOperation = "read memory cgroup";

Error unavailable(const char* detail, int system_errno = 0) noexcept {
  return {.code = ErrorCode::kUnavailable,
          .operation = kOperation,
          .system_errno = system_errno,
          .detail = detail};
}

bool listed(std::string_view list, std::string_view word) noexcept {
  while (!list.empty()) {
    if (take_until(list, ',') == word) return true;
  }
  return false;
}

/// The cgroup of this process that carries the memory controller.
struct Membership {
  int version = 0;
  std::string path;
};

/// A controller is in one hierarchy only, so a v1 memory line settles it.
Result<std::optional<Membership>> membership(const SystemRoots& roots) {
  const Result<std::string> text = read_text(roots.proc + "/self/cgroup", "read self/cgroup");
  if (!text) return std::unexpected(text.error());
  std::optional<Membership> unified;
  std::string_view rest = *text;
  while (!rest.empty()) {
    std::string_view path = take_until(rest, '\n');
    if (path.empty()) continue;
    const std::string_view hierarchy = take_until(path, ':');
    const std::string_view controllers = take_until(path, ':');
    if (!path.starts_with('/')) return std::unexpected(malformed("read self/cgroup"));
    if (listed(controllers, "memory")) return Membership{1, std::string(path)};
    if (hierarchy == "0" && controllers.empty()) unified = Membership{2, std::string(path)};
  }
  return unified;
}

/// Undoes mountinfo's octal escapes, such as \040 for a blank.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool octal =
        text[i] == '\\' && i + 3 < text.size() &&
        text.substr(i + 1, 3).find_first_not_of("01234567") == std::string_view::npos;
    if (octal) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

/// A mounted cgroup tree.
struct Mount {
  /// The cgroup that the mount point shows.
  std::string root;
  std::string point;
};

Result<std::vector<Mount>> mounts(const SystemRoots& roots, int version) {
  constexpr const char* kFile = "read self/mountinfo";
  const Result<std::string> text = read_text(roots.proc + "/self/mountinfo", kFile);
  if (!text) return std::unexpected(text.error());
  std::vector<Mount> found;
  std::string_view lines = *text;
  while (!lines.empty()) {
    std::string_view line = take_until(lines, '\n');
    if (line.empty()) continue;
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) return std::unexpected(malformed(kFile));
    std::string_view after = line.substr(dash + 3);
    const std::string_view type = take_until(after, ' ');
    take_until(after, ' ');  // the source
    const bool wanted =
        version == 2 ? type == "cgroup2" : type == "cgroup" && listed(after, "memory");
    if (!wanted) continue;
    for (int field = 0; field < 3; ++field) take_until(line, ' ');  // ids and device
    const std::string_view root = take_until(line, ' ');
    const std::string_view point = take_until(line, ' ');
    if (!root.starts_with('/') || !point.starts_with('/')) {
      return std::unexpected(malformed(kFile));
    }
    found.push_back({unescaped(root), unescaped(point)});
  }
  return found;
}

/// `path` seen from `root`, without a slash at its end; nullopt where it does not lie below.
std::optional<std::string> below(const std::string& path, const std::string& root) {
  if (path.starts_with("/..")) return std::nullopt;  // outside this cgroup namespace
  const std::string base = root == "/" ? "" : root;
  if (!path.starts_with(base)) return std::nullopt;
  std::string rest = path.substr(base.size());
  if (!rest.empty() && !rest.starts_with('/')) return std::nullopt;
  if (rest == "/") rest.clear();
  return rest;
}

bool is_folder(const std::string& path) noexcept {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

/// A file of one number, or v2's "max"; nullopt where there is no such file or it says there is no
/// limit.
Result<std::optional<std::uint64_t>> read_limit(const std::string& path) {
  const Result<std::string> text = read_text(path, kOperation);
  if (!text && text.error().system_errno == ENOENT) return std::nullopt;
  if (!text) return std::unexpected(text.error());
  if (trimmed(*text) == "max") return std::nullopt;
  const std::optional<std::uint64_t> value = parse_number(*text);
  if (!value) return std::unexpected(unavailable("malformed limit"));
  // v1 says "none" as the largest multiple of the page size that fits into 63 bits.
  if (*value >= std::uint64_t{1} << 62) return std::nullopt;
  return value;
}

struct Files {
  const char* limit;
  const char* usage;
  std::vector<const char*> reclaimable;
};

const Files& files(int version) {
  static const Files v1{"/memory.limit_in_bytes",
                        "/memory.usage_in_bytes",
                        {"total_active_file", "total_inactive_file"}};
  static const Files v2{
      "/memory.max", "/memory.current", {"active_file", "inactive_file", "slab_reclaimable"}};
  return version == 1 ? v1 : v2;
}

/// One level; nullopt where it has no limit.
Result<std::optional<CgroupMemory>> read_level(int version, const std::string& directory) {
  const Files& names = files(version);
  const Result<std::optional<std::uint64_t>> read = read_limit(directory + names.limit);
  if (!read) return std::unexpected(read.error());
  const std::optional<std::uint64_t> limit = *read;
  if (!limit) return std::nullopt;

  CgroupMemory level{.version = version, .directory = directory, .limit = *limit};
  const Result<std::string> usage = read_text(directory + names.usage, kOperation);
  if (!usage) return std::unexpected(usage.error());
  const std::optional<std::uint64_t> used = parse_number(*usage);
  if (!used) return std::unexpected(unavailable("malformed usage"));
  level.usage = *used;

  const Result<std::string> stat = read_text(directory + "/memory.stat", kOperation);
  if (!stat) return std::unexpected(stat.error());
  for (const char* key : names.reclaimable) {
    const std::optional<std::uint64_t> value = number_of_key(*stat, key);
    if (!value) return std::unexpected(unavailable("malformed memory.stat"));
    level.reclaimable += *value;
  }
  return level;
}

/// Whether a v1 cgroup is charged for its children; it always is in v2 and since Linux 5.11.
bool charged_for_children(int version, const std::string& directory) {
  if (version == 2) return true;
  const Result<std::string> text = read_text(directory + "/memory.use_hierarchy", kOperation);
  return !text || trimmed(*text) != "0";
}

}  // namespace

Result<std::optional<CgroupMemory>> cgroup_memory(const SystemRoots& roots) {
  const Result<std::optional<Membership>> found = membership(roots);
  if (!found) return std::unexpected(found.error());
  const std::optional<Membership>& own = *found;
  if (!own) return std::nullopt;
  const int version = own->version;
  const Result<std::vector<Mount>> trees = mounts(roots, version);
  if (!trees) return std::unexpected(trees.error());
  if (trees->empty()) return std::unexpected(unavailable("not mounted"));

  for (const Mount& tree : *trees) {
    std::optional<std::string> rest = below(own->path, tree.root);
    if (!rest) continue;
    const std::string top = roots.prefix + tree.point;
    if (!is_folder(top + *rest)) continue;
    std::optional<CgroupMemory> binding;
    for (;;) {
      const std::string directory = top + *rest;
      const Result<std::optional<CgroupMemory>> read = read_level(version, directory);
      if (!read) return std::unexpected(read.error());
      const std::optional<CgroupMemory>& level = *read;
      if (level && (!binding || level->headroom() < binding->headroom())) binding = level;
      if (rest->empty()) break;
      rest->erase(rest->rfind('/'));
      if (!charged_for_children(version, top + *rest)) break;
    }
    return binding;
  }
  return std::unexpected(unavailable("own cgroup is not among the mounted"));
}

}  // namespace touchstone::arch
