// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <istream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <touchstone/arch/a64/classify.h>

#include "command.h"
#include "oracle.h"
#include "oracle_options.h"
#include "words.h"

namespace touchstone::arch::opcheck {
namespace {

using Json = nlohmann::ordered_json;

struct ClassifyOptions {
  std::vector<std::string> words;
  bool decimal = false;
  bool bytes = false;
  bool json = false;
  OracleChoice oracles;

  [[nodiscard]] WordNotation notation() const {
    if (decimal) return WordNotation::kDecimal;
    return bytes ? WordNotation::kBytes : WordNotation::kHex;
  }
};

// Reads the next run of characters that are no white space, or nothing at the end. Of a longer one
// than any word can be, only the beginning is kept.
std::optional<std::string> next_token(std::istream& in) {
  constexpr std::size_t kLongest = 256;
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  using Traits = std::istream::traits_type;
  std::string token;
  std::streambuf& buffer = *in.rdbuf();
  for (auto c = buffer.sbumpc(); !Traits::eq_int_type(c, Traits::eof()); c = buffer.sbumpc()) {
    const char letter = Traits::to_char_type(c);
    if (kSpace.find(letter) == std::string_view::npos) {
      if (token.size() < kLongest) token += letter;
    } else if (!token.empty()) {
      return token;
    }
  }
  if (token.empty()) return std::nullopt;
  return token;
}

// What v5 of the patch makes of a word that it decodes otherwise than the table, or "".
std::string_view v5_note(std::uint32_t word) {
  const bool forced = a64::is_forced_write(word);
  if (forced == a64::v5::is_forced_write(word)) return "";
  return forced ? "v5 misses it" : "v5 forces it without need";
}

class Classifier {
 public:
  Classifier(const ClassifyOptions& options, const OracleSources& sources,
             std::vector<std::unique_ptr<Oracle>> oracles, Console& console)
      : options_(options), sources_(sources), oracles_(std::move(oracles)), console_(console) {
    if (!options_.json) return;
    document_ = json_header("classify", 1);
    document_["oracles"] = oracles_json(sources_);
    document_["words"] = Json::array();
    document_["errors"] = Json::array();
  }

  void add(std::string_view token) {
    const auto word = parse_word(token, options_.notation());
    if (!word) {
      reject(token, word.error());
      return;
    }
    ++count_;
    std::vector<std::optional<std::string>> texts;
    for (const auto& oracle : oracles_) {
      auto text = oracle->text(*word);
      if (!text) {
        reject(token, text.error());
        return;
      }
      texts.push_back(std::move(*text));
    }
    if (options_.json) {
      document_["words"].push_back(to_json(token, *word, texts));
    } else {
      print(*word, texts);
    }
  }

  int finish() {
    if (count_ == 0 && !rejected_) {
      report_error(console_, "no words given");
      rejected_ = true;
    }
    if (options_.json) console_.out << document_.dump(2) << '\n';
    return rejected_ ? kExitBadUse : kExitSuccess;
  }

 private:
  void reject(std::string_view token, std::string_view reason) {
    rejected_ = true;
    report_error(console_, fmt::format("'{}' {}", printable(token), reason));
    if (options_.json) {
      document_["errors"].push_back({{"token", printable(token)}, {"error", reason}});
    }
  }

  void print(std::uint32_t word, const std::vector<std::optional<std::string>>& texts) {
    const a64::MemoryAccess access = a64::classify(word);
    std::string line = fmt::format("{:08x}  ", word);
    const std::string_view note = v5_note(word);
    if (access) {
      line += fmt::format("{} ({}{}{})", a64::format_mnemonic(word).view(),
                          a64::to_string(access.first_fault), note.empty() ? "" : ", ", note);
      const a64::Encoding& row = *access.encoding;
      line += fmt::format("; {}, {}, {}", a64::to_string(row.group), a64::to_string(row.feature),
                          a64::to_string(row.kind));
      if (access.width != 0) {
        line += fmt::format(" of {} byte{}", access.width, access.width == 1 ? "" : "s");
      }
      line += fmt::format(", {}", a64::to_string(access.order));
      if (!row.el0) line += ", not at EL0";
      if (access.constrained) line += ", operands CONSTRAINED UNPREDICTABLE";
    } else {
      line += fmt::format("- ({}{}{})", a64::to_string(access.first_fault),
                          note.empty() ? "" : ", ", note);
    }
    for (std::size_t i = 0; i < texts.size(); ++i) {
      line +=
          fmt::format("; {}: {}", to_string(sources_[i]->kind()), texts[i].value_or("undefined"));
    }
    console_.out << line << '\n';
  }

