// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TOOLS_JSON_FILE_H_
#define TOUCHSTONE_TOOLS_JSON_FILE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include <touchstone/arch/error.h>

namespace touchstone::tools {

using Json = nlohmann::ordered_json;

/// A JSON document that begins with its schema's name, such as "touchstone.shatter", and version.
/// A change of shape raises the version.
[[nodiscard]] Json json_document(std::string_view schema, int version);

/// Writes text to the file, or to standard output for "-". The file appears whole or not at all: a
/// new file beside it is renamed over it. Errors: kSystem and kin, with the failing call and errno.
[[nodiscard]] Result<> write_text_file(const std::string& path, std::string_view text);

/// write_text_file of the document, indented, with a line end.
[[nodiscard]] Result<> write_json_file(const std::string& path, const Json& document);

}  // namespace touchstone::tools

#endif  // TOUCHSTONE_TOOLS_JSON_FILE_H_
