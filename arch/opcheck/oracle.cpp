// SPDX-License-Identifier: MIT
#include "oracle.h"

#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace touchstone::arch::opcheck {

std::string_view to_string(OracleKind kind) {
  switch (kind) {
    case OracleKind::kCapstone:
      return "capstone";
    case OracleKind::kLlvm:
      return "llvm";
    case OracleKind::kObjdump:
      return "objdump";
  }
  return "unknown";
}

std::optional<OracleKind> oracle_kind_of(std::string_view name) {
  for (const OracleKind kind : {OracleKind::kCapstone, OracleKind::kLlvm, OracleKind::kObjdump}) {
    if (name == to_string(kind)) return kind;
  }
  return std::nullopt;
}

std::string to_string(const OracleVersion& version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

std::string OracleSource::name() const {
  return fmt::format("{} {}", to_string(kind()), to_string(version()));
}

std::expected<std::unique_ptr<OracleSource>, std::string> find_oracle(OracleKind kind,
                                                                      const OracleSearch& search) {
  switch (kind) {
    case OracleKind::kLlvm:
      return find_llvm(search.llvm_library);
    case OracleKind::kObjdump:
      return find_objdump(search.objdump_program);
    case OracleKind::kCapstone:
      break;
  }
  return capstone_source();
}

}  // namespace touchstone::arch::opcheck
