// SlotActionQueue: one slot action at a time per server, first come, first served. The server itself queues actions
// without limit and cannot take one back, so waiting is done here, where a deadline ends it. Thread-safe.
#pragma once

#include <list>

#include "base/clock.h"
#include "moonpool/result.h"

namespace moonpool::bus {

class SlotActionQueue {
 public:
  static constexpr size_t kWaitingMax = 1024;

  // The right to one action; gives it back when it goes.
  class Turn {
   public:
    Turn(Turn&& other) noexcept : queue_(other.queue_) { other.queue_ = nullptr; }
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (queue_ != nullptr) queue_->Leave();
    }

   private:
    friend class SlotActionQueue;
    explicit Turn(SlotActionQueue& queue) : queue_(&queue) {}
    SlotActionQueue* queue_;
  };

  explicit SlotActionQueue(const Clock& clock) : clock_(clock) {}

  // Waits for its turn. kDeadlineExceeded (then nothing was asked of the server); kBusy if too many wait already.
  Result<Turn> Wait(const Deadline& deadline) EXCLUDES(mutex_);

 private:
  void Leave() EXCLUDES(mutex_);

  const Clock& clock_;  // outlives the queue
  Mutex mutex_;
  CondVar moved_;
  // Everybody who acts or waits, in order of arrival; the front acts.
  std::list<char> line_ GUARDED_BY(mutex_);
};

}  // namespace moonpool::bus
