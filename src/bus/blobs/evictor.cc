#include "bus/blobs/evictor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "bus/blobs/eviction_score.h"

namespace moonpool::bus {
namespace {

template <class Queue>
uint64_t CostOfAll(const Queue& queue) {
  uint64_t cost = 0;
  for (const auto& [rank, victim] : queue) cost += victim.cost_bytes;
  return cost;
}

}  // namespace

Result<void> Evictor::MakeRoom(uint64_t bytes, std::vector<ObjectId>& evicted, const DirectoryLock::Hold& hold) {
  const uint64_t quota = directory_.quota_bytes;
  if (bytes > quota) {
    return Fail(ErrorCode::kQuota, fmt::format("{} bytes are more than the whole quota of {}", bytes, quota));
  }
  bool recounted = false;
  while (true) {
    MP_ASSIGN_OR_RETURN(const uint64_t reserved, directory_.ledger->ReservedBytes(hold));
    const uint64_t stored = directory_.ledger->stored_bytes(hold);
    const uint64_t charged = stored + reserved;
    if (charged <= quota - bytes) return {};
    const uint64_t shortage = charged - (quota - bytes);
    MP_ASSIGN_OR_RETURN(Queue queue, Line(hold));
    if (CostOfAll(queue) >= shortage) {
      MP_ASSIGN_OR_RETURN(const uint64_t freed, Shed(std::move(queue), shortage, evicted, hold));
      if (freed >= shortage) continue;
    }
    if (recounted) {
      return Fail(ErrorCode::kQuota,
                  fmt::format("no room for {} bytes: {} stored and {} reserved of a quota of {}, and what is not being "
                              "read or needed is not enough",
                              bytes, stored, reserved, quota));
    }
    // The sum may be too high after a kill or a removal by hand.
    MP_RETURN_IF_ERROR(survey_.Recount(hold));
    recounted = true;
  }
}

Result<void> Evictor::FreeDisk(uint64_t bytes, std::vector<ObjectId>& evicted, const DirectoryLock::Hold& hold) {
  MP_ASSIGN_OR_RETURN(uint64_t free, directory_.files.FreeBytes(directory_.layout.root));
  if (free >= bytes) return {};
  MP_ASSIGN_OR_RETURN(Queue queue, Line(hold));
  if (CostOfAll(queue) >= bytes - free) {
    MP_RETURN_IF_ERROR(Shed(std::move(queue), bytes - free, evicted, hold));
    MP_ASSIGN_OR_RETURN(free, directory_.files.FreeBytes(directory_.layout.root));
    if (free >= bytes) return {};
  }
  return Fail(ErrorCode::kNoSpace, fmt::format("the file system of {} has {} bytes free, {} are needed",
                                               directory_.layout.root.string(), free, bytes));
}

Result<Evictor::Queue> Evictor::Line(const DirectoryLock::Hold& hold) {
  Queue queue;
  for (const Leftover& leftover : survey_.leftovers(hold)) {
    Victim victim{.paths = leftover.paths, .used_ns = leftover.modified_ns};
    for (const Path& path : leftover.paths) {
      const auto info = directory_.files.Info(path);
      if (info && info->kind == FileKind::kRegular) victim.cost_bytes += CostOf(info->size_bytes);
    }
    if (victim.cost_bytes > 0) queue.emplace(std::pair(Tier::kLeftover, victim.used_ns), std::move(victim));
  }
  MP_ASSIGN_OR_RETURN(const auto quarantined, directory_.files.List(directory_.layout.Quarantine()));
  for (const std::string& name : quarantined) {
    const Path path = directory_.layout.Quarantine() / name;
    const auto info = directory_.files.Info(path);
    if (!info || info->kind != FileKind::kRegular || info->size_bytes == 0) continue;
    queue.emplace(std::pair(Tier::kQuarantined, info->modified_ns),
                  Victim{.paths = {path}, .cost_bytes = CostOf(info->size_bytes)});
  }
  for (KnownObjects::Candidate& object : directory_.known.Candidates()) {
    queue.emplace(std::pair(Tier::kLive, EvictionScore(object.used_ns, object.hotness)),
                  Victim{.object = std::move(object.id),
                         .cost_bytes = object.cost_bytes,
                         .used_ns = object.used_ns,
                         .hotness = object.hotness});
  }
  MP_ASSIGN_OR_RETURN(const auto unneeded, canaries_.Unneeded(hold));
  for (const CanaryShelf::Entry& entry : unneeded) {
    queue.emplace(std::pair(Tier::kLive, entry.used_ns),
                  Victim{.canary = entry.canary, .cost_bytes = entry.cost_bytes});
  }
  return queue;
}

Result<uint64_t> Evictor::Shed(Queue queue, uint64_t shortage, std::vector<ObjectId>& evicted,
                               const DirectoryLock::Hold& hold) {
  uint64_t freed = 0;
  while (freed < shortage && !queue.empty()) {
    Victim victim = std::move(queue.extract(queue.begin()).mapped());
    if (victim.canary) {
      MP_ASSIGN_OR_RETURN(const uint64_t part, canaries_.Remove(*victim.canary, hold));
      freed += part;
      continue;
    }
    if (victim.object.empty()) {
      MP_ASSIGN_OR_RETURN(const uint64_t part, RemoveFiles(victim.paths, hold));
      freed += part;
      continue;
    }
    // Another bus may have used it since we looked.
    const auto head = directory_.files.Info(directory_.layout.Head(victim.object));
    const int64_t used_ns = head ? std::min(head->modified_ns, directory_.WallNowNs()) : victim.used_ns;
    if (used_ns > victim.used_ns) {
      directory_.known.RaiseUsed(victim.object, used_ns);
      victim.used_ns = used_ns;
      queue.emplace(std::pair(Tier::kLive, EvictionScore(used_ns, victim.hotness)), std::move(victim));
      continue;
    }
    auto removed = remover_.Remove(victim.object, hold);
    if (removed) {
      freed += *removed;
      directory_.evictions_total.fetch_add(1);
      log::Debug("object_evicted id={} bytes={}", victim.object, *removed);
      evicted.push_back(std::move(victim.object));
    } else if (removed.error().code == ErrorCode::kNotFound) {
      directory_.ledger->Doubt();  // somebody removed it by hand: its bytes are still charged
    } else if (removed.error().code != ErrorCode::kBusy) {
      return Fail(std::move(removed).error());
    }
  }
  return freed;
}

Result<uint64_t> Evictor::RemoveFiles(const std::vector<Path>& paths, const DirectoryLock::Hold& hold) {
  uint64_t freed = 0;
  for (const Path& path : paths) {
    const auto info = directory_.files.Info(path);
    if (!info || info->kind != FileKind::kRegular) continue;
    if (!directory_.files.Remove(path)) continue;
    freed += CostOf(info->size_bytes);
    log::Info("leftover_evicted path={} bytes={}", path.string(), info->size_bytes);
  }
  MP_RETURN_IF_ERROR(directory_.ledger->Subtract(freed, hold));
  return freed;
}

}  // namespace moonpool::bus
