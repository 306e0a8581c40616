// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_PRETOUCH_RUN_H_
#define TOUCHSTONE_HEAP_SRC_PRETOUCH_RUN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include <touchstone/arch/error.h>
#include <touchstone/arch/machine.h>
#include <touchstone/heap/pretouch.h>

#include "page_probe.h"

namespace touchstone::heap {

/// Touches one piece of a range, on the calling thread.
class Toucher {
 public:
  /// `probe` finds exact progress and, with `verify`, calls that did nothing; it may be null.
  Toucher(const TouchKernel& kernel, arch::Geometry geometry, const PageProbe* probe,
          bool verify) noexcept
      : kernel_(kernel), geometry_(geometry), probe_(probe), verify_(verify) {}

  struct Piece {
    std::byte* begin = nullptr;
    std::size_t length = 0;
    /// What went wrong; its progress is from `begin` on.
    std::optional<Error> error{};
    /// Parts of a failed piece that are touched, from `begin` on.
    std::vector<PretouchedPart> touched{};
    /// Faults and CPU time of the touching alone, without what finding out about it took.
    Faults faults{};
    double cpu_seconds = 0;
    bool faults_known = true;
    std::uint64_t retries = 0;
  };

  /// Touches piece.begin .. + piece.length by `strategy`, which is neither kNone nor kAutomatic,
  /// and fills in the rest. `stop` is asked between retries.
  void touch(PretouchStrategy strategy, Piece& piece, const std::function<bool()>& stop) const;

  /// Calls everything once on nothing, so that loading code is not counted as touching.
  void warm_up(PretouchStrategy strategy) const noexcept;

 private:
  [[nodiscard]] std::optional<Error> advise(Piece& piece, std::byte* begin, std::size_t length,
                                            int advice, const char* operation,
                                            const std::function<bool()>& stop) const;
  [[nodiscard]] std::optional<Error> touch_by(PretouchStrategy strategy, Piece& piece,
                                              const std::function<bool()>& stop) const;
  [[nodiscard]] std::optional<Error> collapse(Piece& piece,
                                              const std::function<bool()>& stop) const;
  [[nodiscard]] std::optional<Error> check_effect(PretouchStrategy strategy,
                                                  const Piece& piece) const;
  [[nodiscard]] std::vector<PretouchedPart> touched_parts(const Piece& piece) const;

  const TouchKernel& kernel_;
  arch::Geometry geometry_;
  const PageProbe* probe_;
  bool verify_;
};

/// A progress that other threads may read.
struct SharedProgress {
  std::atomic<std::size_t> done{0};
  std::atomic<std::size_t> prefix{0};
  std::atomic<std::size_t> total{0};
};

/// Touches a whole range by several threads, chunk by chunk.
class PretouchRun {
 public:
  struct Request {
    std::byte* begin = nullptr;
    std::size_t length = 0;
    std::size_t chunk = 0;
    std::size_t pmd = 0;
    unsigned threads = 1;
    std::function<void(const PretouchProgress&)> on_progress{};
    std::stop_token stop{};
    std::stop_token cancel{};
    SharedProgress* shared = nullptr;
  };

  PretouchRun(Request request, const Toucher& toucher);

  /// Touches what is not touched yet. May be called again, with another strategy, after an error.
  [[nodiscard]] std::optional<Error> run(PretouchStrategy strategy);

  [[nodiscard]] unsigned threads() const noexcept { return threads_; }
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] std::uint64_t retries() const noexcept { return retries_; }
  [[nodiscard]] Result<Faults> faults() const noexcept;
  /// Touched parts, in order and apart from each other.
  [[nodiscard]] std::vector<PretouchedPart> touched() const;

 private:
  struct Chunk {
    bool done = false;
    std::vector<PretouchedPart> parts{};  // of a failed one, from the start of the range
  };

  [[nodiscard]] PretouchedPart place(std::size_t index) const noexcept;
  [[nodiscard]] bool stopping() const noexcept;
  void work(PretouchStrategy strategy, bool report);
  void finish(std::size_t index, Toucher::Piece&& piece);
  [[nodiscard]] PretouchProgress progress() const noexcept;
  static void* work_on_thread(void* argument);

  Request request_;
  const Toucher& toucher_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // guards what follows
  std::vector<Chunk> chunks_;
  std::size_t done_ = 0;
  std::size_t prefix_chunks_ = 0;
  std::optional<Error> error_{};
  Faults faults_{};
  bool faults_known_ = true;
  std::uint64_t retries_ = 0;
  unsigned threads_ = 0;
  double seconds_ = 0;
};

/// Calls madvise until it succeeds or fails for good; EINTR and EAGAIN are tried again. For advice
/// that needs no resuming.
[[nodiscard]] std::optional<Error> advise_whole(std::byte* begin, std::size_t length, int advice,
                                                const char* operation, std::uint64_t& retries);

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_SRC_PRETOUCH_RUN_H_
