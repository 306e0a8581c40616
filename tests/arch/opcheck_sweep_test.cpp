// SPDX-License-Identifier: MIT
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <touchstone/arch/a64/classify.h>

#include "known_gaps.h"
#include "opcheck_fakes.h"
#include "oracle.h"
#include "rules.h"
#include "sweep.h"
#include "sweep_report.h"
#include "sweep_state.h"
#include "word_space.h"

namespace touchstone::arch::opcheck {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint32_t kLdadd = 0xb8210002;
constexpr std::uint32_t kStadd = 0xb821001f;
constexpr std::uint32_t kLdclrp = 0x19221043;
constexpr std::uint32_t kLdr = 0xf9400020;
constexpr std::uint32_t kUnallocated = 0x02000000;

SweepResult sweep(const SweepPlan& plan, SweepResult start = {}, const SweepHooks& hooks = {}) {
  auto result = run_sweep(plan, std::move(start), hooks);
  EXPECT_TRUE(result) << result.error();
  return result ? std::move(*result) : SweepResult{};
}

SweepPlan plan_of(const WordSpace& space, const OracleSource& source,
                  std::span<const KnownGap> gaps = {}) {
  SweepPlan plan;
  plan.space = &space;
  plan.oracles = {&source};
  plan.gaps = gaps;
  return plan;
}

std::string temporary(std::string_view name) {
  return ::testing::TempDir() + std::string(name) + "." + std::to_string(getpid());
}

// An oracle that is right about the words above.
std::optional<std::string> right(std::uint32_t word) {
  switch (word) {
    case kLdadd:
      return "ldadd w1, w2, [x0]";
    case kStadd:
      return "stadd w1, [x0]";
    case kLdclrp:
      return "ldclrp x3, x2, [x2]";
    case kLdr:
      return "ldr x0, [x1]";
    default:
      return std::nullopt;
  }
}

const std::vector<std::uint32_t> kFewWords{kLdadd, kStadd, kLdclrp, kLdr, kUnallocated};

TEST(Sweep, AgreementIsCountedByFamily) {
  const ListedWords space(kFewWords);
  const FakeSource source(&right);
  const SweepPlan plan = plan_of(space, source);
  const SweepResult result = sweep(plan);
  EXPECT_TRUE(result.complete());
  EXPECT_EQ(result.words, 5U);
  EXPECT_EQ(result.unexplained(), 0U);
  EXPECT_TRUE(is_clean(result));
  const auto& lse = result.families[static_cast<std::size_t>(a64::Group::kLse)];
  EXPECT_EQ(lse.words, 2U);
  EXPECT_EQ(lse.oracles[0].confirmed, 2U);
  EXPECT_EQ(lse.unjudged, 0U);
}

TEST(Sweep, TheLoadFormOfAStoreIsTheSame) {
  const ListedWords space({kStadd});
  const FakeSource source([](std::uint32_t) { return "ldadd w1, wzr, [x0]"; });
  EXPECT_TRUE(is_clean(sweep(plan_of(space, source))));
}

// Each of these says something wrong of LDADD, which the sweep has to find.
TEST(Sweep, FindsEveryKindOfDisagreement) {
  struct Case {
    std::optional<std::string> says;
    std::string reading;
  };
  const std::vector<Case> cases{
      {std::nullopt, ""},
      {"ldadda w1, w2, [x0]", "ldadda"},  // order
      {"ldadd x1, x2, [x0]", "ldadd"},    // width
      {"ldaddb w1, w2, [x0]", "ldaddb"},  // width
      {"ldset w1, w2, [x0]", "ldset"},    // operation
      {"ldr w1, [x0]", "ldr"},            // no atomic at all
      {"stadd w1, [x0]", "stadd"},        // discards, which LDADD to w2 does not
  };
  const ListedWords space({kLdadd});
  for (const Case& wrong : cases) {
    const FakeSource source([&](std::uint32_t) { return wrong.says; });
    const SweepResult result = sweep(plan_of(space, source));
    ASSERT_EQ(result.disagreements.size(), 1U) << wrong.reading;
    const auto& [key, bucket] = *result.disagreements.begin();
    EXPECT_EQ(key.rule, "ldadd");
    EXPECT_EQ(key.family, "lse");
    EXPECT_EQ(key.reading, wrong.reading);
    EXPECT_EQ(bucket, (Bucket{.count = 1, .smallest = kLdadd}));
    EXPECT_FALSE(is_clean(result));
  }
}

TEST(Sweep, FindsAccessesThatTheTableLacks) {
  const ListedWords space({kUnallocated, kUnallocated + 1});
  const FakeSource source([](std::uint32_t) { return "swp w1, w2, [x0]"; });
  const SweepResult result = sweep(plan_of(space, source));
  ASSERT_EQ(result.disagreements.size(), 1U);
  const auto& [key, bucket] = *result.disagreements.begin();
  EXPECT_EQ(key.rule, "");
  EXPECT_EQ(key.family, "swp");
  EXPECT_EQ(bucket, (Bucket{.count = 2, .smallest = kUnallocated}));
}

TEST(Sweep, FindsLoadsAndStoresOfUnknownName) {
  const ListedWords space({kLdr});
  const FakeSource source([](std::uint32_t) { return "ldnew x0, [x1]"; });
  const SweepResult result = sweep(plan_of(space, source));
  ASSERT_EQ(result.disagreements.size(), 1U);
  EXPECT_EQ(result.disagreements.begin()->first.reading, "ldnew");
}

// A table that has an entry wrong, or has lost one, fails against real disassemblers.
TEST(Sweep, ABrokenTableIsFoundByCapstone) {
  static constexpr auto kLoses = [](std::uint32_t word) {
    const a64::MemoryAccess access = a64::classify(word);
    return access && access.encoding->group == a64::Group::kSwp ? a64::MemoryAccess{} : access;
  };
  static constexpr auto kWidens = [](std::uint32_t word) {
    a64::MemoryAccess access = a64::classify(word);
    if (access && access.encoding->group == a64::Group::kCas) access.width = 16;
    return access;
  };
  static constexpr auto kInvents = [](std::uint32_t word) {
    return word == kUnallocated ? a64::classify(kLdadd) : a64::classify(word);
  };
  const ListedWords space({0xb8208020, 0x08a07c20, kUnallocated, kLdadd});
  const auto capstone = capstone_source();
  SweepPlan plan = plan_of(space, *capstone, known_gaps());
  EXPECT_TRUE(is_clean(sweep(plan)));

  for (const auto& [classify, rule, family, reading] :
       {std::tuple{+kLoses, "", "swp", "swp"}, std::tuple{+kWidens, "cas", "cas", "casb"},
        std::tuple{+kInvents, "ldadd", "lse", ""}}) {
    const Rules broken{.name = "broken", .classify = classify, .mnemonic = &a64::format_mnemonic};
    plan.rules = &broken;
    const SweepResult result = sweep(plan);
    ASSERT_EQ(result.disagreements.size(), 1U) << family;
    const Disagreement& found = result.disagreements.begin()->first;
    EXPECT_EQ(found.rule, rule);
    EXPECT_EQ(found.family, family);
    EXPECT_EQ(found.reading, reading);
  }
}

TEST(Sweep, AGapExplainsOnlyWhatItDescribes) {
  const ListedWords space({kLdclrp});
  const FakeSource silent([](std::uint32_t) { return std::nullopt; }, {2, 1, 0});
  const KnownGap gap{.oracle = OracleKind::kLlvm,
                     .first = {2, 0, 0},
                     .last = {2, ~0U, ~0U},
                     .words = {0xff20fc00, 0x19201000},
                     .kind = GapKind::kDecodesNothing,
                     .reason = "test"};
  const auto sweep_with = [&](KnownGap changed) {
    return sweep(plan_of(space, silent, std::span(&changed, 1)));
  };
  const SweepResult explained = sweep_with(gap);
  EXPECT_TRUE(is_clean(explained));
  EXPECT_EQ(explained.gaps.at(0), (Bucket{.count = 1, .smallest = kLdclrp}));
  const auto& family = explained.families[static_cast<std::size_t>(a64::Group::kLse128)];
  EXPECT_EQ(family.words, 1U);
  EXPECT_EQ(family.oracles[0].gap, 1U);
  EXPECT_EQ(family.oracles[0].confirmed, 0U);
  EXPECT_EQ(family.unjudged, 1U) << "what no oracle can judge is counted as such";

  KnownGap other = gap;
  other.last = {2, 0, ~0U};
  EXPECT_EQ(sweep_with(other).unexplained(), 1U) << "another release";
  other = gap;
  other.oracle = OracleKind::kCapstone;
  EXPECT_EQ(sweep_with(other).unexplained(), 1U) << "another oracle";
  other = gap;
  other.words.value = 0x19203000;
  EXPECT_EQ(sweep_with(other).unexplained(), 1U) << "other words";
  other = gap;
  other.kind = GapKind::kNamesOther;
  EXPECT_EQ(sweep_with(other).unexplained(), 1U) << "another kind";
  other = gap;
  other.condition = GapCondition::kConstrained;
  EXPECT_EQ(sweep_with(other).unexplained(), 1U) << "a condition that does not hold";
}

TEST(Sweep, AGapThatNoLongerOccursIsReported) {
  const ListedWords space(kFewWords);
  const FakeSource source(&right, {3, 0, 0});
  const std::vector<KnownGap> gaps{{OracleKind::kLlvm,
                                    {1, 0, 0},
                                    {9, 0, 0},
                                    {0xff20fc00, 0x19201000},
                                    GapKind::kDecodesNothing,
                                    "has been closed"},
                                   {OracleKind::kLlvm,
                                    {1, 0, 0},
                                    {2, 0, 0},
                                    {0xff20fc00, 0x19201000},
                                    GapKind::kDecodesNothing,
                                    "of another release"},
                                   {OracleKind::kCapstone,
                                    {1, 0, 0},
                                    {9, 0, 0},
                                    {0xff20fc00, 0x19201000},
                                    GapKind::kDecodesNothing,
                                    "of an oracle that was not asked"}};
  const SweepPlan plan = plan_of(space, source, gaps);
  const SweepResult result = sweep(plan);
  EXPECT_THAT(stale_gaps(plan, result), ElementsAre(0U));
  std::ostringstream text;
  print_sweep(text, plan, result, 1.0);
  EXPECT_THAT(text.str(), HasSubstr("stale gaps, which no longer occur"));
  EXPECT_THAT(text.str(), HasSubstr("has been closed"));
  const auto json = sweep_json(plan, result, 1.0);
  ASSERT_EQ(json["stale_gaps"].size(), 1U);
  EXPECT_EQ(json["stale_gaps"][0]["reason"], "has been closed");
}

TEST(Sweep, AnOracleThatBreaksDownIsAnError) {
  const ListedWords space(kFewWords);
  const FakeSource source(&right, {1, 0, 0}, "the disassembler broke down");
  SweepPlan plan = plan_of(space, source);
  plan.jobs = 3;
  const auto result = run_sweep(plan, {}, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error(), "the disassembler broke down");
}

// A space large enough to be stopped in, of which Capstone disagrees with the bare table.
std::vector<std::uint32_t> slice() {
  std::vector<std::uint32_t> words;
  for (std::uint32_t high = 0; high < 0x1000; high += 3) {
    for (const std::uint32_t low : {0x1043U, 0x7c02U, 0x003fU}) words.push_back(high << 20 | low);
  }
  return words;
}

TEST(Sweep, DoesNotDependOnTheNumberOfThreads) {
  const ListedWords space(slice());
  const auto capstone = capstone_source();
  SweepPlan plan = plan_of(space, *capstone);
  const SweepResult one = sweep(plan);
  EXPECT_GT(one.unexplained(), 0U);
  plan.jobs = 4;
  EXPECT_EQ(sweep(plan), one);
}

TEST(Sweep, ResumedEqualsUninterrupted) {
  const ListedWords space(slice());
  const auto capstone = capstone_source();
  SweepPlan plan = plan_of(space, *capstone);
  plan.rules = &kV5Rules;
  const SweepResult whole = sweep(plan);
  EXPECT_GT(whole.disagreements.size(), 0U);
  EXPECT_GT(whole.forced.size(), 0U);

  const std::string path = temporary("resumed_state");
  SweepResult part;
  std::size_t runs = 0;
  for (; !part.complete() || runs == 0; ++runs) {
    std::atomic<bool> stop{false};
    std::size_t chunks = 0;
    const SweepHooks hooks{.stop = &stop, .on_words = {}, .on_chunk = [&](const SweepResult&) {
                             if (++chunks == 300) stop = true;
                           }};
    plan.jobs = 1 + static_cast<unsigned>(runs % 3);
    part = sweep(plan, std::move(part), hooks);
    ASSERT_TRUE(save_state(path, plan, part));
    auto loaded = load_state(path, plan);
    ASSERT_TRUE(loaded) << loaded.error();
    EXPECT_EQ(*loaded, part);
    part = std::move(*loaded);
  }
  EXPECT_GT(runs, 2U);
  EXPECT_EQ(part, whole);
  std::filesystem::remove(path);
}

class State : public ::testing::Test {
 protected:
  State() : space_(kFewWords), source_(&right), plan_(plan_of(space_, source_)) {
    EXPECT_TRUE(save_state(path_, plan_, sweep(plan_)));
  }
  ~State() override { std::filesystem::remove(path_); }

