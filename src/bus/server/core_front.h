// CoreFront: the bus itself behind the doors. Adds nothing. Thread-safe, as the bus is.
#pragma once

#include "bus/core/kv_cache_bus.h"
#include "bus/server/bus_front.h"

namespace moonpool::bus {

class CoreFront final : public BusFront {
 public:
  // `bus` outlives the front.
  explicit CoreFront(KvCacheBus& bus) : bus_(bus) {}

  Result<LookupReply> Lookup(const PromptRequest& request) override { return bus_.Lookup(request); }
  Result<PrepareReply> Prepare(const PromptRequest& request, const std::function<bool()>& cancelled) override {
    return bus_.Prepare(request, cancelled);
  }
  Result<CommitReply> Commit(const CommitRequest& request) override { return bus_.Commit(request); }
  ReleaseReply Release(const std::string& ticket) override { return bus_.Release(ticket); }
  Result<EngineStatus> Probe(const std::string& engine, std::optional<uint32_t> slot) override {
    return bus_.Probe(engine, slot);
  }
  bool Ready() const override { return bus_.Ready(); }
  std::vector<EngineStatus> Engines() const override { return bus_.Engines(); }
  BusCounts Counts() const override { return bus_.Counts(); }
  Result<StoreStats> Store() const override { return bus_.store().Stats(); }

 private:
  KvCacheBus& bus_;
};

}  // namespace moonpool::bus
