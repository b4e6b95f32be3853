#include "bus/blobs/open_directory.h"

#include "bus/blobs/object_header_codec.h"

namespace moonpool::bus {

Result<bool> OpenDirectory::Visible(const ObjectId& id) {
  if (known.Condemned(id)) return false;
  const auto info = files.Info(layout.Head(id));
  if (info) return info->kind == FileKind::kRegular;
  if (info.error().code == ErrorCode::kNotFound) return false;
  return Fail(info.error());
}

Result<ObjectHeader> OpenDirectory::ReadHead(const ObjectId& id) {
  if (!IsObjectId(id)) return Fail(ErrorCode::kNotFound, "'" + id + "' is no object's id");
  const auto bytes = ReadWholeFile(files, layout.Head(id), kHeaderBytesMax);
  if (!bytes) {
    switch (bytes.error().code) {
      case ErrorCode::kNotFound: return Fail(ErrorCode::kNotFound, "no object " + id);
      case ErrorCode::kQuota:
      case ErrorCode::kPermission:
      case ErrorCode::kUnsupported:
        return Fail(ErrorCode::kCorrupt, "the header cannot be read: " + bytes.error().message);
      default: return Fail(bytes.error());
    }
  }
  auto header = DecodeObjectHeader(*bytes);
  if (header && header->id != id) {
    return Fail(ErrorCode::kCorrupt, "the header is that of object " + header->id);
  }
  return header;
}

Result<uint64_t> OpenDirectory::MeasureObject(const ObjectId& id) {
  uint64_t cost = 0;
  for (const Path& path : {layout.Head(id), layout.Payload(id)}) {
    const auto info = files.Info(path);
    if (!info && info.error().code != ErrorCode::kNotFound) return Fail(info.error());
    if (info && info->kind == FileKind::kRegular) cost += CostOf(info->size_bytes);
  }
  return cost;
}

}  // namespace moonpool::bus
