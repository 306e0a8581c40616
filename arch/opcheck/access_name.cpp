// SPDX-License-Identifier: MIT
#include "access_name.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <touchstone/arch/a64/encodings.h>

namespace touchstone::arch::opcheck {
namespace {

using a64::Group;
using a64::Kind;
using a64::Order;

// What may follow a stem.
enum class Suffix : std::uint8_t {
  kNone,
  kSize,         // b, h or nothing
  kOrder,        // a, l, al or nothing
  kOrderSize,    // both
  kOrderT,       // an order, then t
  kRelease,      // l or nothing
  kReleaseSize,  // l or nothing, then b, h or nothing
  kSigned,       // sb, sh, sw
  kCopyOptions,  // the sixteen of CPY*
  kSetOptions,   // "", t, n, tn
};

// Which operand tells the width.
enum class Width : std::uint8_t {
  kUntold,
  k2,
  k8,
  k16,
  k64,
  kFirst,       // the first operand
  kFirstPair,   // twice the first operand
  kSecond,      // the second, the first being a status
  kSecondPair,  // twice that
};

struct Stem {
  std::string text;
  Suffix suffix = Suffix::kNone;
  Group group = Group::kLse;
  Kind kind = Kind::kLoad;
  Width width = Width::kUntold;
  // The order that the stem itself stands for.
  Order order = Order::kRelaxed;
};

std::vector<Stem> make_stems() {
  std::vector<Stem> stems;
  const auto add = [&](std::string text, Suffix suffix, Group group, Kind kind, Width width,
                       Order order = Order::kRelaxed) {
    stems.push_back({std::move(text), suffix, group, kind, width, order});
  };
  constexpr Kind kRmw = Kind::kReadModifyWrite;
  for (const char* const op : {"add", "clr", "eor", "set", "smax", "smin", "umax", "umin"}) {
    add(std::string("ld") + op, Suffix::kOrderSize, Group::kLse, kRmw, Width::kFirst);
    add(std::string("st") + op, Suffix::kReleaseSize, Group::kLse, kRmw, Width::kFirst);
  }
  add("swp", Suffix::kOrderSize, Group::kSwp, kRmw, Width::kFirst);
  add("cas", Suffix::kOrderSize, Group::kCas, kRmw, Width::kFirst);
  add("casp", Suffix::kOrder, Group::kCasp, kRmw, Width::kFirstPair);
  for (const char* const name : {"ldclrp", "ldsetp", "swpp"}) {
    add(name, Suffix::kOrder, Group::kLse128, kRmw, Width::k16);
  }
  for (const char* const start : {"rcw", "rcws"}) {
    for (const char* const op : {"clr", "swp", "set"}) {
      add(std::string(start) + op, Suffix::kOrder, Group::kRcw, kRmw, Width::k8);
      add(std::string(start) + op + "p", Suffix::kOrder, Group::kRcwPair, kRmw, Width::k16);
    }
    add(std::string(start) + "cas", Suffix::kOrder, Group::kRcwCas, kRmw, Width::k8);
    add(std::string(start) + "casp", Suffix::kOrder, Group::kRcwCas, kRmw, Width::k16);
  }
  for (const char* const op : {"add", "clr", "set"}) {
    add(std::string("ldt") + op, Suffix::kOrder, Group::kLsui, kRmw, Width::kFirst);
    add(std::string("stt") + op, Suffix::kRelease, Group::kLsui, kRmw, Width::kFirst);
  }
  add("swpt", Suffix::kOrder, Group::kLsui, kRmw, Width::kFirst);
  add("cas", Suffix::kOrderT, Group::kLsuiCas, kRmw, Width::k8);
  add("casp", Suffix::kOrderT, Group::kLsuiCas, kRmw, Width::k16);
  for (const char* const op : {"add", "max", "min", "maxnm", "minnm"}) {
    add(std::string("ldf") + op, Suffix::kOrder, Group::kLsfe, kRmw, Width::kFirst);
    add(std::string("stf") + op, Suffix::kRelease, Group::kLsfe, kRmw, Width::kFirst);
    add(std::string("ldbf") + op, Suffix::kOrder, Group::kLsfe, kRmw, Width::k2);
    add(std::string("stbf") + op, Suffix::kRelease, Group::kLsfe, kRmw, Width::k2);
  }

  const auto exclusive = [&](const char* load, const char* store, Suffix suffix, Group group,
                             Width load_width, Width store_width, Order load_order,
                             Order store_order) {
    add(load, suffix, group, Kind::kLoadExclusive, load_width, load_order);
    add(store, suffix, group, Kind::kStoreExclusive, store_width, store_order);
  };
  exclusive("ldxr", "stxr", Suffix::kSize, Group::kExclusive, Width::kFirst, Width::kSecond,
            Order::kRelaxed, Order::kRelaxed);
  exclusive("ldaxr", "stlxr", Suffix::kSize, Group::kExclusive, Width::kFirst, Width::kSecond,
            Order::kAcquire, Order::kRelease);
  exclusive("ldxp", "stxp", Suffix::kNone, Group::kExclusivePair, Width::kFirstPair,
            Width::kSecondPair, Order::kRelaxed, Order::kRelaxed);
  exclusive("ldaxp", "stlxp", Suffix::kNone, Group::kExclusivePair, Width::kFirstPair,
            Width::kSecondPair, Order::kAcquire, Order::kRelease);
  exclusive("ldtxr", "sttxr", Suffix::kNone, Group::kLsuiExclusive, Width::kFirst, Width::kSecond,
            Order::kRelaxed, Order::kRelaxed);
  exclusive("ldatxr", "stltxr", Suffix::kNone, Group::kLsuiExclusive, Width::kFirst, Width::kSecond,
            Order::kAcquire, Order::kRelease);

  add("ldar", Suffix::kSize, Group::kOrdered, Kind::kLoad, Width::kFirst, Order::kAcquire);
  add("stlr", Suffix::kSize, Group::kOrdered, Kind::kStore, Width::kFirst, Order::kRelease);
  add("ldlar", Suffix::kSize, Group::kLimitedOrdered, Kind::kLoad, Width::kFirst,
      Order::kAcquireLo);
  add("stllr", Suffix::kSize, Group::kLimitedOrdered, Kind::kStore, Width::kFirst,
      Order::kReleaseLo);
  add("ldapr", Suffix::kSize, Group::kRcpc, Kind::kLoad, Width::kFirst, Order::kAcquirePc);
  add("ldapur", Suffix::kSize, Group::kRcpcUnscaled, Kind::kLoad, Width::kFirst, Order::kAcquirePc);
  add("ldapur", Suffix::kSigned, Group::kRcpcUnscaled, Kind::kLoad, Width::kUntold,
      Order::kAcquirePc);
  add("stlur", Suffix::kSize, Group::kRcpcUnscaled, Kind::kStore, Width::kFirst, Order::kRelease);
  add("ldiapp", Suffix::kNone, Group::kRcpcWriteback, Kind::kLoad, Width::kFirstPair,
      Order::kAcquirePc);
  add("stilp", Suffix::kNone, Group::kRcpcWriteback, Kind::kStore, Width::kFirstPair,
      Order::kRelease);
  add("ldap1", Suffix::kNone, Group::kRcpcSimd, Kind::kLoad, Width::k8, Order::kAcquirePc);
  add("stl1", Suffix::kNone, Group::kRcpcSimd, Kind::kStore, Width::k8, Order::kRelease);
  add("ldap", Suffix::kNone, Group::kOrderedPair, Kind::kLoad, Width::k16, Order::kAcquire);
  add("ldapp", Suffix::kNone, Group::kOrderedPair, Kind::kLoad, Width::k16, Order::kAcquirePc);
  add("stlp", Suffix::kNone, Group::kOrderedPair, Kind::kStore, Width::k16, Order::kRelease);

  add("ld64b", Suffix::kNone, Group::kLs64, Kind::kLoad, Width::k64);
  for (const char* const name : {"st64b", "st64bv", "st64bv0"}) {
    add(name, Suffix::kNone, Group::kLs64, Kind::kStore, Width::k64);
  }
  for (const char* const stage : {"p", "m", "e"}) {
    for (const char* const start : {"cpy", "cpyf"}) {
      add(std::string(start) + stage, Suffix::kCopyOptions, Group::kCopy, Kind::kCopy,
          Width::kUntold);
    }
    for (const char* const start : {"set", "setg", "setgo"}) {
      add(std::string(start) + stage, Suffix::kSetOptions, Group::kSet, Kind::kSet, Width::kUntold);
    }
  }
  for (const char* const name : {"stg", "stzg", "st2g", "stz2g", "stgp", "stgm", "stzgm"}) {
    add(name, Suffix::kNone, Group::kTag, Kind::kTagStore, Width::kUntold);
  }
  for (const char* const name : {"ldg", "ldgm"}) {
    add(name, Suffix::kNone, Group::kTag, Kind::kTagLoad, Width::kUntold);
  }
  for (const char* const name : {"dc zva", "dc gva", "dc gzva", "dc gbva", "dc zgbva"}) {
    add(name, Suffix::kNone, Group::kZero, Kind::kZero, Width::kUntold);
  }
  for (const char* const name : {"gcsstr", "gcssttr", "gcspushm"}) {
    add(name, Suffix::kNone, Group::kGcs, Kind::kStore, Width::k8);
  }
  for (const char* const name : {"gcsss1", "gcsss2"}) {
    add(name, Suffix::kNone, Group::kGcs, Kind::kGcsSwitch, Width::k8);
  }
  add("gcspopm", Suffix::kNone, Group::kGcs, Kind::kLoad, Width::k8);
  return stems;
}

std::uint8_t register_width(char kind) {
  switch (kind) {
    case 'b':
      return 1;
    case 'h':
      return 2;
    case 'w':
    case 's':
      return 4;
    case 'x':
    case 'd':
      return 8;
    case 'q':
      return 16;
    default:
      return 0;
  }
}

// Takes `part` off the front of `rest`.
bool take(std::string_view& rest, std::string_view part) {
  if (!rest.starts_with(part)) return false;
  rest.remove_prefix(part.size());
  return true;
}

Order take_order(std::string_view& rest) {
  if (take(rest, "al")) return Order::kAcquireRelease;
  if (take(rest, "a")) return Order::kAcquire;
  return take(rest, "l") ? Order::kRelease : Order::kRelaxed;
}

// 1, 2, or 0 where there is no size letter.
std::uint8_t take_size(std::string_view& rest) {
  if (take(rest, "b")) return 1;
  return take(rest, "h") ? 2 : 0;
}

template <std::size_t N>
bool take_one_of(std::string_view& rest, const std::array<std::string_view, N>& options) {
  if (std::ranges::find(options, rest) == options.end()) return false;
  rest = {};
  return true;
}

constexpr std::array<std::string_view, 16> kCopyOptions{
    "",   "wn",   "rn",   "n",   "wt", "wtwn", "wtrn", "wtn",
    "rt", "rtwn", "rtrn", "rtn", "t",  "twn",  "trn",  "tn"};
constexpr std::array<std::string_view, 4> kSetOptions{"", "t", "n", "tn"};

std::uint8_t told_width(Width rule, std::string_view operands) {
  const auto width_of = [&](std::size_t operand) -> std::uint8_t {
    return operand < operands.size() ? register_width(operands[operand]) : std::uint8_t{0};
  };
  switch (rule) {
    case Width::kUntold:
      return 0;
    case Width::k2:
      return 2;
    case Width::k8:
      return 8;
    case Width::k16:
      return 16;
    case Width::k64:
      return 64;
    case Width::kFirst:
      return width_of(0);
    case Width::kFirstPair:
      return static_cast<std::uint8_t>(2 * width_of(0));
    case Width::kSecond:
      return width_of(1);
    case Width::kSecondPair:
      return static_cast<std::uint8_t>(2 * width_of(1));
  }
  return 0;
}

std::optional<AccessName> match(const Stem& stem, std::string_view mnemonic,
                                std::string_view operands) {
  std::string_view rest = mnemonic;
  if (!take(rest, stem.text)) return std::nullopt;
  AccessName name{.group = stem.group, .kind = stem.kind, .order = stem.order};
  switch (stem.suffix) {
    case Suffix::kNone:
      break;
    case Suffix::kOrder:
      name.order = take_order(rest);
      break;
    case Suffix::kOrderT:
      name.order = take_order(rest);
      if (!take(rest, "t")) return std::nullopt;
      break;
    case Suffix::kRelease:
      if (take(rest, "l")) name.order = Order::kRelease;
      break;
    case Suffix::kSize:
      name.width = take_size(rest);
      break;
    case Suffix::kOrderSize:
      name.order = take_order(rest);
      name.width = take_size(rest);
      break;
    case Suffix::kReleaseSize:
      if (take(rest, "l")) name.order = Order::kRelease;
      name.width = take_size(rest);
      break;
    case Suffix::kSigned:
      if (!take(rest, "s")) return std::nullopt;
      name.width = take(rest, "w") ? std::uint8_t{4} : take_size(rest);
      if (name.width == 0) return std::nullopt;
      break;
    case Suffix::kCopyOptions:
      if (!take_one_of(rest, kCopyOptions)) return std::nullopt;
      break;
    case Suffix::kSetOptions:
      if (!take_one_of(rest, kSetOptions)) return std::nullopt;
      break;
  }
  if (!rest.empty()) return std::nullopt;
  if (name.width == 0) name.width = told_width(stem.width, operands);
  return name;
}

}  // namespace

std::optional<AccessName> parse_access_name(std::string_view mnemonic, std::string_view operands) {
  static const std::vector<Stem> stems = make_stems();
  for (const Stem& stem : stems) {
    std::optional<AccessName> name = match(stem, mnemonic, operands);
    if (!name) continue;
    // The same names stand for forms that later features added; the operands tell them apart.
    const bool writeback = operands.ends_with('!');
    if (writeback && (mnemonic == "ldapr" || mnemonic == "stlr")) {
      name->group = Group::kRcpcWriteback;
    }
    const bool simd = !operands.empty() && operands[0] != 'w' && operands[0] != 'x';
    if (simd && (mnemonic == "ldapur" || mnemonic == "stlur")) name->group = Group::kRcpcSimd;
    return name;
  }
  return std::nullopt;
}

bool is_plain_access(std::string_view mnemonic) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"ld1",   "ld1r",  "ld2",   "ld2r",   "ld3",    "ld3r",   "ld4",    "ld4r",   "ldnp",
       "ldp",   "ldpsw", "ldr",   "ldraa",  "ldrab",  "ldrb",   "ldrh",   "ldrsb",  "ldrsh",
       "ldrsw", "ldtnp", "ldtp",  "ldtr",   "ldtrb",  "ldtrh",  "ldtrsb", "ldtrsh", "ldtrsw",
       "ldur",  "ldurb", "ldurh", "ldursb", "ldursh", "ldursw", "prfm",   "prfum",  "rprfm",
       "st1",   "st2",   "st3",   "st4",    "stnp",   "stp",    "str",    "strb",   "strh",
       "sttnp", "sttp",  "sttr",  "sttrb",  "sttrh",  "stur",   "sturb",  "sturh"});
  return std::ranges::find(kNames, mnemonic) != kNames.end();
}

}  // namespace touchstone::arch::opcheck
