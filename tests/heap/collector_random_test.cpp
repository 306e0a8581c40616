// SPDX-License-Identifier: MIT
// Random mutators whose object graphs are shadowed by a model that knows nothing of the heap.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <touchstone/heap/heap.h>
#include <touchstone/heap/object_header.h>

#include "collector_fixture.h"
#include "result_assertions.h"

namespace touchstone::heap::testing {
namespace {

using touchstone::testing::ok;

/// An object of any size: header, number, references, bytes of a pattern.
struct Thing {
  std::uint64_t header;
  // Where HeaderModel has the references: at once behind the header.
  [[nodiscard]] std::size_t references() const { return ObjectHeader(header).references(); }
  Thing*& reference(std::size_t i) { return reinterpret_cast<Thing**>(this + 1)[i]; }
  std::uint64_t& number() { return reinterpret_cast<std::uint64_t*>(this + 1)[references()]; }
  [[nodiscard]] std::size_t words() const { return ObjectHeader(header).size() / 8; }
  std::uint64_t& word(std::size_t i) { return reinterpret_cast<std::uint64_t*>(this)[i]; }
};

/// What an object should be.
struct Shadow {
  std::size_t words = 0;
  std::vector<std::uint64_t> references;  // Numbers; 0 is null.
};

/// One mutator with roots of its own; its objects refer to each other alone.
class RandomMutator {
 public:
  RandomMutator(TestHeap& heap, std::uint64_t seed) : heap_(heap), random_(seed) {}

  void run(const std::atomic<bool>& stop, std::uint64_t steps) {
    auto attached = heap_.attach("random");
    if (!attached) return fail("attach");
    const MutatorPointer mutator = std::move(*attached);
    mutator_ = mutator.get();
    {
      for (std::size_t i = 0; i < kRoots; ++i) roots_.emplace_back(*mutator_);
      shadow_roots_.resize(kRoots);
      for (std::uint64_t i = 0; i < steps && !stop.load(std::memory_order_relaxed) && good(); ++i) {
        step();
      }
      check_all();
      while (!roots_.empty()) roots_.pop_back();
    }
  }
  [[nodiscard]] bool good() const { return failure_.empty(); }
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  static constexpr std::size_t kRoots = 24;
  static constexpr std::size_t kMostObjects = 4000;

  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }
  std::size_t below(std::size_t limit) { return random_() % limit; }

  void step() {
    const std::size_t what = below(100);
    if (what < 50) {
      allocate();
    } else if (what < 80) {
      write();
    } else if (what < 90) {
      move_root();
    } else if (what < 94) {
      const std::size_t root = below(kRoots);
      roots_[root] = nullptr;
      shadow_roots_[root] = 0;
    } else if (what < 98) {
      mutator_->poll();
      if (shadows_.size() > kMostObjects) forget();
    } else if (what == 98) {
      const NativeScope native(*mutator_);
      std::this_thread::yield();
    } else if (below(20) == 0) {
      check_all();
      if (below(4) == 0) {
        const auto kind = below(2) == 0 ? CollectionKind::kYoung : CollectionKind::kFull;
        if (const auto done = heap_.collect(mutator_, kind); !done) fail(done.error().message());
        check_all();
      }
    }
  }

