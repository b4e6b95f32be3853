// KvCacheBus: Lookup, Prepare, Commit and Release over the engines, keys, index, arbiter and store. The core of
// the sidecar: no sockets, no threads of its own; the shell (bus/server, app) calls it from many threads, gives
// it an Executor for commits and calls Tick.
//
// After the decision to restore, every failure becomes a miss with a counted reason; a Prepare never makes a
// request fail that would have worked without the bus. A Result error of these calls means that the request
// itself was wrong (unknown engine, both tokens and text, ...).
//
// Thread-safe. Locks: see ARCHITECTURE.md; none is held across a call to an engine, the store or the disk.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "bus/blobs/blob_store.h"
#include "bus/core/bus_config.h"
#include "bus/core/bus_counters.h"
#include "bus/core/bus_types.h"
#include "bus/engine/inference_engine.h"
#include "bus/keys/model_digest.h"
#include "moonpool/result.h"

namespace moonpool::bus {

class KvCacheBus {
 public:
  using EngineFactory = std::function<Result<std::unique_ptr<InferenceEngine>>(const EngineConfig&)>;

  // Borrowed; all outlive the bus.
  struct Seams {
    FileSystem& files;
    const Clock& clock;
    Rng& rng;
    Executor& executor;
    BlobStore& store;
    ModelDigests& digests;
    EngineFactory make_engine;
  };

  KvCacheBus(BusConfig config, Seams seams);
  // Waits for running commits.
  ~KvCacheBus();

  // The engines from now on: new ones appear unprobed, absent ones vanish with their tickets, unchanged ones stay.
  // kInvalidArgument if names repeat or a setting is wrong; nothing has changed then.
  Result<void> Configure(const std::vector<EngineConfig>& engines);

  Result<LookupReply> Lookup(const PromptRequest& request);
  // `cancelled` may be null; it is asked while waiting: true ends the call early, leaving nothing behind.
  Result<PrepareReply> Prepare(const PromptRequest& request, const std::function<bool()>& cancelled = {});
  Result<CommitReply> Commit(const CommitRequest& request);
  ReleaseReply Release(const std::string& ticket);

  // Probes an engine now; with `slot`, gives up what that slot holds.
  Result<EngineStatus> Probe(const std::string& engine, std::optional<uint32_t> slot);

  // Health, restarts, probes, expired tickets, store upkeep. Call every 250 ms or so, from one thread.
  void Tick();

  // Ready: every engine is probed, or given up, or unreachable.
  bool Ready() const;
  std::vector<EngineStatus> Engines() const;
  BusCounts Counts() const;
  BlobStore& store();

  // No new tickets; queued and running commits finish (or roll back) by the deadline. True if all did.
  bool Drain(const Deadline& deadline);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace moonpool::bus
