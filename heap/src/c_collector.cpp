// SPDX-License-Identifier: MIT
// touchstone/c/collector.h.
#include <array>
#include <chrono>
#include <new>
#include <string>
#include <utility>

#include <touchstone/heap/heap.h>
#include <touchstone/heap/object_header.h>
#include <touchstone/heap/roots.h>

#include "c_abi.h"
#include "c_heap.h"
#include "callback_model.h"
#include "callback_scope.h"

namespace touchstone::heap::c {
namespace {

// ---- Handles

constexpr unsigned kHandleBits = 10;
constexpr std::size_t kMaxHeaps = std::size_t{1} << kHandleBits;

/// A place for a heap. Its generation is odd while there is one; a handle is generation and index.
struct Place {
  std::atomic<std::uintptr_t> generation{0};
  std::atomic<CHeap*> heap{nullptr};
};
std::array<Place, kMaxHeaps> places;

constexpr Error kGone{.code = ErrorCode::kInvalidArgument,
                      .operation = "ts_heap",
                      .detail = "no such heap: it was destroyed, or never was"};

/// Null if there are too many.
ts_heap* publish(CHeap* heap) noexcept {
  for (std::size_t i = 0; i < kMaxHeaps; ++i) {
    CHeap* none = nullptr;
    if (!places[i].heap.compare_exchange_strong(none, heap)) continue;
    const std::uintptr_t generation = places[i].generation.fetch_add(1) + 1;
    return detail::at<ts_heap>(generation << kHandleBits | i);
  }
  return nullptr;
}

/// Has the handle lead nowhere, and keeps its place. False if it is not that heap's any more.
bool withdraw(ts_heap* handle) noexcept {
  const std::uintptr_t value = detail::address_of(handle);
  std::uintptr_t generation = value >> kHandleBits;
  return places[value % kMaxHeaps].generation.compare_exchange_strong(generation, generation + 1);
}
void restore(ts_heap* handle) noexcept {
  const std::uintptr_t value = detail::address_of(handle);
  places[value % kMaxHeaps].generation.store(value >> kHandleBits);
}

HeapOptions options_of(const ts_heap_options& given, HeapListener* listener) noexcept {
  HeapOptions options{.max_size = given.max_size,
                      .soft_max_size = given.soft_max_size,
                      .min_size = given.min_size,
                      .initial_size = given.initial_size,
                      .region_size = given.region_size,
                      .young_size = given.young_size,
                      .tenuring_age = given.tenuring_age,
                      .workers = given.workers,
                      .overhead_goal = given.overhead_goal,
                      .evacuation_threshold = given.evacuation_threshold,
                      .safepoint_timeout = std::chrono::nanoseconds(
                          static_cast<std::int64_t>(given.safepoint_timeout_ns)),
                      .verify = given.verify,
                      .stress_interval = given.stress_interval,
                      .poison = given.poison,
                      .huge_pages = static_cast<HugePages>(given.huge_pages),
                      .pretouch = given.pretouch,
                      .listener = listener};
  if (given.name != nullptr) options.name = given.name;
  return options;
}

}  // namespace

CHeap* find_heap(ts_heap* handle) noexcept {
  const std::uintptr_t value = detail::address_of(handle);
  const std::uintptr_t generation = value >> kHandleBits;
  const Place& place = places[value % kMaxHeaps];
  if (generation % 2 == 0 || place.generation.load() != generation) return nullptr;
  return place.heap.load();
}

Result<> CHeap::make(const HeapOptions& options, const ts_object_model* model) noexcept {
  const auto keep = [&](auto&& made) -> Result<> {
    if (!made) return std::unexpected(made.error());
    core_ = std::move(*made);
    core_->keep_detached_mutators();
    return {};
  };
  if (model == nullptr) return keep(Heap<HeaderModel<8>>::create(options));
  if (model->alignment == 8) {
    return keep(Heap<CallbackModel<8>>::create(options, CallbackModel<8>{*model}));
  }
  return keep(Heap<CallbackModel<16>>::create(options, CallbackModel<16>{*model}));
}

// ---- Roots

static std::uint64_t id_of(const Mutator* mutator) noexcept {
  return mutator != nullptr ? mutator->id() : 0;
}

void CHeap::Roots::visit(RootVisitor& visitor, void* roots) noexcept {
  const Roots& it = *static_cast<const Roots*>(roots);
  it.callback(reinterpret_cast<ts_root_visitor*>(&visitor), it.context);
}

Result<> CHeap::add_roots(Mutator* mutator, ts_root_callback callback, void* context) noexcept {
  const auto error = [](ErrorCode code, const char* detail) {
    return std::unexpected(Error{.code = code, .operation = "ts_add_roots", .detail = detail});
  };
  if (callback == nullptr) return error(ErrorCode::kInvalidArgument, "no callback");
  const std::lock_guard lock(mutex_);
  try {
    callbacks_.push_back(std::make_unique<Roots>(id_of(mutator), callback, context));
    const RootCallback shown{&Roots::visit, callbacks_.back().get()};
    Result<> added;
    if (mutator != nullptr) {
      mutator->add_roots(shown);
    } else {
      added = core_->add_roots(shown);
    }
    if (!added) callbacks_.pop_back();
    return added;
  } catch (const std::bad_alloc&) {
    if (!callbacks_.empty() && callbacks_.back() == nullptr) callbacks_.pop_back();
    return error(ErrorCode::kOutOfMemory, "");
  }
}

Result<> CHeap::remove_roots(Mutator* mutator, ts_root_callback callback, void* context) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto each = callbacks_.begin(); each != callbacks_.end(); ++each) {
    const Roots& it = **each;
    if (it.mutator_id != id_of(mutator) || it.callback != callback || it.context != context)
      continue;
    const RootCallback shown{&Roots::visit, each->get()};
    if (mutator != nullptr ? mutator->remove_roots(shown) : core_->remove_roots(shown)) {
      callbacks_.erase(each);
      return {};
    }
  }
  return std::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                               .operation = "ts_remove_roots",
                               .detail = "there are no such roots"});
}

