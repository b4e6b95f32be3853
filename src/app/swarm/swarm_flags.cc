#include "app/swarm/swarm_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace moonpool::app {

void AddSwarmFlags(CLI::App& command, SwarmFlags& flags) {
  command.add_option("--threads", flags.threads, "threads of each server")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1024u));
  command.add_option("--state", flags.files.state,
                     "state root with the Python environment and the model (default: $MOONPOOL_STATE, or .state of "
                     "the checkout)");
  command.add_option("--python", flags.files.python, "Python interpreter that has xllamacpp");
  command.add_option("--model", flags.files.model, "GGUF file");
  command.add_option("--json", flags.json, "file that takes the results");
}

Result<StageOptions> MakeStageOptions(const SwarmFlags& flags, size_t servers, uint64_t context_tokens,
                                      uint32_t predict) {
  constexpr uint64_t kTailTokensMax = 64;
  MP_ASSIGN_OR_RETURN(ServerFiles files, FindServerFiles(flags.files));
  return StageOptions{.files = std::move(files),
                      .bus_binary = OwnExecutable(),
                      .servers = servers,
                      .threads = flags.threads,
                      .context_tokens = context_tokens + kTailTokensMax + predict};
}

std::vector<SwarmServer> ServersOf(SwarmStage& stage) {
  std::vector<SwarmServer> servers;
  for (size_t i = 0; i < stage.servers(); ++i) {
    servers.push_back({.engine = stage.engine(i), .name = stage.engine_name(i)});
  }
  return servers;
}

bool CheckJsonFile(const std::string& path, std::string_view command) {
  if (path.empty() || std::ofstream(path, std::ios::binary | std::ios::app)) return true;
  fmt::print(stderr, "{}: {}: cannot be written: {}\n", command, path, std::strerror(errno));
  return false;
}

int WriteJsonFile(const std::string& path, const nlohmann::ordered_json& value, std::string_view command) {
  if (path.empty()) return 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << value.dump(2) << '\n';
  file.close();
  if (file) return 0;
  fmt::print(stderr, "{}: {}: cannot be written: {}\n", command, path, std::strerror(errno));
  return 1;
}

}  // namespace moonpool::app
