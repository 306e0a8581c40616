// SPDX-License-Identifier: MIT
// The programs on another memory: libgc, mimalloc or malloc. Usage: NAME WORKLOAD DEPTH HEAP_BYTES
// THREADS. Prints one line of JSON, as touchstone-gc's comparison reads it.
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "programs.h"

#if defined(TOUCHSTONE_PEER_LIBGC)
#define GC_THREADS
#define GC_NO_THREAD_REDIRECTS
#include <gc.h>
#elif defined(TOUCHSTONE_PEER_MIMALLOC)
#include <mimalloc.h>
#endif

namespace touchstone::gc {
namespace {

#if defined(TOUCHSTONE_PEER_LIBGC)

struct Allocator {
  static constexpr bool kManual = false;
  static void start(std::size_t heap_bytes) {
    GC_INIT();
    GC_set_max_heap_size(heap_bytes);
    GC_allow_register_threads();
  }
  static void* zeroed(std::size_t size) { return GC_MALLOC(size); }
  static void* zeroed_numbers(std::size_t size) {
    void* const memory = GC_MALLOC_ATOMIC(size);
    if (memory != nullptr) std::memset(memory, 0, size);
    return memory;
  }
  static void release(void* /*memory*/) {}

  /// The calling thread as one of the collector's, its stack scanned.
  class Registration {
   public:
    Registration() {
      GC_stack_base base;
      GC_get_stack_base(&base);
      mine_ = GC_register_my_thread(&base) == GC_SUCCESS;
    }
    ~Registration() {
      if (mine_) GC_unregister_my_thread();
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    bool mine_ = false;
  };
};

#else

struct Allocator {
  static constexpr bool kManual = true;
  static void start(std::size_t /*heap_bytes*/) {}
#if defined(TOUCHSTONE_PEER_MIMALLOC)
  static void* zeroed(std::size_t size) { return mi_zalloc(size); }
  static void release(void* memory) { mi_free(memory); }
#else
  static void* zeroed(std::size_t size) { return std::calloc(1, size); }
  static void release(void* memory) { std::free(memory); }
#endif
  static void* zeroed_numbers(std::size_t size) { return zeroed(size); }
  struct Registration {};
};

#endif

struct PeerMemory {
  static constexpr bool kManual = Allocator::kManual;
  static constexpr bool kEphemerons = false;

  struct Header {};
  template <typename T>
  struct Array {
    std::uint64_t size;
    T*& at(std::size_t i) { return reinterpret_cast<T**>(this + 1)[i]; }
    [[nodiscard]] std::size_t length() const { return size; }
  };
  struct Numbers {
    std::uint64_t size;
    double* data() { return reinterpret_cast<double*>(this + 1); }
  };

  class Thread {
   public:
    template <typename T>
    [[gnu::always_inline]] T* make() {
      return static_cast<T*>(checked(Allocator::zeroed(sizeof(T))));
    }
    template <typename T, typename... Kept>
    [[gnu::always_inline]] T* make_keeping(Kept*&... /*kept*/) {
      return make<T>();
    }
    template <typename T>
    Array<T>* make_array(std::size_t length) {
      auto* const array = static_cast<Array<T>*>(checked(Allocator::zeroed(8 + length * 8)));
      array->size = length;
      return array;
    }
    Numbers* make_numbers(std::size_t count) {
      auto* const numbers =
          static_cast<Numbers*>(checked(Allocator::zeroed_numbers(8 + count * 8)));
      numbers->size = count;
      return numbers;
    }
    template <typename T>
    [[gnu::always_inline]] void write(T*& slot, T* value) {
      slot = value;
    }
    void release(void* object) { Allocator::release(object); }

   private:
    [[gnu::always_inline]] static void* checked(void* memory) {
      if (memory == nullptr) [[unlikely]]
        throw std::bad_alloc();
      return memory;
    }
    [[no_unique_address, maybe_unused]] Allocator::Registration registration_;
  };

  template <typename T>
  class Root {
   public:
    Root(Thread& /*thread*/, T* object) : object_(object) {}
    Root& operator=(T* object) {
      object_ = object;
      return *this;
    }
    [[nodiscard]] T* get() const { return object_; }
    T* operator->() const { return object_; }

   private:
    T* object_;
  };
};

template <typename Number>
bool read(const char* text, Number& number) {
  const char* const end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, number);
  return error == std::errc() && at == end;
}

int run(int argc, char** argv) {
  WorkloadSize size;
  std::size_t heap_bytes = 0;
  const WorkloadTraits* const workload =
      argc == 5 ? std::ranges::find(kWorkloads, std::string_view(argv[1]), &WorkloadTraits::name)
                : kWorkloads.end();
  if (workload == kWorkloads.end() || !read(argv[2], size.depth) || !read(argv[3], heap_bytes) ||
      !read(argv[4], size.threads) || size.depth < workload->min_depth ||
      size.depth > workload->max_depth || size.threads == 0) {
    std::fputs("usage: WORKLOAD DEPTH HEAP_BYTES THREADS\n", stderr);
    return 2;
  }
  Allocator::start(heap_bytes);
  const auto program = Programs<PeerMemory>::find(workload->name);
  if (program == nullptr) {
    std::fputs("it has no ephemerons\n", stderr);
    return 3;
  }
  const auto here = [&] {
    PeerMemory::Thread thread;
    return program(thread, size);
  };
  const auto start = std::chrono::steady_clock::now();
  try {
    const WorkloadResult result = workload->threaded ? on_threads(size.threads, here) : here();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("{\"seconds\": %.6f, \"checksum\": %llu, \"correct\": %s}\n", seconds,
                static_cast<unsigned long long>(result.checksum),
                result.correct ? "true" : "false");
    return result.correct ? 0 : 1;
  } catch (const std::bad_alloc&) {
    std::fputs("out of memory\n", stderr);
    return 4;
  }
}

}  // namespace
}  // namespace touchstone::gc

int main(int argc, char** argv) {
  return touchstone::gc::run(argc, argv);
}
