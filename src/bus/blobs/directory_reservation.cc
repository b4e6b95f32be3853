#include "bus/blobs/directory_reservation.h"

#include <utility>

namespace moonpool::bus {

DirectoryReservation::~DirectoryReservation() {
  if (bytes_ == 0) return;
  const auto hold = directory_.lock->Acquire();
  if (hold) {
    End(*hold);
  } else {
    directory_.ledger->Forget(bytes_);
  }
}

Result<void> DirectoryReservation::GrowTo(uint64_t bytes, Evictor& evictor, const DirectoryLock::Hold& hold) {
  if (bytes <= bytes_) return {};
  MP_RETURN_IF_ERROR(evictor.MakeRoom(bytes - bytes_, evicted_, hold));
  MP_RETURN_IF_ERROR(directory_.ledger->Reserve(bytes - bytes_, hold));
  bytes_ = bytes;
  return {};
}

void DirectoryReservation::End(const DirectoryLock::Hold& hold) {
  directory_.ledger->Unreserve(std::exchange(bytes_, 0), hold);
}

}  // namespace moonpool::bus
