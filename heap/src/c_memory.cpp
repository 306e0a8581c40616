// SPDX-License-Identifier: MIT
// touchstone/c/memory.h.
#include <algorithm>
#include <csignal>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <touchstone/c/memory.h>
#include <touchstone/heap/discard.h>
#include <touchstone/heap/pretouch.h>
#include <touchstone/heap/quarantine.h>
#include <touchstone/heap/reservation.h>
#include <touchstone/heap/residency.h>

#include "c_abi.h"

using namespace touchstone;
using namespace touchstone::heap;
using namespace touchstone::heap::c;

struct ts_reservation {
  Reservation memory;
};
struct ts_quarantine {
  std::unique_ptr<Quarantine> blocks;
};

namespace {

MemoryRange range_of(void* address, size_t length) noexcept {
  return {static_cast<std::byte*>(address), length};
}

ts_code no_memory(const char* operation, ts_error* error) noexcept {
  return fail(ErrorCode::kOutOfMemory, operation, "", error);
}
ts_code bad(const char* operation, const char* detail, ts_error* error) noexcept {
  return fail(ErrorCode::kInvalidArgument, operation, detail, error);
}

/// Calls a verb of a reservation, and keeps exceptions in.
template <typename Verb>
ts_code on(const char* operation, ts_reservation* reservation, ts_error* error,
           Verb&& verb) noexcept {
  if (reservation == nullptr) return bad(operation, "no reservation", error);
  return finish(verb(reservation->memory), error);
}

/// Whether a value from C is one of an enum that ends with `last`.
template <typename Enum>
bool in_enum(Enum value, Enum last) noexcept {
  return value <= last;
}

constexpr HugePageAdvice advice_of(ts_huge_pages pages) noexcept {
  return pages == TS_HUGE_PAGES_PREFER  ? HugePageAdvice::kHuge
         : pages == TS_HUGE_PAGES_AVOID ? HugePageAdvice::kNoHuge
                                        : HugePageAdvice::kLeave;
}

ts_fault to_c(const FaultExplanation& fault) noexcept {
  return {.size = sizeof(ts_fault),
          .address = fault.address,
          .block = fault.block,
          .block_size = fault.block_size,
          .offset = fault.offset,
          .freed_epoch = fault.freed_epoch,
          .age = fault.age,
          .tag = fault.tag};
}

static_assert(static_cast<int>(PretouchStrategy::kAutomatic) == TS_PRETOUCH_AUTOMATIC);
static_assert(static_cast<int>(PretouchStrategy::kCollapse) == TS_PRETOUCH_COLLAPSE);
static_assert(static_cast<int>(LimitPolicy::kIgnore) == TS_LIMIT_IGNORE);
static_assert(static_cast<int>(ForkBehaviour::kOmit) == TS_FORK_OMIT);
static_assert(static_cast<int>(Protection::kReadWrite) == TS_PROTECT_READ_WRITE);
static_assert(static_cast<int>(DiscardPolicy::kLazily) == TS_DISCARD_LAZILY);
static_assert(static_cast<int>(HugePages::kAvoid) == TS_HUGE_PAGES_AVOID);
static_assert(static_cast<int>(QuarantineMechanism::kRemap) + 1 == TS_QUARANTINE_REMAP);

}  // namespace

