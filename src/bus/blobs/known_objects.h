// KnownObjects: what this process knows about the objects of the directory, so that eviction order, heirs of aliases
// and replaced objects are found without reading headers. Loaded from the headers at start and again when other
// processes changed the directory. It may be behind; whoever acts on it looks at the directory first.
// Thread-safe; a leaf (calls nobody).
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "bus/blobs/blob_store.h"

namespace moonpool::bus {

struct KnownObject {
  ObjectId id;
  std::vector<Digest256> keys;
  uint64_t cost_bytes = 0;  // payload and header, as charged
  int64_t used_ns = 0;      // wall time of the last use, see NextStamp
  double hotness = 0;
  std::optional<CanaryRef> canary;
};

class KnownObjects {
 public:
  void Put(KnownObject object) EXCLUDES(mutex_);
  void Erase(const ObjectId& id) EXCLUDES(mutex_);
  bool Contains(const ObjectId& id) const EXCLUDES(mutex_);
  std::optional<KnownObject> Find(const ObjectId& id) const EXCLUDES(mutex_);
  std::vector<ObjectId> Ids() const EXCLUDES(mutex_);

  void Touch(const ObjectId& id, int64_t used_ns, double hotness) EXCLUDES(mutex_);
  // Another process used it later than we know.
  void RaiseUsed(const ObjectId& id, int64_t used_ns) EXCLUDES(mutex_);
  // `wall_ns`, but always after every stamp of a known object: the order of use survives a clock that steps back.
  int64_t NextStamp(int64_t wall_ns) EXCLUDES(mutex_);

  struct Candidate {
    ObjectId id;
    uint64_t cost_bytes = 0;
    int64_t used_ns = 0;
    double hotness = 0;
  };
  std::vector<Candidate> Candidates() const EXCLUDES(mutex_);

  // Objects other than `except` that begin with at least one block of `keys`, and with how many; most first.
  std::vector<ObjectRef> SharingPrefix(const std::vector<Digest256>& keys, const ObjectId& except) const
      EXCLUDES(mutex_);

  // Whether some object needs this canary.
  bool NeedsCanary(const CanaryRef& canary) const EXCLUDES(mutex_);

  // Objects found damaged whose quarantine has not succeeded yet: never offered by this process.
  void Condemn(const ObjectId& id, const std::string& reason) EXCLUDES(mutex_);
  void Absolve(const ObjectId& id) EXCLUDES(mutex_);
  bool Condemned(const ObjectId& id) const EXCLUDES(mutex_);
  std::vector<std::pair<ObjectId, std::string>> AllCondemned() const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::unordered_map<ObjectId, KnownObject> objects_ GUARDED_BY(mutex_);
  std::unordered_map<ObjectId, std::string> condemned_ GUARDED_BY(mutex_);
  int64_t latest_stamp_ns_ GUARDED_BY(mutex_) = 0;
};

}  // namespace moonpool::bus
