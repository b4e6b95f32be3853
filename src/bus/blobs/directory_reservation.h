// DirectoryReservation: bytes that count against the directory's quota until they are written or the reservation is
// dropped. Used by one thread at a time; must not outlive its store.
#pragma once

#include <vector>

#include "bus/blobs/evictor.h"
#include "bus/blobs/open_directory.h"

namespace moonpool::bus {

class DirectoryReservation final : public Reservation {
 public:
  explicit DirectoryReservation(OpenDirectory& directory) : directory_(directory) {}
  ~DirectoryReservation() override;
  DirectoryReservation(const DirectoryReservation&) = delete;
  DirectoryReservation& operator=(const DirectoryReservation&) = delete;

  // Makes it at least `bytes`, evicting if needed. kQuota; then it is as before.
  Result<void> GrowTo(uint64_t bytes, Evictor& evictor, const DirectoryLock::Hold& hold);
  // The bytes were written and charged, or will not be: nothing is reserved any more.
  void End(const DirectoryLock::Hold& hold);

  const OpenDirectory& directory() const { return directory_; }
  uint64_t bytes() const { return bytes_; }
  // What was evicted for it.
  std::vector<ObjectId>& evicted() { return evicted_; }

 private:
  OpenDirectory& directory_;
  uint64_t bytes_ = 0;
  std::vector<ObjectId> evicted_;
};

}  // namespace moonpool::bus