extern "C" {

// ---- Reservations

ts_code ts_reserve(const ts_reservation_options* options, ts_reservation** made,
                   ts_error* error) noexcept {
  constexpr const char* operation = "ts_reserve";
  if (made == nullptr) return bad(operation, "nowhere to write the result to", error);
  *made = nullptr;
  ts_reservation_options known = ts_reservation_options_init(0);
  if (auto read = read_struct(operation, options, known); !read) return fail(read.error(), error);
  if (!in_enum(known.huge_pages, TS_HUGE_PAGES_AVOID)) return bad(operation, "huge_pages", error);
  if (!in_enum(known.fork, TS_FORK_OMIT)) return bad(operation, "fork", error);
  auto memory = Reservation::reserve({.size = known.bytes,
                                      .alignment = known.alignment,
                                      .name = known.name,
                                      .huge_pages = static_cast<HugePages>(known.huge_pages),
                                      .fork = static_cast<ForkBehaviour>(known.fork),
                                      .hugetlb_page = known.hugetlb_page});
  if (!memory) return fail(memory.error(), error);
  *made = new (std::nothrow) ts_reservation{std::move(*memory)};
  return *made != nullptr ? TS_OK : no_memory(operation, error);
}
void* ts_reservation_start(const ts_reservation* reservation) noexcept {
  return reservation != nullptr ? reservation->memory.data() : nullptr;
}
size_t ts_reservation_size(const ts_reservation* reservation) noexcept {
  return reservation != nullptr ? reservation->memory.size() : 0;
}
ts_code ts_commit(ts_reservation* reservation, void* address, size_t length, bool* zeroed,
                  ts_error* error) noexcept {
  return on("ts_commit", reservation, error, [&](Reservation& memory) {
    const auto done = memory.commit(range_of(address, length));
    if (done && zeroed != nullptr) *zeroed = done->zeroed;
    return done;
  });
}
ts_code ts_uncommit(ts_reservation* reservation, void* address, size_t length,
                    ts_error* error) noexcept {
  return on("ts_uncommit", reservation, error,
            [&](Reservation& memory) { return memory.uncommit(range_of(address, length)); });
}
ts_code ts_discard(ts_reservation* reservation, void* address, size_t length,
                   ts_discard_policy policy, ts_error* error) noexcept {
  if (!in_enum(policy, TS_DISCARD_LAZILY)) return bad("ts_discard", "policy", error);
  return on("ts_discard", reservation, error, [&](Reservation& memory) {
    return memory.discard(range_of(address, length), static_cast<DiscardPolicy>(policy));
  });
}
ts_code ts_protect(ts_reservation* reservation, void* address, size_t length,
                   ts_protection protection, ts_error* error) noexcept {
  if (!in_enum(protection, TS_PROTECT_READ_WRITE)) return bad("ts_protect", "protection", error);
  return on("ts_protect", reservation, error, [&](Reservation& memory) {
    return memory.protect(range_of(address, length), static_cast<Protection>(protection));
  });
}
ts_code ts_seal(ts_reservation* reservation, void* address, size_t length,
                ts_error* error) noexcept {
  return on("ts_seal", reservation, error,
            [&](Reservation& memory) { return memory.seal(range_of(address, length)); });
}
ts_code ts_reservation_destroy(ts_reservation* reservation, ts_error* error) noexcept {
  if (reservation == nullptr) return TS_OK;
  const Result<> done = reservation->memory.destroy();
  if (reservation->memory.size() == 0) delete reservation;
  return finish(done, error);
}

// ---- Pre-touch

ts_code ts_pretouch(void* address, size_t length, const ts_pretouch_options* options,
                    ts_pretouch_result* result, ts_error* error) noexcept {
  constexpr const char* operation = "ts_pretouch";
  ts_pretouch_options known = ts_pretouch_options_init();
  if (auto read = read_struct(operation, options, known); !read) return fail(read.error(), error);
  if (!in_enum(known.strategy, TS_PRETOUCH_AUTOMATIC)) return bad(operation, "strategy", error);
  if (!in_enum(known.huge_pages, TS_HUGE_PAGES_AVOID)) return bad(operation, "huge_pages", error);
  if (!in_enum(known.limits, TS_LIMIT_IGNORE)) return bad(operation, "limits", error);
  if (result != nullptr) {
    if (auto fine = check_output(operation, result); !fine) return fail(fine.error(), error);
  }
  try {
    const PretouchOutcome done =
        pretouch(address, length,
                 {.strategy = static_cast<PretouchStrategy>(known.strategy),
                  .threads = known.threads,
                  .huge_pages = advice_of(known.huge_pages),
                  .memory_in_use = known.memory_in_use,
                  .limits = static_cast<LimitPolicy>(known.limits)});
    if (!done) return fail(done.error().error, error);
    write_struct(ts_pretouch_result{.size = sizeof(ts_pretouch_result),
                                    .bytes = done->bytes,
                                    .clamped_bytes = done->clamped_bytes,
                                    .strategy = static_cast<ts_pretouch_strategy>(done->strategy),
                                    .threads = done->threads,
                                    .huge_bytes = done->huge_bytes ? *done->huge_bytes : TS_UNKNOWN,
                                    .minor_faults = done->faults ? done->faults->minor : TS_UNKNOWN,
                                    .seconds = done->seconds},
                 result);
    return TS_OK;
  } catch (const std::bad_alloc&) {
    return no_memory(operation, error);
  }
}

// ---- Residency

ts_code ts_residency_of(const void* address, size_t length, ts_residency* residency,
                        ts_error* error) noexcept {
  constexpr const char* operation = "ts_residency_of";
  if (auto fine = check_output(operation, residency); !fine) return fail(fine.error(), error);
  try {
    const auto found = residency_of(address, length);
    if (!found) return fail(found.error(), error);
    write_struct(ts_residency{.size = sizeof(ts_residency),
                              .source = to_string(found->source),
                              .present = found->present,
                              .zero = found->zero.value_or(TS_UNKNOWN),
                              .swapped = found->swapped.value_or(TS_UNKNOWN),
                              .huge = found->huge.value_or(TS_UNKNOWN)},
                 residency);
    return TS_OK;
  } catch (const std::bad_alloc&) {
    return no_memory(operation, error);
  }
}

// ---- Give-back

ts_code ts_discard_ranges(const ts_range* ranges, size_t count, ts_discard_policy policy,
                          size_t granule, ts_discard_progress* progress, ts_error* error) noexcept {
  constexpr const char* operation = "ts_discard_ranges";
  if (ranges == nullptr && count != 0) return bad(operation, "no ranges", error);
  if (!in_enum(policy, TS_DISCARD_LAZILY)) return bad(operation, "policy", error);
  if (progress != nullptr) {
    if (auto fine = check_output(operation, progress); !fine) return fail(fine.error(), error);
  }
  try {
    std::vector<MemoryRange> all;
    all.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      all.push_back(range_of(ranges[i].address, ranges[i].length));
    }
    BatchedDiscard discard({.policy = static_cast<DiscardPolicy>(policy), .granule = granule});
    DiscardProgress at;
    const Result<> done = discard.discard(all, at);
    write_struct(ts_discard_progress{.size = sizeof(ts_discard_progress),
                                     .range = at.range,
                                     .offset = at.offset,
                                     .bytes = at.bytes,
                                     .kept_bytes = at.kept_bytes,
                                     .calls = at.calls},
                 progress);
    return finish(done, error);
  } catch (const std::bad_alloc&) {
    return no_memory(operation, error);
  }
}

