// SPDX-License-Identifier: MIT
#include <algorithm>
#include <atomic>
#include <utility>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <touchstone/heap/pretouch.h>
#include <touchstone/heap/system_calls.h>

#include "page_probe.h"
#include "pretouch_choice.h"
#include "pretouch_limits.h"
#include "pretouch_run.h"

namespace touchstone::heap {
namespace {

constexpr const char* kOperation = "pretouch";
/// Large enough that a chunk costs far more than taking it, small enough that threads end together.
constexpr std::size_t kDefaultChunk = std::size_t{16} << 20;

/// The options, checked, with what they leave open filled in.
struct Plan {
  std::byte* begin = nullptr;
  std::size_t length = 0;
  arch::Geometry geometry;
  const TouchKernel* kernel = nullptr;
  unsigned threads = 1;
  std::size_t chunk = 0;
};

Result<Plan> make_plan(void* address, std::size_t length, const PretouchOptions& options) {
  const auto refuse = [&](ErrorCode code, const char* detail) {
    return std::unexpected(Error{.code = code,
                                 .operation = kOperation,
                                 .address = reinterpret_cast<std::uintptr_t>(address),
                                 .length = length,
                                 .detail = detail});
  };
  const Result<arch::Geometry> geometry = geometry_of(options);
  if (!geometry) return refuse(geometry.error().code, geometry.error().detail);
  const Result<> range = check_range(kOperation, address, length, geometry->base_page);
  if (!range) return std::unexpected(range.error());
  if (std::ranges::find(all_pretouch_strategies(), options.strategy) ==
      all_pretouch_strategies().end()) {
    return refuse(ErrorCode::kInvalidArgument, "no such strategy");
  }
  if (options.threads > kMaxPretouchThreads) {
    return refuse(ErrorCode::kInvalidArgument, "at most 1024 threads; 0 is one per usable CPU");
  }
  if (options.chunk % geometry->pmd != 0) {
    return refuse(ErrorCode::kInvalidArgument, "chunk must be a multiple of the PMD size");
  }
  const TouchKernel& kernel =
      options.touch_kernel != nullptr ? *options.touch_kernel : default_touch_kernel();
  if (kernel.touch == nullptr) {
    return refuse(ErrorCode::kInvalidArgument, "the touch kernel has no function");
  }
  if (options.memory_in_use) {
    if (!safe_beside_mutators(options.strategy)) {
      return refuse(ErrorCode::kBusy, "the strategy is not safe beside mutators");
    }
    if (options.strategy == PretouchStrategy::kAtomicRmw && !kernel.value_preserving) {
      return refuse(ErrorCode::kBusy, "the touch kernel does not preserve values");
    }
  }
  const unsigned threads =
      options.threads != 0 ? options.threads : std::min(arch::usable_cpus(), kMaxPretouchThreads);
  return Plan{.begin = static_cast<std::byte*>(address),
              .length = length,
              .geometry = *geometry,
              .kernel = &kernel,
              .threads = threads,
              .chunk = options.chunk != 0 ? options.chunk : std::max(kDefaultChunk, geometry->pmd)};
}

PretouchFailure failure(Error error, PretouchStrategy strategy) {
  return {.error = error, .strategy = strategy};
}

/// What to tell the choice about the range: the caller's advice, else what smaps says it was given.
HugePageAdvice advice_in_force(const Plan& plan, const PretouchOptions& options) {
  if (options.huge_pages != HugePageAdvice::kLeave) return options.huge_pages;
  const Result<Smaps> map = smaps(plan.begin, plan.length, options.roots);
  if (map && map->advised_huge) return HugePageAdvice::kHuge;
  if (map && map->advised_no_huge) return HugePageAdvice::kNoHuge;
  return HugePageAdvice::kLeave;
}

/// With automatic, whether another strategy may succeed where one failed so. EINVAL is not among
/// them: the kernel knew the advice in the trial, so the memory is at fault, and a store would be
/// deadly.
bool worth_another(ErrorCode code) noexcept {
  return code == ErrorCode::kIneffective || code == ErrorCode::kNotPermitted ||
         code == ErrorCode::kUnsupported;
}

Result<std::size_t> huge_bytes(const Plan& plan, const Result<Residency>& residency,
                               const arch::SystemRoots& roots) {
  if (residency) {
    const std::optional<std::size_t> huge = residency->huge;
    if (huge) return *huge;
  }
  const Result<Smaps> map = smaps(plan.begin, plan.length, roots);
  if (!map) return std::unexpected(map.error());
  if (map->exact) return map->anon_huge_pages + map->shared_hugetlb + map->private_hugetlb;
  return std::unexpected(Error{.code = ErrorCode::kUnavailable,
                               .operation = "read self/smaps",
                               .detail = "the range is part of a larger mapping"});
}

std::unexpected<PretouchFailure> stopped(const PretouchRun& run, Error error,
                                         PretouchStrategy strategy,
                                         std::optional<PretouchLimits> limits) {
  PretouchFailure result = failure(error, strategy);
  for (const PretouchedPart& part : run.touched()) {
    if (part.offset != 0) result.beyond.push_back(part);
  }
  result.limits = std::move(limits);
  return std::unexpected(std::move(result));
}

PretouchOutcome pretouch_plan(Plan plan, const PretouchOptions& options, std::stop_token cancel,
                              SharedProgress* shared) {
  const std::size_t asked = plan.length;
  const Result<PageProbe> probe = PageProbe::open_best();
  const PageProbe* const source = probe ? &*probe : nullptr;
  const auto residency = [&]() -> Result<Residency> {
    if (source == nullptr) return std::unexpected(probe.error());
    return source->residency(plan.begin, plan.length);
  };

  PretouchResult result{.strategy = options.strategy, .chunk = plan.chunk};
  if (options.strategy == PretouchStrategy::kNone) {
    result.residency = residency();
    result.huge_bytes = huge_bytes(plan, result.residency, options.roots);
    return result;
  }

  if (options.limits != LimitPolicy::kIgnore) {
    result.limits = read_limits(options.roots);
    const Result<std::size_t> fits =
        length_within(*result.limits, options.limits, plan.begin, plan.length, plan.geometry,
                      plan.threads, source);
    if (!fits) {
      PretouchFailure refused = failure(fits.error(), options.strategy);
      refused.limits = std::move(result.limits);
      return std::unexpected(std::move(refused));
    }
    plan.length = *fits;
    result.clamped_bytes = asked - plan.length;
    if (plan.length == 0) {
      result.strategy = PretouchStrategy::kNone;
      result.residency = Residency{.length = 0};
      result.huge_bytes = 0;
      return result;
    }
  }

  if (options.huge_pages != HugePageAdvice::kLeave) {
    const bool wanted = options.huge_pages == HugePageAdvice::kHuge;
    std::optional<Error> error = advise_whole(
        plan.begin, plan.length, wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE,
        wanted ? "madvise(MADV_HUGEPAGE)" : "madvise(MADV_NOHUGEPAGE)", result.retries);
    // EINVAL is a kernel without THP, where there is nothing to advise.
    if (error && error->code != ErrorCode::kInvalidArgument) {
      return std::unexpected(failure(*error, options.strategy));
    }
  }

  std::vector<PretouchStrategy> order{options.strategy};
  if (options.strategy == PretouchStrategy::kAutomatic) {
    PretouchOptions query = options;
    query.geometry = plan.geometry;
    query.touch_kernel = plan.kernel;
    query.huge_pages = advice_in_force(plan, options);
    Result<PretouchChoice> choice = choose_pretouch_strategy(query);
    if (!choice) return std::unexpected(failure(choice.error(), options.strategy));
    order = ranking(*choice, options.memory_in_use);
    result.choice = std::move(*choice);
  }

  std::optional<Result<Vmstat>> before;
  if (options.count_system_wide) before = vmstat(options.roots);
  const Toucher toucher(*plan.kernel, plan.geometry, source, options.verify);
  PretouchRun run({.begin = plan.begin,
                   .length = plan.length,
                   .chunk = plan.chunk,
                   .pmd = plan.geometry.pmd,
                   .threads = plan.threads,
                   .on_progress = options.on_progress,
                   .stop = options.stop,
                   .cancel = std::move(cancel),
                   .shared = shared},
                  toucher);
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.strategy = order[i];
    const std::optional<Error> error = run.run(order[i]);
    if (!error) break;
    if (i + 1 == order.size() || !worth_another(error->code)) {
      return stopped(run, *error, order[i], std::move(result.limits));
    }
    if (result.choice) {
      result.choice->reason +=
          std::string("; then ") + to_string(order[i]) + " stopped on the way: " + error->message();
    }
  }

