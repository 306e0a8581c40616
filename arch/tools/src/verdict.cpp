// SPDX-License-Identifier: MIT
#include <touchstone/tools/verdict.h>

namespace touchstone::tools {

const char* to_string(VerdictKind kind) noexcept {
  switch (kind) {
    case VerdictKind::kGood:
      return "good";
    case VerdictKind::kBad:
      return "bad";
    case VerdictKind::kNote:
      break;
  }
  return "note";
}

Json verdicts_json(std::span<const Verdict> verdicts) {
  Json list = Json::array();
  for (const Verdict& each : verdicts) {
    list.push_back({{"kind", to_string(each.kind)},
                    {"headline", each.headline},
                    {"explanation", each.explanation}});
  }
  return list;
}

Verdict verdict_of(const Json& json) {
  const Json& kind = json.at("kind");
  return {.kind = kind == "good"  ? VerdictKind::kGood
                  : kind == "bad" ? VerdictKind::kBad
                                  : VerdictKind::kNote,
          .headline = json.at("headline"),
          .explanation = json.at("explanation")};
}

}  // namespace touchstone::tools
