// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/arch/a64/encodings.h>
#include <touchstone/arch/a64/table.h>

namespace touchstone::arch::a64 {
namespace {

using ::testing::HasSubstr;

bool disjoint(Cube a, Cube b) {
  return ((a.value ^ b.value) & a.mask & b.mask) != 0;
}

bool within(Cube inner, Cube outer) {
  return (inner.mask & outer.mask) == outer.mask && (inner.value & outer.mask) == outer.value;
}

TEST(Encodings, ValuesLieWithinTheirMasksAndRnIsFree) {
  for (const Encoding& row : kEncodings) {
    EXPECT_EQ(row.cube.value & ~row.cube.mask, 0U) << row.pattern;
    if (row.section != "System instructions") {
      EXPECT_EQ(row.cube.mask & 0x3e0U, 0U) << row.pattern;
    }
    EXPECT_FALSE(row.pattern.empty());
    EXPECT_FALSE(row.section.empty()) << row.pattern;
  }
}

TEST(Encodings, NoTwoRowsShareAWord) {
  for (std::size_t a = 0; a < kEncodings.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_TRUE(disjoint(kEncodings[a].cube, kEncodings[b].cube))
          << kEncodings[a].pattern << " " << kEncodings[b].pattern;
    }
  }
}

TEST(Encodings, EveryReadModifyWriteLiesInOneDecodeClassOfItsName) {
  for (const Encoding& row : kEncodings) {
    const auto holding =
        std::ranges::count_if(kReadModifyWriteClasses, [&](const DecodeClass& decode_class) {
          return within(row.cube, decode_class.cube) && decode_class.name == row.section;
        });
    if (row.kind == Kind::kReadModifyWrite) {
      EXPECT_EQ(holding, 1) << row.pattern;
    }
    const auto touching = std::ranges::count_if(
        kReadModifyWriteClasses,
        [&](const DecodeClass& decode_class) { return !disjoint(row.cube, decode_class.cube); });
    EXPECT_EQ(touching, holding) << row.pattern;
  }
}

TEST(Encodings, WordsThatNeverAbortAreNoForcedWrites) {
  for (const NeverAborts& words : kNeverAborts) {
    EXPECT_EQ(words.cube.value & ~words.cube.mask, 0U) << words.reason;
    for (const Encoding& row : kEncodings) {
      if (disjoint(row.cube, words.cube)) continue;
      EXPECT_FALSE(row.el0) << row.pattern << ": " << words.reason;
      EXPECT_NE(row.kind, Kind::kReadModifyWrite) << row.pattern;
    }
  }
}

TEST(Encodings, EveryFamilyFeatureKindAndOrderHasItsOwnName) {
  std::set<std::string_view> names;
  std::set<std::string_view> titles;
  for (std::size_t i = 0; i < kGroupCount; ++i) {
    names.insert(to_string(static_cast<Group>(i)));
    titles.insert(title(static_cast<Group>(i)));
  }
  EXPECT_EQ(names.size(), kGroupCount);
  EXPECT_EQ(titles.size(), kGroupCount);
  EXPECT_FALSE(names.contains("unknown"));
  std::set<Group> used;
  for (const Encoding& row : kEncodings) {
    used.insert(row.group);
    EXPECT_NE(to_string(row.feature), "unknown");
    EXPECT_NE(to_string(row.kind), "unknown");
  }
  EXPECT_EQ(used.size(), kGroupCount);
}

TEST(Table, SpellsMnemonicsWidthsOrdersAndRestrictions) {
  const std::vector<TableRow> rows = table_rows();
  ASSERT_EQ(rows.size(), kEncodings.size());
  const auto find = [&](std::string_view mnemonic) {
    const auto at = std::ranges::find(rows, mnemonic, &TableRow::mnemonic);
    EXPECT_NE(at, rows.end()) << mnemonic;
    return at == rows.end() ? TableRow{} : *at;
  };
  const TableRow ldadd = find("LDADD{A}{L}{B|H}");
  EXPECT_EQ(ldadd.store_mnemonic, "STADD{L}{B|H}");
  EXPECT_EQ(ldadd.width, "1, 2, 4, 8");
  EXPECT_EQ(ldadd.order, "by A (bit 23), R (bit 22)");
  EXPECT_TRUE(ldadd.forced_write && ldadd.reads && ldadd.writes && ldadd.el0);
  EXPECT_EQ(ldadd.wnr_unmapped, "R");
  EXPECT_EQ(ldadd.wnr_read_only, "W");
  EXPECT_EQ(find("CASP{A}{L}T").unallocated, "Rs odd; Rt odd");
  EXPECT_EQ(find("LDCLRP{A}{L}").unallocated, "Rt = 31; Rs = 31");
  EXPECT_EQ(find("LDCLRP{A}{L}").constrained, "Rt = Rs");
  EXPECT_EQ(find("LDBFADD{A}{L}").width, "2");
  EXPECT_EQ(find("STBFADD{L}").store_mnemonic, "");
  EXPECT_EQ(find("CPYFP{opt}").width, "variable");
  EXPECT_EQ(find("LDXP").width, "8, 16");
  EXPECT_FALSE(find("LDGM").el0);
  EXPECT_FALSE(find("GCSSS1").forced_write);
}

TEST(Table, MarkdownHasARowAnEncodingAndEvenColumns) {
  std::istringstream lines(markdown_table());
  std::string line;
  std::size_t count = 0;
  std::size_t bars = 0;
  while (std::getline(lines, line)) {
    std::size_t here = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '|' && (i == 0 || line[i - 1] != '\\')) ++here;
    }
    if (count == 0) bars = here;
    EXPECT_EQ(here, bars) << line;
    ++count;
  }
  EXPECT_EQ(count, kEncodings.size() + 2);
  EXPECT_THAT(markdown_table(),
              HasSubstr("| LDADD{A}{L}{B\\|H}, STADD{L}{B\\|H} | lse | FEAT_LSE | "
                        "`3f20fc00/38200000` |"));
}

TEST(Table, TheReadmeHoldsIt) {
  std::ifstream file(TOUCHSTONE_ARCH_README);
  ASSERT_TRUE(file) << TOUCHSTONE_ARCH_README;
  const std::string readme{std::istreambuf_iterator<char>(file), {}};
  constexpr std::string_view kBegin = "<!-- table: begin -->\n";
  constexpr std::string_view kEnd = "<!-- table: end -->";
  const std::size_t from = readme.find(kBegin);
  const std::size_t to = readme.find(kEnd);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(readme.substr(from + kBegin.size(), to - from - kBegin.size()), markdown_table())
      << "put the output of `touchstone-opcheck table` between the markers";
}

}  // namespace
}  // namespace touchstone::arch::a64
