// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_BENCH_GC_PROGRAMS_H_
#define TOUCHSTONE_BENCH_GC_PROGRAMS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

/// The programs that allocate, written once for the collector and for all that it is compared with.
namespace touchstone::gc {

struct WorkloadSize {
  unsigned depth = 0;    ///< The workload's own measure of size: trees' depth, log2 of a count.
  unsigned threads = 1;  ///< Mutators; those that have one only ignore it.
};

/// What a run gave.
struct WorkloadResult {
  std::uint64_t operations = 0;
  std::uint64_t checksum = 0;  ///< Depends on nothing but the size.
  bool correct = false;        ///< What the run checked of itself held.
};

/// A program that allocates, by name.
struct WorkloadTraits {
  const char* name = "";
  const char* description = "";
  const char* operation = "";  ///< What is counted, in the plural.
  unsigned depth = 0;          ///< Unless asked for otherwise.
  unsigned peer_depth = 0;     ///< The same for comparisons: seconds, not milliseconds.
  unsigned min_depth = 0;
  unsigned max_depth = 0;
  bool threaded = false;
  bool ephemerons = false;  ///< Needs memory that has them.
};

inline constexpr std::array<WorkloadTraits, 8> kWorkloads = {{
    {"binary-trees", "short-lived trees beside a long-lived one", "trees", 16, 20, 4, 24},
    {"gcbench", "Boehm's: trees built top-down and bottom-up, an array of numbers", "trees", 16, 18,
     4, 24},
    {"gcbench-mt", "the same on every thread", "trees", 16, 18, 4, 24, true},
    {"quad-tree", "2^depth points that stay: live data grows", "points", 20, 21, 4, 26},
    {"hash-churn", "a map of 2^depth buckets: old objects refer to young ones", "updates", 18, 20,
     4, 24},
    {"large-arrays", "2^depth arrays of 32 KiB to 2 MiB, eight of them live", "arrays", 11, 13, 2,
     20},
    {"ephemerons", "a chain of 2^depth pairs, each value the next key", "pairs", 18, 20, 2, 24,
     false, true},
    {"live-graph", "2^depth live nodes, references written at random", "writes", 21, 22, 4, 26},
}};

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

/// The programs on one kind of memory, which has
///
/// - `Header`, what every record begins with, maybe nothing;
/// - `Thread`, the calling thread's part: `make<T>()`, a zeroed record of which the first
///   `T::kReferences` words behind the header are references; `make_keeping<T>(kept...)`, the same,
///   while these pointers count as roots; `make_array<T>(length)`, an
///   `Array<T>` of references, with `at(i)` and `length()`; `make_numbers(count)`, a `Numbers` with
///   `data()`; `write(slot, value)` of a reference; `release(object)`, which does something only
///   where memory is freed by hand;
/// - `Root<T>`, made of a thread and a pointer, with `get()`, `->` and assignment;
/// - `kManual`, whether memory is freed by hand; `kEphemerons`, whether it has ephemerons, and if
/// so
///   `Thread::make_ephemeron(key, value)` and `Thread::collect(full)`.
template <typename Memory>
class Programs {
  using Thread = typename Memory::Thread;
  using Header = typename Memory::Header;
  template <typename T>
  using Root = typename Memory::template Root<T>;
  template <typename T>
  using Array = typename Memory::template Array<T>;

 public:
  using Run = WorkloadResult (*)(Thread& thread, const WorkloadSize& size);
  /// Of a workload; null if this memory cannot run it. A threaded one runs it on each thread.
  static Run find(std::string_view name) {
    constexpr std::array<Run, kWorkloads.size()> runs = {binary_trees, gc_bench,   gc_bench,
                                                         quad_tree,    hash_churn, large_arrays,
                                                         ephemerons,   live_graph};
    for (std::size_t i = 0; i < kWorkloads.size(); ++i) {
      if (name == kWorkloads[i].name) {
        return kWorkloads[i].ephemerons && !Memory::kEphemerons ? nullptr : runs[i];
      }
    }
    return nullptr;
  }