  std::string error(const SweepPlan& plan) const {
    const auto loaded = load_state(path_, plan);
    return loaded ? "loaded" : loaded.error();
  }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(std::string_view text) const { std::ofstream(path_) << text; }

  std::string path_ = temporary("sweep_state");
  ListedWords space_;
  FakeSource source_;
  SweepPlan plan_;
};

TEST_F(State, OfAnotherSweepIsRefused) {
  EXPECT_EQ(error(plan_), "loaded");
  SweepPlan other = plan_;
  other.rules = &kV5Rules;
  EXPECT_THAT(error(other), HasSubstr("rules"));
  other = plan_;
  const SampleWords sample;
  other.space = &sample;
  EXPECT_THAT(error(other), HasSubstr("words"));
  other = plan_;
  const FakeSource newer(&right, {2, 0, 0});
  other.oracles = {&newer};
  EXPECT_THAT(error(other), HasSubstr("oracles"));
  other = plan_;
  other.gaps = known_gaps();
  EXPECT_THAT(error(other), HasSubstr("tables"));
}

TEST_F(State, ThatIsDamagedIsRefusedInOneLine) {
  const std::string whole = text();
  for (std::size_t size = 0; size + 2 < whole.size(); size += 7) {
    write(whole.substr(0, size));
    EXPECT_THAT(error(plan_), HasSubstr("is no sweep state")) << size;
    EXPECT_EQ(error(plan_).find('\n'), std::string::npos);
  }
  for (const auto& [from, to] :
       {std::pair{"\"done\":\"", "\"done\":\"x"}, std::pair{"\"words\":5", "\"words\":6"},
        std::pair{"\"families\":[", "\"families\":[[],"}, std::pair{"\"gaps\"", "\"gasp\""},
        std::pair{"touchstone.opcheck", "other"}}) {
    std::string changed = whole;
    const std::size_t at = changed.rfind(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, std::string_view(from).size(), to);
    write(changed);
    EXPECT_THAT(error(plan_), HasSubstr("is no s")) << from;
  }
}

TEST_F(State, ThatCannotBeReadOrWrittenIsSaid) {
  std::filesystem::remove(path_);
  EXPECT_THAT(error(plan_), HasSubstr("No such file"));
  const auto saved = save_state("/nonexistent/state", plan_, {});
  ASSERT_FALSE(saved);
  EXPECT_THAT(saved.error(), HasSubstr("/nonexistent/state"));
}

TEST(WordSpace, AllHasEveryWordOnce) {
  const AllWords all;
  EXPECT_EQ(all.size(), std::uint64_t{1} << 32);
  std::vector<std::uint32_t> words;
  all.fill(1, words);
  EXPECT_EQ(words.size(), all.chunk_size(1));
  EXPECT_EQ(words.front(), all.chunk_size(0));
  EXPECT_TRUE(std::ranges::is_sorted(words));
  all.fill(all.chunk_count() - 1, words);
  EXPECT_EQ(words.back(), 0xffffffffU);
}

TEST(WordSpace, TheSampleHasEveryRowOfTheTableAndNoWordTwice) {
  const SampleWords sample;
  std::vector<std::uint32_t> words;
  std::set<const a64::Encoding*> rows;
  for (std::size_t chunk = 0; chunk < sample.chunk_count(); ++chunk) {
    sample.fill(chunk, words);
    ASSERT_EQ(words.size(), sample.chunk_size(chunk));
    for (const std::uint32_t word : words) {
      ASSERT_EQ(word >> 24, chunk);
      rows.insert(a64::classify(word).encoding);
    }
    std::ranges::sort(words);
    ASSERT_EQ(std::ranges::adjacent_find(words), words.end());
  }
  rows.erase(nullptr);
  EXPECT_EQ(rows.size(), a64::kEncodings.size());
}

TEST(KnownGaps, EachSaysWhyAndMatchesSomething) {
  for (const KnownGap& gap : known_gaps()) {
    EXPECT_FALSE(gap.reason.empty());
    EXPECT_LE(gap.first, gap.last);
    EXPECT_EQ(gap.words.value & ~gap.words.mask, 0U) << gap.reason;
  }
}

}  // namespace
}  // namespace touchstone::arch::opcheck
