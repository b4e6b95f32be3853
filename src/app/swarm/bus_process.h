// BusProcess: `moonpool bus` as a process of its own, in front of the swarm's servers, reached over a unix socket.
// Owned by the SwarmStage. The door is thread-safe; everything else: one thread.
#pragma once

#include <memory>
#include <vector>

#include "app/swarm/child_process.h"
#include "app/swarm/http_bus_door.h"
#include "app/swarm/llama_process.h"

namespace moonpool::app {

class BusProcess {
 public:
  // Ready when it returns: every server is probed. `binary` is a moonpool; `folder` takes the store, the socket and the
  // log. kUnavailable with the end of its log if it ended or found a server that it cannot serve; kDeadlineExceeded.
  static Result<std::unique_ptr<BusProcess>> Start(const Path& binary, const Path& folder,
                                                   const std::vector<std::unique_ptr<LlamaProcess>>& servers,
                                                   InterruptWatch& interrupts, const Clock& clock,
                                                   const Deadline& deadline);

  HttpBusDoor& door() { return door_; }

 private:
  BusProcess(std::unique_ptr<ChildProcess> process, net::HttpEndpoint endpoint)
      : process_(std::move(process)), door_(std::move(endpoint)) {}
  Result<void> AwaitReady(const Clock& clock, const Deadline& deadline);

  const std::unique_ptr<ChildProcess> process_;
  HttpBusDoor door_;
};

}  // namespace moonpool::app
