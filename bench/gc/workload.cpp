// SPDX-License-Identifier: MIT
#include "workload.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace touchstone::gc {
namespace {

using heap::ObjectHeader;

/// Ends a workload; caught in run_workload().
struct Failed {
  Error error;
};

/// Touchstone as the programs' memory.
struct CollectedMemory {
  static constexpr bool kManual = false;
  static constexpr bool kEphemerons = true;

  struct Header {
    std::uint64_t header;
  };
  template <typename T>
  struct Array : Header {
    T*& at(std::size_t i) { return reinterpret_cast<T**>(this + 1)[i]; }
    [[nodiscard]] std::size_t length() const { return ObjectHeader(this->header).references(); }
  };
  struct Numbers : Header {
    double* data() { return reinterpret_cast<double*>(this + 1); }
  };
  template <typename T>
  struct Ephemeron : Header {
    T* key;
    T* value;
  };

  class Thread {
   public:
    explicit Thread(GcHeap& heap) : heap_(heap) {
      auto attached = heap.attach("workload");
      if (!attached) throw Failed{attached.error()};
      mutator_ = std::move(*attached);
    }
    template <typename T>
    [[gnu::always_inline]] T* make() {
      constexpr ObjectHeader header = ObjectHeader::record(sizeof(T), T::kReferences);
      return make_sized<T>(header, sizeof(T));
    }
    template <typename T, typename... Kept>
    [[gnu::always_inline]] T* make_keeping(Kept*&... kept) {
      constexpr ObjectHeader header = ObjectHeader::record(sizeof(T), T::kReferences);
      return initialise<T>(header, heap_.allocate_keeping(*mutator_, sizeof(T), kept...));
    }
    template <typename T>
    Array<T>* make_array(std::size_t length) {
      return make_sized<Array<T>>(ObjectHeader::array(length), 8 + length * 8);
    }
    Numbers* make_numbers(std::size_t count) {
      const std::size_t bytes = 8 + count * sizeof(double);
      return make_sized<Numbers>(ObjectHeader::record(bytes, 0), bytes);
    }
    template <typename T>
    Ephemeron<T>* make_ephemeron(const heap::Local<T>& key, const heap::Local<T>& value) {
      auto* const pair = make_sized<Ephemeron<T>>(
          ObjectHeader::make(ObjectHeader::Kind::kEphemeron, sizeof(Ephemeron<T>)),
          sizeof(Ephemeron<T>));
      pair->key = key.get();
      pair->value = value.get();
      return pair;
    }
    template <typename T>
    [[gnu::always_inline]] void write(T*& slot, T* value) {
      mutator_->write(slot, value);
    }
    void release(const void* /*object*/) {}
    void collect(bool full) {
      const auto kind = full ? heap::CollectionKind::kFull : heap::CollectionKind::kYoung;
      if (auto done = heap_.collect(mutator_.get(), kind); !done) throw Failed{done.error()};
    }
    [[nodiscard]] heap::Mutator& mutator() const { return *mutator_; }

   private:
    template <typename T>
    [[gnu::always_inline]] T* make_sized(ObjectHeader header, std::size_t size) {
      return initialise<T>(header, heap_.allocate_or_null(*mutator_, size));
    }
    template <typename T>
    [[gnu::always_inline]] T* initialise(ObjectHeader header, std::byte* memory) {
      if (memory == nullptr) [[unlikely]]
        throw Failed{mutator_->error()};
      T* const object = reinterpret_cast<T*>(memory);
      object->header = header.word();
      return object;
    }

    GcHeap& heap_;
    heap::MutatorPointer mutator_;
  };

  template <typename T>
  class Root : public heap::Local<T> {
   public:
    [[gnu::always_inline]] Root(Thread& thread, T* object)
        : heap::Local<T>(thread.mutator(), object) {}
    using heap::Local<T>::operator=;
  };
};

}  // namespace

const WorkloadTraits* find_workload(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kWorkloads, name, &WorkloadTraits::name);
  return found == kWorkloads.end() ? nullptr : found;
}

Result<WorkloadResult> run_workload(GcHeap& heap, const WorkloadTraits& workload,
                                    const WorkloadSize& size) {
  const auto run = Programs<CollectedMemory>::find(workload.name);
  const auto run_here = [&] {
    CollectedMemory::Thread thread(heap);
    return run(thread, size);
  };
  try {
    return workload.threaded ? on_threads(std::max(size.threads, 1U), run_here) : run_here();
  } catch (const Failed& failed) {
    return std::unexpected(failed.error);
  }
}

Result<HeapRun> run_in_cpp(const heap::HeapOptions& options, const WorkloadTraits& workload,
                           const WorkloadSize& size, HeapWatcher* watcher) {
  const auto heap = GcHeap::create(options);
  if (!heap) return std::unexpected(heap.error());
  if (watcher != nullptr) watcher->begin(**heap);
  const auto start = std::chrono::steady_clock::now();
  const auto result = run_workload(**heap, workload, size);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  if (watcher != nullptr) watcher->end();
  if (!result) return std::unexpected(result.error());
  return HeapRun{
      .result = *result, .seconds = time.count(), .statistics = to_json((*heap)->statistics())};
}

}  // namespace touchstone::gc
