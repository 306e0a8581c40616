// SPDX-License-Identifier: MIT
#include "pretouch_run.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <utility>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <touchstone/heap/system_calls.h>

#include "touching.h"

// Linux include/uapi/asm-generic/mman-common.h, for older headers; the same on arm64 and x86-64.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
static_assert(MADV_POPULATE_READ == 22 && MADV_POPULATE_WRITE == 23 && MADV_COLLAPSE == 25);

namespace touchstone::heap {
namespace {

/// EINTR and EAGAIN in a row, without a page of progress, after which they count as failure.
constexpr unsigned kMaxIdleRetries = 128;
/// Workers run a loop and a few system calls; their stacks need not eat into RLIMIT_AS.
constexpr std::size_t kWorkerStack = std::size_t{256} << 10;

constexpr const char* kPopulateWriteName = "madvise(MADV_POPULATE_WRITE)";

std::uintptr_t address_of(const std::byte* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

Error make_error(ErrorCode code, const char* operation, const std::byte* begin, std::size_t length,
                 const char* detail = "", int system_errno = 0) noexcept {
  return {.code = code,
          .operation = operation,
          .address = address_of(begin),
          .length = length,
          .system_errno = system_errno,
          .detail = detail};
}

TOUCHSTONE_TOUCHES void store_each(std::byte* begin, const std::byte* end,
                                   std::size_t stride) noexcept {
  for (std::byte* page = begin; page < end; page += stride) {
    *static_cast<volatile std::byte*>(page) = std::byte{0};
  }
}

TOUCHSTONE_TOUCHES void load_then_store_each(std::byte* begin, const std::byte* end,
                                             std::size_t stride) noexcept {
  for (std::byte* page = begin; page < end; page += stride) {
    volatile std::byte* const place = page;
    *place = std::byte{*place};
  }
}

/// CPU time of this thread, which other processes do not lengthen.
double thread_seconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// The error for an madvise that failed with `reason`. Its operation is done on a piece.
Error advice_error(int advice, int reason, const char* operation, const std::byte* begin,
                   std::size_t length) noexcept {
  Error error = make_error(code_of_errno(reason), operation, begin, length, "", reason);
  if (reason == EINVAL) {
    // A length of 0 asks whether the kernel knows the advice at all.
    if (system_calls().madvise(nullptr, 0, advice) != 0) {
      error.code = ErrorCode::kUnsupported;
      error.detail = "this kernel does not know the advice";
    } else {
      error.detail = advice == MADV_COLLAPSE ? "not memory that huge pages can back"
                                             : "not memory that can be written";
    }
  } else if (reason == ENOMEM) {
    error.detail = "unmapped memory in the range, or no memory left";
  }
  return error;
}

}  // namespace

std::optional<Error> advise_whole(std::byte* begin, std::size_t length, int advice,
                                  const char* operation, std::uint64_t& retries) {
  for (unsigned idle = 0;; ++idle) {
    if (system_calls().madvise(begin, length, advice) == 0) return std::nullopt;
    const int reason = errno;
    if ((reason != EINTR && reason != EAGAIN) || idle == kMaxIdleRetries) {
      return make_error(code_of_errno(reason), operation, begin, length, "", reason);
    }
    ++retries;
    ::sched_yield();
  }
}

// ---- One piece ----

std::optional<Error> Toucher::advise(Piece& piece, std::byte* begin, std::size_t length, int advice,
                                     const char* operation,
                                     const std::function<bool()>& stop) const {
  std::byte* const end = begin + length;
  std::byte* next = begin;
  unsigned idle = 0;
  while (next < end) {
    const auto left = static_cast<std::size_t>(end - next);
    if (system_calls().madvise(next, left, advice) == 0) return std::nullopt;
    const int reason = errno;
    if (reason != EINTR && reason != EAGAIN) {
      return advice_error(advice, reason, operation, piece.begin, piece.length);
    }
    ++piece.retries;
    // Only writing shows in residency as done; the other advice is cheap to repeat.
    std::size_t progress = 0;
    if (probe_ != nullptr && advice == MADV_POPULATE_WRITE) {
      progress = probe_->populated_prefix(next, left).value_or(0);
    }
    next += progress;
    idle = progress == 0 ? idle + 1 : 0;
    if (idle > kMaxIdleRetries) {
      return make_error(code_of_errno(reason), operation, piece.begin, piece.length,
                        "repeated without progress", reason);
    }
    if (stop()) {
      return make_error(ErrorCode::kCancelled, "pretouch", piece.begin, piece.length);
    }
    ::sched_yield();
  }
  return std::nullopt;
}

std::optional<Error> Toucher::collapse(Piece& piece, const std::function<bool()>& stop) const {
  std::byte* const end = piece.begin + piece.length;
  const std::size_t into = address_of(piece.begin) % geometry_.pmd;
  const std::size_t head = std::min(into == 0 ? 0 : geometry_.pmd - into, piece.length);
  std::byte* const first = piece.begin + head;
  const std::size_t whole = (piece.length - head) / geometry_.pmd * geometry_.pmd;
  std::byte* const last = first + whole;
  const auto populate = [&](std::byte* begin, std::size_t length) -> std::optional<Error> {
    if (length == 0) return std::nullopt;
    return advise(piece, begin, length, MADV_POPULATE_WRITE, kPopulateWriteName, stop);
  };
  std::optional<Error> error = populate(piece.begin, head);
  // The kernel collapses no range that has no page at all. An atomic would do, too, and on arm64
  // fault twice.
  for (std::byte* huge = first; !error && huge < last; huge += geometry_.pmd) {
    error = populate(huge, geometry_.base_page);
  }
  if (!error) error = populate(last, static_cast<std::size_t>(end - last));
  if (error) return error;
  if (whole == 0) return std::nullopt;
  return advise(piece, first, whole, MADV_COLLAPSE, "madvise(MADV_COLLAPSE)", stop);
}

std::optional<Error> Toucher::touch_by(PretouchStrategy strategy, Piece& piece,
                                       const std::function<bool()>& stop) const {
  std::byte* const begin = piece.begin;
  std::byte* const end = begin + piece.length;
  const std::size_t stride = geometry_.base_page;
  switch (strategy) {
    case PretouchStrategy::kStore:
      store_each(begin, end, stride);
      break;
    case PretouchStrategy::kAtomicRmw:
      kernel_.touch(begin, end, stride);
      break;
    case PretouchStrategy::kPopulateWrite:
      return advise(piece, begin, piece.length, MADV_POPULATE_WRITE, kPopulateWriteName, stop);
    case PretouchStrategy::kPopulateReadThenStore: {
      std::optional<Error> error = advise(piece, begin, piece.length, MADV_POPULATE_READ,
                                          "madvise(MADV_POPULATE_READ)", stop);
      if (error) return error;
      store_each(begin, end, stride);
      break;
    }
    case PretouchStrategy::kLoadThenStore:
      load_then_store_each(begin, end, stride);
      break;
    case PretouchStrategy::kCollapse:
      return collapse(piece, stop);
    case PretouchStrategy::kNone:
    case PretouchStrategy::kAutomatic:
      break;
  }
  return std::nullopt;
}

std::vector<PretouchedPart> Toucher::touched_parts(const Piece& piece) const {
  std::vector<PretouchedPart> parts;
  if (probe_ == nullptr) return parts;
  std::size_t offset = 0;
  const Result<> walked =
      probe_->walk(piece.begin, piece.length, [&](std::size_t bytes, PageState state) {
        if (state.populated()) {
          if (!parts.empty() && parts.back().offset + parts.back().length == offset) {
            parts.back().length += bytes;
          } else {
            parts.push_back({offset, bytes});
          }
        }
        offset += bytes;
        return true;
      });
  // Holes may leave a source without an answer; what it said until then holds.
  static_cast<void>(walked);
  return parts;
}

std::optional<Error> Toucher::check_effect(PretouchStrategy strategy, const Piece& piece) const {
  const char* operation = nullptr;
  if (strategy == PretouchStrategy::kPopulateWrite) operation = kPopulateWriteName;
  if (strategy == PretouchStrategy::kCollapse) operation = "madvise(MADV_COLLAPSE)";
  if (operation == nullptr || probe_ == nullptr || !verify_) return std::nullopt;
  const Result<Residency> found = probe_->residency(piece.begin, piece.length);
  // Not to know is no failure; the residency of the result says why.
  if (!found) return std::nullopt;
  if (found->populated() < piece.length) {
    return make_error(ErrorCode::kIneffective, operation, piece.begin, piece.length,
                      "it reported success and pages are missing");
  }
  const std::optional<std::size_t> huge = found->huge;
  if (strategy == PretouchStrategy::kCollapse && huge) {
    const std::uintptr_t begin = address_of(piece.begin);
    const std::uintptr_t end = begin + piece.length;
    const std::uintptr_t first = (begin + geometry_.pmd - 1) / geometry_.pmd * geometry_.pmd;
    const std::uintptr_t last = end / geometry_.pmd * geometry_.pmd;
    if (last > first && *huge < last - first) {
      return make_error(ErrorCode::kIneffective, operation, piece.begin, piece.length,
                        "it reported success and huge pages are missing");
    }
  }
  return std::nullopt;
}

void Toucher::touch(PretouchStrategy strategy, Piece& piece,
                    const std::function<bool()>& stop) const {
  const Result<Faults> before = thread_faults();
  const double start = thread_seconds();
  piece.error = touch_by(strategy, piece, stop);
  piece.cpu_seconds = thread_seconds() - start;
  const Result<Faults> after = thread_faults();
  piece.faults_known = before && after;
  if (piece.faults_known) piece.faults = after->since(*before);
  if (!piece.error) piece.error = check_effect(strategy, piece);
  if (piece.error) {
    piece.touched = touched_parts(piece);
    const bool from_start = !piece.touched.empty() && piece.touched.front().offset == 0;
    piece.error->progress = from_start ? piece.touched.front().length : 0;
  }
}

void Toucher::warm_up(PretouchStrategy strategy) const noexcept {
  std::byte nothing{};
  static_cast<void>(system_calls().madvise(nullptr, 0, MADV_NORMAL));
  [[maybe_unused]] const Result<Faults> ignored = thread_faults();
  if (strategy == PretouchStrategy::kAtomicRmw) {
    kernel_.touch(&nothing, &nothing, geometry_.base_page);
  }
  store_each(&nothing, &nothing, geometry_.base_page);
  load_then_store_each(&nothing, &nothing, geometry_.base_page);
}

// ---- A whole range ----

PretouchRun::PretouchRun(Request request, const Toucher& toucher)
    : request_(std::move(request)), toucher_(toucher) {
  const std::size_t into = address_of(request_.begin) % request_.pmd;
  chunks_.resize((into + request_.length - 1) / request_.chunk + 1);
  if (request_.shared != nullptr) request_.shared->total = request_.length;
}

PretouchedPart PretouchRun::place(std::size_t index) const noexcept {
  // Chunks begin at whole huge pages, so the first may be cut short.
  const std::size_t into = address_of(request_.begin) % request_.pmd;
  const std::size_t from = std::max(index * request_.chunk, into) - into;
  const std::size_t to = std::min(request_.length, (index + 1) * request_.chunk - into);
  return {from, to - from};
}

bool PretouchRun::stopping() const noexcept {
  return failed_.load(std::memory_order_relaxed) || request_.stop.stop_requested() ||
         request_.cancel.stop_requested();
}

PretouchProgress PretouchRun::progress() const noexcept {
  const std::size_t prefix =
      prefix_chunks_ == chunks_.size() ? request_.length : place(prefix_chunks_).offset;
  return {.done = done_, .prefix = prefix, .total = request_.length};
}

void PretouchRun::finish(std::size_t index, Toucher::Piece&& piece) {
  const std::lock_guard lock(mutex_);
  Chunk& chunk = chunks_[index];
  faults_.minor += piece.faults.minor;
  faults_.major += piece.faults.major;
  faults_known_ = faults_known_ && piece.faults_known;
  retries_ += piece.retries;
  if (piece.error) {
    const std::size_t offset = place(index).offset;
    chunk.parts = std::move(piece.touched);
    for (PretouchedPart& part : chunk.parts) part.offset += offset;
    if (!error_) error_ = piece.error;
    failed_.store(true, std::memory_order_relaxed);
    return;
  }
  chunk.parts.clear();
  chunk.done = true;
  done_ += piece.length;
  while (prefix_chunks_ < chunks_.size() && chunks_[prefix_chunks_].done) ++prefix_chunks_;
  if (request_.shared != nullptr) {
    request_.shared->done.store(done_, std::memory_order_relaxed);
    request_.shared->prefix.store(progress().prefix, std::memory_order_relaxed);
  }
}

void PretouchRun::work(PretouchStrategy strategy, bool report) {
  const std::function<bool()> stop = [this] { return stopping(); };
  toucher_.warm_up(strategy);
  while (!stopping()) {
    const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= chunks_.size()) break;
    // Written before the threads start or by the thread that took this chunk: no lock.
    if (chunks_[index].done) continue;
    const PretouchedPart where = place(index);
    Toucher::Piece piece{.begin = request_.begin + where.offset, .length = where.length};
    toucher_.touch(strategy, piece, stop);
    finish(index, std::move(piece));
    if (report && request_.on_progress) {
      PretouchProgress now;
      {
        const std::lock_guard lock(mutex_);
        now = progress();
      }
      request_.on_progress(now);
    }
  }
}

namespace {

/// What a worker thread is given.
struct Worker {
  PretouchRun* run;
  PretouchStrategy strategy;
};

/// Attributes of worker threads: small stacks, and no signal of the embedder's but those that the
/// thread itself causes.
class WorkerAttributes {
 public:
  WorkerAttributes() noexcept {
    usable_ = ::pthread_attr_init(&attributes_) == 0;
    if (!usable_) return;
    // Refused where thread-local storage needs more: the default size stays.
    static_cast<void>(::pthread_attr_setstacksize(&attributes_, kWorkerStack));
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int synchronous : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS}) {
      sigdelset(&blocked, synchronous);
    }
    static_cast<void>(::pthread_attr_setsigmask_np(&attributes_, &blocked));
  }
  WorkerAttributes(const WorkerAttributes&) = delete;
  WorkerAttributes& operator=(const WorkerAttributes&) = delete;
  ~WorkerAttributes() {
    if (usable_) ::pthread_attr_destroy(&attributes_);
  }
  [[nodiscard]] const pthread_attr_t* get() const noexcept {
    return usable_ ? &attributes_ : nullptr;
  }

