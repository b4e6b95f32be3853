// BusDoor: the bus as an agent sees it. HttpBusDoor (http_bus_door.h) is the real one; tests have a fake.
// Thread-safe.
#pragma once

#include <string>

#include "base/clock.h"
#include "bus/core/bus_types.h"
#include "moonpool/result.h"

namespace moonpool::app {

class BusDoor {
 public:
  virtual ~BusDoor() = default;

  // Errors: what is wrong with the request, or kUnavailable, kDeadlineExceeded.
  virtual Result<bus::PrepareReply> Prepare(const bus::PromptRequest& request, const Deadline& deadline) = 0;
  virtual Result<bus::CommitReply> Commit(const bus::CommitRequest& request, const Deadline& deadline) = 0;
  virtual Result<void> Release(const std::string& ticket, const Deadline& deadline) = 0;
};

}  // namespace moonpool::app
