#include "app/swarm/llama_process.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

namespace moonpool::app {

Result<std::unique_ptr<LlamaProcess>> LlamaProcess::Start(LlamaOptions options, InterruptWatch& interrupts,
                                                          const Clock& clock) {
  std::error_code error;
  std::filesystem::create_directories(options.folder / "slots", error);
  if (error) return Fail(ErrorCode::kIo, fmt::format("{}: {}", options.folder.string(), error.message()));
  ChildCommand command{
      .name = fmt::format("server {}", options.name),
      .arguments = {options.files.python.string(), options.script.string(), "--model", options.files.model.string(),
                    "--slot-dir", (options.folder / "slots").string(), "--np", "1", "--ctx",
                    std::to_string(options.context_tokens), "--threads", std::to_string(options.threads), "--cache-ram",
                    "0", "--log", (options.folder / "server.log").string()},
      .environment = {"PYTHONDONTWRITEBYTECODE=1"},
      .log = options.folder / "server.log",
  };
  MP_ASSIGN_OR_RETURN(auto process, ChildProcess::Start(std::move(command), interrupts, clock));
  return std::unique_ptr<LlamaProcess>(new LlamaProcess(std::move(options), std::move(process), clock));
}

Result<void> LlamaProcess::AwaitReady(const Deadline& deadline) {
  MP_ASSIGN_OR_RETURN(const std::string line, process_->ReadLine(deadline));
  const nlohmann::json ready = nlohmann::json::parse(line, nullptr, false);
  if (!ready.is_object() || !ready.contains("url") || !ready["url"].is_string()) {
    return Fail(ErrorCode::kInternal, fmt::format("{} said \"{}\" and not where it listens", process_->name(), line));
  }
  url_ = ready["url"].get<std::string>();
  MP_ASSIGN_OR_RETURN(engine_, bus::LlamaServer::Make({.url = url_}, clock_));
  return engine_->WaitHealthy(deadline);
}

}  // namespace moonpool::app
