// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_SRC_CALLBACK_MODEL_H_
#define TOUCHSTONE_SRC_CALLBACK_MODEL_H_

#include <cstddef>
#include <cstdint>

#include <touchstone/c/collector.h>

namespace touchstone::heap::c {

/// The ObjectModel of a struct of functions. They tell slots into a buffer, so that there is a call
/// for each object and none for each slot.
template <std::size_t Alignment>
struct CallbackModel {
  static constexpr std::size_t kAlignment = Alignment;

  ts_object_model calls;

  [[nodiscard]] std::size_t size(const void* object, std::uint64_t header) const noexcept {
    return calls.object_size(object, header, calls.context);
  }
  template <typename Visitor>
  void trace(void* object, std::uint64_t header, Visitor&& visit) const noexcept {
    Buffer<Visitor> buffer(visit);
    calls.trace(object, header, &buffer, calls.context);
    buffer.drain();
  }
  [[nodiscard]] bool traces_ranges() const noexcept { return calls.trace_range != nullptr; }
  template <typename Visitor>
  void trace_range(void* object, std::uint64_t header, void* begin, void* end,
                   Visitor&& visit) const noexcept {
    Buffer<Visitor> buffer(visit);
    calls.trace_range(object, header, begin, end, &buffer, calls.context);
    buffer.drain();
  }
  void write_filler(void* at, std::size_t size) const noexcept {
    calls.write_filler(at, size, calls.context);
  }
  [[nodiscard]] bool is_filler(const void* object, std::uint64_t header) const noexcept {
    return calls.is_filler != nullptr && calls.is_filler(object, header, calls.context);
  }

 private:
  template <typename Visitor>
  struct Buffer : ts_tracer {
    explicit Buffer(Visitor& to) noexcept
        : ts_tracer{.next = slots, .end = slots + kSlots, .calls = &kCalls}, visit(to) {}
    [[gnu::always_inline]] void drain() noexcept {
      for (void** slot = slots; slot != next; ++slot) visit(*slot);
      next = slots;
    }
    static Buffer& of(ts_tracer* tracer) noexcept { return *static_cast<Buffer*>(tracer); }

    static constexpr std::size_t kSlots = 30;
    static constexpr ts_tracer_calls kCalls = {
        .full = [](ts_tracer* tracer) { of(tracer).drain(); },
        .weak = [](ts_tracer* tracer, void* slot) { of(tracer).visit.weak(slot); },
        .ephemeron = [](ts_tracer* tracer, void* key,
                        void* value) { of(tracer).visit.ephemeron(key, value); }};
    Visitor& visit;
    void* slots[kSlots];
  };
};

}  // namespace touchstone::heap::c

#endif  // TOUCHSTONE_SRC_CALLBACK_MODEL_H_
