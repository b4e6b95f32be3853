#include "bus/blobs/object_remover.h"

#include <fmt/format.h>

#include "base/fault.h"
#include "base/log.h"

namespace moonpool::bus {

std::vector<Digest256> ObjectRemover::KeysOf(const ObjectId& id) {
  if (auto known = directory_.known.Find(id)) return std::move(known->keys);
  auto header = directory_.ReadHead(id);
  // Without a header the aliases stay behind; they count as absent and are swept later.
  return header ? std::move(header->keys) : std::vector<Digest256>{};
}

Result<std::vector<Digest256>> ObjectRemover::HandOver(const ObjectId& id, const std::vector<Digest256>& keys,
                                                       const DirectoryLock::Hold& hold) {
  std::vector<ObjectRef> heirs = directory_.known.SharingPrefix(keys, id);
  std::vector<Digest256> unserved;
  for (uint32_t blocks = static_cast<uint32_t>(keys.size()); blocks > 0; --blocks) {
    const Digest256& key = keys[blocks - 1];
    MP_ASSIGN_OR_RETURN(const auto alias, directory_.aliases.Read(key));
    if (!alias || alias->object != id) continue;
    // The longest common prefix comes first, so an heir that is too short for this boundary ends the search.
    while (!heirs.empty()) {
      MP_ASSIGN_OR_RETURN(const bool visible, directory_.Visible(heirs.front().object));
      if (visible) break;
      heirs.erase(heirs.begin());
    }
    if (heirs.empty() || heirs.front().blocks < blocks) {
      unserved.push_back(key);
      continue;
    }
    MP_RETURN_IF_ERROR(directory_.aliases.Replace(key, {heirs.front().object, blocks}, *directory_.temp, hold));
  }
  return unserved;
}

Result<uint64_t> ObjectRemover::Remove(const ObjectId& id, const DirectoryLock::Hold& hold) {
  if (!IsObjectId(id)) return Fail(ErrorCode::kNotFound, "'" + id + "' is no object's id");
  FileSystem& files = directory_.files;
  const Path head_path = directory_.layout.Head(id);
  auto head = files.Open(head_path);
  if (!head && head.error().code == ErrorCode::kNotFound) {
    directory_.known.Erase(id);
    return Fail(ErrorCode::kNotFound, "no object " + id);
  }
  // A header that cannot be opened has no readers to wait for.
  if (head) {
    auto locked = (*head)->TryLock(File::LockKind::kExclusive);
    if (!locked && locked.error().code == ErrorCode::kBusy) {
      return Fail(ErrorCode::kBusy, "object " + id + " is being read");
    }
    if (!locked) return Fail(std::move(locked).error());
  } else if (head.error().code != ErrorCode::kUnsupported && head.error().code != ErrorCode::kPermission) {
    return Fail(std::move(head).error());
  }

  MP_ASSIGN_OR_RETURN(const uint64_t cost, directory_.MeasureObject(id));
  // Heirs first, while both stand: a shared prefix is never unserved in between.
  MP_ASSIGN_OR_RETURN(const auto unserved, HandOver(id, KeysOf(id), hold));
  MP_FAULT("blobs.remove.before_head");
  MP_RETURN_IF_ERROR(files.Remove(head_path));
  directory_.known.Erase(id);
  directory_.known.Absolve(id);

  const auto finish = [&]() -> Result<void> {
    MP_FAULT("blobs.remove.after_head");
    auto removed = files.Remove(directory_.layout.Payload(id));
    if (!removed && removed.error().code != ErrorCode::kNotFound) return removed;
    for (const Digest256& key : unserved) (void)directory_.aliases.Remove(key, hold);
    MP_FAULT("blobs.remove.before_subtract");
    return directory_.ledger->Subtract(cost, hold);
  };
  // Whatever is left has no header, so nobody is misled; the recount finds it.
  if (auto finished = finish(); !finished) {
    directory_.ledger->Doubt();
    return Fail(WithContext(std::move(finished).error(), "object " + id + " was hidden but not all of it removed"));
  }
  return cost;
}

Result<void> ObjectRemover::Quarantine(const ObjectId& id, const std::string& reason, const DirectoryLock::Hold& hold) {
  if (!IsObjectId(id)) return Fail(ErrorCode::kNotFound, "'" + id + "' is no object's id");
  directory_.known.Condemn(id, reason);
  FileSystem& files = directory_.files;
  const DirectoryLayout& layout = directory_.layout;
  const std::vector<Digest256> keys = KeysOf(id);

  auto hidden = files.Rename(layout.Head(id), layout.QuarantinedHead(id));
  if (!hidden && hidden.error().code == ErrorCode::kNotFound) {
    directory_.known.Erase(id);
    directory_.known.Absolve(id);
    return {};
  }
  if (!hidden) return hidden;
  directory_.known.Erase(id);
  directory_.corrupt_total.fetch_add(1);
  log::Warn("object_quarantined id={} reason=\"{}\"", id, reason);

  const auto finish = [&]() -> Result<void> {
    MP_FAULT("blobs.quarantine.after_head");
    auto moved = files.Rename(layout.Payload(id), layout.QuarantinedPayload(id));
    if (!moved && moved.error().code != ErrorCode::kNotFound) return moved;
    // Sizes may not be the ones that were charged.
    directory_.ledger->Doubt();
    MP_ASSIGN_OR_RETURN(const auto unserved, HandOver(id, keys, hold));
    for (const Digest256& key : unserved) (void)directory_.aliases.Remove(key, hold);
    return WriteReason(id, reason, hold);
  };
  if (auto finished = finish(); !finished) {
    directory_.ledger->Doubt();
    log::Warn("quarantine_incomplete id={} error=\"{}\"", id, finished.error().ToString());
  }
  directory_.known.Absolve(id);
  return {};
}

Result<void> ObjectRemover::WriteReason(const ObjectId& id, const std::string& reason,
                                        const DirectoryLock::Hold& hold) {
  FileSystem& files = directory_.files;
  const std::string text = fmt::format("object {}\nseen at {} ms since 1970\n{}\n", id, directory_.clock.WallNowMs(),
                                       reason.substr(0, 3000));
  const uint64_t cost = CostOf(text.size());
  QuotaLedger& ledger = *directory_.ledger;
  MP_ASSIGN_OR_RETURN(const uint64_t reserved, ledger.ReservedBytes(hold));
  if (ledger.stored_bytes(hold) + reserved + cost > directory_.quota_bytes) {
    // Not even room for the sentence: it takes the place of the bytes that it is about.
    const Path payload = directory_.layout.QuarantinedPayload(id);
    const auto info = files.Info(payload);
    if (!info || info->kind != FileKind::kRegular || info->size_bytes == 0) return {};
    MP_RETURN_IF_ERROR(files.Remove(payload));
    MP_RETURN_IF_ERROR(ledger.Subtract(CostOf(info->size_bytes), hold));
  }
  MP_RETURN_IF_ERROR(ledger.Add(cost, hold));
  TempFile temp = directory_.temp->Next("reason");
  MP_ASSIGN_OR_RETURN(const auto file, files.Create(temp.path()));
  MP_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(text))));
  MP_RETURN_IF_ERROR(file->Close());
  MP_RETURN_IF_ERROR(files.Rename(temp.path(), directory_.layout.QuarantineReason(id)));
  temp.Release();
  return {};
}

}  // namespace moonpool::bus