 private:
  // ---- Trees

  struct Node : Header {
    static constexpr std::size_t kReferences = 2;
    Node* left;
    Node* right;
  };
  struct WideNode : Header {
    static constexpr std::size_t kReferences = 2;
    WideNode* left;
    WideNode* right;
    std::uint32_t i;
    std::uint32_t j;
  };

  template <typename Tree>
  static Tree* make_tree(Thread& thread, unsigned depth) {
    if (depth == 0) return thread.template make<Tree>();
    Tree* left = nullptr;
    Tree* right = nullptr;
    if (depth == 1) {
      // Half of all: what is in hand needs a root only while memory is taken.
      left = thread.template make<Tree>();
      right = thread.template make_keeping<Tree>(left);
    } else {
      const Root<Tree> root(thread, make_tree<Tree>(thread, depth - 1));
      right = make_tree<Tree>(thread, depth - 1);
      left = root.get();
    }
    Tree* const node = thread.template make_keeping<Tree>(left, right);
    node->left = left;
    node->right = right;
    return node;
  }
  /// From the top down: each child is stored into what may be old by then.
  template <typename Tree>
  static void populate(Thread& thread, unsigned depth, Tree* node) {
    if (depth == 0) return;
    Tree* child = thread.template make_keeping<Tree>(node);
    thread.write(node->left, child);
    child = thread.template make_keeping<Tree>(node);
    thread.write(node->right, child);
    if (depth == 1) return;
    const Root<Tree> root(thread, node);
    populate(thread, depth - 1, root->left);
    populate(thread, depth - 1, root->right);
  }
  template <typename Tree>
  static std::uint64_t count_tree(const Tree* node) {
    if (node->left == nullptr) return 1;
    return 1 + count_tree(node->left) + count_tree(node->right);
  }
  template <typename Tree>
  static void release_tree(Thread& thread, Tree* node) {
    if constexpr (Memory::kManual) {
      if (node->left != nullptr) {
        release_tree(thread, node->left);
        release_tree(thread, node->right);
      }
      thread.release(node);
    }
  }
  template <typename Tree>
  static void check_tree(WorkloadResult& result, const Tree* tree, unsigned depth) {
    const std::uint64_t nodes = count_tree(tree);
    result.checksum += nodes;
    result.correct = result.correct && nodes == (std::uint64_t{2} << depth) - 1;
    ++result.operations;
  }

  /// The Computer Language Benchmarks Game's.
  static WorkloadResult binary_trees(Thread& thread, const WorkloadSize& size) {
    constexpr unsigned shallowest = 4;
    const unsigned deepest = std::max(size.depth, shallowest + 2);
    WorkloadResult result{.correct = true};
    const auto build_and_check = [&](unsigned depth) {
      Node* const tree = make_tree<Node>(thread, depth);
      check_tree(result, tree, depth);
      release_tree(thread, tree);
    };
    build_and_check(deepest + 1);
    const Root<Node> long_lived(thread, make_tree<Node>(thread, deepest));
    for (unsigned depth = shallowest; depth <= deepest; depth += 2) {
      const std::uint64_t count = std::uint64_t{1} << (deepest - depth + shallowest);
      for (std::uint64_t i = 0; i < count; ++i) build_and_check(depth);
    }
    check_tree(result, long_lived.get(), deepest);
    release_tree(thread, long_lived.get());
    return result;
  }