  const bool kernel_ran = result.strategy == PretouchStrategy::kAtomicRmw;
  result.bytes = plan.length;
  result.touch_kernel = kernel_ran ? plan.kernel->name : "";
  result.threads = run.threads();
  result.faults = run.faults();
  result.seconds = run.seconds();
  result.retries += run.retries();
  if (before) {
    result.system_wide = vmstat(options.roots);
    if (!*before) result.system_wide = *before;
    if (*result.system_wide) result.system_wide = (*result.system_wide)->since(**before);
  }
  result.residency = residency();
  result.huge_bytes = huge_bytes(plan, result.residency, options.roots);
  return result;
}

}  // namespace

PretouchOutcome pretouch(void* address, std::size_t length, const PretouchOptions& options) {
  const Result<Plan> plan = make_plan(address, length, options);
  if (!plan) return std::unexpected(failure(plan.error(), options.strategy));
  return pretouch_plan(*plan, options, {}, nullptr);
}

// ---- In the background ----

struct PretouchTask::State {
  Plan plan;
  PretouchOptions options;
  std::stop_source cancel;
  SharedProgress progress;
  PretouchOutcome outcome;
  std::atomic<bool> finished{false};
  pthread_t thread{};
  /// A forked child has the handle and not the thread.
  pid_t owner = 0;

