#include "bus/engine/slot_action_queue.h"

namespace moonpool::bus {

Result<SlotActionQueue::Turn> SlotActionQueue::Wait(const Deadline& deadline) {
  MutexLock lock(mutex_);
  if (line_.size() > kWaitingMax) return Fail(ErrorCode::kBusy, "too many slot actions wait for this server");
  const auto place = line_.insert(line_.end(), 0);
  while (place != line_.begin()) {
    if (deadline.Passed()) {
      line_.erase(place);
      return Fail(ErrorCode::kDeadlineExceeded, "another slot action on this server took all the time allowed");
    }
    clock_.WaitUntil(moved_, mutex_, deadline.At());
  }
  return Turn(*this);
}

void SlotActionQueue::Leave() {
  MutexLock lock(mutex_);
  line_.pop_front();
  moved_.NotifyAll();
}

}  // namespace moonpool::bus
