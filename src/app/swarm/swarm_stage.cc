#include "app/swarm/swarm_stage.h"

#include <fmt/format.h>

#include <fstream>

#include "app/swarm/embedded_files.h"

namespace moonpool::app {
namespace {

// Whole blocks, with room for what is generated and for the canary.
uint64_t SlotSize(uint64_t tokens) {
  constexpr uint64_t kGrain = 256;
  return (std::max<uint64_t>(tokens, 2 * kGrain) + kGrain - 1) / kGrain * kGrain;
}

Result<Path> WriteServerScript(const Path& folder) {
  const Path path = folder / "llama_server.py";
  std::ofstream file(path, std::ios::binary);
  file << LlamaServerScript();
  file.close();
  if (!file) return Fail(ErrorCode::kIo, fmt::format("{}: cannot be written", path.string()));
  return path;
}

}  // namespace

Result<std::unique_ptr<SwarmStage>> SwarmStage::Open(const StageOptions& options, InterruptWatch& interrupts, Rng& rng,
                                                     const Clock& clock) {
  MP_ASSIGN_OR_RETURN(ScratchDirectory scratch, ScratchDirectory::Make(rng));
  interrupts.SetDirectory(scratch.path());
  std::unique_ptr<SwarmStage> stage(new SwarmStage(std::move(scratch), interrupts));
  const Path& folder = stage->scratch_.path();
  MP_ASSIGN_OR_RETURN(const Path script, WriteServerScript(folder));
  const Deadline deadline(clock, options.start_timeout);
  for (size_t i = 0; i < options.servers; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    MP_ASSIGN_OR_RETURN(auto server, LlamaProcess::Start({.name = name,
                                                          .files = options.files,
                                                          .script = script,
                                                          .folder = folder / name,
                                                          .context_tokens = SlotSize(options.context_tokens),
                                                          .threads = options.threads},
                                                         interrupts, clock));
    stage->servers_.push_back(std::move(server));
  }
  for (const auto& server : stage->servers_) MP_RETURN_IF_ERROR(server->AwaitReady(deadline));
  MP_ASSIGN_OR_RETURN(
      stage->bus_, BusProcess::Start(options.bus_binary, folder / "bus", stage->servers_, interrupts, clock, deadline));
  return stage;
}

SwarmStage::~SwarmStage() {
  bus_.reset();
  servers_.clear();
  interrupts_.SetDirectory({});
}

}  // namespace moonpool::app
