#include "bus/blobs/object_publisher.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fault.h"
#include "base/log.h"
#include "bus/blobs/eviction_score.h"
#include "bus/blobs/object_header_codec.h"
#include "bus/blobs/payload_checksum.h"

namespace moonpool::bus {
namespace {

// The saved file is consumed whatever happens.
class Consumed {
 public:
  Consumed(FileSystem& files, Path path) : files_(files), path_(std::move(path)) {}
  ~Consumed() {
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto removed = files_.Remove(path_);
      if (removed || removed.error().code == ErrorCode::kNotFound) return;
    }
    log::Warn("saved_file_kept path={}", path_.string());
  }
  Consumed(const Consumed&) = delete;
  Consumed& operator=(const Consumed&) = delete;

 private:
  FileSystem& files_;
  const Path path_;
};

// Renames into a folder that may not be there yet.
Result<void> RenameInto(FileSystem& files, const Path& from, const Path& to) {
  auto renamed = files.Rename(from, to);
  if (renamed || renamed.error().code != ErrorCode::kNotFound) return renamed;
  MP_RETURN_IF_ERROR(files.MakeDirectories(to.parent_path()));
  return files.Rename(from, to);
}

}  // namespace

Result<PublishReceipt> ObjectPublisher::Publish(PublishRequest request, std::unique_ptr<Reservation> reservation) {
  const Consumed consumed(directory_.files, request.source);
  auto* booked = dynamic_cast<DirectoryReservation*>(reservation.get());
  if (reservation != nullptr && (booked == nullptr || &booked->directory() != &directory_)) {
    return Fail(ErrorCode::kInvalidArgument, "the reservation is of another store");
  }
  DirectoryReservation unbooked(directory_);
  auto receipt =
      PublishMoved(std::move(request.header), request.source, request.hotness, booked != nullptr ? *booked : unbooked);
  if (!receipt && receipt.error().code != ErrorCode::kAlreadyExists) {
    return Fail(WithContext(std::move(receipt).error(), "publishing " + request.source.filename().string()));
  }
  return receipt;
}

Result<PublishReceipt> ObjectPublisher::PublishMoved(ObjectHeader header, const Path& source, double hotness,
                                                     DirectoryReservation& reservation) {
  MP_ASSIGN_OR_RETURN(const FileInfo info, directory_.files.Info(source));
  if (info.kind != FileKind::kRegular) {
    return Fail(ErrorCode::kInvalidArgument, "the saved file is not a regular file");
  }
  if (header.keys.empty()) return Fail(ErrorCode::kInvalidArgument, "not one whole block of tokens, so no key");
  header.id = header.keys.back().ToHex().substr(0, 16) + "-" + directory_.rng.HexId(8);
  header.payload_bytes = info.size_bytes;
  header.chunk_bytes = kChunkBytes;
  header.chunk_checksums.assign((info.size_bytes + kChunkBytes - 1) / kChunkBytes, 0);
  header.created_wall_ms = directory_.clock.WallNowMs();
  MP_RETURN_IF_ERROR(CheckObjectHeader(header));
  if (header.first_token != 0) {
    return Fail(ErrorCode::kUnsupported, "objects that hold only a later part of a sequence are not stored yet");
  }
  MP_ASSIGN_OR_RETURN(const bool served, WholeChainServed(header.keys));
  if (served) return Fail(ErrorCode::kAlreadyExists, "the whole chain is already stored");

  PublishReceipt receipt;
  receipt.object = header.id;
  receipt.payload_bytes = info.size_bytes;
  Draft draft{.payload = directory_.temp->Next("kv"), .head = directory_.temp->Next("head")};
  draft.cost_bytes = CostOf(info.size_bytes) + CostOf(EncodeObjectHeader(header).size());
  {
    MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
    MP_RETURN_IF_ERROR(survey_.Refresh(hold));
    MP_RETURN_IF_ERROR(reservation.GrowTo(draft.cost_bytes, evictor_, hold));
  }
  MP_FAULT("blobs.publish.before_move");
  MP_ASSIGN_OR_RETURN(receipt.transfer, Move(source, info, draft.payload.path()));
  MP_FAULT("blobs.publish.after_move");
  const TimePoint pass_began = directory_.clock.Now();
  MP_ASSIGN_OR_RETURN(header.chunk_checksums, ChecksumStill(draft.payload.path(), info.size_bytes));
  receipt.checksum_time = directory_.clock.Now() - pass_began;
  MP_RETURN_IF_ERROR(WriteHead(EncodeObjectHeader(header), draft.head.path()));
  MP_FAULT("blobs.publish.after_head");

  MP_ASSIGN_OR_RETURN(const auto hold, directory_.lock->Acquire());
  MP_RETURN_IF_ERROR(survey_.Refresh(hold));
  // Somebody may have been faster.
  MP_ASSIGN_OR_RETURN(const bool served_meanwhile, WholeChainServed(header.keys));
  if (served_meanwhile) return Fail(ErrorCode::kAlreadyExists, "the whole chain is already stored");
  MP_ASSIGN_OR_RETURN(const std::vector<ObjectId> prefixes, WholePrefixesOf(header));
  KnownObject object{.id = header.id,
                     .keys = header.keys,
                     .cost_bytes = draft.cost_bytes,
                     .used_ns = directory_.known.NextStamp(directory_.WallNowNs()),
                     .hotness = hotness,
                     .canary = header.canary};
  MP_RETURN_IF_ERROR(directory_.files.SetModified(draft.head.path(), object.used_ns));
  MP_RETURN_IF_ERROR(directory_.ledger->Add(draft.cost_bytes, hold));
  if (auto appeared = Appear(header, draft, receipt, hold); !appeared) {
    if (!directory_.ledger->Subtract(draft.cost_bytes, hold)) directory_.ledger->Doubt();
    return Fail(std::move(appeared).error());
  }
  reservation.End(hold);
  directory_.known.Put(std::move(object));

  // From here on the object stands; what fails only leaves an old one for the next Tick.
  for (const ObjectId& old : prefixes) {
    auto replaced = Replace(old, header, hold);
    if (replaced) {
      receipt.retired.push_back(old);
    } else {
      log::Debug("object_not_retired id={} error=\"{}\"", old, replaced.error().ToString());
    }
  }
  receipt.evicted = std::move(reservation.evicted());
  return receipt;
}

