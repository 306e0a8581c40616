// SPDX-License-Identifier: MIT
#include "workload.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace touchstone::gc {
namespace {

using heap::Local;
using heap::Mutator;
using heap::ObjectHeader;

/// Ends a workload; caught in run_guarded().
struct AllocationFailed {
  Error error;
};

/// A fresh object. What it refers to is for the caller to set, without a barrier unless it is
/// large.
template <typename T>
[[gnu::always_inline]] inline T* make(GcHeap& heap, Mutator& mutator, ObjectHeader header,
                                      std::size_t size = sizeof(T)) {
  std::byte* const memory = heap.allocate_or_null(mutator, size);
  if (memory == nullptr) [[unlikely]]
    throw AllocationFailed{mutator.error()};
  T* const object = reinterpret_cast<T*>(memory);
  object->header = header.word();
  return object;
}

template <typename Body>
Result<WorkloadResult> run_guarded(GcHeap& heap, Body&& body) {
  auto mutator = heap.attach("main");
  if (!mutator) return std::unexpected(mutator.error());
  try {
    return body(**mutator);
  } catch (const AllocationFailed& failed) {
    return std::unexpected(failed.error);
  }
}

/// xorshift64*: small, and the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t operator()() {
    state_ ^= state_ >> 12U;
    state_ ^= state_ << 25U;
    state_ ^= state_ >> 27U;
    return state_ * 0x2545f4914f6cdd1dU;
  }
  std::uint64_t below(std::uint64_t limit) { return (*this)() % limit; }

 private:
  std::uint64_t state_;
};

/// An array of references: the header, then the elements.
struct Array {
  std::uint64_t header;
  template <typename T>
  T*& at(std::size_t i) {
    return reinterpret_cast<T**>(this + 1)[i];
  }
  [[nodiscard]] std::size_t length() const { return ObjectHeader(header).references(); }
};
Array* make_array(GcHeap& heap, Mutator& mutator, std::size_t length) {
  return make<Array>(heap, mutator, ObjectHeader::array(length), 8 + length * 8);
}

// ---- Binary trees: the Computer Language Benchmarks Game's.

struct Node {
  std::uint64_t header;
  Node* left;
  Node* right;
};
constexpr ObjectHeader kNode = ObjectHeader::record(sizeof(Node), 2);

Node* make_tree(GcHeap& heap, Mutator& mutator, unsigned depth) {
  if (depth == 0) return make<Node>(heap, mutator, kNode);
  const Local<Node> left(mutator, make_tree(heap, mutator, depth - 1));
  const Local<Node> right(mutator, make_tree(heap, mutator, depth - 1));
  Node* const node = make<Node>(heap, mutator, kNode);
  node->left = left.get();
  node->right = right.get();
  return node;
}

std::uint64_t count_tree(const Node* node) {
  if (node->left == nullptr) return 1;
  return 1 + count_tree(node->left) + count_tree(node->right);
}

Result<WorkloadResult> binary_trees(GcHeap& heap, const WorkloadSize& size) {
  return run_guarded(heap, [&](Mutator& mutator) {
    constexpr unsigned shallowest = 4;
    const unsigned deepest = std::max(size.depth, shallowest + 2);
    WorkloadResult result{.correct = true};
    const auto check = [&](std::uint64_t nodes, unsigned depth) {
      result.checksum += nodes;
      result.correct = result.correct && nodes == (std::uint64_t{2} << depth) - 1;
      ++result.operations;
    };
    check(count_tree(make_tree(heap, mutator, deepest + 1)), deepest + 1);
    const Local<Node> long_lived(mutator, make_tree(heap, mutator, deepest));
    for (unsigned depth = shallowest; depth <= deepest; depth += 2) {
      const std::uint64_t count = std::uint64_t{1} << (deepest - depth + shallowest);
      for (std::uint64_t i = 0; i < count; ++i) {
        check(count_tree(make_tree(heap, mutator, depth)), depth);
      }
    }
    check(count_tree(long_lived.get()), deepest);
    return result;
  });
}

