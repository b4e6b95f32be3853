// moonpool bus: puts the parts together, serves, and takes them apart again.
//
//   main thread      waits for signals: SIGTERM and SIGINT drain, SIGHUP reads the engines again
//   tick thread      KvCacheBus::Tick every 250 ms
//   work pool        the background halves of commits, and probes
//   doors' threads   BusServer
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>

#include "app/bus_options.h"
#include "app/commands.h"
#include "app/environment.h"
#include "app/service_notice.h"
#include "app/slot_directory.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "bus/blobs/directory_store.h"
#include "bus/core/kv_cache_bus.h"
#include "bus/engine/llama_server.h"
#include "bus/keys/model_digest.h"
#include "bus/server/bus_server.h"
#include "bus/server/core_front.h"

namespace moonpool::app {
namespace {

constexpr Duration kTickInterval = std::chrono::milliseconds(250);
constexpr Duration kDoorsGrace = std::chrono::seconds(1);
constexpr Duration kUnwindGrace = std::chrono::seconds(2);
// Commits, and probes of engines, which hash a model for minutes when it is new; commits must not queue behind those.
constexpr int kWorkThreads = 8;
constexpr size_t kProbesMax = 64;

// Runs the bus's periodic work until it is destroyed.
class Ticker {
 public:
  Ticker(bus::KvCacheBus& bus, bus::BusServer& server, const Clock& clock)
      : bus_(bus), server_(server), clock_(clock), thread_([this] { Run(); }) {}
  ~Ticker() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      wake_.NotifyAll();
    }
    thread_.join();
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  void Run() EXCLUDES(mutex_) {
    while (true) {
      bus_.Tick();
      server_.SetServing(bus_.Ready());
      MutexLock lock(mutex_);
      if (!stopping_) clock_.WaitUntil(wake_, mutex_, clock_.Now() + kTickInterval);
      if (stopping_) return;
    }
  }

  bus::KvCacheBus& bus_;
  bus::BusServer& server_;
  const Clock& clock_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

// The slot directories of the engines, each once.
class SlotDirectories {
 public:
  explicit SlotDirectories(FileSystem& files) : files_(files) {}

  // Takes those that are new; nothing has changed on an error.
  Result<void> Add(const std::vector<bus::EngineConfig>& engines) {
    std::map<Path, std::unique_ptr<SlotDirectory>> fresh;
    for (const bus::EngineConfig& engine : engines) {
      const Path path = engine.slot_dir.lexically_normal();
      if (held_.contains(path) || fresh.contains(path)) continue;
      auto acquired = SlotDirectory::Acquire(files_, path);
      if (!acquired) return Fail(WithContext(acquired.error(), fmt::format("engine {}", engine.name)));
      fresh.emplace(path, std::move(*acquired));
    }
    held_.merge(fresh);
    return {};
  }

  // Gives back those that no engine uses.
  void KeepOnly(const std::vector<bus::EngineConfig>& engines) {
    std::erase_if(held_, [&](const auto& held) {
      return std::none_of(engines.begin(), engines.end(), [&](const bus::EngineConfig& engine) {
        return engine.slot_dir.lexically_normal() == held.first;
      });
    });
  }