// ---- Quarantine

ts_code ts_quarantine_create(const ts_quarantine_options* options, ts_quarantine** made,
                             ts_error* error) noexcept {
  constexpr const char* operation = "ts_quarantine_create";
  if (made == nullptr) return bad(operation, "nowhere to write the result to", error);
  *made = nullptr;
  ts_quarantine_options known = ts_quarantine_options_init();
  if (auto read = read_struct(operation, options, known); !read) return fail(read.error(), error);
  if (!in_enum(known.mechanism, TS_QUARANTINE_REMAP)) return bad(operation, "mechanism", error);
  QuarantineOptions wanted{
      .epochs = known.epochs, .max_bytes = known.max_bytes, .max_blocks = known.max_blocks};
  if (known.mechanism != TS_QUARANTINE_AUTOMATIC) {
    wanted.mechanism = static_cast<QuarantineMechanism>(static_cast<int>(known.mechanism) - 1);
  }
  auto blocks = Quarantine::create(wanted);
  if (!blocks) return fail(blocks.error(), error);
  *made = new (std::nothrow) ts_quarantine{std::move(*blocks)};
  return *made != nullptr ? TS_OK : no_memory(operation, error);
}
void ts_quarantine_destroy(ts_quarantine* quarantine) noexcept {
  delete quarantine;
}
ts_code ts_quarantine_put(ts_quarantine* quarantine, void* address, size_t length, uint64_t tag,
                          ts_error* error) noexcept {
  if (quarantine == nullptr) return bad("ts_quarantine_put", "no quarantine", error);
  return finish(quarantine->blocks->put(range_of(address, length), tag), error);
}
uint64_t ts_quarantine_advance(ts_quarantine* quarantine) noexcept {
  return quarantine != nullptr ? quarantine->blocks->advance() : 0;
}
ts_code ts_quarantine_release(ts_quarantine* quarantine, size_t room, bool any,
                              ts_released_block* block, ts_error* error) noexcept {
  constexpr const char* operation = "ts_quarantine_release";
  if (quarantine == nullptr) return bad(operation, "no quarantine", error);
  if (auto fine = check_output(operation, block); !fine) return fail(fine.error(), error);
  const auto released = any ? quarantine->blocks->release_any() : quarantine->blocks->release(room);
  if (!released) return fail(released.error(), error);
  ts_released_block told{.size = sizeof(ts_released_block)};
  if (*released) {
    told.address = (*released)->range.data();
    told.length = (*released)->range.size();
    told.tag = (*released)->tag;
    told.freed_epoch = (*released)->freed_epoch;
    told.zeroed = (*released)->zeroed;
  }
  write_struct(told, block);
  return TS_OK;
}

bool ts_explain_fault(const void* siginfo, ts_fault* fault) noexcept {
  if (siginfo == nullptr) return false;
  const auto found = explain_fault(*static_cast<const siginfo_t*>(siginfo));
  if (!found) return false;
  write_struct(to_c(*found), fault);
  return true;
}
size_t ts_describe_fault(const ts_fault* fault, char* line, size_t size) noexcept {
  ts_fault known{};
  if (fault == nullptr || !read_struct("ts_describe_fault", fault, known)) return 0;
  const FaultExplanation explanation{.address = known.address,
                                     .block = known.block,
                                     .block_size = known.block_size,
                                     .offset = known.offset,
                                     .freed_epoch = known.freed_epoch,
                                     .age = known.age,
                                     .tag = known.tag};
  return explanation.describe({line, size});
}

}  // extern "C"
