// Clock: the only source of time. Durations and deadlines use Now(), which never jumps; WallNow() is
// for what people read and for stamps that outlive the process. Tests use FakeClock (tests/support).
#pragma once

#include <chrono>
#include <cstdint>

#include "base/mutex.h"

namespace moonpool {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  // Milliseconds since 1970-01-01 UTC; may step backwards.
  virtual int64_t WallNowMs() const = 0;
  // Releases `mutex` until `condition` is notified or `deadline` has come; may return early.
  virtual void WaitUntil(CondVar& condition, Mutex& mutex, TimePoint deadline) const REQUIRES(mutex) = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  int64_t WallNowMs() const override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  void WaitUntil(CondVar& condition, Mutex& mutex, TimePoint deadline) const override REQUIRES(mutex) {
    condition.WaitFor(mutex, deadline - Now());
  }
};

inline double ToMs(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }
inline double ToSeconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// When an operation must have ended. A value; copy it down the call chain.
class Deadline {
 public:
  Deadline(const Clock& clock, Duration allowed) : clock_(&clock), at_(clock.Now() + allowed) {}
  Deadline(const Clock& clock, TimePoint at) : clock_(&clock), at_(at) {}

  TimePoint At() const { return at_; }
  bool Passed() const { return clock_->Now() >= at_; }
  // Never negative.
  Duration Left() const {
    const Duration left = at_ - clock_->Now();
    return left < Duration::zero() ? Duration::zero() : left;
  }
  // The earlier of this deadline and `allowed` from now on.
  Deadline AtMost(Duration allowed) const {
    const TimePoint other = clock_->Now() + allowed;
    return Deadline(*clock_, other < at_ ? other : at_);
  }

 private:
  const Clock* clock_;  // outlives every deadline made from it
  TimePoint at_;
};

}  // namespace moonpool
