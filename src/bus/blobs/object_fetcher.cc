#include "bus/blobs/object_fetcher.h"

#include "base/fault.h"
#include "base/log.h"
#include "bus/blobs/object_header_codec.h"
#include "bus/blobs/payload_checksum.h"

namespace moonpool::bus {

Result<std::unique_ptr<File>> ObjectFetcher::LockForReading(const ObjectId& id) {
  const Path path = directory_.layout.Head(id);
  auto head = directory_.files.Open(path);
  if (!head && head.error().code == ErrorCode::kNotFound) return Fail(ErrorCode::kNotFound, "no object " + id);
  if (!head) return Fail(Judge(std::move(head).error(), path));
  auto locked = (*head)->TryLock(File::LockKind::kShared);
  if (!locked && locked.error().code == ErrorCode::kBusy) {
    return Fail(ErrorCode::kNotFound, "object " + id + " is being removed");
  }
  if (!locked) return Fail(std::move(locked).error());
  // Between opening and locking it may have been removed.
  const auto standing = directory_.files.Info(path);
  MP_ASSIGN_OR_RETURN(const FileInfo opened, (*head)->Info());
  if (!standing && standing.error().code != ErrorCode::kNotFound) return Fail(standing.error());
  if (!standing || standing->inode != opened.inode || standing->device != opened.device) {
    return Fail(ErrorCode::kNotFound, "object " + id + " was removed");
  }
  return head;
}

Result<TransferKind> ObjectFetcher::Bring(const Path& payload, const Path& destination) {
  auto linked = directory_.files.Link(payload, destination);
  if (linked) return TransferKind::kHardLink;
  // Another file system, or one without hard links, or the kernel's rules about linking other people's files.
  if (linked.error().code != ErrorCode::kUnsupported && linked.error().code != ErrorCode::kPermission) {
    return Fail(std::move(linked).error());
  }
  return directory_.files.CloneOrCopy(payload, destination);
}

Error ObjectFetcher::Judge(Error error, const Path& path) {
  if (error.code != ErrorCode::kNotFound && error.code != ErrorCode::kUnsupported &&
      error.code != ErrorCode::kPermission) {
    return error;
  }
  // Only what can be seen at the file itself counts against it.
  const auto info = directory_.files.Info(path);
  const bool missing = !info && info.error().code == ErrorCode::kNotFound;
  const bool replaced = info && info->kind != FileKind::kRegular;
  const bool closed = info && (info->permissions & 0400) == 0;
  if (missing) return {ErrorCode::kCorrupt, path.filename().string() + " is missing"};
  if (replaced) return {ErrorCode::kCorrupt, path.filename().string() + " is no longer a regular file"};
  if (closed)
    return {ErrorCode::kCorrupt, path.filename().string() + " may not be read any more: its mode was changed"};
  return error;
}

Result<FetchReceipt> ObjectFetcher::Fetch(const ObjectHeader& header, const Path& destination,
                                          const Deadline& deadline) {
  MP_RETURN_IF_ERROR(CheckObjectHeader(header));
  if (deadline.Passed()) return Fail(ErrorCode::kDeadlineExceeded, "the deadline passed before the fetch began");
  const TimePoint began = directory_.clock.Now();
  MP_ASSIGN_OR_RETURN(const auto head, LockForReading(header.id));
  MP_FAULT("blobs.fetch.before_bring");
  const Path payload = directory_.layout.Payload(header.id);
  FetchReceipt receipt{.payload_bytes = header.payload_bytes};
  auto brought = Bring(payload, destination);
  if (!brought) {
    // A taken destination is the caller's, and must stay.
    if (brought.error().code == ErrorCode::kAlreadyExists) return Fail(std::move(brought).error());
    return Fail(Judge(std::move(brought).error(), payload));
  }
  receipt.transfer = *brought;
  receipt.fetch_time = directory_.clock.Now() - began;

  const auto verify = [&]() -> Result<void> {
    MP_FAULT("blobs.fetch.before_verify");
    // Under the new name: what the server will open is what was checked.
    auto file = directory_.files.Open(destination);
    if (!file) return Fail(Judge(std::move(file).error(), payload));
    return VerifyPayload(**file, header, &deadline);
  };
  const TimePoint verify_began = directory_.clock.Now();
  if (auto verified = verify(); !verified) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto removed = directory_.files.Remove(destination);
      if (removed || removed.error().code == ErrorCode::kNotFound) break;
      if (attempt == 1) log::Warn("fetched_file_kept path={}", destination.string());
    }
    return Fail(std::move(verified).error());
  }
  receipt.verify_time = directory_.clock.Now() - verify_began;
  return receipt;
}

Result<void> ObjectFetcher::Verify(const ObjectId& id) {
  MP_ASSIGN_OR_RETURN(const ObjectHeader header, directory_.ReadHead(id));
  MP_ASSIGN_OR_RETURN(const auto head, LockForReading(id));
  const Path payload = directory_.layout.Payload(id);
  auto file = directory_.files.Open(payload);
  if (!file) return Fail(Judge(std::move(file).error(), payload));
  return VerifyPayload(**file, header, nullptr);
}

}  // namespace moonpool::bus