 private:
  FileSystem& files_;
  std::map<Path, std::unique_ptr<SlotDirectory>> held_;
};

// Blocks the signals that the main thread waits for, in it and in every thread that it starts.
sigset_t TakeSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

int AwaitSignal(const sigset_t& signals) {
  int number = 0;
  while (sigwait(&signals, &number) != 0) {
  }
  return number;
}

// Whatever still runs then (a model being hashed, a server that does not answer) is cut off, as by a kill: nothing
// half-done is visible, and the next start sweeps. The status says that the end itself was in order.
void EndAtTheLatest(Duration limit) {
  std::signal(SIGALRM, [](int) { _exit(0); });
  alarm(static_cast<unsigned>(ToSeconds(limit)) + 1);
}

std::string Addresses(const BusOptions& options, const bus::BusServer& server) {
  std::string text;
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  };
  const auto url = [](const std::string& address, uint16_t port) -> std::string {
    if (address.empty()) return "";
    return address.find(':') == address.npos ? fmt::format("{}:{}", address, port)
                                             : fmt::format("[{}]:{}", address, port);
  };
  add("http", url(options.server.http.address, server.http_port()));
  add("http-unix", options.server.http.unix_socket_path);
  add("grpc", url(options.server.grpc.address, server.grpc_port()));
  add("grpc-unix", options.server.grpc.unix_socket_path);
  return text;
}

class BusProcess {
 public:
  explicit BusProcess(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

  int Run() {
    ParsedBusOptions parsed = ParseBusOptions(files_, arguments_);
    if (!parsed.options) return parsed.exit_code;
    umask(0077);  // whatever the shell said: everything here is private
    const sigset_t signals = TakeSignals();
    log::Configure(parsed.options->log_level, parsed.options->log_format);
    const Result<void> served = Serve(*parsed.options, signals);
    if (served) return 0;
    fmt::print(stderr, "moonpool bus: {}\n", served.error().message);
    return 1;
  }

 private:
  // From nothing to serving to nothing; an error means that it never served.
  Result<void> Serve(const BusOptions& options, const sigset_t& signals) {
    MP_RETURN_IF_ERROR(files_.MakeDirectories(options.state_root));
    SlotDirectories slot_directories(files_);
    MP_RETURN_IF_ERROR(slot_directories.Add(options.engines));
    bus::DirectoryStore::Options store_options;
    store_options.root = options.store;
    store_options.quota_bytes = options.quota_bytes;
    MP_ASSIGN_OR_RETURN(const auto store, bus::DirectoryStore::Open(files_, clock_, rng_, store_options));
    bus::ModelDigests digests(files_, clock_, rng_, options.state_root / "model_digests");
    ThreadPool work(kWorkThreads, options.bus.commits_max + kProbesMax);
    bus::BusConfig bus_config = options.bus;
    bus_config.engine_notes = options.state_root / "engine_notes";
    bus::KvCacheBus bus(bus_config,
                        {.files = files_,
                         .clock = clock_,
                         .rng = rng_,
                         .executor = work,
                         .store = *store,
                         .digests = digests,
                         .make_engine = [this](const bus::EngineConfig& engine) { return Connect(engine); }});
    MP_RETURN_IF_ERROR(bus.Configure(options.engines));
    bus::CoreFront front(bus);
    MP_ASSIGN_OR_RETURN(const auto server, bus::BusServer::Start(options.server, front));
    {
      const Ticker ticker(bus, *server, clock_);
      Announce(options, *server);
      while (true) {
        const int number = AwaitSignal(signals);
        if (number != SIGHUP) {
          log::Info("bus_stopping signal={}", number);
          break;
        }
        Reload(bus, slot_directories);
      }
      notice_.Stopping();
      EndAtTheLatest(options.drain_timeout + kDoorsGrace + kUnwindGrace);
      server->BeginDrain();
      if (!bus.Drain(Deadline(clock_, options.drain_timeout))) {
        log::Warn("bus_drain_incomplete timeout_ms={}", ToMs(options.drain_timeout));
      }
    }
    server->Stop(kDoorsGrace);
    work.Shutdown();
    log::Info("bus_stopped");
    return {};
  }

  Result<std::unique_ptr<bus::InferenceEngine>> Connect(const bus::EngineConfig& engine) {
    MP_ASSIGN_OR_RETURN(
        auto server,
        bus::LlamaServer::Make({.url = engine.url, .api_key = engine.api_key, .model = engine.router_model}, clock_));
    return std::unique_ptr<bus::InferenceEngine>(std::move(server));
  }

  // The one line on stdout: who started the bus waits for it, and reads the ports from it.
  void Announce(const BusOptions& options, const bus::BusServer& server) {
    ready_status_ = Addresses(options, server);
    fmt::print("moonpool bus ready {}\n", ready_status_);
    std::fflush(stdout);
    notice_.Ready(ready_status_);
    log::Info("bus_ready {} engines={} store={}", ready_status_, options.engines.size(), options.store.string());
  }

  // Engines only: everything else needs a restart. What is wrong in the file changes nothing.
  void Reload(bus::KvCacheBus& bus, SlotDirectories& slot_directories) {
    notice_.Reloading();
    const ParsedBusOptions parsed = ParseBusOptions(files_, arguments_);
    Result<void> done = Fail(ErrorCode::kInvalidArgument, "the configuration cannot be read");
    if (parsed.options && parsed.options->engines.empty() && !bus.Engines().empty()) {
      // Most likely a file that an editor is just writing.
      done = Fail(ErrorCode::kInvalidArgument, "the configuration names no engine; the present ones stay");
    } else if (parsed.options) {
      done = slot_directories.Add(parsed.options->engines);
      if (done) done = bus.Configure(parsed.options->engines);
      if (done) slot_directories.KeepOnly(parsed.options->engines);
    }
    if (done) {
      log::Info("engines_reloaded count={}", parsed.options->engines.size());
    } else {
      log::Error("engines_not_reloaded reason=\"{}\"", done.error().message);
    }
    notice_.Ready(ready_status_);
  }

  const std::vector<std::string> arguments_;
  const ServiceNotice notice_{EnvironmentValue("NOTIFY_SOCKET").value_or("")};
  SystemClock clock_;
  SystemRng rng_;
  PosixFileSystem files_;
  std::string ready_status_;
};

}  // namespace

void AddBusCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("bus", "run the bus beside llama.cpp servers");
  // The bus reads its own flags, because it reads them again on SIGHUP.
  command->set_help_flag();
  command->prefix_command();
  command->callback([command, &exit_code] { exit_code = BusProcess(command->remaining()).Run(); });
}

}  // namespace moonpool::app
