// SPDX-License-Identifier: MIT
#include "targets.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <touchstone/arch/machine.h>
#include <touchstone/heap/heap_listener.h>
#include <touchstone/heap/residency.h>

#include "../spread.h"
#include "peers.h"
#include "workload.h"

namespace touchstone::gc {
namespace {

using Tell = std::function<void(const Target&)>;
using heap::CollectionKind;
using heap::CollectionReport;
using heap::Local;
using heap::ObjectHeader;

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr std::size_t kGiB = std::size_t{1} << 30U;

/// Two references in 32 bytes.
struct Node {
  std::uint64_t header;
  Node* left;
  Node* right;
  std::uint64_t number;
};
constexpr ObjectHeader kNode = ObjectHeader::record(sizeof(Node), 2);
static_assert(sizeof(Node) == 32);

struct Array {
  std::uint64_t header;
  Node*& operator[](std::size_t i) { return reinterpret_cast<Node**>(this + 1)[i]; }
};

/// Ends a measurement; caught in measure_targets().
struct Failed {
  Error error;
};
template <typename T>
T checked(Result<T> result) {
  if (!result) throw Failed{result.error()};
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A heap with its one mutator.
struct Place {
  explicit Place(const heap::HeapOptions& options)
      : heap(checked(GcHeap::create(options))), mutator(checked(heap->attach("targets"))) {}
  Node* node() {
    std::byte* const memory = heap->allocate_or_null(*mutator, sizeof(Node));
    if (memory == nullptr) throw Failed{mutator->error()};
    auto* const node = reinterpret_cast<Node*>(memory);
    node->header = kNode.word();
    return node;
  }
  Array* array(std::size_t length) {
    std::byte* const memory = heap->allocate_or_null(*mutator, 8 + length * 8);
    if (memory == nullptr) throw Failed{mutator->error()};
    auto* const array = reinterpret_cast<Array*>(memory);
    array->header = ObjectHeader::array(length).word();
    return array;
  }
  CollectionReport collect(CollectionKind kind) {
    return checked(heap->collect(mutator.get(), kind));
  }

  std::unique_ptr<GcHeap> heap;
  heap::MutatorPointer mutator;
};

// ---- Beside others

void peers(unsigned rounds, const Tell& tell) {
  const auto all = contestants();
  const auto one = [&](const char* name, const char* only, double least, bool everyone) {
    const WorkloadTraits& workload = *find_workload(name);
    const auto rows = compare_with_peers(
        workload,
        {.depth = workload.peer_depth, .threads = 2, .heap_bytes = 512 * kMiB, .rounds = rounds},
        all);
    const auto about = [&](const Comparison& row, double limit) {
      Target target{.name = fmt::format("{} {}, 512 MiB: {}", name, workload.peer_depth, row.name),
                    .figure = row.ratio,
                    .limit = limit,
                    .bound = Target::Bound::kAtLeast,
                    .unit = "times our time",
                    .unavailable = row.skipped};
      if (row.skipped.empty()) {
        target.note =
            fmt::format("{:.3f} s to {:.3f} s", row.seconds.median, rows[0].seconds.median);
      }
      if (!rows[0].skipped.empty()) target.unavailable = rows[0].skipped;
      return target;
    };
    for (std::size_t i = 1; i < rows.size(); ++i) {
      if (rows[i].name == "libgc") {
        tell(about(rows[i], least));
      } else if (rows[i].name == kThroughC) {
        if (!everyone) continue;
        Target target = about(rows[i], 1.5);
        target.bound = Target::Bound::kAtMost;
        tell(target);
      } else if (everyone || rows[i].name == only) {
        tell(about(rows[i], 1));
      }
    }
  };
  one("binary-trees", "", 4, true);
  one("gcbench", "java Parallel", 3, false);
  one("gcbench-mt", "java Parallel", 3, false);
}

// ---- Allocation

/// The same in a loop of its own: zeroed ahead in pieces that fit the first-level cache.
[[gnu::noinline]] std::uintptr_t bare_bump(std::byte* begin, std::size_t bytes) {
  constexpr std::size_t window = std::size_t{16} << 10U;
  std::byte* top = begin;
  std::byte* zeroed = begin;
  std::byte* const end = begin + bytes;
  std::uintptr_t all = 0;
  while (top < end) {
    if (top == zeroed) {
      const auto size = std::min<std::size_t>(window, static_cast<std::size_t>(end - zeroed));
      std::memset(zeroed, 0, size);
      zeroed += size;
    }
    reinterpret_cast<Node*>(top)->header = kNode.word();
    all ^= reinterpret_cast<std::uintptr_t>(top);
    top += sizeof(Node);
    asm volatile("" : : : "memory");
  }
  return all;
}

[[gnu::noinline]] std::uintptr_t allocate_nodes(Place& place, std::size_t bytes) {
  std::uintptr_t all = 0;
  for (std::size_t i = 0; i < bytes / sizeof(Node); ++i) {
    all ^= reinterpret_cast<std::uintptr_t>(place.node());
    asm volatile("" : : : "memory");
  }
  return all;
}

void allocation(unsigned rounds, const Tell& tell) {
  constexpr std::size_t bytes = 48 * kMiB;
  Place place({.max_size = 512 * kMiB, .young_size = 64 * kMiB, .workers = 1});
  const auto memory = checked(heap::Reservation::reserve(
      {.size = 64 * kMiB, .alignment = 2 * kMiB, .huge_pages = heap::HugePages::kPrefer}));
  auto& reservation = const_cast<heap::Reservation&>(memory);
  checked(reservation.commit(reservation.range()));
  std::vector<double> ours;
  std::vector<double> bare;
  std::uintptr_t all = 0;
  for (unsigned round = 0; round < 4 * rounds + 2; ++round) {
    // No collection in the window: the last one has just been, and two have touched all of it.
    (void)place.collect(CollectionKind::kYoung);
    const std::uint64_t collections = place.heap->last_collection().number;
    const auto start = std::chrono::steady_clock::now();
    all ^= allocate_nodes(place, bytes);
    const double mine = seconds_since(start);
    if (place.heap->last_collection().number != collections) {
      return tell({.name = "32-byte objects into TLABs",
                   .limit = 1.3,
                   .unavailable = "there was a collection in the window"});
    }
    const auto start_bare = std::chrono::steady_clock::now();
    all ^= bare_bump(memory.data(), bytes);
    const double theirs = seconds_since(start_bare);
    if (round < 2) continue;
    ours.push_back(mine);
    bare.push_back(theirs);
  }
  asm volatile("" : : "r"(all));
  constexpr auto count = static_cast<double>(std::size_t{bytes / sizeof(Node)});
  // The least of each: what else a shared machine does only ever adds.
  const double mine = bench::spread_of(ours).min;
  const double theirs = bench::spread_of(bare).min;
  tell({.name = "32-byte objects into TLABs",
        .figure = mine / theirs,
        .limit = 1.3,
        .unit = "times a bare zeroed bump",
        .note = fmt::format("{:.2f} ns to {:.2f} ns, least of {} rounds", mine / count * 1e9,
                            theirs / count * 1e9, ours.size())});
}

// ---- Pauses

/// The share of all processors' time that a hypervisor gave to others since it was made.
class Steal {
 public:
  [[nodiscard]] double percent() const {
    const auto [stolen, all] = read();
    return all == all_
               ? 0
               : 100.0 * static_cast<double>(stolen - stolen_) / static_cast<double>(all - all_);
  }

 private:
  static std::pair<std::uint64_t, std::uint64_t> read() {
    std::ifstream file("/proc/stat");
    std::string word;
    file >> word;
    std::uint64_t all = 0;
    std::uint64_t stolen = 0;
    std::uint64_t ticks = 0;
    for (int i = 0; i < 8 && file >> ticks; ++i) {
      all += ticks;
      if (i == 7) stolen = ticks;
    }
    return {stolen, all};
  }
  std::uint64_t stolen_ = read().first;
  std::uint64_t all_ = read().second;
};

/// Young collections of 64 MiB of which 5% survive, beside so much old data.
class YoungPauses {
 public:
  explicit YoungPauses(std::size_t old_bytes)
      : place_({.max_size = 4 * kGiB, .young_size = 64 * kMiB}),
        chunks_(*place_.mutator, place_.array(kChunks)),
        buckets_(*place_.mutator, place_.array(kBuckets)) {
    const std::size_t count = old_bytes / kChunks / sizeof(Node);
    for (std::size_t i = 0; i < kChunks && count != 0; ++i) {
      // A list, that the node in the table keeps.
      Local<Node> list(*place_.mutator);
      for (std::size_t j = 0; j < count; ++j) {
        Node* const fresh = place_.node();
        fresh->left = list.get();
        list = fresh;
      }
      place_.mutator->write((*chunks_)[i], list.get());
    }
    (void)place_.collect(CollectionKind::kFull);
    (void)place_.collect(CollectionKind::kYoung);
  }

  void run(unsigned collections) {
    for (unsigned i = 0; i < collections; ++i) {
      const std::uint64_t before = place_.heap->last_collection().number;
      std::uint64_t count = 0;
      while (place_.heap->last_collection().number == before) {
        for (unsigned j = 0; j < 1024; ++j) {
          Node* const fresh = place_.node();
          if (++count % 20 != 0) continue;
          Node*& bucket = (*buckets_)[count / 20 % kBuckets];
          fresh->left = bucket;
          place_.mutator->write(bucket, fresh);
        }
      }
      const CollectionReport report = place_.heap->last_collection();
      if (report.kind == CollectionKind::kYoung) {
        pauses_.push_back(static_cast<double>(report.pause_ns) / 1e6);
        survived_ = report.copied + report.promoted;
      }
      for (std::size_t j = 0; j < kBuckets; ++j) (*buckets_)[j] = nullptr;
    }
  }
  void forget() { pauses_.clear(); }
  [[nodiscard]] double quantile(double share) {
    std::ranges::sort(pauses_);
    const auto at = static_cast<std::size_t>(share * static_cast<double>(pauses_.size()));
    return pauses_[std::min(at, pauses_.size() - 1)];
  }
  [[nodiscard]] std::size_t count() const { return pauses_.size(); }
  [[nodiscard]] std::size_t survived() const { return survived_; }
  [[nodiscard]] heap::HeapStatistics statistics() const { return place_.heap->statistics(); }

 private:
  static constexpr std::size_t kChunks = 1024;
  static constexpr std::size_t kBuckets = 1024;
  Place place_;
  Local<Array> chunks_;
  Local<Array> buckets_;
  std::vector<double> pauses_;
  std::size_t survived_ = 0;
};

void pauses(unsigned rounds, const Tell& tell) {
  YoungPauses none(0);
  YoungPauses much(2 * kGiB);
  none.run(10);
  much.run(10);
  none.forget();
  much.forget();
  const Steal steal;
  for (unsigned round = 0; round < 10 * rounds; ++round) {
    none.run(10);
    much.run(10);
  }
  const std::string note =
      fmt::format("{} pauses, {:.1f} MiB survive, steal {:.1f}%", none.count(),
                  static_cast<double>(none.survived()) / kMiB, steal.percent());
  tell({.name = "young pause, median",
        .figure = none.quantile(0.5),
        .limit = 5,
        .unit = "ms",
        .note = note});
  tell({.name = "young pause, 99th percentile",
        .figure = none.quantile(0.99),
        .limit = 15,
        .unit = "ms",
        .note = note});
  tell({.name = "young pause beside 2 GiB of old data",
        .figure = much.quantile(0.5) / none.quantile(0.5),
        .limit = 1.5,
        .unit = "times that beside none",
        .note = fmt::format("{:.2f} ms", much.quantile(0.5))});
  const heap::HeapStatistics s = much.statistics();
  tell({.name = "side tables of a heap of 2 GiB",
        .figure = 100.0 * static_cast<double>(s.side_tables) / static_cast<double>(s.committed),
        .limit = 3,
        .unit = "% of what is committed"});
}

// ---- Marking

/// How many times as much arithmetic two threads do in the same time as one.
double arithmetic_scaling() {
  const auto run = [](unsigned threads) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::jthread> all;
    all.reserve(threads);
    for (unsigned i = 0; i < threads; ++i) {
      all.emplace_back([] {
        std::uint64_t x = 1;
        for (unsigned j = 0; j < 150'000'000; ++j) {
          x = x * 0x5851f42d4c957f2dU + 1;
          asm volatile("" : "+r"(x));
        }
      });
    }
    all.clear();
    return seconds_since(start);
  };
  const double one = run(1);
  return 2 * one / run(2);
}

/// 1 GiB of nodes as a complete binary tree. In breadth-first layout the children of node i lie at
/// 2i+1 and 2i+2; shuffled, anywhere. The first quarter of the memory holds as much garbage
/// besides.
struct Marked {
  double mark = 0;  ///< Bytes a second.
  double all = 0;   ///< The same for mark, evacuation and fix-up.
  double evacuated = 0;
};

Marked mark(unsigned workers, bool shuffled) {
  constexpr std::size_t count = kGiB / sizeof(Node);
  constexpr std::size_t per_array = std::size_t{1} << 19U;  // So long that it is never young.
  Place place({.max_size = 4 * kGiB,
               .young_size = 64 * kMiB,
               .tenuring_age = 0,
               .workers = workers,
               .evacuation_threshold = 0.6});
  Local<Node> root(*place.mutator);
  {
    // A young collection promotes what an array refers to in the order of its slots.
    std::vector<std::unique_ptr<heap::GlobalRoot<Array>>> arrays;
    const auto at = [&](std::size_t i) -> Node*& {
      return (*arrays[i / per_array]->get())[2 * (i % per_array)];
    };
    for (std::size_t i = 0; i < count; ++i) {
      if (i % per_array == 0) {
        Array* const array = place.array(2 * per_array);
        arrays.push_back(std::make_unique<heap::GlobalRoot<Array>>(*place.heap, array));
      }
      Array* const array = arrays.back()->get();
      Node* fresh = place.node();
      fresh->number = i;
      place.mutator->write((*array)[2 * (i % per_array)], fresh);
      if (i < count / 4) {
        fresh = place.node();
        place.mutator->write((*arrays.back()->get())[2 * (i % per_array) + 1], fresh);
      }
      if (i % per_array == per_array - 1) (void)place.collect(CollectionKind::kYoung);
    }
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0U);
    if (shuffled) {
      Random random(5);
      for (std::size_t i = count - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      Node* const node = at(order[i]);
      node->left = 2 * i + 1 < count ? at(order[2 * i + 1]) : nullptr;
      node->right = 2 * i + 2 < count ? at(order[2 * i + 2]) : nullptr;
    }
    root = at(order[0]);
  }
  const CollectionReport report = place.collect(CollectionKind::kFull);
  const auto rate = [&](std::uint64_t ns) {
    return static_cast<double>(report.marked) / (static_cast<double>(ns) / 1e9);
  };
  return {.mark = rate(report.mark_ns),
          .all = rate(report.mark_ns + report.move_ns),
          .evacuated = static_cast<double>(report.compacted) / static_cast<double>(report.marked)};
}

void marking(unsigned rounds, const Tell& tell) {
  Marked best_one;
  Marked best_two;
  Marked best_shuffled;
  double scaling = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    const Marked one = mark(1, false);
    scaling = std::max(scaling, arithmetic_scaling());
    const Marked two = mark(2, false);
    const Marked shuffled = mark(1, true);
    const auto keep = [](Marked& best, const Marked& now) {
      best = {.mark = std::max(best.mark, now.mark),
              .all = std::max(best.all, now.all),
              .evacuated = now.evacuated};
    };
    keep(best_one, one);
    keep(best_two, two);
    keep(best_shuffled, shuffled);
  }
  const std::string best = fmt::format("best of {}", rounds);
  tell({.name = "mark 1 GiB of nodes, breadth-first",
        .figure = best_one.mark / kGiB,
        .limit = 1,
        .bound = Target::Bound::kAtLeast,
        .unit = "GiB/s, one worker",
        .note = best});
  tell({.name = "mark it, evacuate a quarter and fix up",
        .figure = best_one.all / kMiB,
        .limit = 500,
        .bound = Target::Bound::kAtLeast,
        .unit = "MiB/s, one worker",
        .note = fmt::format("{:.0f}% moved, {}", 100 * best_one.evacuated, best)});
  tell({.name = "mark the same, shuffled",
        .figure = best_shuffled.mark / kGiB,
        .bound = Target::Bound::kAtLeast,
        .unit = "GiB/s, one worker",
        .note = fmt::format("no limit; with evacuation {:.0f} MiB/s", best_shuffled.all / kMiB)});
  const std::string control = fmt::format("arithmetic scales {:.2f} times", scaling);
  tell({.name = "mark with two workers",
        .figure = best_two.mark / best_one.mark / scaling,
        .limit = 0.8,
        .bound = Target::Bound::kAtLeast,
        .unit = "of the scaling of arithmetic",
        .note = control,
        .unavailable = scaling < 1.7 ? "second core unavailable: " + control : ""});
}

// ---- Space

void space(unsigned /*rounds*/, const Tell& tell) {
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    std::size_t pages = 0;
    file >> pages >> pages;
    return pages * arch::base_page_size();
  };
  {
    const std::size_t before = resident();
    const auto start = std::chrono::steady_clock::now();
    const Place place({.max_size = std::size_t{1} << 40U});
    const double took = seconds_since(start) * 1e3;
    const std::size_t after = resident();
    tell({.name = "start of a heap of up to 1 TiB", .figure = took, .limit = 5, .unit = "ms"});
    tell({.name = "its RSS",
          .figure = static_cast<double>(after - std::min(before, after)) / kMiB,
          .limit = 8,
          .unit = "MiB"});
  }
  Place place({.max_size = kGiB});
  // Live data among garbage: every fourth node of 400 MiB.
  Local<Node> list(*place.mutator);
  std::size_t live = 0;
  for (std::size_t i = 0; i < 400 * kMiB / sizeof(Node); ++i) {
    Node* const fresh = place.node();
    if (i % 4 != 0) continue;
    fresh->left = list.get();
    list = fresh;
    live += sizeof(Node);
  }
  checked(place.heap->trim(place.mutator.get()));
  const heap::HeapStatistics s = place.heap->statistics();
  const double allowed = 1.05 * static_cast<double>(live) + 2.0 * static_cast<double>(s.chunk_size);
  const auto rss = [&] {
    return static_cast<double>(
        checked(heap::residency_of(place.heap->range().data(), s.committed)).populated());
  };
  const auto target = [&](const char* name, double figure) {
    tell({.name = name,
          .figure = figure / kMiB,
          .limit = allowed / kMiB,
          .unit = "MiB",
          .note = fmt::format("{:.1f} MiB live", static_cast<double>(live) / kMiB)});
  };
  target("RSS of the heap after trim()", rss());
  // khugepaged looks every ten seconds unless told otherwise.
  std::this_thread::sleep_for(std::chrono::seconds(25));
  target("the same after 25 s, khugepaged on", rss());
}

