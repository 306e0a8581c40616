// SPDX-License-Identifier: MIT
#include "oracle_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <expected>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace touchstone::arch::opcheck {
namespace {

constexpr OracleKind kAllKinds[] = {OracleKind::kCapstone, OracleKind::kLlvm, OracleKind::kObjdump};

// Adds the oracle where it is found, or where it was named explicitly has to be found.
std::expected<void, std::string> add(OracleSources& sources, OracleKind kind,
                                     const OracleSearch& search, bool required) {
  for (const auto& source : sources) {
    if (source->kind() == kind) return {};
  }
  auto source = find_oracle(kind, search);
  if (source) {
    sources.push_back(std::move(*source));
  } else if (required) {
    return std::unexpected(fmt::format("{}: {}", to_string(kind), source.error()));
  }
  return {};
}

}  // namespace

void add_oracle_search_options(CLI::App& command, OracleSearch& search) {
  command
      .add_option("--llvm-library", search.llvm_library,
                  "A libLLVM to load instead of the newest one found")
      ->type_name("PATH");
  command
      .add_option("--objdump", search.objdump_program,
                  "An objdump to run instead of the first one found that knows arm64")
      ->type_name("PROGRAM");
}

void add_oracle_options(CLI::App& command, OracleChoice& choice) {
  command
      .add_option("--oracle", choice.names,
                  "capstone, llvm, objdump, all or none, several separated by commas (default: "
                  "capstone and, where found, llvm)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"capstone", "llvm", "objdump", "all", "none"}))
      ->type_name("NAME");
  add_oracle_search_options(command, choice.search);
}

std::expected<OracleSources, std::string> choose_oracles(const OracleChoice& choice) {
  OracleSources sources;
  if (choice.names.empty()) {
    const bool wants_llvm = !choice.search.llvm_library.empty();
    const bool wants_objdump = !choice.search.objdump_program.empty();
    for (const OracleKind kind : kAllKinds) {
      if (kind == OracleKind::kObjdump && !wants_objdump) continue;
      const bool required = kind == OracleKind::kLlvm ? wants_llvm : true;
      if (auto added = add(sources, kind, choice.search, required); !added) {
        return std::unexpected(std::move(added.error()));
      }
    }
    return sources;
  }
  for (const std::string& name : choice.names) {
    const std::optional<OracleKind> only = oracle_kind_of(name);
    if (!only && name != "all") continue;
    for (const OracleKind kind : kAllKinds) {
      if (only && kind != *only) continue;
      if (auto added = add(sources, kind, choice.search, only.has_value()); !added) {
        return std::unexpected(std::move(added.error()));
      }
    }
  }
  return sources;
}

nlohmann::ordered_json oracles_json(const OracleSources& sources) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& source : sources) {
    list.push_back({{"oracle", to_string(source->kind())},
                    {"version", to_string(source->version())},
                    {"location", source->location()}});
  }
  return list;
}

}  // namespace touchstone::arch::opcheck
