// Evictor: makes room. First go leftovers of other formats and foreign files under objects/, then what is in
// quarantine, then objects and unneeded canaries by score (eviction_score.h). Never an object that is being read,
// never a canary that an object needs, and nothing at all if that would not be enough.
// Called with the directory's lock held and the known objects fresh.
#pragma once

#include <map>
#include <vector>

#include "bus/blobs/canary_shelf.h"
#include "bus/blobs/directory_survey.h"
#include "bus/blobs/object_remover.h"
#include "bus/blobs/open_directory.h"

namespace moonpool::bus {

class Evictor {
 public:
  Evictor(OpenDirectory& directory, DirectorySurvey& survey, ObjectRemover& remover, CanaryShelf& canaries)
      : directory_(directory), survey_(survey), remover_(remover), canaries_(canaries) {}

  // Until `bytes` more fit the quota. kQuota. Ids of removed objects are appended to `evicted`.
  Result<void> MakeRoom(uint64_t bytes, std::vector<ObjectId>& evicted, const DirectoryLock::Hold& hold);
  // Until the file system has `bytes` free. kNoSpace.
  Result<void> FreeDisk(uint64_t bytes, std::vector<ObjectId>& evicted, const DirectoryLock::Hold& hold);

 private:
  enum class Tier { kLeftover, kQuarantined, kLive };
  struct Victim {
    std::vector<Path> paths{};  // leftover, quarantined
    ObjectId object{};          // live object
    std::optional<CanaryRef> canary{};
    uint64_t cost_bytes = 0;
    int64_t used_ns = 0;
    double hotness = 0;
  };
  using Queue = std::multimap<std::pair<Tier, int64_t>, Victim>;

  Result<Queue> Line(const DirectoryLock::Hold& hold);
  // Removes in order until `shortage` bytes are freed or nobody is left; answers what was freed.
  Result<uint64_t> Shed(Queue queue, uint64_t shortage, std::vector<ObjectId>& evicted,
                        const DirectoryLock::Hold& hold);
  Result<uint64_t> RemoveFiles(const std::vector<Path>& paths, const DirectoryLock::Hold& hold);

  OpenDirectory& directory_;
  DirectorySurvey& survey_;
  ObjectRemover& remover_;
  CanaryShelf& canaries_;
};

}  // namespace moonpool::bus
