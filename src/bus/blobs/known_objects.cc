#include "bus/blobs/known_objects.h"

#include <algorithm>

#include "bus/blobs/eviction_score.h"

namespace moonpool::bus {
namespace {

// Keys are chained: equal at one place means equal at all places before it, so the length of the common part can
// be bisected.
uint32_t CommonBlocks(const std::vector<Digest256>& a, const std::vector<Digest256>& b) {
  size_t low = 0;
  size_t high = std::min(a.size(), b.size());
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (a[middle - 1] == b[middle - 1]) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<uint32_t>(low);
}

}  // namespace

void KnownObjects::Put(KnownObject object) {
  MutexLock lock(mutex_);
  latest_stamp_ns_ = std::max(latest_stamp_ns_, object.used_ns);
  object.hotness = BoundedHotness(object.hotness);
  ObjectId id = object.id;
  objects_.insert_or_assign(std::move(id), std::move(object));
}

void KnownObjects::Erase(const ObjectId& id) {
  MutexLock lock(mutex_);
  objects_.erase(id);
}

bool KnownObjects::Contains(const ObjectId& id) const {
  MutexLock lock(mutex_);
  return objects_.contains(id);
}

std::optional<KnownObject> KnownObjects::Find(const ObjectId& id) const {
  MutexLock lock(mutex_);
  const auto found = objects_.find(id);
  if (found == objects_.end()) return std::nullopt;
  return found->second;
}

std::vector<ObjectId> KnownObjects::Ids() const {
  MutexLock lock(mutex_);
  std::vector<ObjectId> ids;
  ids.reserve(objects_.size());
  for (const auto& [id, object] : objects_) ids.push_back(id);
  return ids;
}

void KnownObjects::Touch(const ObjectId& id, int64_t used_ns, double hotness) {
  MutexLock lock(mutex_);
  const auto found = objects_.find(id);
  if (found == objects_.end()) return;
  found->second.used_ns = std::max(found->second.used_ns, used_ns);
  found->second.hotness = BoundedHotness(hotness);
}

void KnownObjects::RaiseUsed(const ObjectId& id, int64_t used_ns) {
  MutexLock lock(mutex_);
  const auto found = objects_.find(id);
  if (found != objects_.end()) found->second.used_ns = std::max(found->second.used_ns, used_ns);
}

int64_t KnownObjects::NextStamp(int64_t wall_ns) {
  MutexLock lock(mutex_);
  latest_stamp_ns_ = std::max(wall_ns, latest_stamp_ns_ + 1'000'000);
  return latest_stamp_ns_;
}

std::vector<KnownObjects::Candidate> KnownObjects::Candidates() const {
  MutexLock lock(mutex_);
  std::vector<Candidate> candidates;
  candidates.reserve(objects_.size());
  for (const auto& [id, object] : objects_) {
    candidates.push_back({id, object.cost_bytes, object.used_ns, object.hotness});
  }
  return candidates;
}

std::vector<ObjectRef> KnownObjects::SharingPrefix(const std::vector<Digest256>& keys, const ObjectId& except) const {
  std::vector<ObjectRef> sharing;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, object] : objects_) {
      if (id == except || condemned_.contains(id)) continue;
      const uint32_t blocks = CommonBlocks(keys, object.keys);
      if (blocks > 0) sharing.push_back({id, blocks});
    }
  }
  std::sort(sharing.begin(), sharing.end(), [](const ObjectRef& a, const ObjectRef& b) {
    return a.blocks != b.blocks ? a.blocks > b.blocks : a.object < b.object;
  });
  return sharing;
}

bool KnownObjects::NeedsCanary(const CanaryRef& canary) const {
  MutexLock lock(mutex_);
  return std::any_of(objects_.begin(), objects_.end(),
                     [&](const auto& entry) { return !entry.second.canary || *entry.second.canary == canary; });
}

void KnownObjects::Condemn(const ObjectId& id, const std::string& reason) {
  MutexLock lock(mutex_);
  condemned_.emplace(id, reason);
}

void KnownObjects::Absolve(const ObjectId& id) {
  MutexLock lock(mutex_);
  condemned_.erase(id);
}

bool KnownObjects::Condemned(const ObjectId& id) const {
  MutexLock lock(mutex_);
  return condemned_.contains(id);
}

std::vector<std::pair<ObjectId, std::string>> KnownObjects::AllCondemned() const {
  MutexLock lock(mutex_);
  return {condemned_.begin(), condemned_.end()};
}

}  // namespace moonpool::bus
