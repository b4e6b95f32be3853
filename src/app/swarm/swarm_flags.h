// The flags that `demo` and `bench` share, and what is made of them. Functions without state.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/swarm/server_files.h"
#include "app/swarm/swarm_round.h"
#include "app/swarm/swarm_stage.h"

namespace CLI {
class App;
}

namespace moonpool::app {

struct SwarmFlags {
  ServerFileFlags files{};
  uint32_t threads = 2;
  std::string json{};  // where results go; empty: nowhere
};

// --python, --model, --state, --threads, --json.
void AddSwarmFlags(CLI::App& command, SwarmFlags& flags);

// kNotFound: `make setup` has not run.
Result<StageOptions> MakeStageOptions(const SwarmFlags& flags, size_t servers, uint64_t context_tokens,
                                      uint32_t predict);

// The stage outlives them.
std::vector<SwarmServer> ServersOf(SwarmStage& stage);

// Whether WriteJsonFile will be able to write there: better known before minutes of work than after. Says on stderr why
// not. An empty path is fine.
bool CheckJsonFile(const std::string& path, std::string_view command);

// Writes `value` to `path` (nothing if that is empty). The process's exit status; what went wrong is on stderr, after
// the command's name.
int WriteJsonFile(const std::string& path, const nlohmann::ordered_json& value, std::string_view command);

}  // namespace moonpool::app
