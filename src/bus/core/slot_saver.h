// SlotSaver: brings a slot's content into the store: reserve room, save, understand the file, check that it holds
// what the ticket's prompt says, publish. The keys come from the file's own tokens, never from the request: the
// slot may have changed hands, the context may have been shifted.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/rng.h"
#include "bus/blobs/blob_store.h"
#include "bus/core/bus_types.h"
#include "bus/core/engine_session.h"
#include "bus/core/slot_file.h"
#include "moonpool/result.h"

namespace moonpool::bus {

// A slot's content on disk, checked, not yet visible.
struct SavedSlot {
  std::unique_ptr<SlotFile> file;
  std::unique_ptr<Reservation> reservation;
  ObjectHeader header;
};

class SlotSaver {
 public:
  SlotSaver(FileSystem& files, const Clock& clock, Rng& rng, BlobStore& store)
      : files_(files), clock_(clock), rng_(rng), store_(store) {}

  // `predicted_n` as the completion reported it, if it did. kFailedPrecondition: the slot does not hold the
  // ticket's prompt and its reply alone; the message's first word is the reason.
  Result<SavedSlot> Save(EngineSession& session, const EngineProfile& profile, const Ticket& ticket,
                         std::optional<uint64_t> predicted_n, uint64_t tokens_expected, const Deadline& deadline,
                         PhaseTimes& times);
  Result<PublishReceipt> Publish(SavedSlot saved, double hotness, PhaseTimes& times);

 private:
  FileSystem& files_;
  const Clock& clock_;
  Rng& rng_;
  BlobStore& store_;
};

}  // namespace moonpool::bus
