// SPDX-License-Identifier: MIT
// Random mutators whose object graphs are shadowed by a model that knows nothing of the heap.
#ifndef TOUCHSTONE_TESTS_HEAP_RANDOM_MUTATOR_H_
#define TOUCHSTONE_TESTS_HEAP_RANDOM_MUTATOR_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/heap/heap.h>
#include <touchstone/heap/object_header.h>

#include "collector_fixture.h"
#include "result_assertions.h"

namespace touchstone::heap::testing {

/// What the mutators do besides allocating, writing, following and checking.
struct RandomBehaviour {
  std::uint64_t steps = 10'000;
  /// How often each mutator attaches anew, while others collect.
  unsigned lives = 1;
  /// Words that may be addresses, of anything, as on a stack without maps.
  bool ambiguous = false;
  /// Allocations are made to fail now and then.
  bool failures = false;
};

/// An object of any size: header, what is special of its kind, references, number, a pattern.
struct Thing {
  std::uint64_t header;

  [[nodiscard]] ObjectHeader head() const { return ObjectHeader(header); }
  [[nodiscard]] std::size_t words() const { return head().size() / 8; }
  [[nodiscard]] std::uint64_t& word(std::size_t i) { return (&header)[i]; }
  /// Special ones come first.
  [[nodiscard]] Thing*& reference(std::size_t i) { return reinterpret_cast<Thing**>(this + 1)[i]; }
  [[nodiscard]] std::size_t references() const {
    return head().special_words() + head().references();
  }
  [[nodiscard]] std::uint64_t& number() { return word(1 + references()); }
};

/// What an object should be.
struct Shadow {
  ObjectHeader::Kind kind = ObjectHeader::Kind::kRecord;
  std::size_t words = 0;
  std::vector<std::uint64_t> references;  // Numbers; 0 is null. Special ones come first.

  [[nodiscard]] std::size_t special() const { return ObjectHeader::make(kind, 8).special_words(); }
};

/// One mutator with roots of its own; its objects refer to each other alone.
class RandomMutator {
 public:
  RandomMutator(TestHeap& heap, std::uint64_t seed, const RandomBehaviour& behaviour)
      : heap_(heap), random_(seed), behaviour_(behaviour) {}

  void run() {
    for (unsigned life = 0; life < behaviour_.lives && good(); ++life) live();
  }
  [[nodiscard]] bool good() const { return failure_.empty(); }
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  static constexpr std::size_t kRoots = 24;
  static constexpr std::size_t kMostObjects = 4000;
  using Kind = ObjectHeader::Kind;

  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }
  std::size_t below(std::size_t limit) { return random_() % limit; }

  void live() {
    auto attached = heap_.attach("random");
    if (!attached) return fail("attach");
    const MutatorPointer mutator = std::move(*attached);
    mutator_ = mutator.get();
    mutator_->add_roots({[](RootVisitor& visitor, void* self) noexcept {
                           const auto& words = static_cast<RandomMutator*>(self)->words_;
                           visitor.visit_ambiguous(words.data(), words.data() + words.size());
                         },
                         this});
    for (std::size_t i = 0; i < kRoots; ++i) roots_.emplace_back(*mutator_);
    shadow_roots_.assign(kRoots, 0);
    shadows_.clear();
    const std::uint64_t steps = behaviour_.steps / behaviour_.lives;
    for (std::uint64_t i = 0; i < steps && good(); ++i) step();
    words_.fill(0);
    pins_.fill({});
    check(true);
    while (!roots_.empty()) roots_.pop_back();
  }

