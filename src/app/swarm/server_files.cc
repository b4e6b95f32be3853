#include "app/swarm/server_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>

namespace moonpool::app {
namespace {

constexpr std::string_view kModelName = "SmolLM2-135M-Instruct.Q4_1.gguf";

Path FindStateRoot(const ServerFileFlags& flags, const std::optional<std::string>& state_variable,
                   const std::vector<Path>& starts) {
  if (!flags.state.empty()) return flags.state;
  if (state_variable && !state_variable->empty()) return *state_variable;
  std::error_code ignored;
  for (const Path& start : starts) {
    for (Path folder = start; !folder.empty(); folder = folder.parent_path()) {
      if (std::filesystem::is_directory(folder / ".state", ignored)) return folder / ".state";
      if (folder == folder.root_path()) break;
    }
  }
  return ".state";
}

}  // namespace

Result<ServerFiles> FindServerFiles(const ServerFileFlags& flags, const std::optional<std::string>& state_variable,
                                    const std::vector<Path>& starts) {
  const Path state = FindStateRoot(flags, state_variable, starts);
  const ServerFiles files{
      .python = flags.python.empty() ? state / "venv" / "bin" / "python" : Path(flags.python),
      .model = flags.model.empty() ? state / "models" / kModelName : Path(flags.model),
  };
  if (access(files.python.c_str(), X_OK) != 0) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("there is no Python interpreter {}: run `make setup` in the checkout, or give --python or "
                            "--state (or set MOONPOOL_STATE)",
                            files.python.string()));
  }
  if (access(files.model.c_str(), R_OK) != 0) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("there is no model {}: run `make setup` in the checkout, or give --model or --state (or set "
                    "MOONPOOL_STATE)",
                    files.model.string()));
  }
  return files;
}

Result<ServerFiles> FindServerFiles(const ServerFileFlags& flags) {
  const char* variable = std::getenv("MOONPOOL_STATE");
  std::error_code ignored;
  return FindServerFiles(flags, variable == nullptr ? std::nullopt : std::optional<std::string>(variable),
                         {OwnExecutable().parent_path(), std::filesystem::current_path(ignored)});
}

Path OwnExecutable() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

}  // namespace moonpool::app
