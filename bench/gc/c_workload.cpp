// SPDX-License-Identifier: MIT
// The workloads through touchstone.h, as a runtime written in C would have them.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include <touchstone.h>

#include <touchstone/heap/heap_listener.h>

#include "heap_run.h"

namespace touchstone::gc {
namespace {

/// Ends a workload; caught in run_in_c().
struct Failed {
  ts_error error;
};

Error from_c(const ts_error& error) {
  return {.code = static_cast<ErrorCode>(static_cast<unsigned>(error.code) - 1),
          .operation = error.operation,
          .address = error.address,
          .length = error.length,
          .system_errno = error.system_errno,
          .progress = error.progress,
          .detail = error.detail};
}

// ---- The model: ts_header_... words, looked at by functions.

constexpr std::uint64_t kFiller = std::uint64_t{1} << 63U;

std::size_t size_of(std::uint64_t header) {
  return (header >> 4U & 0xf'ffff'ffffU) * 8;
}
struct Slots {
  void** begin;
  void** end;
};
/// The plain references. The ephemeron's pair is told apart.
Slots plain_slots(void* object, std::uint64_t header) {
  void** const words = static_cast<void**>(object);
  switch (header >> 2U & 3U) {
    case 2:
      return {words + 1, words + size_of(header) / 8};
    case 3:
      return {words + 3, words + 3};
    default:
      return {words + 1, words + 1 + (header >> 40U & TS_HEADER_MAX_REFERENCES)};
  }
}
bool is_ephemeron(std::uint64_t header) {
  return (header >> 2U & 3U) == 3;
}

std::size_t object_size(const void* /*object*/, std::uint64_t header, void* /*context*/) {
  return size_of(header);
}
void trace(void* object, std::uint64_t header, ts_tracer* tracer, void* /*context*/) {
  const Slots slots = plain_slots(object, header);
  for (void** slot = slots.begin; slot < slots.end; ++slot) ts_trace_slot(tracer, slot);
  if (is_ephemeron(header)) {
    void** const pair = static_cast<void**>(object) + 1;
    ts_trace_ephemeron(tracer, pair, pair + 1);
  }
}
void trace_range(void* object, std::uint64_t header, void* begin, void* end, ts_tracer* tracer,
                 void* context) {
  if (is_ephemeron(header)) return trace(object, header, tracer, context);
  const Slots slots = plain_slots(object, header);
  void** const last = std::min(slots.end, static_cast<void**>(end));
  for (void** slot = std::max(slots.begin, static_cast<void**>(begin)); slot < last; ++slot) {
    ts_trace_slot(tracer, slot);
  }
}
void write_filler(void* at, std::size_t bytes, void* /*context*/) {
  *static_cast<std::uint64_t*>(at) = ts_header_record(bytes, 0) | kFiller;
}
bool is_filler(const void* /*object*/, std::uint64_t header, void* /*context*/) {
  return (header & kFiller) != 0;
}

// ---- The programs' memory

struct CMemory {
  static constexpr bool kManual = false;
  static constexpr bool kEphemerons = true;

  struct Header {
    std::uint64_t header;
  };
  template <typename T>
  struct Array : Header {
    T*& at(std::size_t i) { return reinterpret_cast<T**>(this + 1)[i]; }
    [[nodiscard]] std::size_t length() const { return size_of(this->header) / 8 - 1; }
  };
  struct Numbers : Header {
    double* data() { return reinterpret_cast<double*>(this + 1); }
  };
  template <typename T>
  struct Ephemeron : Header {
    T* key;
    T* value;
  };
  template <typename T>
  class Root;

  class Thread {
   public:
    explicit Thread(ts_heap* heap) : heap_(heap) {
      ts_error error = ts_error_init();
      if (ts_attach(heap, "workload", &mutator_, &error) != TS_OK) throw Failed{error};
    }
    // Its roots have ended before.
    ~Thread() { static_cast<void>(ts_detach(mutator_, nullptr) == TS_OK); }
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;

