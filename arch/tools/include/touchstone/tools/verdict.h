// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TOOLS_VERDICT_H_
#define TOUCHSTONE_TOOLS_VERDICT_H_

#include <cstdint>
#include <span>
#include <string>

#include <touchstone/tools/json_file.h>

/// What a measurement says in words; reports and pages begin with them.
namespace touchstone::tools {

enum class VerdictKind : std::uint8_t {
  kGood,  ///< As one would wish.
  kBad,   ///< Costs something, or is wrong.
  kNote,  ///< Cannot be told, or worth knowing.
};

struct Verdict {
  VerdictKind kind = VerdictKind::kNote;
  std::string headline;
  std::string explanation;
};

/// "good", "bad", "note".
[[nodiscard]] const char* to_string(VerdictKind kind) noexcept;

/// An array of {kind, headline, explanation}.
[[nodiscard]] Json verdicts_json(std::span<const Verdict> verdicts);
/// One of its elements. A kind that is none of the three is a note; throws Json::exception where
/// something is missing.
[[nodiscard]] Verdict verdict_of(const Json& json);

}  // namespace touchstone::tools

#endif  // TOUCHSTONE_TOOLS_VERDICT_H_