void CHeap::forget_roots(std::uint64_t mutator_id) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(callbacks_, [&](const auto& each) { return each->mutator_id == mutator_id; });
}

// ---- The listener

ts_collection_report to_c(const CollectionReport& report) noexcept {
  return {.size = sizeof(ts_collection_report),
          .number = report.number,
          .kind = static_cast<ts_collection_kind>(report.kind),
          .cause = static_cast<ts_collection_cause>(report.cause),
          .workers = report.workers,
          .stop_ns = report.stop_ns,
          .pause_ns = report.pause_ns,
          .mark_ns = report.mark_ns,
          .move_ns = report.move_ns,
          .used_before = report.used_before,
          .used_after = report.used_after,
          .copied = report.copied,
          .promoted = report.promoted,
          .compacted = report.compacted,
          .marked = report.marked,
          .kept_regions = report.kept_regions,
          .pinned_objects = report.pinned_objects,
          .dirty_cards = report.dirty_cards,
          .freed_regions = report.freed_regions,
          .freed_large = report.freed_large,
          .pinned_bytes = report.pinned_bytes,
          .pinned_regions = report.pinned_regions,
          .retained_bytes = report.retained_bytes};
}

void CHeap::on_collection_start(const CollectionReport& report) noexcept {
  if (listener_.collection_start == nullptr) return;
  const ts_collection_report told = to_c(report);
  listener_.collection_start(&told, listener_.context);
}
void CHeap::on_collection_end(const CollectionReport& report) noexcept {
  if (listener_.collection_end == nullptr) return;
  const ts_collection_report told = to_c(report);
  listener_.collection_end(&told, listener_.context);
}
void CHeap::on_safepoint_timeout(std::span<const LateMutator> late) noexcept {
  if (listener_.safepoint_timeout == nullptr) return;
  for (const LateMutator& each : late) {
    listener_.safepoint_timeout(each.id, each.name, listener_.context);
  }
}
void CHeap::on_out_of_memory(std::size_t size) noexcept {
  if (listener_.out_of_memory != nullptr) listener_.out_of_memory(size, listener_.context);
}
void CHeap::on_growth(std::size_t committed, const Error* error) noexcept {
  if (listener_.growth == nullptr) return;
  const ts_error told = error != nullptr ? to_c(*error) : ts_error_init();
  listener_.growth(committed, error != nullptr ? &told : nullptr, listener_.context);
}
void CHeap::on_trim(std::size_t bytes) noexcept {
  if (listener_.trim != nullptr) listener_.trim(bytes, listener_.context);
}
void CHeap::on_violation(const Violation& violation) noexcept {
  if (listener_.violation == nullptr) return;
  const ts_violation told{.size = sizeof(ts_violation),
                          .what = violation.what,
                          .object = violation.object,
                          .field = violation.field,
                          .value = violation.value,
                          .collection = violation.collection};
  listener_.violation(&told, listener_.context);
}

}  // namespace touchstone::heap::c

