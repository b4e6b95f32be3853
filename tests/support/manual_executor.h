// ManualExecutor: posted work waits until the test runs it, on the test's thread.
#pragma once

#include <deque>

#include "base/executor.h"

namespace moonpool::testing {

class ManualExecutor final : public Executor {
 public:
  explicit ManualExecutor(size_t queue_max = 1000) : queue_max_(queue_max) {}
  bool Post(std::function<void()> work) override {
    MutexLock lock(mutex_);
    if (queue_.size() >= queue_max_) return false;
    queue_.push_back(std::move(work));
    return true;
  }
  // Runs everything queued, also what that queues; answers how many.
  int RunAll() {
    int count = 0;
    while (true) {
      std::function<void()> work;
      {
        MutexLock lock(mutex_);
        if (queue_.empty()) return count;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
      ++count;
    }
  }

 private:
  const size_t queue_max_;
  Mutex mutex_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
};

}  // namespace moonpool::testing
