// SPDX-License-Identifier: MIT
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <touchstone/arch/a64/classify.h>

#include "a64_golden_words.h"

namespace touchstone::arch::a64 {
namespace {

// The words that the documentation of touchstone-opcheck shows.
static_assert(format_mnemonic(0xb8210002).view() == "ldadd");
static_assert(classify(0xb8210002).first_fault == FirstFault::kForcedWrite);
static_assert(is_forced_write(0xb8210002) && v5::is_forced_write(0xb8210002));
static_assert(format_mnemonic(0x19221043).view() == "ldclrp");
static_assert(is_forced_write(0x19221043) && !v5::is_forced_write(0x19221043));
static_assert(format_mnemonic(0xf83f9042).view() == "st64b");
static_assert(classify(0xf83f9042).first_fault == FirstFault::kWrite);
static_assert(!is_forced_write(0xf83f9042));
static_assert(format_mnemonic(0xc85ffc02).view() == "ldaxr");
static_assert(classify(0xc85ffc02).first_fault == FirstFault::kReadThenStxr);
static_assert(is_load_exclusive(0xc85ffc02) && !is_forced_write(0xc85ffc02));

/// Calls visit(word) for every word of a cube with Rn at 1: no encoding's meaning depends on Rn but
/// through the conditions that the tests of those set themselves.
template <typename Visit>
void for_each_word(Cube cube, Visit visit) {
  const std::uint32_t free = ~cube.mask & ~0x3e0U;
  std::uint32_t part = 0;
  do {
    visit(cube.value | part | (0x20U & ~cube.mask));
    part = (part - free) & free;
  } while (part != 0);
}

std::string_view mnemonic_of(std::string_view text) {
  const std::size_t first = text.find(' ');
  if (!text.starts_with("dc ")) return text.substr(0, first);
  return text.substr(0, text.find(','));
}

TEST(Mnemonic, IsWhatAssemblersTookForEveryGoldenWord) {
  for (const GoldenWord& golden : kGoldenWords) {
    EXPECT_EQ(format_mnemonic(golden.word).view(), mnemonic_of(golden.text)) << golden.text;
  }
}

TEST(Mnemonic, GoldenWordsNameEveryRowAndEveryMnemonic) {
  std::set<std::string> golden;
  std::set<const Encoding*> rows;
  for (const GoldenWord& word : kGoldenWords) {
    golden.emplace(mnemonic_of(word.text));
    rows.insert(classify(word.word).encoding);
  }
  EXPECT_EQ(rows.size(), kEncodings.size());
  for (const Encoding& row : kEncodings) {
    EXPECT_TRUE(rows.contains(&row)) << row.pattern;
    // All fields that a mnemonic is made of, with Rt at 31 and elsewhere.
    const std::uint32_t free = ~row.cube.mask & 0xc0c0f000U;
    std::uint32_t part = 0;
    do {
      for (const std::uint32_t registers : {0x0004003fU, 0x00040022U}) {
        const std::uint32_t word = row.cube.value | part | (registers & ~row.cube.mask);
        const Mnemonic mnemonic = format_mnemonic(word);
        if (mnemonic.size == 0) continue;
        EXPECT_TRUE(golden.contains(std::string(mnemonic.view())))
            << mnemonic.view() << " " << std::hex << word;
      }
      part = (part - free) & free;
    } while (part != 0);
  }
}

TEST(Mnemonic, OfAWordOutsideTheTableIsEmpty) {
  for (const std::uint32_t word : {0x00000000U, 0xd503201fU, 0xf9400000U, 0xffffffffU}) {
    EXPECT_EQ(format_mnemonic(word).view(), "");
    EXPECT_FALSE(classify(word));
    EXPECT_EQ(classify(word).first_fault, FirstFault::kNotListed);
  }
}

struct Expected {
  std::uint32_t word;
  unsigned width;
  Order order;
  FirstFault first_fault;
  bool discards;
};

TEST(Classify, WidthOrderFaultAndDiscard) {
  constexpr auto kExpected = std::to_array<Expected>({
      {0x38e10002, 1, Order::kAcquireRelease, FirstFault::kForcedWrite, false},  // ldaddalb
      {0x78a10002, 2, Order::kAcquire, FirstFault::kForcedWrite, false},         // ldaddah
      {0xf861001f, 8, Order::kRelease, FirstFault::kForcedWrite, true},          // staddl
      {0xb8a1001f, 4, Order::kAcquire, FirstFault::kForcedWrite, false},         // ldadda wzr
      {0xb8218002, 4, Order::kRelaxed, FirstFault::kForcedWrite, false},         // swp
      {0x48e2fc83, 2, Order::kAcquireRelease, FirstFault::kForcedWrite, false},  // casalh
      {0x0862fc84, 8, Order::kAcquireRelease, FirstFault::kForcedWrite, false},  // caspal w
      {0x4822fc84, 16, Order::kRelease, FirstFault::kForcedWrite, false},        // caspl x
      {0x19a28083, 16, Order::kAcquire, FirstFault::kForcedWrite, false},        // swppa
      {0x38629083, 8, Order::kRelease, FirstFault::kForcedWrite, false},         // rcwclrl
      {0x59220483, 8, Order::kRelaxed, FirstFault::kForcedWrite, false},         // ldtadd x
      {0x1922049f, 4, Order::kRelaxed, FirstFault::kForcedWrite, true},          // sttadd w
      {0x3c220083, 2, Order::kRelaxed, FirstFault::kForcedWrite, false},         // ldbfadd
      {0x7c620083, 2, Order::kRelease, FirstFault::kForcedWrite, false},         // ldfaddl h
      {0xfc22809f, 8, Order::kRelaxed, FirstFault::kForcedWrite, true},          // stfadd d
      {0xc85f7c83, 8, Order::kRelaxed, FirstFault::kReadThenStxr, false},        // ldxr
      {0x887f9883, 8, Order::kAcquire, FirstFault::kReadThenStxr, false},        // ldaxp w
      {0xc82a9883, 16, Order::kRelease, FirstFault::kWrite, false},              // stlxp x
      {0x08dffc83, 1, Order::kAcquire, FirstFault::kRead, false},                // ldarb
      {0x889f7c83, 4, Order::kReleaseLo, FirstFault::kWrite, false},             // stllr
      {0x38bfc083, 1, Order::kAcquirePc, FirstFault::kRead, false},              // ldaprb
      {0x1dc00883, 16, Order::kAcquirePc, FirstFault::kRead, false},             // ldapur q
      {0xf83fd082, 64, Order::kRelaxed, FirstFault::kRead, false},               // ld64b
      {0x190204a3, 0, Order::kRelaxed, FirstFault::kPerAccess, false},           // cpyfp
      {0x19c204a3, 0, Order::kRelaxed, FirstFault::kWrite, false},               // setp
      {0xd9a00883, 32, Order::kRelaxed, FirstFault::kWrite, false},              // st2g
      {0xd9600083, 16, Order::kRelaxed, FirstFault::kRead, false},               // ldg
      {0xd50b7423, 0, Order::kRelaxed, FirstFault::kWrite, false},               // dc zva
      {0xd50b7743, 8, Order::kRelaxed, FirstFault::kGcs, false},                 // gcsss1
  });
  for (const Expected& want : kExpected) {
    const MemoryAccess access = classify(want.word);
    const std::string where(format_mnemonic(want.word).view());
    ASSERT_TRUE(access) << std::hex << want.word;
    EXPECT_EQ(access.width, want.width) << where;
    EXPECT_EQ(access.order, want.order) << where;
    EXPECT_EQ(access.first_fault, want.first_fault) << where;
    EXPECT_EQ(access.discards, want.discards) << where;
    EXPECT_FALSE(access.constrained) << where;
  }
}

TEST(Classify, UnallocatedOperandsAreNotTheInstruction) {
  constexpr auto kWords = std::to_array<std::uint32_t>({
      0x08237c82,  // casp, Rs odd
      0x08227c83,  // casp, Rt odd
      0x88a20482,  // cas, Rt2 not ones
      0x1922109f,  // ldclrp, Rt 31
      0x193f1083,  // ldclrp, Rs 31
      0x5922909f,  // rcwsclrp, Rt 31
      0x19230c82,  // rcwcasp, Rs odd
      0xc9807882,  // cast, Rt2 not ones
      0x49837c82,  // caspt, Rs odd
      0xf83fd083,  // ld64b, Rt odd
      0xf83fd098,  // ld64b, Rt 24
      0xf822b083,  // st64bv, Rt odd
      0x3ca2809f,  // stbfadd with A
      0x3c228083,  // stbfadd, Rt not 31
      0x38a09400,  // rcwclr with bits 11:10 set
      0xb8209083,  // rcwclr with bit 31
      0x190207e3,  // cpyfp, Rn 31
      0x190404a4,  // cpyfp, Rs is Rd
      0x19c204a2,  // setp, Rs is Rd
      0x99220483,  // ldtadd with bit 31
  });
  for (const std::uint32_t word : kWords) {
    EXPECT_FALSE(classify(word)) << std::hex << word << " " << format_mnemonic(word).view();
    EXPECT_FALSE(is_forced_write(word)) << std::hex << word;
  }
  // SETP stores XZR; CPYP cannot.
  EXPECT_TRUE(classify(0x19df04a3));
  EXPECT_FALSE(classify(0x191f04a3));
}

TEST(Classify, ConstrainedUnpredictableWordsStayAndAreMarked) {
  constexpr auto kWords = std::to_array<std::uint32_t>({
      0x19221082,  // ldclrp, Rt is Rt2
      0xc84f7c83,  // ldxr, bits 20:16 not ones
      0xc85f7883,  // ldxr, bits 14:10 not ones
      0xc8037c83,  // stxr, Rs is Rt
      0xc8047c83,  // stxr, Rs is Rn
      0xc87f0c83,  // ldxp, Rt is Rt2
      0x99400883,  // ldiapp, Rs 0: valid, see below
  });
  for (const std::uint32_t word : kWords) {
    const MemoryAccess access = classify(word);
    EXPECT_TRUE(access) << std::hex << word;
    EXPECT_EQ(access.constrained, word != 0x99400883U) << std::hex << word;
  }
  EXPECT_FALSE(classify(0xc81f7fe3).constrained);  // stxr wzr, x3, [sp]
}

TEST(Classify, SaysWhatIsReadAndWritten) {
  EXPECT_TRUE(classify(0xb8210002).reads() && classify(0xb8210002).writes());
  EXPECT_TRUE(classify(0xc85ffc02).reads() && !classify(0xc85ffc02).writes());
  EXPECT_TRUE(!classify(0xd50b7423).reads() && classify(0xd50b7423).writes());
  EXPECT_TRUE(!classify(0xf9400000).reads() && !classify(0xf9400000).writes());
  EXPECT_EQ(wnr_unmapped(Kind::kReadModifyWrite), Wnr::kRead);
  EXPECT_EQ(wnr_read_only(Kind::kReadModifyWrite), Wnr::kWrite);
  EXPECT_EQ(wnr_unmapped(Kind::kCopy), Wnr::kPerAccess);
  EXPECT_EQ(wnr_read_only(Kind::kLoadExclusive), Wnr::kNoFault);
}

TEST(Classify, ThePredicatesAgreeWithTheClassification) {
  for (const Encoding& row : kEncodings) {
    for_each_word(row.cube, [&](std::uint32_t word) {
      const MemoryAccess access = classify(word);
      const bool forced = access.first_fault == FirstFault::kForcedWrite;
      const bool exclusive = access.first_fault == FirstFault::kReadThenStxr;
      if (is_forced_write(word) != forced || is_load_exclusive(word) != exclusive ||
          (access && access.encoding != &row)) {
        ADD_FAILURE() << row.pattern << std::hex << " " << word;
      }
    });
  }
}

TEST(V5, MissesExactlyTheFamiliesThatCameLater) {
  const std::set<Group> missed{Group::kLse128, Group::kRcwCas,  Group::kRcwPair,
                               Group::kLsui,   Group::kLsuiCas, Group::kLsfe};
  for (const Encoding& row : kEncodings) {
    if (row.kind != Kind::kReadModifyWrite) continue;
    std::uint64_t words = 0;
    std::uint64_t hit = 0;
    for_each_word(row.cube, [&](std::uint32_t word) {
      if (!is_forced_write(word)) return;
      ++words;
      hit += v5::is_forced_write(word) ? 1U : 0U;
    });
    EXPECT_GT(words, 0U) << row.pattern;
    EXPECT_EQ(hit, missed.contains(row.group) ? 0U : words) << row.pattern;
  }
}

TEST(V5, AlsoTakesStoresOf64BytesAndUnallocatedWords) {
  std::set<std::string> taken;
  std::uint64_t unallocated = 0;
  const auto visit = [&](std::uint32_t word) {
    if (!v5::is_forced_write(word) || is_forced_write(word)) return;
    const Mnemonic mnemonic = format_mnemonic(word);
    if (mnemonic.size == 0) {
      ++unallocated;
    } else {
      taken.emplace(mnemonic.view());
    }
  };
  for (const Cube& cube : {v5::kClassAtomic, v5::kClassCas, v5::kClassCasp}) {
    for_each_word(cube, visit);
  }
  EXPECT_EQ(taken, (std::set<std::string>{"st64bv", "st64bv0"}));
  // CASP with an odd register; ST64BV and ST64BV0 with an odd Rt or one above 23.
  EXPECT_EQ(unallocated, 4U * 2 * 1024 * 3 / 4 + 2U * 32 * 20);
}

}  // namespace
}  // namespace touchstone::arch::a64