using namespace touchstone;
using namespace touchstone::heap;
using namespace touchstone::heap::c;
using touchstone::heap::detail::CallbackScope;

/// A root of C's; one type for each so that a ts_root is no ts_weak.
struct ts_root {
  ts_root(CHeap& heap, void* object) noexcept
      : owner(heap), root(heap.core(), static_cast<std::byte*>(object)) {}
  CHeap& owner;
  GlobalRoot<std::byte> root;
};
struct ts_weak {
  ts_weak(CHeap& heap, void* object) noexcept
      : owner(heap), root(heap.core(), static_cast<std::byte*>(object)) {}
  CHeap& owner;
  WeakRoot<std::byte> root;
};

namespace {

template <typename Root>
ts_code make_root(const char* operation, ts_heap* heap, void* object, Root** root,
                  ts_error* error) noexcept {
  CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  if (root == nullptr) {
    return fail(ErrorCode::kInvalidArgument, operation, "nowhere to write the result to", error);
  }
  *root = new (std::nothrow) Root(*it, object);
  if (*root == nullptr) return fail(ErrorCode::kOutOfMemory, operation, "", error);
  it->roots.fetch_add(1);
  return TS_OK;
}
template <typename Root>
void destroy_root(Root* root) noexcept {
  if (root == nullptr) return;
  root->owner.roots.fetch_sub(1);
  delete root;
}

ts_code check_model(const ts_object_model& model, ts_error* error) noexcept {
  const auto bad = [&](const char* detail) {
    return fail(ErrorCode::kInvalidArgument, "ts_heap_create", detail, error);
  };
  if (model.alignment != 8 && model.alignment != 16) return bad("model: alignment is not 8 or 16");
  if (model.object_size == nullptr) return bad("model: no object_size");
  if (model.trace == nullptr) return bad("model: no trace");
  if (model.write_filler == nullptr) return bad("model: no write_filler");
  return TS_OK;
}

}  // namespace