Result<bool> ObjectPublisher::WholeChainServed(const std::vector<Digest256>& keys) {
  // From the longest, which is the least likely to be there.
  std::optional<ObjectId> last_seen;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    MP_ASSIGN_OR_RETURN(const auto alias, directory_.aliases.Read(*key));
    if (!alias) return false;
    if (last_seen == alias->object) continue;
    MP_ASSIGN_OR_RETURN(const bool visible, directory_.Visible(alias->object));
    if (!visible) return false;
    last_seen = alias->object;
  }
  return true;
}

Result<TransferKind> ObjectPublisher::Move(const Path& source, const FileInfo& info, const Path& target) {
  FileSystem& files = directory_.files;
  // A file with a second name could be written through it later (decision 13b), so it is copied.
  if (info.links == 1) {
    const auto renamed = files.Rename(source, target);
    if (renamed && files.SetPermissions(target, 0600)) return TransferKind::kRename;
    if (renamed) {
      // Not ours to change, so somebody else could change it back. It must leave tmp/ for the copy to have the name.
      MP_RETURN_IF_ERROR(files.Rename(target, source));
    } else if (renamed.error().code != ErrorCode::kUnsupported && renamed.error().code != ErrorCode::kPermission) {
      return Fail(renamed.error());
    }
  }
  return files.CloneOrCopy(source, target);
}

Result<std::vector<uint64_t>> ObjectPublisher::ChecksumStill(const Path& path, uint64_t payload_bytes) {
  MP_ASSIGN_OR_RETURN(const auto file, directory_.files.Open(path));
  MP_ASSIGN_OR_RETURN(const FileInfo before, file->Info());
  auto sums = ChecksumChunks(*file, payload_bytes, kChunkBytes);
  MP_ASSIGN_OR_RETURN(const FileInfo after, file->Info());
  if (before.size_bytes != payload_bytes || after.size_bytes != payload_bytes ||
      before.modified_ns != after.modified_ns) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("the saved file changed while it was read: {} bytes at first, {} later", payload_bytes,
                            after.size_bytes));
  }
  return sums;
}

Result<void> ObjectPublisher::WriteHead(const std::string& bytes, const Path& path) {
  MP_ASSIGN_OR_RETURN(const auto file, directory_.files.Create(path));
  MP_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(bytes))));
  // Neither payload nor header is synced: a kill loses nothing that was written, and after a power cut the checksums
  // of both tell what is whole. Syncing the header alone cost 19 ms on ext4, four times what a publish may add.
  return file->Close();
}

