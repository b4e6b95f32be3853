// HttpBusDoor: a BusDoor over HTTP and JSON, the way any agent's few lines would do it. Thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "app/swarm/bus_door.h"
#include "net/http_client.h"

namespace moonpool::app {

class HttpBusDoor final : public BusDoor {
 public:
  explicit HttpBusDoor(net::HttpEndpoint endpoint) : client_(std::move(endpoint), {}) {}

  Result<bus::PrepareReply> Prepare(const bus::PromptRequest& request, const Deadline& deadline) override;
  Result<bus::CommitReply> Commit(const bus::CommitRequest& request, const Deadline& deadline) override;
  Result<void> Release(const std::string& ticket, const Deadline& deadline) override;

  // Whether every engine is probed or given up. kUnavailable: nobody answers (yet).
  Result<bool> Ready(const Deadline& deadline);
  // The body of GET /v1/stats.
  Result<nlohmann::json> Stats(const Deadline& deadline);

 private:
  Result<nlohmann::json> Call(const char* method, const char* path, const nlohmann::json* body,
                              const Deadline& deadline);

  net::HttpClient client_;
};

}  // namespace moonpool::app
