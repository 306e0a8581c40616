// SPDX-License-Identifier: MIT
#include "sweep_state.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <expected>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <touchstone/arch/a64/encodings.h>
#include <touchstone/tools/json_file.h>

#include "command.h"

namespace touchstone::arch::opcheck {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStateVersion = 1;

// FNV-1a, over what decides the meaning of the counts.
class Fingerprint {
 public:
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    add_byte(0);
  }
  void add(std::uint64_t number) {
    for (unsigned shift = 0; shift < 64; shift += 8) {
      add_byte(static_cast<unsigned char>(number >> shift & 0xffU));
    }
  }
  [[nodiscard]] std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  void add_byte(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3U; }
  std::uint64_t hash_ = 0xcbf29ce484222325U;
};

std::string fingerprint_of_tables(const SweepPlan& plan) {
  Fingerprint print;
  for (const a64::Encoding& row : a64::kEncodings) {
    print.add(row.pattern);
    print.add(row.store_pattern);
    for (const std::uint64_t field :
         {static_cast<std::uint64_t>(row.group), static_cast<std::uint64_t>(row.kind),
          static_cast<std::uint64_t>(row.width), static_cast<std::uint64_t>(row.order),
          static_cast<std::uint64_t>(row.excluded), std::uint64_t{row.cube.mask},
          std::uint64_t{row.cube.value}}) {
      print.add(field);
    }
  }
  for (const KnownGap& gap : plan.gaps) {
    print.add(static_cast<std::uint64_t>(gap.oracle) << 8 | static_cast<std::uint64_t>(gap.kind));
    print.add(std::uint64_t{gap.words.mask} << 32 | gap.words.value);
    print.add(to_string(gap.first));
    print.add(to_string(gap.last));
  }
  return print.text();
}

// What has to be the same for a state to be taken up.
Json identity_of(const SweepPlan& plan) {
  Json oracles = Json::array();
  for (const OracleSource* const source : plan.oracles) oracles.push_back(source->name());
  return {{"words", plan.space->name()},
          {"rules", plan.rules->name},
          {"oracles", std::move(oracles)},
          {"tables", fingerprint_of_tables(plan)}};
}

Json bucket_json(const Bucket& bucket) {
  return {bucket.count, bucket.smallest};
}

Bucket bucket_of(const Json& json) {
  return {.count = json.at(0).get<std::uint64_t>(), .smallest = json.at(1).get<std::uint32_t>()};
}

Json verdicts_json(const std::array<OracleVerdicts, kMostOracles>& oracles) {
  Json list = Json::array();
  for (const OracleVerdicts& verdicts : oracles) {
    list.push_back({verdicts.confirmed, verdicts.gap, verdicts.contradicted});
  }
  return list;
}

std::array<OracleVerdicts, kMostOracles> verdicts_of(const Json& json) {
  std::array<OracleVerdicts, kMostOracles> oracles{};
  for (std::size_t i = 0; i < oracles.size(); ++i) {
    oracles[i] = {.confirmed = json.at(i).at(0).get<std::uint64_t>(),
                  .gap = json.at(i).at(1).get<std::uint64_t>(),
                  .contradicted = json.at(i).at(2).get<std::uint64_t>()};
  }
  return oracles;
}

// One hexadecimal digit for four chunks.
std::string bits_text(const std::vector<bool>& bits) {
  std::string text;
  for (std::size_t i = 0; i < bits.size(); i += 4) {
    unsigned digit = 0;
    for (std::size_t bit = 0; bit < 4 && i + bit < bits.size(); ++bit) {
      if (bits[i + bit]) digit |= 1U << bit;
    }
    text += "0123456789abcdef"[digit];
  }
  return text;
}

std::vector<bool> bits_of(const std::string& text, std::size_t size) {
  if (text.size() != (size + 3) / 4) throw std::length_error("done has the wrong length");
  std::vector<bool> bits(size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(text[i / 4]);
    if (digit == std::string_view::npos) throw std::domain_error("done is not hexadecimal");
    bits[i] = (digit >> i % 4 & 1U) != 0;
  }
  return bits;
}