// ---- GCBench: Ellis, Kovac and Boehm's.

struct WideNode {
  std::uint64_t header;
  WideNode* left;
  WideNode* right;
  std::uint32_t i;
  std::uint32_t j;
};
constexpr ObjectHeader kWideNode = ObjectHeader::record(sizeof(WideNode), 2);

void populate(GcHeap& heap, Mutator& mutator, unsigned depth, WideNode* start) {
  if (depth == 0) return;
  const Local<WideNode> node(mutator, start);
  WideNode* child = make<WideNode>(heap, mutator, kWideNode);
  mutator.write(node->left, child);
  child = make<WideNode>(heap, mutator, kWideNode);
  mutator.write(node->right, child);
  populate(heap, mutator, depth - 1, node->left);
  populate(heap, mutator, depth - 1, node->right);
}

WideNode* make_wide_tree(GcHeap& heap, Mutator& mutator, unsigned depth) {
  if (depth == 0) return make<WideNode>(heap, mutator, kWideNode);
  const Local<WideNode> left(mutator, make_wide_tree(heap, mutator, depth - 1));
  const Local<WideNode> right(mutator, make_wide_tree(heap, mutator, depth - 1));
  WideNode* const node = make<WideNode>(heap, mutator, kWideNode);
  node->left = left.get();
  node->right = right.get();
  return node;
}

std::uint64_t count_wide_tree(const WideNode* node) {
  if (node == nullptr) return 0;
  return 1 + count_wide_tree(node->left) + count_wide_tree(node->right);
}

struct Numbers {
  std::uint64_t header;
  double values[1];
};

WorkloadResult gc_bench_one(GcHeap& heap, Mutator& mutator, unsigned deepest) {
  WorkloadResult result{.correct = true};
  const auto check = [&](const WideNode* tree, unsigned depth) {
    const std::uint64_t nodes = count_wide_tree(tree);
    result.checksum += nodes;
    result.correct = result.correct && nodes == (std::uint64_t{2} << depth) - 1;
    ++result.operations;
  };
  check(make_wide_tree(heap, mutator, deepest + 2), deepest + 2);
  const Local<WideNode> long_lived(mutator, make<WideNode>(heap, mutator, kWideNode));
  populate(heap, mutator, deepest, long_lived.get());
  constexpr std::size_t numbers = 500'000;
  constexpr std::size_t bytes = 8 + numbers * sizeof(double);
  const Local<Numbers> array(mutator,
                             make<Numbers>(heap, mutator, ObjectHeader::record(bytes, 0), bytes));
  double* const values = reinterpret_cast<double*>(reinterpret_cast<std::byte*>(array.get()) + 8);
  for (std::size_t i = 0; i < numbers / 2; ++i) values[i] = 1.0 / static_cast<double>(i + 1);
  for (unsigned depth = 4; depth <= deepest; depth += 2) {
    const std::uint64_t count = (std::uint64_t{2} << (deepest + 2)) / (std::uint64_t{2} << depth);
    for (std::uint64_t i = 0; i < count; ++i) {
      const Local<WideNode> top_down(mutator, make<WideNode>(heap, mutator, kWideNode));
      populate(heap, mutator, depth, top_down.get());
      check(top_down.get(), depth);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      check(make_wide_tree(heap, mutator, depth), depth);
    }
  }
  check(long_lived.get(), deepest);
  const double* const kept =
      reinterpret_cast<double*>(reinterpret_cast<std::byte*>(array.get()) + 8);
  result.correct = result.correct && kept[999] == 1.0 / 1000;
  return result;
}

Result<WorkloadResult> gc_bench(GcHeap& heap, const WorkloadSize& size) {
  return run_guarded(heap,
                     [&](Mutator& mutator) { return gc_bench_one(heap, mutator, size.depth); });
}