struct Group {
  const char* name;
  void (*measure)(unsigned rounds, const Tell& tell);
};
constexpr Group kGroups[] = {{"peers", peers},
                             {"allocation", allocation},
                             {"pauses", pauses},
                             {"marking", marking},
                             {"space", space}};

}  // namespace

std::vector<std::string> target_groups() {
  std::vector<std::string> names;
  for (const Group& group : kGroups) names.emplace_back(group.name);
  return names;
}

Result<> measure_targets(const std::string& group, unsigned rounds, const Tell& tell) {
  try {
    std::ranges::find(kGroups, group, &Group::name)->measure(rounds, tell);
  } catch (const Failed& failed) {
    return std::unexpected(failed.error);
  }
  return {};
}

std::string target_text(const Target& target) {
  const bool most = target.bound == Target::Bound::kAtMost;
  if (!target.unavailable.empty()) {
    return fmt::format("-       {:<46} {}\n", target.name, target.unavailable);
  }
  std::string text = fmt::format("{:<7} {:<46} {:>9.3f}", target.met() ? "met" : "MISSED",
                                 target.name, target.figure);
  if (target.limit != 0) text += fmt::format(" {} {:g}", most ? "<=" : ">=", target.limit);
  text += " " + target.unit;
  if (!target.note.empty()) text += fmt::format(" ({})", target.note);
  return text + '\n';
}

tools::Json target_json(const Target& target) {
  tools::Json json{{"name", target.name},
                   {"limit", target.limit},
                   {"bound", target.bound == Target::Bound::kAtMost ? "at most" : "at least"},
                   {"unit", target.unit}};
  if (target.unavailable.empty()) {
    json["figure"] = target.figure;
    json["met"] = target.met();
    json["note"] = target.note;
  } else {
    json["unavailable"] = target.unavailable;
  }
  return json;
}

}  // namespace touchstone::gc