Result<void> ObjectPublisher::Appear(const ObjectHeader& header, Draft& draft, PublishReceipt& receipt,
                                     const DirectoryLock::Hold& hold) {
  FileSystem& files = directory_.files;
  const Path payload = directory_.layout.Payload(header.id);
  std::vector<Digest256> made;
  const auto put = [&]() -> Result<void> {
    MP_FAULT("blobs.publish.before_payload");
    MP_RETURN_IF_ERROR(RenameInto(files, draft.payload.path(), payload));
    MP_FAULT("blobs.publish.before_aliases");
    MP_RETURN_IF_ERROR(PutAliases(header, made, hold));
    MP_FAULT("blobs.publish.before_visible");
    return files.Rename(draft.head.path(), directory_.layout.Head(header.id));
  };
  if (auto result = put(); !result) {
    for (const Digest256& key : made) (void)directory_.aliases.Remove(key, hold);
    // Back to where its TempFile removes it.
    const auto back = files.Rename(payload, draft.payload.path());
    if (!back && back.error().code != ErrorCode::kNotFound) (void)files.Remove(payload);
    return result;
  }
  draft.payload.Release();
  draft.head.Release();
  receipt.aliases_new = static_cast<uint32_t>(made.size());
  return {};
}

Result<void> ObjectPublisher::PutAliases(const ObjectHeader& header, std::vector<Digest256>& made,
                                         const DirectoryLock::Hold& hold) {
  for (uint32_t blocks = 1; blocks <= header.keys.size(); ++blocks) {
    const Digest256& key = header.keys[blocks - 1];
    const ObjectRef ref{header.id, blocks};
    auto put = directory_.aliases.PutIfAbsent(key, ref, hold);
    if (!put && put.error().code == ErrorCode::kAlreadyExists) {
      MP_ASSIGN_OR_RETURN(const auto alias, directory_.aliases.Read(key));
      const auto visible = alias ? directory_.Visible(alias->object) : Result<bool>(false);
      if (!visible) return Fail(visible.error());
      if (*visible) continue;
      put = directory_.aliases.Replace(key, ref, *directory_.temp, hold);
    }
    MP_RETURN_IF_ERROR(std::move(put));
    made.push_back(key);
  }
  return {};
}

Result<std::vector<ObjectId>> ObjectPublisher::WholePrefixesOf(const ObjectHeader& header) {
  std::vector<ObjectId> prefixes;
  for (const ObjectRef& sharing : directory_.known.SharingPrefix(header.keys, header.id)) {
    const auto known = directory_.known.Find(sharing.object);
    if (!known || known->keys.size() != sharing.blocks) continue;
    const auto old = directory_.ReadHead(sharing.object);
    if (!old && old.error().code == ErrorCode::kIo) return Fail(old.error());  // a later look may tell otherwise
    if (!old || old->fingerprint != header.fingerprint || old->name_space != header.name_space ||
        old->block_tokens != header.block_tokens || old->layout != header.layout || old->first_token != 0) {
      continue;
    }
    if (old->tokens.size() > header.tokens.size() ||
        !std::equal(old->tokens.begin(), old->tokens.end(), header.tokens.begin())) {
      continue;
    }
    prefixes.push_back(sharing.object);
  }
  return prefixes;
}

Result<void> ObjectPublisher::Replace(const ObjectId& old, const ObjectHeader& header,
                                      const DirectoryLock::Hold& hold) {
  MP_FAULT("blobs.publish.before_take_over");
  const auto known = directory_.known.Find(old);
  if (known) {
    for (uint32_t blocks = 1; blocks <= known->keys.size(); ++blocks) {
      MP_ASSIGN_OR_RETURN(const auto alias, directory_.aliases.Read(known->keys[blocks - 1]));
      if (!alias || alias->object != old) continue;
      MP_RETURN_IF_ERROR(
          directory_.aliases.Replace(known->keys[blocks - 1], {header.id, blocks}, *directory_.temp, hold));
    }
    directory_.known.Touch(header.id, 0, std::max(known->hotness, directory_.known.Find(header.id)->hotness));
  }
  MP_FAULT("blobs.publish.before_retire");
  MP_RETURN_IF_ERROR(remover_.Remove(old, hold));
  return {};
}

}  // namespace moonpool::bus
