// SPDX-License-Identifier: MIT
#include <array>
#include <cstdarg>
#include <cstdio>

#include <touchstone/heap/gc_log.h>

namespace touchstone::heap {
namespace {

/// "[0.142s][info][gc] GC(3) Pause Full (request) 24M->4M(64M) 1.310ms", however large the numbers.
using Line = std::array<char, 192>;

Line line_of(const CollectionReport& r) noexcept {
  Line line{};
  const double end = static_cast<double>(r.start_ns + r.pause_ns) / 1e9;
  (void)std::snprintf(
      line.data(), line.size(), "[%.3fs][info][gc] GC(%llu) Pause %s (%s) %zuM->%zuM(%zuM) %.3fms",
      end, static_cast<unsigned long long>(r.number - 1),
      r.kind == CollectionKind::kYoung ? "Young" : "Full", to_string(r.cause), r.used_before >> 20U,
      r.used_after >> 20U, r.committed >> 20U, static_cast<double>(r.pause_ns) / 1e6);
  return line;
}

}  // namespace

std::string gc_log_line(const CollectionReport& report) {
  return line_of(report).data();
}

void GcLog::on_collection_start(const CollectionReport& report) noexcept {
  if (next_ != nullptr) next_->on_collection_start(report);
}
void GcLog::on_collection_end(const CollectionReport& report) noexcept {
  std::fprintf(stream_, "%s\n", line_of(report).data());
  if (next_ != nullptr) next_->on_collection_end(report);
}
void GcLog::on_safepoint_timeout(std::span<const LateMutator> late) noexcept {
  for (const LateMutator& each : late) {
    std::fprintf(stream_, "[warning][gc,safepoint] mutator %llu (%s) did not stop in time\n",
                 static_cast<unsigned long long>(each.id), each.name);
  }
  if (next_ != nullptr) next_->on_safepoint_timeout(late);
}
void GcLog::on_out_of_memory(std::size_t size) noexcept {
  std::fprintf(stream_, "[error][gc] out of memory: %zu bytes\n", size);
  if (next_ != nullptr) next_->on_out_of_memory(size);
}
void GcLog::on_growth(std::size_t committed, const Error* error) noexcept {
  if (error == nullptr) {
    std::fprintf(stream_, "[info][gc,heap] committed %zuM\n", committed >> 20U);
  } else {
    std::fprintf(stream_, "[warning][gc,heap] cannot grow beyond %zuM: %s, errno %d\n",
                 committed >> 20U, to_string(error->code), error->system_errno);
  }
  if (next_ != nullptr) next_->on_growth(committed, error);
}
void GcLog::on_trim(std::size_t bytes) noexcept {
  std::fprintf(stream_, "[info][gc,heap] gave back %zuM\n", bytes >> 20U);
  if (next_ != nullptr) next_->on_trim(bytes);
}
void GcLog::on_violation(const Violation& v) noexcept {
  std::fprintf(stream_, "[error][gc,verify] GC(%llu) %s: object %#zx, field %#zx, value %#zx\n",
               static_cast<unsigned long long>(v.collection - 1), v.what, v.object, v.field,
               v.value);
  if (next_ != nullptr) next_->on_violation(v);
}
void GcLog::on_abandoned_mutator(std::uint64_t id) noexcept {
  std::fprintf(stream_, "[warning][gc] mutator %llu was destroyed with handles in use\n",
               static_cast<unsigned long long>(id));
  if (next_ != nullptr) next_->on_abandoned_mutator(id);
}

}  // namespace touchstone::heap
