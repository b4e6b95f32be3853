#include "bus/blobs/directory_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/log.h"

namespace moonpool::bus {

Result<void> DirectoryStore::RequireWritable() const {
  if (options_.access == Access::kReadWrite) return {};
  return Fail(ErrorCode::kFailedPrecondition, "the store was opened read-only");
}

Result<std::vector<std::optional<ObjectRef>>> DirectoryStore::BatchExists(std::span<const Digest256> keys) {
  std::vector<std::optional<ObjectRef>> found;
  found.reserve(keys.size());
  // Most keys of a batch lead to the same few objects.
  std::unordered_map<ObjectId, bool> seen;
  const auto visible = [&](const ObjectId& id) -> Result<bool> {
    const auto known = seen.find(id);
    if (known != seen.end()) return known->second;
    MP_ASSIGN_OR_RETURN(const bool stands, directory_.Visible(id));
    seen.emplace(id, stands);
    return stands;
  };
  for (const Digest256& key : keys) {
    MP_ASSIGN_OR_RETURN(auto alias, directory_.aliases.Read(key));
    if (alias) {
      MP_ASSIGN_OR_RETURN(bool stands, visible(alias->object));
      if (!stands) {
        // It may have moved to another object between the two looks.
        MP_ASSIGN_OR_RETURN(auto again, directory_.aliases.Read(key));
        if (again && again->object != alias->object) {
          MP_ASSIGN_OR_RETURN(stands, visible(again->object));
          alias = std::move(again);
        }
      }
      if (!stands) alias.reset();
    }
    found.push_back(std::move(alias));
  }
  return found;
}

Result<ObjectHeader> DirectoryStore::ReadHeader(const ObjectId& object) {
  if (directory_.known.Condemned(object)) return Fail(ErrorCode::kNotFound, "object " + object + " is damaged");
  auto header = directory_.ReadHead(object);
  if (!header && header.error().code == ErrorCode::kCorrupt) Quarantine(object, header.error().message);
  return header;
}

Result<std::unique_ptr<Reservation>> DirectoryStore::Reserve(uint64_t bytes) {
  MP_RETURN_IF_ERROR(RequireWritable());
  auto reservation = std::make_unique<DirectoryReservation>(directory_);
  MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
  MP_RETURN_IF_ERROR(survey_.Refresh(hold));
  // The quota is looked at first: a request that it refuses must not cost anybody's object.
  if (bytes <= options_.quota_bytes) {
    MP_RETURN_IF_ERROR(evictor_.FreeDisk(bytes + options_.free_margin_bytes, reservation->evicted(), hold));
  }
  MP_RETURN_IF_ERROR(reservation->GrowTo(bytes, evictor_, hold));
  return reservation;
}

Result<PublishReceipt> DirectoryStore::Publish(PublishRequest request, std::unique_ptr<Reservation> reservation) {
  MP_RETURN_IF_ERROR(RequireWritable());
  return publisher_.Publish(std::move(request), std::move(reservation));
}

Result<FetchReceipt> DirectoryStore::Fetch(const ObjectHeader& header, const Path& destination,
                                           const Deadline& deadline) {
  if (directory_.known.Condemned(header.id)) return Fail(ErrorCode::kNotFound, "object " + header.id + " is damaged");
  auto receipt = fetcher_.Fetch(header, destination, deadline);
  if (!receipt && receipt.error().code == ErrorCode::kCorrupt) Quarantine(header.id, receipt.error().message);
  return receipt;
}

void DirectoryStore::Touch(const ObjectId& object, double hotness) {
  if (!RequireWritable() || !IsObjectId(object)) return;
  const int64_t stamp = directory_.known.NextStamp(directory_.WallNowNs());
  // Not worth an error: the object is then evicted a little early.
  if (directory_.files.SetModified(directory_.layout.Head(object), stamp)) {
    directory_.known.Touch(object, stamp, hotness);
  }
}

Result<ObjectSummary> DirectoryStore::Summarize(const ObjectId& id) {
  ObjectSummary summary;
  summary.id = id;
  const auto head = directory_.files.Info(directory_.layout.Head(id));
  if (!head) return Fail(head.error());
  summary.last_used_wall_ms = std::min(head->modified_ns / 1'000'000, directory_.clock.WallNowMs());
  const auto payload = directory_.files.Info(directory_.layout.Payload(id));
  if (payload) summary.payload_bytes = payload->size_bytes;
  const auto header = directory_.ReadHead(id);
  if (!header) {
    if (header.error().code == ErrorCode::kNotFound) return Fail(header.error());
    summary.problem = header.error().message;
    return summary;
  }
  summary.model_name = header->model_name;
  summary.name_space = header->name_space;
  summary.fingerprint = header->fingerprint;
  summary.last_key = header->keys.back();
  summary.tokens = header->tokens.size();
  summary.created_wall_ms = header->created_wall_ms;
  if (!payload) {
    summary.problem = "the payload is missing";
  } else if (payload->kind != FileKind::kRegular || payload->size_bytes != header->payload_bytes) {
    summary.problem =
        fmt::format("the payload has {} bytes, its header says {}", payload->size_bytes, header->payload_bytes);
  }
  for (const Digest256& key : header->keys) {
    MP_ASSIGN_OR_RETURN(const auto alias, directory_.aliases.Read(key));
    if (alias && alias->object == id) ++summary.aliases;
  }
  return summary;
}

Result<std::vector<ObjectSummary>> DirectoryStore::List() {
  std::vector<ObjectSummary> list;
  const Path objects = directory_.layout.Objects();
  const auto foreign = [&](const Path& path) {
    ObjectSummary summary;
    summary.id = path.filename().string();
    summary.problem = "not an object of this store";
    if (const auto info = directory_.files.Info(path)) summary.payload_bytes = info->size_bytes;
    list.push_back(std::move(summary));
  };
  MP_ASSIGN_OR_RETURN(const auto folders, directory_.files.List(objects));
  for (const std::string& folder : folders) {
    const auto info = directory_.files.Info(objects / folder);
    if (!info) continue;
    if (info->kind != FileKind::kDirectory || folder.size() != 2) {
      foreign(objects / folder);
      continue;
    }
    MP_ASSIGN_OR_RETURN(const auto names, directory_.files.List(objects / folder));
    for (const std::string& name : names) {
      const auto parsed = ParseObjectFileName(name);
      if (!parsed || parsed->id.substr(0, 2) != folder) {
        foreign(objects / folder / name);
      } else if (parsed->part == ObjectPart::kHead) {
        auto summary = Summarize(parsed->id);
        if (summary) {
          list.push_back(std::move(*summary));
        } else if (summary.error().code != ErrorCode::kNotFound) {  // gone since the listing
          return Fail(std::move(summary).error());
        }
      }
    }
  }
  std::sort(list.begin(), list.end(), [](const ObjectSummary& a, const ObjectSummary& b) { return a.id < b.id; });
  return list;
}

Result<void> DirectoryStore::Remove(const ObjectId& object) {
  MP_RETURN_IF_ERROR(RequireWritable());
  MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
  MP_RETURN_IF_ERROR(survey_.Refresh(hold));
  MP_RETURN_IF_ERROR(remover_.Remove(object, hold));
  return {};
}

Result<void> DirectoryStore::Verify(const ObjectId& object) {
  auto verified = fetcher_.Verify(object);
  if (!verified && verified.error().code == ErrorCode::kCorrupt) Quarantine(object, verified.error().message);
  return verified;
}

void DirectoryStore::Quarantine(const ObjectId& object, const std::string& reason) {
  if (!IsObjectId(object)) return;
  // Noted first: even if the directory cannot be changed now, this process does not offer it again. Tick retries.
  directory_.known.Condemn(object, reason);
  if (!RequireWritable()) return;
  const auto quarantine = [&]() -> Result<void> {
    MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
    MP_RETURN_IF_ERROR(survey_.Refresh(hold));
    return remover_.Quarantine(object, reason, hold);
  };
  if (auto done = quarantine(); !done) {
    log::Warn("quarantine_failed id={} error=\"{}\" until=next_tick", object, done.error().ToString());
  }
}

Result<StoreStats> DirectoryStore::Stats() {
  StoreStats stats{.quota_bytes = options_.quota_bytes,
                   .evictions_total = directory_.evictions_total.load(),
                   .corrupt_total = directory_.corrupt_total.load()};
  const DirectoryLayout& layout = directory_.layout;
  auto usage = ReadUsage(directory_.files, layout);
  // A writer may be in the middle of the record; the second look settles it.
  if (!usage) usage = ReadUsage(directory_.files, layout);
  if (!usage) return Fail(std::move(usage).error());
  stats.bytes = usage->stored_bytes;
  MP_ASSIGN_OR_RETURN(stats.reserved_bytes, ReadReserved(directory_.files, layout));
  MP_ASSIGN_OR_RETURN(const auto folders, directory_.files.List(layout.Objects()));
  for (const std::string& folder : folders) {
    if (folder.size() != 2) continue;
    const auto names = directory_.files.List(layout.Objects() / folder);
    if (!names) continue;
    stats.objects += static_cast<uint64_t>(std::count_if(names->begin(), names->end(), [](const std::string& name) {
      const auto parsed = ParseObjectFileName(name);
      return parsed && parsed->part == ObjectPart::kHead;
    }));
  }
  MP_ASSIGN_OR_RETURN(const auto alias_folders, directory_.aliases.Folders());
  for (const std::string& folder : alias_folders) {
    MP_ASSIGN_OR_RETURN(const auto keys, directory_.aliases.Keys(folder));
    stats.aliases += keys.size();
  }
  MP_ASSIGN_OR_RETURN(const auto quarantined, directory_.files.List(layout.Quarantine()));
  stats.quarantined = static_cast<uint64_t>(std::count_if(
      quarantined.begin(), quarantined.end(), [](const std::string& name) { return name.ends_with(".head"); }));
  return stats;
}

Result<std::string> DirectoryStore::GetCanary(const Digest256& identity, int number) {
  const CanaryRef canary{.identity = identity, .number = number};
  auto bytes = canaries_.Get(canary);
  if (!bytes && bytes.error().code == ErrorCode::kCorrupt && RequireWritable()) {
    const auto hold = directory_.lock->Acquire();
    if (hold) (void)canaries_.SetAside(canary, *hold);
  }
  return bytes;
}

Result<void> DirectoryStore::PutCanary(const Digest256& identity, int number, std::string_view bytes) {
  MP_RETURN_IF_ERROR(RequireWritable());
  if (number < 0) return Fail(ErrorCode::kInvalidArgument, "a canary's number is not negative");
  if (bytes.size() > kCanaryBytesMax) return Fail(ErrorCode::kInvalidArgument, "a canary of more than 1 GiB");
  const CanaryRef canary{.identity = identity, .number = number};
  MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
  MP_RETURN_IF_ERROR(survey_.Refresh(hold));
  if (canaries_.Exists(canary)) return Fail(ErrorCode::kAlreadyExists, "the canary's number is taken");
  const uint64_t cost = CanaryShelf::CostOfCanary(bytes.size());
  std::vector<ObjectId> evicted;
  MP_RETURN_IF_ERROR(evictor_.MakeRoom(cost, evicted, hold));
  MP_RETURN_IF_ERROR(directory_.ledger->Add(cost, hold));
  auto put = canaries_.Put(canary, bytes, hold);
  if (!put) (void)directory_.ledger->Subtract(cost, hold);
  return put;
}

Result<void> DirectoryStore::TickLocked() {
  MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
  MP_RETURN_IF_ERROR(survey_.Refresh(hold));
  MP_ASSIGN_OR_RETURN(const uint64_t swept, directory_.temp->SweepLeftovers(hold));
  if (swept > 0) directory_.ledger->Doubt();
  for (const auto& [id, reason] : directory_.known.AllCondemned()) {
    MP_RETURN_IF_ERROR(remover_.Quarantine(id, reason, hold));
  }
  const int64_t now_ns = directory_.clock.Now().time_since_epoch().count();
  const bool due = now_ns - recounted_at_ns_.load() >= options_.recount_interval.count();
  if (due || directory_.ledger->doubtful()) MP_RETURN_IF_ERROR(survey_.Recount(hold));
  std::vector<ObjectId> evicted;
  return evictor_.MakeRoom(0, evicted, hold);
}

void DirectoryStore::Tick() {
  if (!RequireWritable()) return;
  const int64_t now_ns = directory_.clock.Now().time_since_epoch().count();
  const bool due = now_ns - recounted_at_ns_.load() >= options_.recount_interval.count();
  if (auto ticked = TickLocked(); !ticked) log::Warn("store_tick_failed error=\"{}\"", ticked.error().ToString());
  if (!due) return;
  recounted_at_ns_.store(now_ns);
  if (auto tended = survey_.TendAliases(); !tended) {
    log::Warn("aliases_not_tended error=\"{}\"", tended.error().ToString());
  }
}

Result<uint64_t> DirectoryStore::CountBytes() {
  MP_RETURN_IF_ERROR(RequireWritable());
  MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
  return survey_.Measure(hold);
}

}  // namespace moonpool::bus