  void step() {
    const std::size_t what = below(100);
    if (what < 50) {
      allocate();
    } else if (what < 78) {
      write();
    } else if (what < 87) {
      move_root();
    } else if (what < 91) {
      const std::size_t root = below(kRoots);
      roots_[root] = nullptr;
      shadow_roots_[root] = 0;
    } else if (what < 94) {
      if (behaviour_.ambiguous) place_word();
    } else if (what < 98) {
      mutator_->poll();
      if (shadows_.size() > kMostObjects) forget(reachable());
    } else if (what == 98) {
      const NativeScope native(*mutator_);
      std::this_thread::yield();
    } else if (behaviour_.failures && below(4) == 0) {
      heap_.fail_allocation(1 + below(30));
    } else if (below(20) == 0) {
      check(false);
      if (below(4) == 0) {
        if (below(2) == 0) {
          check(true);
        } else if (const auto done = heap_.collect(mutator_, CollectionKind::kYoung); !done) {
          fail(done.error().message());
        }
      }
    }
  }

  std::size_t random_words() {
    const std::size_t luck = below(1000);
    if (luck < 900) return 4 + below(10);
    if (luck < 980) return 14 + below(200);
    if (luck < 997) return 200 + below(6000);
    return 9000 + below(40'000);
  }

  void allocate() {
    const std::size_t luck = below(20);
    const Kind kind = luck == 0 ? Kind::kWeak : luck <= 2 ? Kind::kEphemeron : Kind::kRecord;
    const std::size_t special = ObjectHeader::make(kind, 8).special_words();
    const std::size_t words = random_words();
    const std::size_t most = words - 2 - special;
    const std::size_t plain = below(2) == 0 ? most : below(most + 1);
    std::byte* const memory = heap_.allocate_or_null(*mutator_, words * 8);
    if (memory == nullptr) {
      if (mutator_->error().code != ErrorCode::kOutOfMemory) fail(mutator_->error().message());
      // Room again.
      for (std::size_t i = 0; i < kRoots; ++i) {
        roots_[i] = nullptr;
        shadow_roots_[i] = 0;
      }
      return forget(reachable());
    }
    auto* const thing = reinterpret_cast<Thing*>(memory);
    for (std::size_t i = 0; i < words; ++i) {
      if (thing->word(i) != 0) return fail("memory that is not zero");
    }
    thing->header = ObjectHeader::make(kind, words * 8, plain).word();
    const std::uint64_t number = ++last_number_;
    thing->number() = number;
    for (std::size_t i = thing->references() + 2; i < words; ++i) {
      thing->word(i) = number * 31 + i;
    }
    Shadow shadow{
        .kind = kind, .words = words, .references = std::vector<std::uint64_t>(special + plain)};
    const auto set = [&](std::size_t place) {
      const std::size_t root = below(kRoots);
      mutator_->write(thing->reference(place), roots_[root].get());
      shadow.references[place] = shadow_roots_[root];
    };
    for (std::size_t i = 0; i < special; ++i) set(i);
    for (std::size_t i = 0; i < plain && i < 8; ++i) set(special + below(plain));
    shadows_.emplace(number, std::move(shadow));
    const std::size_t root = below(kRoots);
    roots_[root] = thing;
    shadow_roots_[root] = number;
  }

  void write() {
    const std::size_t from = below(kRoots);
    const std::size_t to = below(kRoots);
    if (shadow_roots_[from] == 0) return;
    Thing& thing = *roots_[from];
    Shadow& shadow = shadows_.at(shadow_roots_[from]);
    if (thing.references() == 0) return;
    const std::size_t place = below(thing.references());
    if (shadow.kind == Kind::kEphemeron && place < 2) {
      // As a pair, since either may have been cleared meanwhile.
      const std::size_t other = below(kRoots);
      mutator_->write(thing.reference(0), roots_[other].get());
      shadow.references[0] = shadow_roots_[other];
      mutator_->write(thing.reference(1), roots_[to].get());
      shadow.references[1] = shadow_roots_[to];
      return;
    }
    mutator_->write(thing.reference(place), roots_[to].get());
    shadow.references[place] = shadow_roots_[to];
  }

  /// Follows a reference, a plain one: what only weak ones lead to stays lost.
  void move_root() {
    const std::size_t from = below(kRoots);
    const std::size_t to = below(kRoots);
    if (shadow_roots_[from] == 0) return;
    const Shadow& shadow = shadows_.at(shadow_roots_[from]);
    const std::size_t plain = shadow.references.size() - shadow.special();
    if (plain == 0) return;
    const std::size_t place = shadow.special() + below(plain);
    shadow_roots_[to] = shadow.references[place];
    roots_[to] = roots_[from]->reference(place);
  }

  /// A word that hits an object of ours, or anything in the heap, or nothing.
  void place_word() {
    const std::size_t place = below(words_.size());
    pins_[place] = {};
    const std::size_t luck = below(4);
    const std::size_t root = below(kRoots);
    if (luck == 0) {
      words_[place] = 0;
    } else if (luck == 1) {
      words_[place] = reinterpret_cast<std::uintptr_t>(heap_.range().data()) +
                      below(heap_.statistics().committed);
    } else if (luck == 2 || shadow_roots_[root] == 0) {
      words_[place] = random_();
    } else {
      Thing* const thing = roots_[root].get();
      words_[place] = reinterpret_cast<std::uintptr_t>(thing) + below(thing->words() * 8);
      pins_[place] = {shadow_roots_[root], thing};
    }
  }

  /// The numbers of all objects that are alive, by the model.
  [[nodiscard]] std::unordered_set<std::uint64_t> reachable() const {
    std::unordered_set<std::uint64_t> reached;
    std::unordered_multimap<std::uint64_t, std::uint64_t> waiting;  // Key to value.
    std::vector<std::uint64_t> work(shadow_roots_);
    while (!work.empty()) {
      const std::uint64_t number = work.back();
      work.pop_back();
      if (number == 0 || !reached.insert(number).second) continue;
      const auto [first, last] = waiting.equal_range(number);
      for (auto pair = first; pair != last; ++pair) work.push_back(pair->second);
      const Shadow& shadow = shadows_.at(number);
      if (shadow.kind == Kind::kEphemeron) {
        const std::uint64_t key = shadow.references[0];
        if (key == 0 || reached.contains(key)) {
          work.push_back(shadow.references[1]);
        } else {
          waiting.emplace(key, shadow.references[1]);
        }
      }
      work.insert(work.end(),
                  shadow.references.begin() + static_cast<std::ptrdiff_t>(shadow.special()),
                  shadow.references.end());
    }
    return reached;
  }

  /// Drops what cannot be reached any more, and some roots where that is little.
  void forget(const std::unordered_set<std::uint64_t>& reached) {
    std::erase_if(shadows_, [&](const auto& each) { return !reached.contains(each.first); });
    for (auto& [number, thing] : pins_) {
      if (!reached.contains(number)) number = 0;
    }
    if (shadows_.size() > kMostObjects) {
      for (std::size_t i = 0; i < kRoots; i += 2) {
        roots_[i] = nullptr;
        shadow_roots_[i] = 0;
      }
    }
  }

  /// Walks both graphs side by side. `strictly`: after a full collection of its own, which has to
  /// have cleared all references to what is dead, unless ambiguous words may hit it.
  void check(bool strictly) {
    if (strictly) {
      if (const auto done = heap_.collect(mutator_); !done) fail(done.error().message());
    }
    const std::unordered_set<std::uint64_t> reached = reachable();
    std::unordered_map<std::uint64_t, Thing*> places;
    std::vector<std::pair<std::uint64_t, Thing*>> work;
    const auto expect = [&](std::uint64_t number, Thing* thing, const char* where) {
      if ((number == 0) != (thing == nullptr)) {
        return fail(std::string("null where there is an object, or the reverse: ") + where);
      }
      if (number == 0) return;
      const auto [known, fresh] = places.emplace(number, thing);
      if (!fresh) {
        if (known->second != thing) fail("one object at two places");
        return;
      }
      work.emplace_back(number, thing);
    };
    const auto expect_dead = [&](std::uint64_t number, Thing* thing) {
      if (thing == nullptr) return;
      if (thing->number() != number) fail("a weak reference to another object");
      if (strictly && !behaviour_.ambiguous) fail("a weak reference to what is dead");
    };
    for (std::size_t i = 0; i < kRoots; ++i) expect(shadow_roots_[i], roots_[i].get(), "a root");
    while (!work.empty() && good()) {
      const auto [number, thing] = work.back();
      work.pop_back();
      const Shadow& shadow = shadows_.at(number);
      if (thing->head().kind() != shadow.kind || thing->words() != shadow.words ||
          thing->references() != shadow.references.size()) {
        return fail("an object of another shape");
      }
      if (thing->number() != number) return fail("another object");
      for (std::size_t i = shadow.references.size() + 2; i < shadow.words; ++i) {
        if (thing->word(i) != number * 31 + i) return fail("contents that changed");
      }
      const std::uint64_t key = shadow.special() == 0 ? 0 : shadow.references[0];
      if (key != 0 && !reached.contains(key)) {
        expect_dead(key, thing->reference(0));
        if (shadow.kind == Kind::kEphemeron && thing->reference(0) == nullptr &&
            thing->reference(1) != nullptr) {
          fail("an ephemeron's value without its key");
        }
      } else {
        for (std::size_t i = 0; i < shadow.special(); ++i) {
          expect(shadow.references[i], thing->reference(i),
                 shadow.kind == Kind::kWeak ? "weak"
                 : i == 0                   ? "an ephemeron's key"
                 : key == 0                 ? "the value beside no key"
                                            : "an ephemeron's value");
        }
      }
      for (std::size_t i = shadow.special(); i < shadow.references.size(); ++i) {
        expect(shadow.references[i], thing->reference(i), "plain");
      }
    }
    if (!good()) return;
    if (places.size() != reached.size()) fail("not all that is alive was found");
    for (const auto& [number, thing] : pins_) {
      if (reached.contains(number) && places.at(number) != thing) fail("what is pinned has moved");
    }
    forget(reached);
  }

  TestHeap& heap_;
  std::mt19937_64 random_;
  const RandomBehaviour behaviour_;
  Mutator* mutator_ = nullptr;
  std::deque<Local<Thing>> roots_;
  std::vector<std::uint64_t> shadow_roots_;
  std::unordered_map<std::uint64_t, Shadow> shadows_;
  std::array<std::uintptr_t, 16> words_{};
  std::array<std::pair<std::uint64_t, Thing*>, 16> pins_{};
  std::uint64_t last_number_ = 0;
  std::string failure_;
};

/// Runs so many of them on one heap, and expects that nobody finds anything.
inline void run_random(HeapOptions options, std::uint64_t seed, unsigned threads,
                       const RandomBehaviour& behaviour) {
  Recorder told;
  options.listener = &told;
  options.verify = true;
  options.poison = true;
  auto heap = TestHeap::create(options);
  ASSERT_TRUE(touchstone::testing::ok(heap));
  std::vector<std::unique_ptr<RandomMutator>> mutators;
  std::vector<std::thread> running;
  for (unsigned i = 0; i < threads; ++i) {
    mutators.push_back(std::make_unique<RandomMutator>(**heap, seed * 100 + i, behaviour));
    running.emplace_back([mutator = mutators.back().get()] { mutator->run(); });
  }
  for (std::thread& thread : running) thread.join();
  for (const auto& mutator : mutators) EXPECT_EQ(mutator->failure(), "") << "seed " << seed;
  for (const Violation& violation : told.violations) {
    ADD_FAILURE() << violation.what << ", seed " << seed << ", collection " << violation.collection;
  }
  EXPECT_FALSE(told.reports.empty());
  EXPECT_EQ((*heap)->statistics().mutators, 0U);
}

}  // namespace touchstone::heap::testing

#endif  // TOUCHSTONE_TESTS_HEAP_RANDOM_MUTATOR_H_
