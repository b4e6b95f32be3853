// Between the messages of proto/kvcache_bus.proto and the plain values of bus/core (bus_types.h). Field by field, in
// one place, for both doors. Requests are checked here for what the message types cannot say; everything that needs to
// know an engine is checked by the core. Pure functions, thread-safe.
#pragma once

#include <vector>

#include "bus/blobs/blob_store.h"
#include "bus/core/bus_counters.h"
#include "bus/core/bus_types.h"
#include "kvcache_bus.pb.h"
#include "moonpool/result.h"

namespace moonpool::bus {

// kInvalidArgument: a token is negative, text and tokens both given, a negative wait or slot, and the like.
Result<PromptRequest> FromMessage(const v1::PromptRequest& message);
Result<CommitRequest> FromMessage(const v1::CommitRequest& message);

v1::Decision ToMessage(Decision decision);
v1::LookupReply ToMessage(const LookupReply& reply);
v1::PrepareReply ToMessage(const PrepareReply& reply);
v1::CommitReply ToMessage(const CommitReply& reply);
v1::ReleaseReply ToMessage(const ReleaseReply& reply);
v1::EngineStatus ToMessage(const EngineStatus& status);
v1::StoreStatus ToMessage(const StoreStats& stats);
// Fills the counting part of a StatsReply.
void AddCounts(const BusCounts& counts, v1::StatsReply& reply);

}  // namespace moonpool::bus
