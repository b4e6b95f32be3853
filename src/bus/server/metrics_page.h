// The Prometheus page: a pure function from counts and states to text. Nothing is registered anywhere and nothing
// outlives the call, so a rebuilt bus starts from its own zeros (field report B57). Label values are words of closed
// sets and engine names of the configuration; the number of series has a fixed bound all the same (field report B58).
// No prompt, key, namespace or token ever stands here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bus/blobs/blob_store.h"
#include "bus/core/bus_counters.h"
#include "bus/core/bus_types.h"
#include "bus/server/bus_calls.h"

namespace moonpool::bus {

struct MetricsInput {
  BusCounts counts;
  std::vector<EngineStatus> engines;
  std::optional<StoreStats> store;  // absent: the store could not be asked
  CallCounts calls;
  bool ready = false;
};

// More label combinations than this in one family are added up under the value "other".
inline constexpr size_t kSeriesPerFamilyMax = 200;

std::string RenderMetrics(const MetricsInput& input);

}  // namespace moonpool::bus