  /// Ellis, Kovac and Boehm's GCBench.
  static WorkloadResult gc_bench(Thread& thread, const WorkloadSize& size) {
    const unsigned deepest = size.depth;
    WorkloadResult result{.correct = true};
    const auto check_and_release = [&](WideNode* tree, unsigned depth) {
      check_tree(result, tree, depth);
      release_tree(thread, tree);
    };
    check_and_release(make_tree<WideNode>(thread, deepest + 2), deepest + 2);
    const Root<WideNode> long_lived(thread, thread.template make<WideNode>());
    populate(thread, deepest, long_lived.get());
    constexpr std::size_t numbers = 500'000;
    const Root<typename Memory::Numbers> array(thread, thread.make_numbers(numbers));
    double* const values = array->data();
    for (std::size_t i = 0; i < numbers / 2; ++i) values[i] = 1.0 / static_cast<double>(i + 1);
    for (unsigned depth = 4; depth <= deepest; depth += 2) {
      const std::uint64_t count = (std::uint64_t{2} << (deepest + 2)) / (std::uint64_t{2} << depth);
      for (std::uint64_t i = 0; i < count; ++i) {
        const Root<WideNode> top_down(thread, thread.template make<WideNode>());
        populate(thread, depth, top_down.get());
        check_and_release(top_down.get(), depth);
      }
      for (std::uint64_t i = 0; i < count; ++i) {
        check_and_release(make_tree<WideNode>(thread, depth), depth);
      }
    }
    check_tree(result, long_lived.get(), deepest);
    result.correct = result.correct && array->data()[999] == 1.0 / 1000;
    release_tree(thread, long_lived.get());
    thread.release(array.get());
    return result;
  }

  // ---- A quad-tree that only grows: old nodes get young children.

  struct Quad : Header {
    static constexpr std::size_t kReferences = 4;
    Quad* children[4];
    std::uint32_t x;
    std::uint32_t y;
  };

  static WorkloadResult quad_tree(Thread& thread, const WorkloadSize& size) {
    Random random(7);
    const std::uint64_t points = std::uint64_t{1} << size.depth;
    const Root<Quad> root(thread, thread.template make<Quad>());
    root->x = root->y = std::uint32_t{1} << 31U;
    WorkloadResult result;
    for (std::uint64_t i = 1; i < points; ++i) {
      const auto x = static_cast<std::uint32_t>(random());
      const auto y = static_cast<std::uint32_t>(random() >> 32U);
      Quad* const fresh = thread.template make<Quad>();
      fresh->x = x;
      fresh->y = y;
      Quad* at = root.get();
      for (;;) {
        Quad*& child = at->children[(x > at->x ? 1U : 0U) + (y > at->y ? 2U : 0U)];
        if (child == nullptr) {
          thread.write(child, fresh);
          break;
        }
        at = child;
      }
      ++result.operations;
    }
    // Every node lies where its ancestors say.
    std::uint64_t found = 0;
    bool placed = true;
    std::vector<Quad*> stack{root.get()};
    while (!stack.empty()) {
      Quad* const quad = stack.back();
      stack.pop_back();
      ++found;
      result.checksum = result.checksum * 31 + quad->x + quad->y;
      for (unsigned i = 0; i < 4; ++i) {
        Quad* const child = quad->children[i];
        if (child == nullptr) continue;
        placed = placed && (child->x > quad->x) == ((i & 1U) != 0) &&
                 (child->y > quad->y) == ((i & 2U) != 0);
        stack.push_back(child);
      }
      thread.release(quad);
    }
    result.correct = placed && found == points;
    return result;
  }

  // ---- A hash map with churn: a large old array, chains of which the young ends change.

  struct Entry : Header {
    static constexpr std::size_t kReferences = 1;
    Entry* next;
    std::uint64_t key;
    std::uint64_t value;
  };

