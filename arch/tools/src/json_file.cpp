// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cstdio>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <touchstone/tools/json_file.h>

namespace touchstone::tools {
namespace {

std::unexpected<Error> failed(const char* operation) {
  const int code = errno;
  return std::unexpected(
      Error{.code = code_of_errno(code), .operation = operation, .system_errno = code});
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Renaming over a device or a pipe would replace it by a file.
bool is_special(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

}  // namespace

Json json_document(std::string_view schema, int version) {
  return Json{{"schema", schema}, {"version", version}};
}

Result<> write_text_file(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::fflush(stdout);
    if (!write_all(STDOUT_FILENO, text)) return failed("write to standard output");
    return {};
  }
  const bool in_place = is_special(path);
  const std::string target = in_place ? path : path + ".partial";
  const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (in_place ? 0 : O_TRUNC),
                        static_cast<mode_t>(0666));
  if (fd < 0) return failed("open for writing");
  if (!write_all(fd, text)) {
    auto error = failed("write");
    ::close(fd);
    if (!in_place) ::unlink(target.c_str());
    return error;
  }
  if (::close(fd) != 0) return failed("close");
  if (!in_place && ::rename(target.c_str(), path.c_str()) != 0) {
    auto error = failed("rename");
    ::unlink(target.c_str());
    return error;
  }
  return {};
}

Result<> write_json_file(const std::string& path, const Json& document) {
  return write_text_file(path, document.dump(2) + "\n");
}

}  // namespace touchstone::tools