 private:
  pthread_attr_t attributes_{};
  bool usable_ = false;
};

}  // namespace

void* PretouchRun::work_on_thread(void* argument) {
  const Worker& worker = *static_cast<const Worker*>(argument);
  worker.run->work(worker.strategy, false);
  return nullptr;
}

std::optional<Error> PretouchRun::run(PretouchStrategy strategy) {
  next_ = 0;
  failed_ = false;
  error_.reset();
  const auto start = std::chrono::steady_clock::now();
  Worker worker{this, strategy};
  std::vector<pthread_t> helpers;
  const std::size_t wanted = std::min<std::size_t>(request_.threads, chunks_.size());
  helpers.reserve(wanted);
  const WorkerAttributes attributes;
  while (helpers.size() + 1 < wanted) {
    pthread_t thread{};
    if (system_calls().create_thread(&thread, attributes.get(), work_on_thread, &worker) != 0) {
      break;  // fewer threads do the same work
    }
    helpers.push_back(thread);
  }
  work(strategy, true);
  for (const pthread_t helper : helpers) ::pthread_join(helper, nullptr);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  threads_ = std::max(threads_, static_cast<unsigned>(helpers.size() + 1));
  if (request_.on_progress) request_.on_progress(progress());
  if (!error_ && prefix_chunks_ < chunks_.size()) {
    error_ = make_error(ErrorCode::kCancelled, "pretouch", request_.begin, request_.length);
  }
  if (error_) {
    const std::vector<PretouchedPart> parts = touched();
    error_->address = address_of(request_.begin);
    error_->length = request_.length;
    error_->progress = !parts.empty() && parts.front().offset == 0 ? parts.front().length : 0;
  }
  return error_;
}

Result<Faults> PretouchRun::faults() const noexcept {
  if (faults_known_) return faults_;
  return std::unexpected(
      Error{.code = ErrorCode::kUnavailable, .operation = "getrusage(RUSAGE_THREAD)"});
}

std::vector<PretouchedPart> PretouchRun::touched() const {
  std::vector<PretouchedPart> parts;
  const auto add = [&parts](PretouchedPart part) {
    if (!parts.empty() && parts.back().offset + parts.back().length == part.offset) {
      parts.back().length += part.length;
    } else {
      parts.push_back(part);
    }
  };
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].done) add(place(i));
    for (const PretouchedPart& part : chunks_[i].parts) add(part);
  }
  return parts;
}

}  // namespace touchstone::heap
