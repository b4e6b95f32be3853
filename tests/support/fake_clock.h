// FakeClock: time moves only when a test says so. Waits on it end when the test advances past them.
#pragma once

#include <set>

#include "base/clock.h"

namespace moonpool::testing {

class FakeClock final : public Clock {
 public:
  TimePoint Now() const override {
    MutexLock lock(mutex_);
    return now_;
  }
  int64_t WallNowMs() const override {
    MutexLock lock(mutex_);
    return wall_ms_;
  }
  void WaitUntil(CondVar& condition, Mutex& mutex, TimePoint deadline) const override REQUIRES(mutex) {
    {
      MutexLock lock(mutex_);
      if (now_ >= deadline) return;
      ++waiting_;
      changed_.NotifyAll();
    }
    // Advance cannot take the caller's mutex (it does not know it), so a short real poll closes the gap
    // between looking at the time and waiting.
    condition.WaitFor(mutex, std::chrono::milliseconds(2));
    MutexLock lock(mutex_);
    --waiting_;
  }

  void Advance(Duration by) {
    MutexLock lock(mutex_);
    now_ += by;
    wall_ms_ += std::chrono::duration_cast<std::chrono::milliseconds>(by).count();
  }
  void SetWallMs(int64_t wall_ms) {
    MutexLock lock(mutex_);
    wall_ms_ = wall_ms;
  }
  // Gives waiting threads a moment to notice the new time: a real pause of a waiter's poll, bounded.
  void AwaitTurn() const {
    MutexLock lock(mutex_);
    changed_.WaitFor(mutex_, std::chrono::milliseconds(5));
  }
  // Blocks until at least `count` threads are inside WaitUntil.
  void AwaitWaiters(int count) const {
    MutexLock lock(mutex_);
    while (waiting_ < count) changed_.Wait(mutex_);
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable int waiting_ GUARDED_BY(mutex_) = 0;
  TimePoint now_ GUARDED_BY(mutex_) = TimePoint(std::chrono::hours(1000));
  int64_t wall_ms_ GUARDED_BY(mutex_) = 1'700'000'000'000;
};

}  // namespace moonpool::testing