  static WorkloadResult hash_churn(Thread& thread, const WorkloadSize& size) {
    Random random(11);
    const std::size_t buckets = std::size_t{1} << size.depth;
    const std::uint64_t operations = buckets * 16;
    const std::uint64_t keys = buckets * 2;
    const Root<Array<Entry>> table(thread, thread.template make_array<Entry>(buckets));
    std::vector<std::uint64_t> model(keys);  // 0: not in the map.
    WorkloadResult result;
    for (std::uint64_t i = 0; i < operations; ++i) {
      const std::uint64_t key = random.below(keys);
      const std::size_t bucket = key * 0x9e3779b97f4a7c15U >> (64 - size.depth);
      if ((random() & 3U) == 0) {
        // Out.
        Entry** link = &table->at(bucket);
        while (*link != nullptr && (*link)->key != key) link = &(*link)->next;
        if (Entry* const out = *link; out != nullptr) {
          thread.write(*link, out->next);
          thread.release(out);
        }
        model[key] = 0;
      } else {
        Entry* const fresh = thread.template make<Entry>();
        fresh->key = key;
        fresh->value = i + 1;
        Entry** link = &table->at(bucket);
        while (*link != nullptr && (*link)->key != key) link = &(*link)->next;
        // A new entry takes the old one's place, as persistent maps have it.
        Entry* const out = *link;
        fresh->next = out != nullptr ? out->next : nullptr;
        thread.write(*link, fresh);
        if (out != nullptr) thread.release(out);
        model[key] = i + 1;
      }
      ++result.operations;
    }
    result.correct = true;
    std::uint64_t found = 0;
    for (std::size_t i = 0; i < buckets; ++i) {
      for (Entry* entry = table->at(i); entry != nullptr;) {
        result.correct = result.correct && model[entry->key] == entry->value;
        result.checksum += entry->key ^ entry->value;
        ++found;
        Entry* const next = entry->next;
        thread.release(entry);
        entry = next;
      }
    }
    thread.release(table.get());
    result.correct =
        result.correct && found == static_cast<std::uint64_t>(std::ranges::count_if(
                                       model, [](std::uint64_t value) { return value != 0; }));
    return result;
  }

  // ---- Large arrays that come and go, with small objects in them.

  static void release_array(Thread& thread, Array<Entry>* array) {
    if constexpr (Memory::kManual) {
      if (array == nullptr) return;
      for (std::size_t i = 0; i < array->length(); i += 64) thread.release(array->at(i));
      thread.release(array);
    }
  }

  static WorkloadResult large_arrays(Thread& thread, const WorkloadSize& size) {
    Random random(13);
    constexpr std::size_t kept = 8;
    const std::uint64_t rounds = std::uint64_t{1} << size.depth;
    const Root<Array<Array<Entry>>> ring(thread, thread.template make_array<Array<Entry>>(kept));
    WorkloadResult result{.correct = true};
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const std::size_t length = std::size_t{4096} << random.below(7);  // 32 KiB to 2 MiB.
      const Root<Array<Entry>> array(thread, thread.template make_array<Entry>(length));
      for (std::size_t j = 0; j < length; j += 64) {
        Entry* const entry = thread.template make<Entry>();
        entry->key = i;
        entry->value = j;
        thread.write(array->at(j), entry);
      }
      release_array(thread, ring->at(i % kept));
      thread.write(ring->at(i % kept), array.get());
      const std::size_t other = random.below(kept);
      if (Array<Entry>* const old = ring->at(other); old != nullptr) {
        const std::size_t j = random.below(old->length()) / 64 * 64;
        const Entry* const entry = old->at(j);
        result.correct = result.correct && entry->value == j && entry->key % kept == other;
        result.checksum += entry->value;
      }
      ++result.operations;
    }
    for (std::size_t i = 0; i < kept; ++i) release_array(thread, ring->at(i));
    thread.release(ring.get());
    return result;
  }

  // ---- Ephemerons: a chain in which each value is the next one's key.

  static WorkloadResult ephemerons(Thread& thread, const WorkloadSize& size) {
    if constexpr (!Memory::kEphemerons) {
      return {};
    } else {
      using Ephemeron = typename Memory::template Ephemeron<Entry>;
      const std::size_t length = std::size_t{1} << size.depth;
      const Root<Array<Ephemeron>> table(thread, thread.template make_array<Ephemeron>(length));
      Root<Entry> first(thread, thread.template make<Entry>());
      {
        Root<Entry> key(thread, first.get());
        for (std::size_t i = 0; i < length; ++i) {
          const Root<Entry> value(thread, thread.template make<Entry>());
          value->key = i;
          Ephemeron* const pair = thread.template make_ephemeron<Entry>(key, value);
          // The order that is worst for whoever goes over the table again and again.
          thread.write(table->at(length - 1 - i), pair);
          key = value.get();
        }
      }
      WorkloadResult result{.operations = length, .correct = true};
      const auto alive = [&] {
        std::uint64_t count = 0;
        for (std::size_t i = 0; i < length; ++i) {
          const Ephemeron* const pair = table->at(i);
          if (pair->key != nullptr && pair->value != nullptr) ++count;
          result.correct = result.correct && (pair->key == nullptr) == (pair->value == nullptr);
        }
        return count;
      };
      for (const bool full : {false, true}) {
        thread.collect(full);
        result.checksum += alive();
      }
      result.correct = result.correct && result.checksum == 2 * length;
      first = nullptr;
      thread.collect(true);
      result.correct = result.correct && alive() == 0;
      return result;
    }
  }

