// Executor: where a core puts work that must not sit in a caller's path. The shell owns a ThreadPool;
// tests own a ManualExecutor (tests/support) and run the work when they choose.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace moonpool {

class Executor {
 public:
  virtual ~Executor() = default;
  // False if the queue is full or the executor is shutting down; the work is then dropped unrun.
  virtual bool Post(std::function<void()> work) = 0;
};

// A fixed number of threads over one bounded queue. Thread-safe.
class ThreadPool final : public Executor {
 public:
  ThreadPool(int threads, size_t queue_max);
  // Runs what is queued, then joins.
  ~ThreadPool() override;
  bool Post(std::function<void()> work) override EXCLUDES(mutex_);
  // Refuses new work, runs what is queued, joins. Idempotent.
  void Shutdown() EXCLUDES(mutex_);

 private:
  void Run() EXCLUDES(mutex_);

  const size_t queue_max_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // touched by the constructor and Shutdown only
};

}  // namespace moonpool
