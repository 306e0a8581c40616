// SPDX-License-Identifier: MIT
#include "gather.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <touchstone/tools/provenance.h>

#include "readers.h"

namespace touchstone::report {
namespace {

using tools::Json;

std::string known_schemas() {
  std::vector<std::string> names;
  for (const Reader& reader : all_readers()) {
    names.push_back(fmt::format("{} {}", reader.schema, reader.version));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The files that one input stands for, in order; nothing, and the reason in `skipped`, for none.
std::vector<std::string> files_of(const std::string& input, std::vector<Skipped>& skipped) {
  std::error_code error;
  if (!std::filesystem::is_directory(input, error)) return {input};
  std::vector<std::string> files;
  std::filesystem::directory_iterator entry(input, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".json" && !entry->is_directory()) {
      files.push_back(entry->path().string());
    }
  }
  if (error) {
    skipped.push_back({input, error.message()});
  } else if (files.empty()) {
    skipped.push_back({input, "no .json file is in it"});
  }
  std::ranges::sort(files);
  return files;
}

/// The document and the index of its reader; or why there is none.
std::optional<std::string> read_file(const std::string& path, Json& document, std::size_t& index) {
  const std::ifstream file(path);
  if (!file) return std::strerror(errno);
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad() || text.fail()) return "empty, or it cannot be read";
  document = Json::parse(text.str(), nullptr, false);
  if (document.is_discarded()) return "no JSON";
  const auto schema = document.is_object() ? document.find("schema") : document.end();
  if (!document.is_object() || schema == document.end() || !schema->is_string()) {
    return "JSON without a schema, so none of this project's tools wrote it";
  }
  const auto name = schema->get<std::string>();
  const auto readers = all_readers();
  const auto reader = std::ranges::find(readers, name, &Reader::schema);
  if (reader == readers.end()) {
    return fmt::format("its schema is {}; known are {}", Json(name).dump(), known_schemas());
  }
  const auto version = document.find("version");
  if (version == document.end() || *version != reader->version) {
    return fmt::format("version {} of {}; this report reads version {}",
                       version == document.end() ? "none" : version->dump(), name, reader->version);
  }
  index = static_cast<std::size_t>(reader - readers.begin());
  return std::nullopt;
}

}  // namespace

Gathered gather(const std::vector<std::string>& inputs) {
  Gathered gathered;
  std::map<std::size_t, std::vector<Section>> by_reader;
  for (const std::string& input : inputs) {
    for (const std::string& path : files_of(input, gathered.skipped)) {
      Json document;
      std::size_t index = 0;
      if (auto why = read_file(path, document, index)) {
        gathered.skipped.push_back({path, *std::move(why)});
        continue;
      }
      try {
        Section section = all_readers()[index].read(document);
        for (Source& source : section.sources) {
          source.file = std::filesystem::path(path).filename().string();
        }
        std::vector<Section>& group = by_reader[index];
        const auto same = std::ranges::find(group, section.id, &Section::id);
        if (same == group.end()) {
          group.push_back(std::move(section));
        } else {
          join(*same, std::move(section));
        }
      } catch (const Json::exception& error) {
        gathered.skipped.push_back({path, fmt::format("damaged: {}", error.what())});
      }
    }
  }
  for (auto& [index, group] : by_reader) {
    if (const auto conclude = all_readers()[index].conclude) std::ranges::for_each(group, conclude);
    std::ranges::move(group, std::back_inserter(gathered.sections));
  }
  return gathered;
}

Json report_json(const Gathered& gathered, const std::string& command) {
  Json json = tools::json_document("touchstone.report", 1);
  tools::add_provenance(json, tools::provenance_of(command));
  json["sections"] = Json::array();
  for (const Section& section : gathered.sections) json["sections"].push_back(to_json(section));
  json["skipped"] = Json::array();
  for (const Skipped& each : gathered.skipped) {
    json["skipped"].push_back(
        {{"file", std::filesystem::path(each.file).filename().string()}, {"why", each.why}});
  }
  return json;
}

}  // namespace touchstone::report