  // ---- A large live graph whose references change at random.

  struct GraphNode : Header {
    static constexpr std::size_t kReferences = 2;
    GraphNode* edges[2];
    std::uint64_t number;
    std::uint64_t count;  ///< Of references, where memory is freed by hand.
  };

  /// One reference less. Cycles stay, as they do wherever references are counted.
  static void drop(Thread& thread, GraphNode* node) {
    if constexpr (Memory::kManual) {
      std::vector<GraphNode*> work{node};
      while (!work.empty()) {
        GraphNode* const it = work.back();
        work.pop_back();
        if (it == nullptr || --it->count != 0) continue;
        for (GraphNode* edge : it->edges) work.push_back(edge);
        thread.release(it);
      }
    }
  }
  static void refer(Thread& thread, GraphNode*& slot, GraphNode* to) {
    if constexpr (Memory::kManual) {
      ++to->count;
      if (GraphNode* const before = slot; before != nullptr && --before->count == 0) {
        ++before->count;
        slot = to;
        drop(thread, before);
        return;
      }
    }
    thread.write(slot, to);
  }

  static WorkloadResult live_graph(Thread& thread, const WorkloadSize& size) {
    Random random(17);
    const std::size_t count = std::size_t{1} << size.depth;
    const Root<Array<GraphNode>> nodes(thread, thread.template make_array<GraphNode>(count));
    for (std::size_t i = 0; i < count; ++i) {
      GraphNode* const node = thread.template make<GraphNode>();
      node->number = i;
      refer(thread, nodes->at(i), node);
    }
    WorkloadResult result{.correct = true};
    for (std::uint64_t i = 0; i < count * 4; ++i) {
      GraphNode* const from = nodes->at(random.below(count));
      refer(thread, from->edges[i & 1U], nodes->at(random.below(count)));
      if ((i & 7U) == 0) {
        // One is replaced; what still refers to it keeps the old one.
        const std::size_t place = random.below(count);
        GraphNode* const node = thread.template make<GraphNode>();
        node->number = place;
        refer(thread, nodes->at(place), node);
      }
      ++result.operations;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const GraphNode* const node = nodes->at(i);
      result.correct = result.correct && node->number == i;
      for (const GraphNode* edge : node->edges) {
        if (edge != nullptr) result.checksum = result.checksum * 31 + edge->number;
      }
    }
    return result;
  }
};

/// Runs the body on so many threads and adds up what they give; what one throws is thrown on.
template <typename Body>
WorkloadResult on_threads(unsigned count, Body&& body) {
  std::vector<WorkloadResult> results(count);
  std::vector<std::exception_ptr> failures(count);
  {
    std::vector<std::jthread> threads;
    threads.reserve(count);
    for (unsigned i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        try {
          results[i] = body();
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    }
  }
  WorkloadResult sum{.correct = true};
  for (unsigned i = 0; i < count; ++i) {
    if (failures[i]) std::rethrow_exception(failures[i]);
    sum.operations += results[i].operations;
    sum.checksum += results[i].checksum;
    sum.correct = sum.correct && results[i].correct;
  }
  return sum;
}

}  // namespace touchstone::gc

#endif  // TOUCHSTONE_BENCH_GC_PROGRAMS_H_
