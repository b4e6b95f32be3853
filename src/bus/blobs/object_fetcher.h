// ObjectFetcher: brings a payload to a reader, verified, or reports what is wrong with it.
// Takes no lock of the directory; holds a shared lock on the object's header for as long as it reads, which keeps
// every evictor in every process away from the object (field report B28e).
#pragma once

#include "bus/blobs/open_directory.h"

namespace moonpool::bus {

class ObjectFetcher {
 public:
  explicit ObjectFetcher(OpenDirectory& directory) : directory_(directory) {}

  // BlobStore::Fetch, except that kCorrupt only reports: the caller quarantines.
  Result<FetchReceipt> Fetch(const ObjectHeader& header, const Path& destination, const Deadline& deadline);
  // Reads the object where it lies. kNotFound, kCorrupt, kUnsupported.
  Result<void> Verify(const ObjectId& id);

 private:
  // The header's file, locked shared and certain to be the one that stands there.
  Result<std::unique_ptr<File>> LockForReading(const ObjectId& id);
  Result<TransferKind> Bring(const Path& payload, const Path& destination);
  // Whether an error of reading `payload` is the payload's own fault: then kCorrupt, else the error as it was.
  Error Judge(Error error, const Path& payload);

  OpenDirectory& directory_;
};

}  // namespace moonpool::bus
