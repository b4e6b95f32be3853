// ObjectRemover: takes one object out of the directory, for good or into quarantine, and sees to its aliases: each
// moves to another object with the same blocks if there is one, or goes too.
// Called with the directory's lock held and the known objects fresh.
#pragma once

#include "bus/blobs/open_directory.h"

namespace moonpool::bus {

class ObjectRemover {
 public:
  explicit ObjectRemover(OpenDirectory& directory) : directory_(directory) {}

  // Bytes freed. kNotFound; kBusy: somebody reads it. On any other failure the object is whole, or gone from sight
  // and its bytes still charged until the next recount.
  Result<uint64_t> Remove(const ObjectId& id, const DirectoryLock::Hold& hold);

  // Hides the object at once, whoever reads it, and keeps what was found for a person to look at.
  // Nothing happens if it is gone already.
  Result<void> Quarantine(const ObjectId& id, const std::string& reason, const DirectoryLock::Hold& hold);

 private:
  std::vector<Digest256> KeysOf(const ObjectId& id);
  // Answers the keys for which there is no heir.
  Result<std::vector<Digest256>> HandOver(const ObjectId& id, const std::vector<Digest256>& keys,
                                          const DirectoryLock::Hold& hold);
  Result<void> WriteReason(const ObjectId& id, const std::string& reason, const DirectoryLock::Hold& hold);

  OpenDirectory& directory_;
};

}  // namespace moonpool::bus
