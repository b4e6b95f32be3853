#include "app/swarm/bus_process.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/mutex.h"

namespace moonpool::app {
namespace {

constexpr Duration kAskAgainAfter = std::chrono::milliseconds(50);

void Pause(const Clock& clock, Duration duration) {
  Mutex mutex;
  CondVar never;  // nobody notifies: the time limit ends the wait
  MutexLock lock(mutex);
  const TimePoint end = clock.Now() + duration;
  while (clock.Now() < end) clock.WaitUntil(never, mutex, end);
}

}  // namespace

Result<std::unique_ptr<BusProcess>> BusProcess::Start(const Path& binary, const Path& folder,
                                                      const std::vector<std::unique_ptr<LlamaProcess>>& servers,
                                                      InterruptWatch& interrupts, const Clock& clock,
                                                      const Deadline& deadline) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Fail(ErrorCode::kIo, fmt::format("{}: {}", folder.string(), error.message()));
  const Path socket = folder / "http.sock";
  ChildCommand command{
      .name = "bus",
      .arguments = {binary.string(), "bus", "--state", (folder / "state").string(), "--store",
                    (folder / "store").string(), "--http", "none", "--http-unix", socket.string(), "--grpc", "none",
                    "--grpc-unix", "none"},
      .environment = {},
      .log = folder / "bus.log",
  };
  for (const auto& server : servers) {
    command.arguments.insert(command.arguments.end(),
                             {"--engine", fmt::format("name={},url={},slots={}", server->name(), server->url(),
                                                      server->slot_directory().string())});
  }
  MP_ASSIGN_OR_RETURN(auto process, ChildProcess::Start(std::move(command), interrupts, clock));
  MP_ASSIGN_OR_RETURN(net::HttpEndpoint endpoint, net::HttpEndpoint::Parse("unix:" + socket.string()));
  std::unique_ptr<BusProcess> bus(new BusProcess(std::move(process), std::move(endpoint)));
  MP_RETURN_IF_ERROR(bus->AwaitReady(clock, deadline));
  return bus;
}

Result<void> BusProcess::AwaitReady(const Clock& clock, const Deadline& deadline) {
  while (true) {
    const Result<bool> ready = door_.Ready(deadline);
    if (ready && *ready) break;
    if (!process_->Running()) {
      return Fail(ErrorCode::kUnavailable, fmt::format("the bus ended; its log ends with:\n{}", process_->LogTail()));
    }
    if (deadline.Passed()) {
      return Fail(ErrorCode::kDeadlineExceeded,
                  fmt::format("the bus does not become ready; its log ends with:\n{}", process_->LogTail()));
    }
    Pause(clock, kAskAgainAfter);
  }
  // Ready also means "given up"; a swarm needs servers that the bus can serve.
  MP_ASSIGN_OR_RETURN(const nlohmann::json stats, door_.Stats(deadline));
  for (const auto& engine : stats.value("engines", nlohmann::json::array())) {
    if (engine.value("state", "") != "ready") {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("the bus cannot serve server {}: {} ({})", engine.value("name", "?"),
                              engine.value("state", "?"), engine.value("reason", "")));
    }
  }
  return {};
}

}  // namespace moonpool::app
