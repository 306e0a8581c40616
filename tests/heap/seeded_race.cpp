// SPDX-License-Identifier: MIT
// A program with a data race on purpose: a thread goes on using an object in a native section, in
// which the collector may move it. The thread sanitizer has to see that in the collector's copying.
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <thread>

#include "collector_fixture.h"

int main() {
  using namespace touchstone::heap;
  using namespace touchstone::heap::testing;
  auto heap = TestHeap::create({.max_size = std::size_t{16} << 20U});
  if (!heap) return 2;
  auto mutator = (*heap)->attach("collecting");
  if (!mutator) return 2;
  Local<Pair> root(**mutator, make_pair(**heap, **mutator, 1));
  if (!root) return 2;
  std::atomic<bool> begun = false;
  std::atomic<bool> stop = false;
  Pair* const stale = root.get();
  std::thread other([&, stale] {
    auto attached = (*heap)->attach("racing");
    if (!attached) return;
    const NativeScope native(**attached);
    // Nobody told the collector.
    while (!stop.load(std::memory_order_relaxed)) {
      stale->number = stale->number + 1;
      begun.store(true, std::memory_order_relaxed);
    }
  });
  {
    const NativeScope native(**mutator);
    while (!begun.load(std::memory_order_relaxed)) std::this_thread::yield();
  }
  for (int i = 0; i < 20; ++i) {
    if (!(*heap)->collect(mutator->get(), CollectionKind::kYoung)) return 2;
    std::this_thread::yield();
  }
  stop = true;
  {
    const NativeScope native(**mutator);
    other.join();
  }
  return std::printf("%llu\n", static_cast<unsigned long long>(root->number)) < 0 ? 1 : 0;
}