extern "C" {

ts_code ts_heap_create(const ts_heap_options* options, ts_heap** heap, ts_error* error) noexcept {
  constexpr const char* operation = "ts_heap_create";
  const auto bad = [&](const char* detail) {
    return fail(ErrorCode::kInvalidArgument, operation, detail, error);
  };
  if (heap == nullptr) return bad("nowhere to write the result to");
  *heap = nullptr;
  ts_heap_options known = ts_heap_options_init();
  if (auto read = read_struct(operation, options, known); !read) return fail(read.error(), error);
  ts_object_model model{};
  if (auto read = read_struct(operation, known.model, model); !read) {
    return fail(read.error(), error);
  }
  if (known.model != nullptr) {
    if (const ts_code checked = check_model(model, error); checked != TS_OK) return checked;
  }
  ts_listener listener{};
  if (auto read = read_struct(operation, known.listener, listener); !read) {
    return fail(read.error(), error);
  }
  if (known.huge_pages > TS_HUGE_PAGES_AVOID) {
    return bad("huge_pages");
  }
  if (known.safepoint_timeout_ns > INT64_MAX) return bad("safepoint_timeout_ns");

  std::unique_ptr<CHeap> made(new (std::nothrow) CHeap(listener));
  if (!made) return fail(ErrorCode::kOutOfMemory, operation, "", error);
  const HeapOptions wanted = options_of(known, made.get());
  if (Result<> done = made->make(wanted, known.model != nullptr ? &model : nullptr); !done) {
    return fail(done.error(), error);
  }
  *heap = publish(made.get());
  if (*heap == nullptr) {
    return fail(ErrorCode::kLimitExceeded, operation, "too many heaps at a time", error);
  }
  static_cast<void>(made.release());
  return TS_OK;
}

ts_code ts_heap_destroy(ts_heap* heap, ts_error* error) noexcept {
  CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  const auto busy = [&](const char* detail) {
    return fail(ErrorCode::kBusy, "ts_heap_destroy", detail, error);
  };
  if (CallbackScope::entered(&it->core())) return busy("called from what the heap called");
  // Withdrawn first, so that nobody attaches between the look and the end.
  if (!withdraw(heap)) return fail(kGone, error);
  const char* const user = it->core().statistics().mutators != 0 ? "mutators are attached"
                           : it->roots.load() != 0               ? "roots exist"
                                                                 : nullptr;
  if (user != nullptr) {
    restore(heap);
    return busy(user);
  }
  places[detail::address_of(heap) % kMaxHeaps].heap.store(nullptr);
  delete it;
  return TS_OK;
}

ts_code ts_collect(ts_heap* heap, ts_mutator* mutator, ts_collection_kind kind,
                   ts_collection_report* report, ts_error* error) noexcept {
  CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  if (kind != TS_COLLECT_YOUNG && kind != TS_COLLECT_FULL) {
    return fail(ErrorCode::kInvalidArgument, "ts_collect", "kind", error);
  }
  if (report != nullptr) {
    if (auto fine = check_output("ts_collect", report); !fine) return fail(fine.error(), error);
  }
  Mutator* const self = find_mutator(mutator);
  if (mutator != nullptr && (self == nullptr || &self->heap() != &it->core())) {
    return fail(ErrorCode::kInvalidArgument, "ts_collect", "not a mutator of this heap", error);
  }
  const auto done = it->core().collect(self, static_cast<CollectionKind>(kind));
  if (done) write_struct(to_c(*done), report);
  return finish(done, error);
}

ts_code ts_trim(ts_heap* heap, ts_mutator* mutator, size_t* bytes, ts_error* error) noexcept {
  CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  Mutator* const self = find_mutator(mutator);
  if (mutator != nullptr && (self == nullptr || &self->heap() != &it->core())) {
    return fail(ErrorCode::kInvalidArgument, "ts_trim", "not a mutator of this heap", error);
  }
  const auto done = it->core().trim(self);
  if (done && bytes != nullptr) *bytes = *done;
  return finish(done, error);
}

ts_code ts_get_statistics(ts_heap* heap, ts_statistics* statistics, ts_error* error) noexcept {
  const CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  if (auto fine = check_output("ts_get_statistics", statistics); !fine) {
    return fail(fine.error(), error);
  }
  const HeapStatistics s = it->core().statistics();
  write_struct(ts_statistics{.size = sizeof(ts_statistics),
                             .young_collections = s.young_collections,
                             .full_collections = s.full_collections,
                             .pause_ns = s.pause_ns,
                             .longest_pause_ns = s.longest_pause_ns,
                             .stop_ns = s.stop_ns,
                             .longest_stop_ns = s.longest_stop_ns,
                             .safepoint_timeouts = s.safepoint_timeouts,
                             .allocated = s.allocated,
                             .copied = s.copied,
                             .promoted = s.promoted,
                             .compacted = s.compacted,
                             .kept_regions = s.kept_regions,
                             .pinned_objects = s.pinned_objects,
                             .out_of_memory = s.out_of_memory,
                             .trimmed = s.trimmed,
                             .violations = s.violations,
                             .max_size = s.max_size,
                             .soft_max_size = s.soft_max_size,
                             .target_size = s.target_size,
                             .committed = s.committed,
                             .side_tables = s.side_tables,
                             .used = s.used,
                             .live_after_full = s.live_after_full,
                             .region_size = s.region_size,
                             .chunk_size = s.chunk_size,
                             .eden_regions = s.eden_regions,
                             .survivor_regions = s.survivor_regions,
                             .old_regions = s.old_regions,
                             .large_regions = s.large_regions,
                             .free_regions = s.free_regions,
                             .mutators = s.mutators,
                             .workers = s.workers,
                             .pinned_bytes = s.pinned_bytes,
                             .pinned_regions = s.pinned_regions,
                             .retained_bytes = s.retained_bytes},
               statistics);
  return TS_OK;
}

ts_code ts_get_statistics_json(ts_heap* heap, char* buffer, size_t size, size_t* length,
                               ts_error* error) noexcept {
  const CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  if (buffer == nullptr && size != 0) {
    return fail(ErrorCode::kInvalidArgument, "ts_get_statistics_json", "no buffer", error);
  }
  try {
    const std::string text = to_json(it->core().statistics());
    const std::size_t whole = write_text(text.c_str(), text.size(), buffer, size);
    if (length != nullptr) *length = whole;
    return TS_OK;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "ts_get_statistics_json", "", error);
  }
}

