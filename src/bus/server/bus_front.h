// BusFront: what the doors need of the bus, in the core's own types. CoreFront is the bus; tests of the doors script
// theirs, so that a call can hang or fail on command. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bus/blobs/blob_store.h"
#include "bus/core/bus_counters.h"
#include "bus/core/bus_types.h"
#include "moonpool/result.h"

namespace moonpool::bus {

class BusFront {
 public:
  virtual ~BusFront() = default;

  // As those of KvCacheBus. Calls may block: Lookup for a tokenization, Prepare up to wait_ms and more, Commit as long
  // as its `wait` says.
  virtual Result<LookupReply> Lookup(const PromptRequest& request) = 0;
  virtual Result<PrepareReply> Prepare(const PromptRequest& request, const std::function<bool()>& cancelled) = 0;
  virtual Result<CommitReply> Commit(const CommitRequest& request) = 0;
  virtual ReleaseReply Release(const std::string& ticket) = 0;
  virtual Result<EngineStatus> Probe(const std::string& engine, std::optional<uint32_t> slot) = 0;
  virtual bool Ready() const = 0;
  virtual std::vector<EngineStatus> Engines() const = 0;
  virtual BusCounts Counts() const = 0;
  virtual Result<StoreStats> Store() const = 0;
};

}  // namespace moonpool::bus
