// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <touchstone/arch/a64/classify.h>
#include <touchstone/arch/a64/covers.h>
#include <touchstone/arch/a64/kernel_header.h>
#include <touchstone/arch/a64/minimise.h>

#include "command.h"

namespace touchstone::arch::opcheck {
namespace {

using Json = nlohmann::ordered_json;

struct MasksOptions {
  bool compare = false;
  bool relaxed = false;
  bool json = false;
};

// A decoder of forced writes, as one line of the comparison.
struct Decoder {
  std::string_view name;
  std::string_view meaning;
  std::vector<a64::Term> terms;
  // As many as `terms`, but for v5, which looks at classes first.
  std::size_t compares = 0;
  std::uint64_t words = 0;
  // Words that are no forced write, and forced writes that it leaves out.
  std::uint64_t needless = 0;
  std::uint64_t missed = 0;
};

// What v5 matches: its class of atomics where write permission is checked, and two more classes.
std::vector<a64::Term> v5_terms() {
  std::vector<a64::Term> terms{{a64::v5::kClassCas}, {a64::v5::kClassCasp}};
  for (const a64::Cube& cube : a64::v5::kHasWritePermission) {
    const a64::Cube& atomic = a64::v5::kClassAtomic;
    if ((cube.value & atomic.mask) != (atomic.value & cube.mask)) continue;
    terms.push_back({{cube.mask | atomic.mask, cube.value | atomic.value}});
  }
  return terms;
}

// Fills in the counts: |D \\ F| = |D or F| - |F|.
Result<> measure(Decoder& decoder, std::span<const a64::Term> forced) {
  std::vector<a64::Term> both(decoder.terms);
  both.insert(both.end(), forced.begin(), forced.end());
  const auto words = a64::count_words(decoder.terms);
  if (!words) return std::unexpected(words.error());
  const auto exact = a64::count_words(forced);
  if (!exact) return std::unexpected(exact.error());
  const auto all = a64::count_words(both);
  if (!all) return std::unexpected(all.error());
  decoder.words = *words;
  decoder.needless = *all - *exact;
  decoder.missed = *all - *words;
  return {};
}

Result<std::vector<Decoder>> make_decoders() {
  std::vector<Decoder> decoders;
  const std::vector<a64::Term> v5 = v5_terms();
  decoders.push_back({.name = "v5",
                      .meaning = "the patch on the mailing list",
                      .terms = v5,
                      .compares = a64::v5::kCompares});
  struct Source {
    std::string_view name;
    std::string_view meaning;
    Result<a64::Cover> (*cover)();
  };
  constexpr std::array<Source, 4> sources{{
      {"header", "the kernel header: exact, some compares exclude register 31", &a64::exact_cover},
      {"plain", "exact, of plain mask/value compares alone", &a64::plain_cover},
      {"never-aborts", "as the header, words that cannot abort at EL0 free",
       &a64::never_aborts_cover},
      {"relaxed", "plain compares, unallocated words of the classes free; for comparison only",
       &a64::relaxed_cover},
  }};
  for (const Source& source : sources) {
    auto cover = source.cover();
    if (!cover) return std::unexpected(cover.error());
    const std::size_t compares = cover->terms.size();
    decoders.push_back({.name = source.name,
                        .meaning = source.meaning,
                        .terms = std::move(cover->terms),
                        .compares = compares});
  }
  const std::vector<a64::Term> forced = decoders[1].terms;
  for (Decoder& decoder : decoders) {
    if (auto measured = measure(decoder, forced); !measured) {
      return std::unexpected(measured.error());
    }
  }
  return decoders;
}

std::string exclusions(a64::Operands except) {
  std::string text;
  const auto add = [&](a64::Operands one, std::string_view name) {
    if (a64::contains(except, one)) text += fmt::format(", {}", name);
  };
  add(a64::Operands::kRtIs31, "not Rt = 31");
  add(a64::Operands::kRsIs31, "not Rs = 31");
  add(a64::Operands::kRnIs31, "not Rn = 31");
  add(a64::Operands::kRtAbove23, "not Rt > 23");
  return text;
}

Json decoder_json(const Decoder& decoder) {
  Json json{{"name", decoder.name},         {"meaning", decoder.meaning},
            {"compares", decoder.compares}, {"words", decoder.words},
            {"needless", decoder.needless}, {"missed", decoder.missed},
            {"terms", Json::array()}};
  for (const a64::Term& term : decoder.terms) {
    Json except = Json::array();
    if (a64::contains(term.except, a64::Operands::kRtIs31)) except.push_back("Rt = 31");
    if (a64::contains(term.except, a64::Operands::kRsIs31)) except.push_back("Rs = 31");
    if (a64::contains(term.except, a64::Operands::kRnIs31)) except.push_back("Rn = 31");
    if (a64::contains(term.except, a64::Operands::kRtAbove23)) except.push_back("Rt > 23");
    json["terms"].push_back({{"mask", fmt::format("{:08x}", term.cube.mask)},
                             {"value", fmt::format("{:08x}", term.cube.value)},
                             {"except", std::move(except)}});
  }
  return json;
}

void print_terms(std::ostream& out, const Decoder& decoder) {
  fmt::print(out, "\n{} (mask/value):\n", decoder.name);
  for (const a64::Term& term : decoder.terms) {
    fmt::print(out, "  {:08x}/{:08x}{}\n", term.cube.mask, term.cube.value,
               exclusions(term.except));
  }
}

int run_masks(const MasksOptions& options, Console& console) {
  const auto header = a64::kernel_header();
  if (!header) {
    report_error(console, header.error().message());
    return kExitBadUse;
  }
  if (!options.compare && !options.relaxed && !options.json) {
    console.out << *header;
    return kExitSuccess;
  }
  const auto decoders = make_decoders();
  if (!decoders) {
    report_error(console, decoders.error().message());
    return kExitBadUse;
  }
  if (options.json) {
    Json document = json_header("masks", 1);
    Json& list = document["decoders"] = Json::array();
    for (const Decoder& decoder : *decoders) list.push_back(decoder_json(decoder));
    document["kernel_header"] = *header;
    console.out << document.dump(2) << '\n';
    return kExitSuccess;
  }
  if (options.compare) {
    fmt::print(console.out, "{:<13} {:>8} {:>11} {:>11} {:>10}\n", "decoder", "compares", "words",
               "needless", "missed");
    for (const Decoder& decoder : *decoders) {
      fmt::print(console.out, "{:<13} {:>8} {:>11} {:>11} {:>10}  {}\n", decoder.name,
                 decoder.compares, decoder.words, decoder.needless, decoder.missed,
                 decoder.meaning);
    }
    print_terms(console.out, (*decoders)[0]);
    print_terms(console.out, (*decoders)[1]);
  }
  if (options.relaxed) print_terms(console.out, decoders->back());
  return kExitSuccess;
}

}  // namespace

void register_masks(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<MasksOptions>();
  CLI::App* const command =
      app.add_subcommand("masks", "Print the kernel header that is derived from the table");
  command->add_flag("--compare", options->compare,
                    "Print instead how many compares v5 and the derived covers need, and both");
  command->add_flag("--relaxed", options->relaxed,
                    "Print instead the cover that takes unallocated words in, for comparison");
  command->add_flag("--json", options->json, "Print all covers and the header as JSON");
  command->callback([options, &chosen] {
    chosen = [options](Console& console) { return run_masks(*options, console); };
  });
}

}  // namespace touchstone::arch::opcheck
