// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_REPORT_READERS_H_
#define TOUCHSTONE_BENCH_REPORT_READERS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <touchstone/tools/json_file.h>

#include "section.h"

/// One reader a shape of JSON; each has its file, read_NAME.cpp.
namespace touchstone::report {

/// Turns a document of its schema and version into a section. A document that lacks what its schema
/// has throws nlohmann::json::exception, which gather() catches.
struct Reader {
  std::string_view schema;
  int version = 0;
  Section (*read)(const tools::Json& document) = nullptr;
  /// Judges a section of all its documents together; not every reader has anything to say.
  void (*conclude)(Section& section) = nullptr;
};

/// In the order in which the page has them.
[[nodiscard]] std::span<const Reader> all_readers();

[[nodiscard]] Section read_shatter(const tools::Json& document);
[[nodiscard]] Section read_lab(const tools::Json& document);
[[nodiscard]] Section read_gc(const tools::Json& document);
void conclude_gc(Section& section);
[[nodiscard]] Section read_seed(const tools::Json& document);
[[nodiscard]] Section read_sweep(const tools::Json& document);
[[nodiscard]] Section read_scan(const tools::Json& document);

/// What tools::add_provenance put into the document, as a source without a file name.
[[nodiscard]] Source provenance_source(const tools::Json& document);

/// "1,234,567".
[[nodiscard]] std::string grouped(std::uint64_t number);
/// "12 MiB", "1.5 GiB".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);
/// The value at a key, if it is there and no null.
template <typename T>
[[nodiscard]] std::optional<T> value_at(const tools::Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  return found->template get<T>();
}

}  // namespace touchstone::report

#endif  // TOUCHSTONE_BENCH_REPORT_READERS_H_
