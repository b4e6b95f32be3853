#include "bus/blobs/directory_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/log.h"

namespace moonpool::bus {

Result<void> DirectorySurvey::Refresh(const DirectoryLock::Hold& hold) {
  auto loaded = directory_.ledger->Load(hold);
  if (!loaded && loaded.error().code == ErrorCode::kCorrupt) return Recount(hold);
  if (!loaded) return loaded;
  if (!directory_.ledger->ChangedByOthers(hold)) return {};
  return Relist(hold);
}

Result<void> DirectorySurvey::Recount(const DirectoryLock::Hold& hold) {
  MP_RETURN_IF_ERROR(directory_.temp->SweepLeftovers(hold));
  MP_RETURN_IF_ERROR(Relist(hold));
  MP_ASSIGN_OR_RETURN(const uint64_t bytes, Measure(hold));
  MP_RETURN_IF_ERROR(directory_.ledger->Set(bytes, hold));
  directory_.ledger->MarkSeen(hold);
  directory_.ledger->ClearDoubt();
  return {};
}

Result<void> DirectorySurvey::Relist(const DirectoryLock::Hold& hold) {
  leftovers_.clear();
  future_stamps_.clear();
  std::vector<ObjectId> seen;
  std::vector<Damaged> damaged;
  MP_ASSIGN_OR_RETURN(const auto folders, directory_.files.List(directory_.layout.Objects()));
  for (const std::string& folder : folders) {
    const Path path = directory_.layout.Objects() / folder;
    const auto info = directory_.files.Info(path);
    if (!info) continue;
    if (info->kind == FileKind::kDirectory && folder.size() == 2) {
      MP_RETURN_IF_ERROR(ListFolder(path, seen, damaged));
    } else {
      AddLeftover({path});
    }
  }
  const std::set<ObjectId> standing(seen.begin(), seen.end());
  for (const ObjectId& id : directory_.known.Ids()) {
    if (!standing.contains(id)) directory_.known.Erase(id);
  }
  RewindFutureStamps();
  directory_.ledger->MarkSeen(hold);
  for (const Damaged& object : damaged) {
    if (auto moved = remover_.Quarantine(object.id, object.reason, hold); !moved) {
      log::Warn("quarantine_failed id={} error=\"{}\"", object.id, moved.error().ToString());
    }
  }
  return {};
}

Result<void> DirectorySurvey::ListFolder(const Path& folder, std::vector<ObjectId>& seen,
                                         std::vector<Damaged>& damaged) {
  MP_ASSIGN_OR_RETURN(const auto names, directory_.files.List(folder));
  std::set<ObjectId> heads;
  std::set<ObjectId> payloads;
  for (const std::string& name : names) {
    const auto parsed = ParseObjectFileName(name);
    if (!parsed || parsed->id.substr(0, 2) != folder.filename()) {
      AddLeftover({folder / name});
    } else {
      (parsed->part == ObjectPart::kHead ? heads : payloads).insert(parsed->id);
    }
  }
  for (const ObjectId& id : payloads) {
    if (heads.contains(id)) continue;
    // Nobody publishes while we hold the lock, so whoever put it there died before the header, or died removing it.
    if (directory_.files.Remove(directory_.layout.Payload(id))) {
      log::Info("leftover_payload_removed id={}", id);
      directory_.ledger->Doubt();
    }
  }
  for (const ObjectId& id : heads) {
    seen.push_back(id);
    if (!directory_.known.Contains(id)) Load(id, damaged);
  }
  return {};
}

void DirectorySurvey::Load(const ObjectId& id, std::vector<Damaged>& damaged) {
  auto header = directory_.ReadHead(id);
  if (!header) {
    if (header.error().code == ErrorCode::kCorrupt) damaged.push_back({id, header.error().message});
    if (header.error().code == ErrorCode::kUnsupported) {
      AddLeftover({directory_.layout.Head(id), directory_.layout.Payload(id)});
    }
    return;  // anything else tells nothing about the object; the next look decides
  }
  const auto head = directory_.files.Info(directory_.layout.Head(id));
  const auto payload = directory_.files.Info(directory_.layout.Payload(id));
  if (!head) return;
  if (!payload && payload.error().code == ErrorCode::kNotFound) {
    damaged.push_back({id, "the payload is missing"});
    return;
  }
  if (!payload) return;
  if (payload->kind != FileKind::kRegular || payload->size_bytes != header->payload_bytes) {
    damaged.push_back({id, fmt::format("the payload is {} of {} bytes, its header says {}",
                                       payload->kind == FileKind::kRegular ? "a file" : "no regular file",
                                       payload->size_bytes, header->payload_bytes)});
    return;
  }
  if (head->modified_ns > directory_.WallNowNs()) future_stamps_.emplace_back(head->modified_ns, id);
  directory_.known.Put({.id = id,
                        .keys = std::move(header->keys),
                        .cost_bytes = CostOf(head->size_bytes) + CostOf(payload->size_bytes),
                        .used_ns = std::min(head->modified_ns, directory_.WallNowNs()),
                        .hotness = 0,
                        .canary = header->canary});
}

void DirectorySurvey::AddLeftover(std::vector<Path> paths) {
  const auto info = directory_.files.Info(paths.front());
  if (!info || info->kind != FileKind::kRegular) return;
  leftovers_.push_back({.paths = std::move(paths), .modified_ns = info->modified_ns});
}

// A clock that ran ahead must not keep its objects for ever (field report B41): stamps from the future become
// stamps of just now, in their own order and after all others.
void DirectorySurvey::RewindFutureStamps() {
  std::sort(future_stamps_.begin(), future_stamps_.end());
  for (const auto& [modified_ns, id] : future_stamps_) {
    auto object = directory_.known.Find(id);
    if (!object) continue;
    object->used_ns = directory_.known.NextStamp(directory_.WallNowNs());
    (void)directory_.files.SetModified(directory_.layout.Head(id), object->used_ns);
    directory_.known.Put(std::move(*object));
  }
}

Result<uint64_t> DirectorySurvey::MeasureFolder(const Path& folder) {
  MP_ASSIGN_OR_RETURN(const auto names, directory_.files.List(folder));
  uint64_t cost = 0;
  for (const std::string& name : names) {
    const auto info = directory_.files.Info(folder / name);
    if (info && info->kind == FileKind::kRegular) cost += CostOf(info->size_bytes);
    if (!info && info.error().code != ErrorCode::kNotFound) return Fail(info.error());
  }
  return cost;
}

Result<uint64_t> DirectorySurvey::Measure(const DirectoryLock::Hold&) {
  const DirectoryLayout& layout = directory_.layout;
  uint64_t cost = 0;
  for (const Path& folder : {layout.Objects(), layout.Quarantine(), layout.Canaries()}) {
    MP_ASSIGN_OR_RETURN(const uint64_t part, MeasureFolder(folder));
    cost += part;
  }
  MP_ASSIGN_OR_RETURN(const auto folders, directory_.files.List(layout.Objects()));
  for (const std::string& folder : folders) {
    const auto info = directory_.files.Info(layout.Objects() / folder);
    if (!info || info->kind != FileKind::kDirectory) continue;
    MP_ASSIGN_OR_RETURN(const uint64_t part, MeasureFolder(layout.Objects() / folder));
    cost += part;
  }
  // Files in the making are covered by what their owners reserved; only foreign ones are added.
  MP_ASSIGN_OR_RETURN(const auto names, directory_.files.List(layout.Temp()));
  for (const std::string& name : names) {
    if (ParseTempFileName(name)) continue;
    const auto info = directory_.files.Info(layout.Temp() / name);
    if (info && info->kind == FileKind::kRegular) cost += CostOf(info->size_bytes);
  }
  return cost;
}

Result<void> DirectorySurvey::TendAliases() {
  MP_ASSIGN_OR_RETURN(const auto folders, directory_.aliases.Folders());
  for (const std::string& folder : folders) {
    MP_ASSIGN_OR_RETURN(const auto keys, directory_.aliases.Keys(folder));
    for (const Digest256& key : keys) {
      MP_ASSIGN_OR_RETURN(const auto alias, directory_.aliases.Read(key));
      const auto visible = alias ? directory_.Visible(alias->object) : Result<bool>(false);
      if (visible && !*visible) MP_RETURN_IF_ERROR(DropIfDangling(key));
    }
  }
  for (const ObjectId& id : directory_.known.Ids()) MP_RETURN_IF_ERROR(TendObject(id));
  return {};
}

Result<void> DirectorySurvey::DropIfDangling(const Digest256& key) {
  MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
  MP_ASSIGN_OR_RETURN(const auto alias, directory_.aliases.Read(key));
  if (alias) {
    MP_ASSIGN_OR_RETURN(const bool visible, directory_.Visible(alias->object));
    if (visible) return {};
  }
  return directory_.aliases.Remove(key, hold);
}

Result<void> DirectorySurvey::TendObject(const ObjectId& id) {
  MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
  MP_RETURN_IF_ERROR(Refresh(hold));
  const auto object = directory_.known.Find(id);
  if (!object) return {};
  MP_ASSIGN_OR_RETURN(const bool stands, directory_.Visible(id));
  if (!stands) return {};
  bool needed = false;
  for (uint32_t blocks = 1; blocks <= object->keys.size(); ++blocks) {
    const Digest256& key = object->keys[blocks - 1];
    MP_ASSIGN_OR_RETURN(const auto alias, directory_.aliases.Read(key));
    if (alias && alias->object == id) {
      needed = true;
      continue;
    }
    if (alias) {
      MP_ASSIGN_OR_RETURN(const bool visible, directory_.Visible(alias->object));
      if (visible) continue;
      MP_RETURN_IF_ERROR(directory_.aliases.Remove(key, hold));
    }
    MP_RETURN_IF_ERROR(directory_.aliases.PutIfAbsent(key, {id, blocks}, hold));
    needed = true;
  }
  if (needed) return {};
  // Every boundary is served by others: what a longer object has replaced while it was being read.
  auto removed = remover_.Remove(id, hold);
  if (!removed && removed.error().code != ErrorCode::kBusy) return Fail(std::move(removed).error());
  return {};
}

}  // namespace moonpool::bus