ts_code ts_get_last_collection(ts_heap* heap, ts_collection_report* report,
                               ts_error* error) noexcept {
  const CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  if (auto fine = check_output("ts_get_last_collection", report); !fine) {
    return fail(fine.error(), error);
  }
  write_struct(heap::c::to_c(it->core().last_collection()), report);
  return TS_OK;
}

bool ts_heap_contains(ts_heap* heap, const void* address) noexcept {
  const CHeap* const it = find_heap(heap);
  return it != nullptr && it->core().contains(address);
}

void ts_visit_roots(ts_root_visitor* visitor, void* first, size_t count) noexcept {
  reinterpret_cast<RootVisitor*>(visitor)->visit_range(first, count);
}
void ts_visit_ambiguous(ts_root_visitor* visitor, const void* begin, const void* end) noexcept {
  reinterpret_cast<RootVisitor*>(visitor)->visit_ambiguous(begin, end);
}

ts_code ts_add_roots(ts_heap* heap, ts_root_callback callback, void* context,
                     ts_error* error) noexcept {
  CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  return finish(it->add_roots(nullptr, callback, context), error);
}
ts_code ts_remove_roots(ts_heap* heap, ts_root_callback callback, void* context,
                        ts_error* error) noexcept {
  CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  return finish(it->remove_roots(nullptr, callback, context), error);
}

ts_code ts_root_create(ts_heap* heap, void* object, ts_root** root, ts_error* error) noexcept {
  return make_root("ts_root_create", heap, object, root, error);
}
void* ts_root_get(const ts_root* root) noexcept {
  return root->root.get();
}
void ts_root_set(ts_root* root, void* object) noexcept {
  root->root = static_cast<std::byte*>(object);
}
void ts_root_destroy(ts_root* root) noexcept {
  destroy_root(root);
}

ts_code ts_weak_create(ts_heap* heap, void* object, ts_weak** weak, ts_error* error) noexcept {
  return make_root("ts_weak_create", heap, object, weak, error);
}
void* ts_weak_get(const ts_weak* weak) noexcept {
  return weak->root.get();
}
void ts_weak_set(ts_weak* weak, void* object) noexcept {
  weak->root = static_cast<std::byte*>(object);
}
void ts_weak_destroy(ts_weak* weak) noexcept {
  destroy_root(weak);
}

ts_code ts_add_finalizer(ts_heap* heap, void* object, uint32_t priority, void* context,
                         ts_error* error) noexcept {
  const CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  if (object == nullptr || !it->core().contains(object)) {
    return fail(ErrorCode::kInvalidArgument, "ts_add_finalizer", "not an object of this heap",
                error);
  }
  return finish(it->core().add_finalizer(object, priority, context), error);
}
bool ts_next_finalizable(ts_heap* heap, void** object, void** context) noexcept {
  const CHeap* const it = find_heap(heap);
  if (it == nullptr || object == nullptr) return false;
  const auto next = it->core().next_finalizable();
  if (!next) return false;
  *object = next->object;
  if (context != nullptr) *context = next->context;
  return true;
}

ts_code ts_get_fast_path_layout(ts_heap* heap, ts_fast_path_layout* layout,
                                ts_error* error) noexcept {
  const CHeap* const it = find_heap(heap);
  if (it == nullptr) return fail(kGone, error);
  if (auto fine = check_output("ts_get_fast_path_layout", layout); !fine) {
    return fail(fine.error(), error);
  }
  const FastPathLayout from = it->core().fast_path_layout();
  write_struct(ts_fast_path_layout{.size = sizeof(ts_fast_path_layout),
                                   .tlab_top_offset = from.tlab_top_offset,
                                   .object_alignment = from.object_alignment,
                                   .max_tlab_object = from.max_tlab_object,
                                   .max_young_object = from.max_young_object,
                                   .card_table_offset = from.card_table_offset,
                                   .mark_bitmap_offset = from.mark_bitmap_offset,
                                   .safepoint_flag_offset = from.safepoint_flag_offset,
                                   .card_shift = from.card_shift,
                                   .dirty_card = from.dirty_card,
                                   .clean_card = from.clean_card,
                                   .mark_shift = from.mark_shift},
               layout);
  return TS_OK;
}

}  // extern "C"
