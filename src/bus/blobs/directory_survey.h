// DirectorySurvey: looks at the whole directory and makes what we know agree with it: which objects stand, what else
// lies about, what it all costs, which aliases lead nowhere.
// Calls that take a Hold run under the directory's lock; TendAliases takes it itself, in small portions.
#pragma once

#include <vector>

#include "bus/blobs/object_remover.h"
#include "bus/blobs/open_directory.h"

namespace moonpool::bus {

// Files under objects/ that are no objects of this format: foreign ones, or those of another version. They are
// charged, and go first when room is needed (field report B28).
struct Leftover {
  std::vector<Path> paths;  // header before payload
  int64_t modified_ns = 0;
};

class DirectorySurvey {
 public:
  DirectorySurvey(OpenDirectory& directory, ObjectRemover& remover) : directory_(directory), remover_(remover) {}

  // Call first after every Acquire: reads the sums, and the objects again if others changed the directory.
  Result<void> Refresh(const DirectoryLock::Hold& hold);
  // Sweeps leftovers of dead owners, reads everything again and sets the sums to what stands there.
  Result<void> Recount(const DirectoryLock::Hold& hold);
  // What the directory costs now, without files that a living owner has in the making.
  Result<uint64_t> Measure(const DirectoryLock::Hold& hold);
  const std::vector<Leftover>& leftovers(const DirectoryLock::Hold&) const { return leftovers_; }

  // Removes aliases that lead nowhere, writes those that are missing, removes objects that serve no boundary.
  Result<void> TendAliases();

 private:
  struct Damaged {
    ObjectId id;
    std::string reason;
  };
  Result<void> Relist(const DirectoryLock::Hold& hold);
  Result<void> ListFolder(const Path& folder, std::vector<ObjectId>& seen, std::vector<Damaged>& damaged);
  void Load(const ObjectId& id, std::vector<Damaged>& damaged);
  void AddLeftover(std::vector<Path> paths);
  void RewindFutureStamps();
  Result<uint64_t> MeasureFolder(const Path& folder);
  Result<void> DropIfDangling(const Digest256& key);
  Result<void> TendObject(const ObjectId& id);

  OpenDirectory& directory_;
  ObjectRemover& remover_;
  std::vector<Leftover> leftovers_;                          // guarded by the directory's lock
  std::vector<std::pair<int64_t, ObjectId>> future_stamps_;  // used within Relist
};

}  // namespace moonpool::bus
