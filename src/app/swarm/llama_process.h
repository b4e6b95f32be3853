// LlamaProcess: a real llama.cpp server with one slot, started for a demo or benchmark by python/llama_server.py, and
// the client that speaks to it. Owned by the SwarmStage. The client is thread-safe; everything else: one thread.
//
// Its own prompt cache is off (--cache-ram 0): erasing a slot does not empty that, and the comparison needs servers
// that have truly forgotten.
#pragma once

#include <memory>
#include <string>

#include "app/swarm/child_process.h"
#include "app/swarm/server_files.h"
#include "bus/engine/llama_server.h"

namespace moonpool::app {

struct LlamaOptions {
  std::string name{};  // also the engine's name for the bus
  ServerFiles files{};
  Path script{};  // python/llama_server.py
  Path folder{};  // for its slot files and its log
  uint64_t context_tokens = 4096;
  uint32_t threads = 2;
};

class LlamaProcess {
 public:
  // Starts the process; AwaitReady before anything else. Several may start side by side.
  static Result<std::unique_ptr<LlamaProcess>> Start(LlamaOptions options, InterruptWatch& interrupts,
                                                     const Clock& clock);
  // kUnavailable with the end of its log if it ended; kDeadlineExceeded.
  Result<void> AwaitReady(const Deadline& deadline);

  const std::string& name() const { return options_.name; }
  const std::string& url() const { return url_; }
  Path slot_directory() const { return options_.folder / "slots"; }
  bus::LlamaServer& engine() { return *engine_; }

 private:
  LlamaProcess(LlamaOptions options, std::unique_ptr<ChildProcess> process, const Clock& clock)
      : options_(std::move(options)), process_(std::move(process)), clock_(clock) {}

  const LlamaOptions options_;
  const std::unique_ptr<ChildProcess> process_;
  const Clock& clock_;
  std::string url_;
  std::unique_ptr<bus::LlamaServer> engine_;
};

}  // namespace moonpool::app