/// Runs a body on so many mutators of its own and adds up what they give.
template <typename Body>
Result<WorkloadResult> run_threads(GcHeap& heap, unsigned count, Body&& body) {
  std::vector<Result<WorkloadResult>> results(count);
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      results[i] = run_guarded(heap, [&](Mutator& mutator) { return body(mutator, i); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  WorkloadResult sum{.correct = true};
  for (const Result<WorkloadResult>& each : results) {
    if (!each) return each;
    sum.operations += each->operations;
    sum.checksum += each->checksum;
    sum.correct = sum.correct && each->correct;
  }
  return sum;
}

Result<WorkloadResult> gc_bench_threads(GcHeap& heap, const WorkloadSize& size) {
  return run_threads(heap, std::max(size.threads, 1U), [&](Mutator& mutator, unsigned) {
    return gc_bench_one(heap, mutator, size.depth);
  });
}

// ---- A quad-tree that only grows: old nodes get young children.

struct Quad {
  std::uint64_t header;
  Quad* children[4];
  std::uint32_t x;
  std::uint32_t y;
};
constexpr ObjectHeader kQuad = ObjectHeader::record(sizeof(Quad), 4);

Result<WorkloadResult> quad_tree(GcHeap& heap, const WorkloadSize& size) {
  return run_guarded(heap, [&](Mutator& mutator) {
    Random random(7);
    const std::uint64_t points = std::uint64_t{1} << size.depth;
    const Local<Quad> root(mutator, make<Quad>(heap, mutator, kQuad));
    root->x = root->y = std::uint32_t{1} << 31U;
    WorkloadResult result;
    std::uint64_t inserted = 1;
    for (std::uint64_t i = 1; i < points; ++i) {
      const auto x = static_cast<std::uint32_t>(random());
      const auto y = static_cast<std::uint32_t>(random() >> 32U);
      Quad* const fresh = make<Quad>(heap, mutator, kQuad);
      fresh->x = x;
      fresh->y = y;
      Quad* at = root.get();
      for (;;) {
        Quad*& child = at->children[(x > at->x ? 1U : 0U) + (y > at->y ? 2U : 0U)];
        if (child == nullptr) {
          mutator.write(child, fresh);
          ++inserted;
          break;
        }
        at = child;
      }
      ++result.operations;
    }
    // Every node lies where its ancestors say.
    std::uint64_t found = 0;
    bool placed = true;
    std::vector<const Quad*> stack{root.get()};
    while (!stack.empty()) {
      const Quad* const quad = stack.back();
      stack.pop_back();
      ++found;
      result.checksum = result.checksum * 31 + quad->x + quad->y;
      for (unsigned i = 0; i < 4; ++i) {
        const Quad* const child = quad->children[i];
        if (child == nullptr) continue;
        placed = placed && (child->x > quad->x) == ((i & 1U) != 0) &&
                 (child->y > quad->y) == ((i & 2U) != 0);
        stack.push_back(child);
      }
    }
    result.correct = placed && found == inserted;
    return result;
  });
}

// ---- A hash map with churn: a large old array, chains of which the young ends change.

struct Entry {
  std::uint64_t header;
  Entry* next;
  std::uint64_t key;
  std::uint64_t value;
};
constexpr ObjectHeader kEntry = ObjectHeader::record(sizeof(Entry), 1);

Result<WorkloadResult> hash_churn(GcHeap& heap, const WorkloadSize& size) {
  return run_guarded(heap, [&](Mutator& mutator) {
    Random random(11);
    const std::size_t buckets = std::size_t{1} << size.depth;
    const std::uint64_t operations = buckets * 16;
    const std::uint64_t keys = buckets * 2;
    const Local<Array> table(mutator, make_array(heap, mutator, buckets));
    std::vector<std::uint64_t> model(keys);  // 0: not in the map.
    WorkloadResult result;
    for (std::uint64_t i = 0; i < operations; ++i) {
      const std::uint64_t key = random.below(keys);
      const std::size_t bucket = key * 0x9e3779b97f4a7c15U >> (64 - size.depth);
      if ((random() & 3U) == 0) {
        // Out.
        Entry** link = &table->at<Entry>(bucket);
        while (*link != nullptr && (*link)->key != key) link = &(*link)->next;
        if (*link != nullptr) mutator.write(*link, (*link)->next);
        model[key] = 0;
      } else {
        Entry* const fresh = make<Entry>(heap, mutator, kEntry);
        fresh->key = key;
        fresh->value = i + 1;
        Entry** link = &table->at<Entry>(bucket);
        while (*link != nullptr && (*link)->key != key) link = &(*link)->next;
        // A new entry takes the old one's place, as persistent maps have it.
        fresh->next = *link != nullptr ? (*link)->next : nullptr;
        mutator.write(*link, fresh);
        model[key] = i + 1;
      }
      ++result.operations;
    }
    result.correct = true;
    std::uint64_t found = 0;
    for (std::size_t i = 0; i < buckets; ++i) {
      for (const Entry* entry = table->at<Entry>(i); entry != nullptr; entry = entry->next) {
        result.correct = result.correct && model[entry->key] == entry->value;
        result.checksum += entry->key ^ entry->value;
        ++found;
      }
    }
    result.correct =
        result.correct && found == static_cast<std::uint64_t>(std::ranges::count_if(
                                       model, [](std::uint64_t value) { return value != 0; }));
    return result;
  });
}

// ---- Large arrays that come and go, with small objects in them.

Result<WorkloadResult> large_arrays(GcHeap& heap, const WorkloadSize& size) {
  return run_guarded(heap, [&](Mutator& mutator) {
    Random random(13);
    constexpr std::size_t kept = 8;
    const std::uint64_t rounds = std::uint64_t{1} << size.depth;
    const Local<Array> ring(mutator, make_array(heap, mutator, kept));
    WorkloadResult result{.correct = true};
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const std::size_t length = std::size_t{4096} << random.below(7);  // 32 KiB to 2 MiB.
      const Local<Array> array(mutator, make_array(heap, mutator, length));
      for (std::size_t j = 0; j < length; j += 64) {
        Entry* const entry = make<Entry>(heap, mutator, kEntry);
        entry->key = i;
        entry->value = j;
        mutator.write(array->at<Entry>(j), entry);
      }
      mutator.write(ring->at<Array>(i % kept), array.get());
      const std::size_t other = random.below(kept);
      if (Array* const old = ring->at<Array>(other); old != nullptr) {
        const std::size_t j = random.below(old->length()) / 64 * 64;
        const Entry* const entry = old->at<Entry>(j);
        result.correct = result.correct && entry->value == j && entry->key % kept == other;
        result.checksum += entry->value;
      }
      ++result.operations;
    }
    return result;
  });
}

// ---- Ephemerons: a chain in which each value is the next one's key.

struct Ephemeron {
  std::uint64_t header;
  Entry* key;
  Entry* value;
};

Result<WorkloadResult> ephemerons(GcHeap& heap, const WorkloadSize& size) {
  return run_guarded(heap, [&](Mutator& mutator) {
    const std::size_t length = std::size_t{1} << size.depth;
    const Local<Array> table(mutator, make_array(heap, mutator, length));
    Local<Entry> first(mutator, make<Entry>(heap, mutator, kEntry));
    {
      Local<Entry> key(mutator, first.get());
      for (std::size_t i = 0; i < length; ++i) {
        const Local<Entry> value(mutator, make<Entry>(heap, mutator, kEntry));
        value->key = i;
        auto* const pair = make<Ephemeron>(
            heap, mutator, ObjectHeader::make(ObjectHeader::Kind::kEphemeron, sizeof(Ephemeron)));
        pair->key = key.get();
        pair->value = value.get();
        // The order that is worst for whoever goes over the table again and again.
        mutator.write(table->at<Ephemeron>(length - 1 - i), pair);
        key = value.get();
      }
    }
    WorkloadResult result{.operations = length, .correct = true};
    const auto alive = [&] {
      std::uint64_t count = 0;
      for (std::size_t i = 0; i < length; ++i) {
        const Ephemeron* const pair = table->at<Ephemeron>(i);
        if (pair->key != nullptr && pair->value != nullptr) ++count;
        result.correct = result.correct && (pair->key == nullptr) == (pair->value == nullptr);
      }
      return count;
    };
    for (const heap::CollectionKind kind :
         {heap::CollectionKind::kYoung, heap::CollectionKind::kFull}) {
      if (auto done = heap.collect(&mutator, kind); !done) {
        throw AllocationFailed{done.error()};
      }
      result.checksum += alive();
    }
    result.correct = result.correct && result.checksum == 2 * length;
    first = nullptr;
    if (auto done = heap.collect(&mutator); !done) throw AllocationFailed{done.error()};
    result.correct = result.correct && alive() == 0;
    return result;
  });
}

// ---- A large live graph whose references change at random.

struct GraphNode {
  std::uint64_t header;
  GraphNode* edges[2];
  std::uint64_t number;
};
constexpr ObjectHeader kGraphNode = ObjectHeader::record(sizeof(GraphNode), 2);

Result<WorkloadResult> live_graph(GcHeap& heap, const WorkloadSize& size) {
  return run_guarded(heap, [&](Mutator& mutator) {
    Random random(17);
    const std::size_t count = std::size_t{1} << size.depth;
    const Local<Array> nodes(mutator, make_array(heap, mutator, count));
    for (std::size_t i = 0; i < count; ++i) {
      GraphNode* const node = make<GraphNode>(heap, mutator, kGraphNode);
      node->number = i;
      mutator.write(nodes->at<GraphNode>(i), node);
    }
    WorkloadResult result{.correct = true};
    for (std::uint64_t i = 0; i < count * 4; ++i) {
      GraphNode* const from = nodes->at<GraphNode>(random.below(count));
      mutator.write(from->edges[i & 1U], nodes->at<GraphNode>(random.below(count)));
      if ((i & 7U) == 0) {
        // One is replaced; what still refers to it keeps the old one.
        const std::size_t place = random.below(count);
        GraphNode* const node = make<GraphNode>(heap, mutator, kGraphNode);
        node->number = place;
        mutator.write(nodes->at<GraphNode>(place), node);
      }
      ++result.operations;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const GraphNode* const node = nodes->at<GraphNode>(i);
      result.correct = result.correct && node->number == i;
      for (const GraphNode* edge : node->edges) {
        if (edge != nullptr) result.checksum = result.checksum * 31 + edge->number;
      }
    }
    return result;
  });
}

constexpr Workload kWorkloads[] = {
    {"binary-trees", "short-lived trees beside a long-lived one", "trees", 16, 4, 24, false,
     binary_trees},
    {"gcbench", "Boehm's: trees built top-down and bottom-up, an array of numbers", "trees", 16, 4,
     24, false, gc_bench},
    {"gcbench-mt", "the same on every thread", "trees", 16, 4, 24, true, gc_bench_threads},
    {"quad-tree", "2^depth points that stay: live data grows", "points", 20, 4, 26, false,
     quad_tree},
    {"hash-churn", "a map of 2^depth buckets: old objects refer to young ones", "updates", 18, 4,
     24, false, hash_churn},
    {"large-arrays", "2^depth arrays of 32 KiB to 2 MiB, eight of them live", "arrays", 11, 2, 20,
     false, large_arrays},
    {"ephemerons", "a chain of 2^depth pairs, each value the next key", "pairs", 18, 2, 24, false,
     ephemerons},
    {"live-graph", "2^depth live nodes, references written at random", "writes", 21, 4, 26, false,
     live_graph},
};

}  // namespace

std::span<const Workload> all_workloads() noexcept {
  return kWorkloads;
}

const Workload* find_workload(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kWorkloads, name, &Workload::name);
  return found == std::end(kWorkloads) ? nullptr : found;
}

}  // namespace touchstone::gc