    template <typename T>
    [[gnu::always_inline]] T* make() {
      return initialise<T>(ts_header_record(sizeof(T), T::kReferences),
                           ts_allocate_aligned(mutator_, sizeof(T)));
    }
    template <typename T, typename Kept>
    [[gnu::always_inline]] T* make_keeping(Kept*& kept) {
      void* held = kept;
      void* const memory = ts_allocate_keeping(mutator_, sizeof(T), &held, nullptr);
      kept = static_cast<Kept*>(held);
      return initialise<T>(ts_header_record(sizeof(T), T::kReferences), memory);
    }
    template <typename T, typename First, typename Second>
    [[gnu::always_inline]] T* make_keeping(First*& first, Second*& second) {
      void* held = first;
      void* held_too = second;
      void* const memory = ts_allocate_keeping(mutator_, sizeof(T), &held, &held_too);
      first = static_cast<First*>(held);
      second = static_cast<Second*>(held_too);
      return initialise<T>(ts_header_record(sizeof(T), T::kReferences), memory);
    }
    template <typename T>
    Array<T>* make_array(std::size_t length) {
      return initialise<Array<T>>(ts_header_array(length),
                                  ts_allocate_aligned(mutator_, 8 + length * 8));
    }
    Numbers* make_numbers(std::size_t count) {
      const std::size_t bytes = 8 + count * sizeof(double);
      return initialise<Numbers>(ts_header_record(bytes, 0), ts_allocate_aligned(mutator_, bytes));
    }
    template <typename T>
    Ephemeron<T>* make_ephemeron(const Root<T>& key, const Root<T>& value) {
      constexpr std::size_t bytes = sizeof(Ephemeron<T>);
      auto* const pair = initialise<Ephemeron<T>>(ts_header_ephemeron(bytes, 0),
                                                  ts_allocate_aligned(mutator_, bytes));
      pair->key = key.get();
      pair->value = value.get();
      return pair;
    }
    template <typename T>
    [[gnu::always_inline]] void write(T*& slot, T* value) {
      ts_write(mutator_, &slot, value);
    }
    void release(const void* /*object*/) {}
    void collect(bool full) {
      ts_error error = ts_error_init();
      if (ts_collect(heap_, mutator_, full ? TS_COLLECT_FULL : TS_COLLECT_YOUNG, nullptr, &error) !=
          TS_OK) {
        throw Failed{error};
      }
    }
    [[nodiscard]] ts_mutator* mutator() const { return mutator_; }

   private:
    template <typename T>
    [[gnu::always_inline]] T* initialise(std::uint64_t header, void* memory) {
      if (memory == nullptr) [[unlikely]] {
        ts_error error = ts_error_init();
        ts_allocation_error(mutator_, &error);
        throw Failed{error};
      }
      T* const object = static_cast<T*>(memory);
      object->header = header;
      return object;
    }

    ts_heap* heap_;
    ts_mutator* mutator_ = nullptr;
  };

  template <typename T>
  class Root {
   public:
    [[gnu::always_inline]] Root(Thread& thread, T* object) {
      ts_local_open(&local_, thread.mutator(), object);
    }
    ~Root() { ts_local_close(&local_); }
    Root(const Root&) = delete;
    Root& operator=(const Root&) = delete;
    Root& operator=(T* object) {
      local_.object = object;
      return *this;
    }
    [[nodiscard]] T* get() const { return static_cast<T*>(local_.object); }
    T* operator->() const { return get(); }

   private:
    ts_local local_;
  };
};

void on_violation(const ts_violation* violation, void* listener) {
  static_cast<heap::HeapListener*>(listener)->on_violation({.what = violation->what,
                                                            .object = violation->object,
                                                            .field = violation->field,
                                                            .value = violation->value,
                                                            .collection = violation->collection});
}

std::string statistics_of(ts_heap* heap) {
  ts_error error = ts_error_init();
  std::size_t length = 0;
  if (ts_get_statistics_json(heap, nullptr, 0, &length, &error) != TS_OK) throw Failed{error};
  std::string text(length + 1, '\0');
  if (ts_get_statistics_json(heap, text.data(), text.size(), &length, &error) != TS_OK) {
    throw Failed{error};
  }
  text.resize(std::min(length, text.size() - 1));
  return text;
}

}  // namespace

Result<HeapRun> run_in_c(const heap::HeapOptions& options, const WorkloadTraits& workload,
                         const WorkloadSize& size, HeapWatcher* /*watcher*/) {
  const ts_object_model model{.size = sizeof(ts_object_model),
                              .alignment = 8,
                              .context = nullptr,
                              .object_size = object_size,
                              .trace = trace,
                              .write_filler = write_filler,
                              .trace_range = trace_range,
                              .is_filler = is_filler};
  const ts_listener listener{.size = sizeof(ts_listener),
                             .context = options.listener,
                             .violation = options.listener != nullptr ? on_violation : nullptr};
  ts_heap_options wanted = ts_heap_options_init();
  wanted.model = &model;
  wanted.listener = &listener;
  wanted.max_size = options.max_size;
  wanted.young_size = options.young_size;
  wanted.workers = options.workers;
  wanted.verify = options.verify;
  wanted.stress_interval = options.stress_interval;
  wanted.huge_pages = static_cast<ts_huge_pages>(options.huge_pages);
  ts_error error = ts_error_init();
  ts_heap* heap = nullptr;
  if (ts_heap_create(&wanted, &heap, &error) != TS_OK) return std::unexpected(from_c(error));
  Result<HeapRun> run;
  try {
    const auto program = Programs<CMemory>::find(workload.name);
    const auto run_here = [&] {
      CMemory::Thread thread(heap);
      return program(thread, size);
    };
    const auto start = std::chrono::steady_clock::now();
    run->result = workload.threaded ? on_threads(std::max(size.threads, 1U), run_here) : run_here();
    run->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    run->statistics = statistics_of(heap);
  } catch (const Failed& failed) {
    run = std::unexpected(from_c(failed.error));
  }
  if (ts_heap_destroy(heap, &error) != TS_OK && run) run = std::unexpected(from_c(error));
  return run;
}

}  // namespace touchstone::gc
