// CanaryShelf: the canaries of a store directory (decision 6), one small file each, put-if-absent by number.
// A file's time of change is its last use. Thread-safe; Put and Remove run under the directory's lock.
#pragma once

#include <string>
#include <vector>

#include "bus/blobs/open_directory.h"

namespace moonpool::bus {

inline constexpr uint64_t kCanaryBytesMax = uint64_t{1} << 30;

class CanaryShelf {
 public:
  explicit CanaryShelf(OpenDirectory& directory) : directory_(directory) {}

  // kNotFound; kCorrupt: what stands there is damaged (the caller has it set aside).
  Result<std::string> Get(const CanaryRef& canary);
  static uint64_t CostOfCanary(size_t size_bytes);
  bool Exists(const CanaryRef& canary);
  // The caller has made room and charged CostOfCanary. kAlreadyExists.
  Result<void> Put(const CanaryRef& canary, std::string_view bytes, const DirectoryLock::Hold& hold);
  // Moves a damaged one out of the way, into quarantine, so that its number can be taken again.
  Result<void> SetAside(const CanaryRef& canary, const DirectoryLock::Hold& hold);
  // Bytes freed.
  Result<uint64_t> Remove(const CanaryRef& canary, const DirectoryLock::Hold& hold);

  struct Entry {
    CanaryRef canary;
    uint64_t cost_bytes = 0;
    int64_t used_ns = 0;
  };
  // Canaries that no object needs, and may therefore be evicted.
  Result<std::vector<Entry>> Unneeded(const DirectoryLock::Hold& hold);

 private:
  Path PathOf(const CanaryRef& canary) const { return directory_.layout.Canary(canary.identity, canary.number); }

  OpenDirectory& directory_;
};

}  // namespace moonpool::bus
