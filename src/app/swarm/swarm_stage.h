// SwarmStage: everything a demo or benchmark plays on: a scratch folder, real llama.cpp servers in it, and a bus in
// front of them. All of it is gone when the stage goes, also after SIGINT (InterruptWatch). Owned by the command; one
// thread, the main one; engines and the door may be used from any.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "app/swarm/bus_process.h"
#include "app/swarm/interrupt_watch.h"
#include "app/swarm/llama_process.h"
#include "app/swarm/scratch_directory.h"
#include "app/swarm/server_files.h"

namespace moonpool::app {

struct StageOptions {
  ServerFiles files{};
  Path bus_binary{};
  size_t servers = 2;
  uint32_t threads = 2;         // of each server
  uint64_t context_tokens = 0;  // that a slot must be able to hold
  Duration start_timeout = std::chrono::minutes(5);
};

class SwarmStage {
 public:
  // Servers and bus are ready when it returns. Errors are those of the parts; their messages end with the log.
  static Result<std::unique_ptr<SwarmStage>> Open(const StageOptions& options, InterruptWatch& interrupts, Rng& rng,
                                                  const Clock& clock);
  ~SwarmStage();

  size_t servers() const { return servers_.size(); }
  bus::LlamaServer& engine(size_t server) { return servers_.at(server)->engine(); }
  const std::string& engine_name(size_t server) const { return servers_.at(server)->name(); }
  Path slot_directory(size_t server) const { return servers_.at(server)->slot_directory(); }
  HttpBusDoor& door() { return bus_->door(); }

 private:
  SwarmStage(ScratchDirectory scratch, InterruptWatch& interrupts)
      : interrupts_(interrupts), scratch_(std::move(scratch)) {}

  InterruptWatch& interrupts_;
  ScratchDirectory scratch_;  // first: the processes write into it
  std::vector<std::unique_ptr<LlamaProcess>> servers_;
  std::unique_ptr<BusProcess> bus_;  // last: stops before its servers
};

}  // namespace moonpool::app
