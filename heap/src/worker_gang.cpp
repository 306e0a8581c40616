// SPDX-License-Identifier: MIT
#include <mutex>
#include <new>

#include <signal.h>

#include <touchstone/heap/detail/worker_gang.h>
#include <touchstone/heap/system_calls.h>

namespace touchstone::heap::detail {

WorkerGang::~WorkerGang() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  start_.notify_all();
  for (unsigned i = 0; i < started_; ++i) ::pthread_join(members_[i].thread, nullptr);
}

unsigned WorkerGang::start() noexcept {
  if (tried_) return size();
  tried_ = true;
  if (wanted_ < 2) return size();
  members_.reset(new (std::nothrow) Member[wanted_ - 1]);
  if (!members_) return size();
  // Signals are the embedder's threads' business.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  const bool blocked = ::pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
  for (unsigned i = 0; i + 1 < wanted_; ++i) {
    Member& member = members_[i];
    member.gang = this;
    member.worker = i + 1;
    member.round = round_;
    if (system_calls().create_thread(&member.thread, nullptr, &WorkerGang::work, &member) != 0) {
      break;
    }
    ++started_;
  }
  if (blocked) ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return size();
}

void WorkerGang::run(unsigned workers, Task task, void* context) noexcept {
  if (workers > 1) {
    {
      const std::lock_guard lock(mutex_);
      task_ = task;
      context_ = context;
      taking_part_ = workers;
      busy_ = workers - 1;
      ++round_;
    }
    start_.notify_all();
  }
  task(context, 0);
  if (workers > 1) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return busy_ == 0; });
  }
}

void* WorkerGang::work(void* pointer) noexcept {
  Member& member = *static_cast<Member*>(pointer);
  WorkerGang& gang = *member.gang;
  std::unique_lock lock(gang.mutex_);
  for (;;) {
    gang.start_.wait(lock, [&] { return gang.ending_ || gang.round_ != member.round; });
    if (gang.ending_) return nullptr;
    member.round = gang.round_;
    if (member.worker >= gang.taking_part_) continue;
    const Task task = gang.task_;
    void* const context = gang.context_;
    lock.unlock();
    task(context, member.worker);
    lock.lock();
    if (--gang.busy_ == 0) gang.done_.notify_one();
  }
}

void WorkerGang::forget_threads() noexcept {
  started_ = 0;
  tried_ = false;
  // The threads' stacks went with them; the members may not be freed while anyone could look.
  members_.reset();
}

}  // namespace touchstone::heap::detail