  Json to_json(std::string_view token, std::uint32_t word,
               const std::vector<std::optional<std::string>>& texts) {
    const a64::MemoryAccess access = a64::classify(word);
    Json json{{"token", token}, {"word", fmt::format("{:08x}", word)}};
    json["listed"] = static_cast<bool>(access);
    json["forced_write"] = a64::is_forced_write(word);
    json["v5_forced_write"] = a64::v5::is_forced_write(word);
    json["first_fault"] = a64::to_string(access.first_fault);
    if (access) {
      const a64::Encoding& row = *access.encoding;
      json["mnemonic"] = a64::format_mnemonic(word).view();
      json["family"] = a64::to_string(row.group);
      json["feature"] = a64::to_string(row.feature);
      json["kind"] = a64::to_string(row.kind);
      json["width"] = access.width == 0 ? Json(nullptr) : Json(access.width);
      json["order"] = a64::to_string(access.order);
      json["reads"] = access.reads();
      json["writes"] = access.writes();
      json["discards"] = access.discards;
      json["el0"] = row.el0;
      json["constrained_unpredictable"] = access.constrained;
      json["wnr_unmapped"] = a64::to_string(a64::wnr_unmapped(row.kind));
      json["wnr_read_only"] = a64::to_string(a64::wnr_read_only(row.kind));
      json["section"] = row.section;
    }
    Json& oracles = json["oracles"] = Json::object();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      Json& oracle = oracles[std::string(to_string(sources_[i]->kind()))];
      if (const auto& text = texts[i]) oracle = *text;
    }
    return json;
  }

  const ClassifyOptions& options_;
  const OracleSources& sources_;
  std::vector<std::unique_ptr<Oracle>> oracles_;
  Console& console_;
  Json document_;
  std::uint64_t count_ = 0;
  bool rejected_ = false;
};

int run_classify(const ClassifyOptions& options, Console& console) {
  auto sources = choose_oracles(options.oracles);
  if (!sources) {
    report_error(console, sources.error());
    return kExitBadUse;
  }
  std::vector<std::unique_ptr<Oracle>> oracles;
  for (const auto& source : *sources) {
    auto oracle = source->open();
    if (!oracle) {
      report_error(console, oracle.error());
      return kExitBadUse;
    }
    oracles.push_back(std::move(*oracle));
  }
  Classifier classifier(options, *sources, std::move(oracles), console);
  if (options.words.empty()) {
    while (const std::optional<std::string> token = next_token(console.in)) classifier.add(*token);
  } else {
    for (const std::string& word : options.words) classifier.add(word);
  }
  return classifier.finish();
}

}  // namespace

void register_classify(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ClassifyOptions>();
  CLI::App* const command = app.add_subcommand(
      "classify", "Say what instruction words do to memory; without WORD, those on standard input");
  command
      ->add_option("WORD", options->words,
                   "1 to 8 hexadecimal digits, with or without 0x, in the order of the value")
      ->type_name("");
  CLI::Option* const decimal =
      command->add_flag("--decimal", options->decimal, "Words are decimal numbers");
  command
      ->add_flag("--bytes", options->bytes,
                 "Words are 8 hexadecimal digits in memory order, as a dump shows them")
      ->excludes(decimal);
  command->add_flag("--json", options->json, "Print JSON");
  add_oracle_options(*command, options->oracles);
  // What looks like a short option is an odd word among others; what looks like a long one is not.
  command->allow_extras();
  command->callback([options, command, &chosen] {
    for (const std::string& extra : command->remaining()) {
      if (extra.starts_with("--")) throw CLI::ExtrasError(command->get_name(), {extra});
      options->words.push_back(extra);
    }
    chosen = [options](Console& console) { return run_classify(*options, console); };
  });
}

}  // namespace touchstone::arch::opcheck