Json result_json(const SweepResult& result) {
  Json json{{"done", bits_text(result.done)}, {"words", result.words}};
  Json& families = json["families"] = Json::array();
  for (const FamilyTally& family : result.families) {
    families.push_back({family.words, family.unjudged, family.unjudged_unpredictable,
                        verdicts_json(family.oracles)});
  }
  Json& disagreements = json["disagreements"] = Json::array();
  for (const auto& [key, bucket] : result.disagreements) {
    disagreements.push_back({key.rule, key.family, key.oracle, key.reading, bucket_json(bucket)});
  }
  Json& gaps = json["gaps"] = Json::array();
  for (const Bucket& bucket : result.gaps) gaps.push_back(bucket_json(bucket));
  Json& forced = json["forced"] = Json::array();
  for (const auto& [key, tally] : result.forced) {
    forced.push_back(
        {key.missed, key.family, bucket_json(tally.words), verdicts_json(tally.oracles)});
  }
  return json;
}

SweepResult result_of(const Json& json, const SweepPlan& plan) {
  SweepResult result;
  result.done = bits_of(json.at("done").get<std::string>(), plan.space->chunk_count());
  result.words = json.at("words").get<std::uint64_t>();
  for (std::size_t i = 0; i < result.families.size(); ++i) {
    const Json& family = json.at("families").at(i);
    result.families[i] = {.words = family.at(0).get<std::uint64_t>(),
                          .unjudged = family.at(1).get<std::uint64_t>(),
                          .unjudged_unpredictable = family.at(2).get<std::uint64_t>(),
                          .oracles = verdicts_of(family.at(3))};
  }
  for (const Json& entry : json.at("disagreements")) {
    const std::size_t oracle = entry.at(2).get<std::size_t>();
    if (oracle >= plan.oracles.size()) throw std::out_of_range("no such oracle");
    result.disagreements[{.rule = entry.at(0).get<std::string>(),
                          .family = entry.at(1).get<std::string>(),
                          .oracle = oracle,
                          .reading = entry.at(3).get<std::string>()}] = bucket_of(entry.at(4));
  }
  for (const Json& gap : json.at("gaps")) result.gaps.push_back(bucket_of(gap));
  if (result.gaps.size() != plan.gaps.size()) throw std::length_error("gaps has the wrong length");
  for (const Json& entry : json.at("forced")) {
    result.forced[{.missed = entry.at(0).get<bool>(), .family = entry.at(1).get<std::string>()}] = {
        .words = bucket_of(entry.at(2)), .oracles = verdicts_of(entry.at(3))};
  }
  std::uint64_t words = 0;
  for (std::size_t chunk = 0; chunk < result.done.size(); ++chunk) {
    if (result.done[chunk]) words += plan.space->chunk_size(chunk);
  }
  if (words != result.words) throw std::domain_error("done and words do not fit");
  return result;
}

}  // namespace

std::expected<void, std::string> save_state(const std::string& path, const SweepPlan& plan,
                                            const SweepResult& result) {
  Json document = json_header("sweep-state", kStateVersion);
  document["sweep"] = identity_of(plan);
  document["result"] = result_json(result);
  if (auto written = tools::write_text_file(path, document.dump() + "\n"); !written) {
    return std::unexpected(fmt::format("{}: {}", path, written.error().message()));
  }
  return {};
}

std::expected<SweepResult, std::string> load_state(const std::string& path, const SweepPlan& plan) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::unexpected(fmt::format("{}: {}", path, strerrordesc_np(errno)));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return std::unexpected(fmt::format("{}: cannot be read", path));
  try {
    const Json document = Json::parse(text);
    const Json header = json_header("sweep-state", kStateVersion);
    for (const char* const key : {"schema", "version"}) {
      if (document.at(key) != header.at(key)) {
        return std::unexpected(fmt::format("{}: is no state of this release's sweeps", path));
      }
    }
    const Json identity = identity_of(plan);
    for (const auto& [key, value] : identity.items()) {
      const Json& saved = document.at("sweep").at(key);
      if (saved != value) {
        return std::unexpected(fmt::format("{}: belongs to a sweep with {} {} and not {}", path,
                                           key, saved.dump(), value.dump()));
      }
    }
    return result_of(document.at("result"), plan);
  } catch (const std::exception& error) {
    return std::unexpected(fmt::format("{}: is no sweep state ({})", path, error.what()));
  }
}

}  // namespace touchstone::arch::opcheck
