// ObjectPublisher: makes a saved file an object, or changes nothing.
//
//   outside the directory's lock         under it
//   ----------------------------         -----------------------------------------------------
//                                        make room and reserve
//   move the file to tmp/ (rename)
//   one read-and-checksum pass
//   write the header to tmp/
//                                        charge; payload to objects/; aliases that nobody serves;
//                                        header to objects/  <- the one moment of becoming visible
//                                        take over the aliases of objects that it begins with, retire them
//
// Aliases stand before the header does, and lead nowhere until then: so the whole chain appears in one step, and
// whoever is killed on the way leaves nothing that a reader could see.
#pragma once

#include "bus/blobs/directory_reservation.h"
#include "bus/blobs/directory_survey.h"
#include "bus/blobs/evictor.h"

namespace moonpool::bus {

class ObjectPublisher {
 public:
  ObjectPublisher(OpenDirectory& directory, DirectorySurvey& survey, ObjectRemover& remover, Evictor& evictor)
      : directory_(directory), survey_(survey), remover_(remover), evictor_(evictor) {}

  // BlobStore::Publish.
  Result<PublishReceipt> Publish(PublishRequest request, std::unique_ptr<Reservation> reservation);

 private:
  struct Draft {  // what stands in tmp/
    TempFile payload;
    TempFile head;
    uint64_t cost_bytes = 0;
  };
  Result<PublishReceipt> PublishMoved(ObjectHeader header, const Path& source, double hotness,
                                      DirectoryReservation& reservation);
  Result<bool> WholeChainServed(const std::vector<Digest256>& keys);
  Result<TransferKind> Move(const Path& source, const FileInfo& info, const Path& target);
  Result<std::vector<uint64_t>> ChecksumStill(const Path& path, uint64_t payload_bytes);
  Result<void> WriteHead(const std::string& bytes, const Path& path);
  Result<void> Appear(const ObjectHeader& header, Draft& draft, PublishReceipt& receipt,
                      const DirectoryLock::Hold& hold);
  Result<void> PutAliases(const ObjectHeader& header, std::vector<Digest256>& made, const DirectoryLock::Hold& hold);
  // Objects whose tokens are, all of them, the first tokens of `header`.
  Result<std::vector<ObjectId>> WholePrefixesOf(const ObjectHeader& header);
  Result<void> Replace(const ObjectId& old, const ObjectHeader& header, const DirectoryLock::Hold& hold);

  OpenDirectory& directory_;
  DirectorySurvey& survey_;
  ObjectRemover& remover_;
  Evictor& evictor_;
};

}  // namespace moonpool::bus
