// SlotRestorer: brings a stored object into a slot: fetch and verify, understand the whole file, rewrite it if the
// server needs another form, restore, check what came back. Every step can fail; nothing reaches the server
// before all of the file was understood and checked.
#pragma once

#include "base/clock.h"
#include "base/file_system.h"
#include "base/rng.h"
#include "bus/blobs/blob_store.h"
#include "bus/core/bus_types.h"
#include "bus/core/engine_session.h"
#include "moonpool/result.h"

namespace moonpool::bus {

struct RestoreOutcome {
  uint64_t tokens = 0;           // now in the slot
  uint64_t reusable_tokens = 0;  // of them, what the server can go on from
  uint64_t payload_bytes = 0;
  double arbiter_ms = 0;  // fetch, verify, rewrite, restore: what the arbiter learns
};

class SlotRestorer {
 public:
  SlotRestorer(FileSystem& files, const Clock& clock, Rng& rng, BlobStore& store)
      : files_(files), clock_(clock), rng_(rng), store_(store) {}

  // On failure the slot is erased if the server was asked to restore, doubtful if it did not answer in time, and
  // the session is suspect if the server refused a file that we hold to be good. `touched` tells whether the
  // server was asked at all.
  Result<RestoreOutcome> Restore(EngineSession& session, const EngineProfile& profile, const ObjectHeader& object,
                                 const TicketPrompt& prompt, uint32_t slot, const Deadline& deadline, PhaseTimes& times,
                                 bool& touched);

 private:
  Result<SequenceState> Understand(const File& file, const EngineProfile& profile, const ObjectHeader& object);

  FileSystem& files_;
  const Clock& clock_;
  Rng& rng_;
  BlobStore& store_;
};

}  // namespace moonpool::bus