  static void* run(void* argument) {
    State& state = *static_cast<State*>(argument);
    state.outcome =
        pretouch_plan(state.plan, state.options, state.cancel.get_token(), &state.progress);
    state.finished.store(true, std::memory_order_release);
    return nullptr;
  }
};

PretouchTask::PretouchTask() noexcept = default;
PretouchTask::PretouchTask(PretouchTask&& other) noexcept = default;

PretouchTask& PretouchTask::operator=(PretouchTask&& other) noexcept {
  const PretouchTask old(std::move(*this));  // ends here
  state_ = std::move(other.state_);
  return *this;
}

PretouchTask::PretouchTask(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

PretouchTask::~PretouchTask() {
  if (state_ == nullptr) return;
  cancel();
  // Nobody is left to be told how it ended.
  [[maybe_unused]] const PretouchOutcome ignored = wait();
}

bool PretouchTask::valid() const noexcept {
  return state_ != nullptr;
}

PretouchProgress PretouchTask::progress() const noexcept {
  if (state_ == nullptr) return {};
  // The prefix first: done may only be ahead of it.
  const std::size_t prefix = state_->progress.prefix.load(std::memory_order_acquire);
  return {.done = state_->progress.done.load(std::memory_order_acquire),
          .prefix = prefix,
          .total = state_->progress.total.load(std::memory_order_acquire)};
}

bool PretouchTask::finished() const noexcept {
  return state_ != nullptr && state_->finished.load(std::memory_order_acquire);
}

void PretouchTask::cancel() noexcept {
  if (state_ != nullptr) state_->cancel.request_stop();
}

PretouchOutcome PretouchTask::wait() {
  if (state_ == nullptr) {
    return std::unexpected(failure({.code = ErrorCode::kInvalidArgument,
                                    .operation = "PretouchTask::wait",
                                    .detail = "the task is empty"},
                                   PretouchStrategy::kNone));
  }
  if (state_->owner != ::getpid()) {
    // The copy of the state may be half-written, and its thread is not here: leave it alone.
    const PretouchStrategy strategy = state_.release()->options.strategy;
    return std::unexpected(failure({.code = ErrorCode::kFrozen,
                                    .operation = "PretouchTask::wait",
                                    .detail = "the task runs in the parent process"},
                                   strategy));
  }
  ::pthread_join(state_->thread, nullptr);
  const std::unique_ptr<State> state = std::move(state_);
  return std::move(state->outcome);
}

Result<PretouchTask> start_pretouch(void* address, std::size_t length,
                                    const PretouchOptions& options) {
  const Result<Plan> plan = make_plan(address, length, options);
  if (!plan) return std::unexpected(plan.error());
  auto state = std::make_unique<PretouchTask::State>();
  state->plan = *plan;
  state->options = options;
  state->owner = ::getpid();
  state->progress.total = length;
  const int refused =
      system_calls().create_thread(&state->thread, nullptr, PretouchTask::State::run, state.get());
  if (refused != 0) {
    return std::unexpected(Error{.code = ErrorCode::kOutOfMemory,
                                 .operation = "pthread_create",
                                 .address = reinterpret_cast<std::uintptr_t>(address),
                                 .length = length,
                                 .system_errno = refused});
  }
  return PretouchTask(std::move(state));
}

}  // namespace touchstone::heap