  std::size_t random_words() {
    const std::size_t luck = below(1000);
    if (luck < 900) return 2 + below(10);
    if (luck < 980) return 12 + below(200);
    if (luck < 997) return 200 + below(6000);
    return 9000 + below(40'000);
  }

  void allocate() {
    const std::size_t words = random_words();
    const std::size_t references = below(2) == 0 ? words - 2 : below(words - 1);
    std::byte* const memory = heap_.allocate_or_null(*mutator_, words * 8);
    if (memory == nullptr) {
      if (mutator_->error().code != ErrorCode::kOutOfMemory) fail(mutator_->error().message());
      // Room again.
      for (std::size_t i = 0; i < kRoots; ++i) {
        roots_[i] = nullptr;
        shadow_roots_[i] = 0;
      }
      forget();
      return;
    }
    auto* const thing = reinterpret_cast<Thing*>(memory);
    for (std::size_t i = 0; i < words; ++i) {
      if (thing->word(i) != 0) return fail("memory that is not zero");
    }
    thing->header = ObjectHeader::record(words * 8, references).word();
    const std::uint64_t number = ++last_number_;
    thing->number() = number;
    for (std::size_t i = references + 2; i < words; ++i) thing->word(i) = number * 31 + i;
    Shadow shadow{.words = words, .references = std::vector<std::uint64_t>(references)};
    for (std::size_t i = 0; i < references && i < 8; ++i) {
      const std::size_t place = below(references);
      const std::size_t root = below(kRoots);
      mutator_->write(thing->reference(place), roots_[root].get());
      shadow.references[place] = shadow_roots_[root];
    }
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
    if (thing.references() == 0) return;
    const std::size_t place = below(thing.references());
    mutator_->write(thing.reference(place), roots_[to].get());
    shadows_.at(shadow_roots_[from]).references[place] = shadow_roots_[to];
  }

  /// Follows a reference.
  void move_root() {
    const std::size_t from = below(kRoots);
    const std::size_t to = below(kRoots);
    if (shadow_roots_[from] == 0 || roots_[from]->references() == 0) return;
    const std::size_t place = below(roots_[from]->references());
    roots_[to] = roots_[from]->reference(place);
    shadow_roots_[to] = shadows_.at(shadow_roots_[from]).references[place];
  }

  /// The numbers that the model can reach; all others are forgotten.
  void forget() {
    std::unordered_map<std::uint64_t, Shadow> reached;
    std::vector<std::uint64_t> work(shadow_roots_);
    while (!work.empty()) {
      const std::uint64_t number = work.back();
      work.pop_back();
      if (number == 0 || reached.contains(number)) continue;
      auto node = shadows_.extract(number);
      const auto& references = node.mapped().references;
      work.insert(work.end(), references.begin(), references.end());
      reached.insert(std::move(node));
    }
    shadows_ = std::move(reached);
    if (shadows_.size() > kMostObjects) {
      for (std::size_t i = 0; i < kRoots; i += 2) {
        roots_[i] = nullptr;
        shadow_roots_[i] = 0;
      }
    }
  }

  /// Walks both graphs side by side.
  void check_all() {
    std::unordered_map<std::uint64_t, Thing*> places;
    std::vector<std::pair<std::uint64_t, Thing*>> work;
    const auto expect = [&](std::uint64_t number, Thing* thing) {
      if ((number == 0) != (thing == nullptr)) return fail("null where there is an object");
      if (number == 0) return;
      const auto [known, fresh] = places.emplace(number, thing);
      if (!fresh) {
        if (known->second != thing) fail("one object at two places");
        return;
      }
      work.emplace_back(number, thing);
    };
    for (std::size_t i = 0; i < kRoots; ++i) expect(shadow_roots_[i], roots_[i].get());
    while (!work.empty() && good()) {
      const auto [number, thing] = work.back();
      work.pop_back();
      const Shadow& shadow = shadows_.at(number);
      if (thing->words() != shadow.words || thing->references() != shadow.references.size()) {
        return fail("an object of another shape");
      }
      if (thing->number() != number) return fail("another object");
      for (std::size_t i = shadow.references.size() + 2; i < shadow.words; ++i) {
        if (thing->word(i) != number * 31 + i) return fail("contents that changed");
      }
      for (std::size_t i = 0; i < shadow.references.size(); ++i) {
        expect(shadow.references[i], thing->reference(i));
      }
    }
  }

  TestHeap& heap_;
  std::mt19937_64 random_;
  Mutator* mutator_ = nullptr;
  std::deque<Local<Thing>> roots_;
  std::vector<std::uint64_t> shadow_roots_;
  std::unordered_map<std::uint64_t, Shadow> shadows_;
  std::uint64_t last_number_ = 0;
  std::string failure_;
};

void run_random(HeapOptions options, std::uint64_t seed, unsigned threads, std::uint64_t steps,
                std::chrono::seconds limit = std::chrono::hours(24)) {
  Recorder told;
  options.listener = &told;
  auto heap = TestHeap::create(options);
  ASSERT_TRUE(ok(heap));
  std::vector<std::unique_ptr<RandomMutator>> mutators;
  std::atomic<bool> stop = false;
  std::atomic<unsigned> running = threads;
  std::vector<std::thread> running_threads;
  for (unsigned i = 0; i < threads; ++i) {
    mutators.push_back(std::make_unique<RandomMutator>(**heap, seed * 100 + i));
    running_threads.emplace_back([&, mutator = mutators.back().get()] {
      mutator->run(stop, steps);
      running.fetch_sub(1);
    });
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  while (limit < std::chrono::hours(24) && running.load() != 0 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (limit < std::chrono::hours(24)) stop = true;
  for (std::thread& thread : running_threads) thread.join();
  for (const auto& mutator : mutators) EXPECT_EQ(mutator->failure(), "") << "seed " << seed;
  for (const Violation& violation : told.violations) {
    ADD_FAILURE() << violation.what << ", seed " << seed << ", collection " << violation.collection;
  }
  EXPECT_FALSE(told.reports.empty());
}

constexpr std::size_t kMiB = std::size_t{1} << 20U;

TEST(CollectorRandom, OneMutatorOneWorkerStress) {
  run_random(
      {.max_size = 16 * kMiB, .workers = 1, .verify = true, .stress_interval = 150, .poison = true},
      1, 1, 12'000);
}

TEST(CollectorRandom, TwoMutatorsThreeWorkersStress) {
  run_random(
      {.max_size = 32 * kMiB, .workers = 3, .verify = true, .stress_interval = 300, .poison = true},
      2, 2, 8'000);
}

TEST(CollectorRandom, ThreeMutatorsWithoutStress) {
  run_random({.max_size = 24 * kMiB, .workers = 2, .verify = true, .poison = true}, 3, 3, 60'000);
}

TEST(CollectorRandom, TightHeap) {
  run_random({.max_size = 6 * kMiB, .workers = 2, .verify = true, .poison = true}, 4, 1, 60'000);
}

TEST(CollectorRandom, OldAge) {
  run_random({.max_size = 24 * kMiB,
              .young_size = 2 * kMiB,
              .tenuring_age = 4,
              .workers = 2,
              .verify = true,
              .poison = true},
             5, 2, 40'000);
}

}  // namespace
}  // namespace touchstone::heap::testing
