// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_DETAIL_WORKER_GANG_H_
#define TOUCHSTONE_HEAP_DETAIL_WORKER_GANG_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <pthread.h>

#include <touchstone/arch/export.h>

namespace touchstone::heap::detail {

/// Threads that wait to run one task all together. They are started at the first one; where the
/// system gives fewer, the rest do the work.
class TOUCHSTONE_API WorkerGang {
 public:
  explicit WorkerGang(unsigned workers) noexcept : wanted_(workers) {}
  ~WorkerGang();
  WorkerGang(const WorkerGang&) = delete;
  WorkerGang& operator=(const WorkerGang&) = delete;

  /// Starts what is not started yet; the workers there are then, the calling thread included.
  unsigned start() noexcept;
  [[nodiscard]] unsigned size() const noexcept { return started_ + 1; }

  using Task = void (*)(void* context, unsigned worker) noexcept;
  /// Runs it on workers 0 (the calling thread) to `workers` - 1, at most size(), and waits for all.
  void run(unsigned workers, Task task, void* context) noexcept;

  /// In a child after fork: the threads are not there. They are started anew when needed.
  void forget_threads() noexcept;

 private:
  struct Member {
    WorkerGang* gang = nullptr;
    unsigned worker = 0;
    std::uint64_t round = 0;
    pthread_t thread{};
  };
  static void* work(void* member) noexcept;

  const unsigned wanted_;
  unsigned started_ = 0;
  bool tried_ = false;
  std::unique_ptr<Member[]> members_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  std::uint64_t round_ = 0;
  unsigned taking_part_ = 0;
  unsigned busy_ = 0;
  bool ending_ = false;
  Task task_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace touchstone::heap::detail

#endif  // TOUCHSTONE_HEAP_DETAIL_WORKER_GANG_H_
