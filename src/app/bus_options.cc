#include "app/bus_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <utility>

#include "app/engine_option.h"
#include "app/environment.h"
#include "app/quantity.h"
#include "net/http_client.h"

namespace moonpool::app {
namespace {

constexpr uint64_t kTokenFileBytesMax = 1 << 20;
constexpr char kNone[] = "none";

constexpr char kDescription[] =
    "Runs the bus: a sidecar that keeps the KV of prompts which llama.cpp servers have evaluated, and restores it "
    "into\n"
    "any server that meets the same prefix again.";

constexpr char kFooter[] = R"(An engine is one llama.cpp server that was started with --slot-save-path:
  --engine http://127.0.0.1:8081,/dev/shm/slots
  --engine name=gpu0,url=http://127.0.0.1:8081,slots=/dev/shm/slots0,api-key-file=/etc/moonpool/key
Further keys: model=, projector= (GGUF files, where /props does not tell), router-model=, epoch=, and swa-full for
servers that run with --swa-full.

Examples:
  moonpool bus --engine http://127.0.0.1:8081,/dev/shm/slots
  moonpool bus --engine name=a,url=http://127.0.0.1:8081,slots=/dev/shm/a \
               --engine name=b,url=http://127.0.0.1:8082,slots=/dev/shm/b --store /dev/shm/moonpool --quota 8GiB
  moonpool bus --config /etc/moonpool/bus.toml          the same names: engine = ["...", "..."], quota = "8GiB"

Put the slot directories and the store on one file system: then nothing is ever copied. SIGHUP reads the engines of
the configuration file again, SIGTERM ends the bus when running commits have ended.)";

// What the flags write before it is checked and put together.
struct RawOptions {
  BusOptions result;
  std::string state_root = DefaultStateRoot();
  std::string store;
  std::string http = "127.0.0.1:7878";
  std::string http_unix = kNone;
  std::string grpc = kNone;
  std::string grpc_unix;
  std::string token_file;
  std::string canary = "compare";
  std::string log_level = "info";
  std::string log_format = "text";
  std::vector<std::string> engines;
  std::vector<std::string> bindings;
};

std::string VariableOf(std::string_view flag) {
  std::string name = "MOONPOOL_";
  for (const char c : flag.substr(2))
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

// Adds flags to one App; every flag gets its variable and shows its default.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  CLI::Option* Text(const std::string& flag, std::string& value, const std::string& help) {
    return Named(app_.add_option(flag, value, help), flag)->default_str(value);
  }
  CLI::Option* Bytes(const std::string& flag, uint64_t& value, const std::string& help) {
    return Converted(flag, value, help, "SIZE", ParseBytes, FormatBytes);
  }
  CLI::Option* Time(const std::string& flag, Duration& value, const std::string& help) {
    return Converted(flag, value, help, "TIME", ParseDuration, FormatDuration);
  }
  template <class Number>
  CLI::Option* Count(const std::string& flag, Number& value, const std::string& help) {
    return Named(app_.add_option(flag, value, help), flag)->default_str(std::to_string(value));
  }
  CLI::Option* Switch(const std::string& flag, bool& value, const std::string& help) {
    return Named(app_.add_flag(flag, value, help), flag);
  }

 private:
  template <class Value, class Parse, class Format>
  CLI::Option* Converted(const std::string& flag, Value& value, const std::string& help, const std::string& type,
                         Parse parse, Format format) {
    const auto read = [flag, &value, parse](const std::string& text) {
      const auto parsed = parse(text);
      if (!parsed) throw CLI::ValidationError(flag, parsed.error().message);
      value = *parsed;
    };
    CLI::Option* option = app_.add_option_function<std::string>(flag, read, help);
    return Named(option, flag)->default_str(format(value))->type_name(type);
  }
  static CLI::Option* Named(CLI::Option* option, const std::string& flag) { return option->envname(VariableOf(flag)); }

  CLI::App& app_;
};

void Define(CLI::App& app, RawOptions& raw) {
  app.description(kDescription);
  app.footer(kFooter);
  app.set_config("--config", "", "read flags from this file (TOML or INI), by their names without dashes");
  app.allow_config_extras(CLI::config_extras_mode::error);
  Flags flags(app);
  BusOptions& result = raw.result;

  app.add_option("--engine", raw.engines, "a llama.cpp server, see below; repeatable")
      ->type_name("ENGINE")
      ->envname("MOONPOOL_ENGINE")
      ->take_all();

  app.option_defaults()->group("Storage");
  flags.Text("--state", raw.state_root, "directory for everything the bus remembers")->type_name("DIR");
  flags.Text("--store", raw.store, "directory of stored prefixes; buses may share one; default: STATE/store")
      ->type_name("DIR");
  flags.Bytes("--quota", result.quota_bytes, "bytes that the store may use");

  app.option_defaults()->group("Doors");
  flags.Text("--http", raw.http, "HTTP/JSON address, or none")->type_name("ADDRESS:PORT");
  flags.Text("--http-unix", raw.http_unix, "HTTP/JSON unix socket, or none")->type_name("PATH");
  flags.Text("--grpc", raw.grpc, "gRPC address, or none")->type_name("ADDRESS:PORT");
  flags.Text("--grpc-unix", raw.grpc_unix, "gRPC unix socket, or none; default: STATE/bus.sock")->type_name("PATH");
  flags.Switch("--listen-any", result.server.listen_any, "allow addresses that other machines reach; needs tokens");
  flags.Text("--token-file", raw.token_file, "TCP callers need a token of this file: lines TOKEN [namespace=NAME]")
      ->type_name("FILE");
  app.add_option("--bind-namespace", raw.bindings,
                 "callers of a listener (http, http-unix, grpc, grpc-unix) or a user (uid:1000) stay in one namespace; "
                 "repeatable")
      ->type_name("WHO=NAME")
      ->envname("MOONPOOL_BIND_NAMESPACE")
      ->take_all();
  flags.Count("--prepares-max", result.server.lanes.prepare_threads, "Prepares that may wait at the same time")
      ->check(CLI::Range(1, 4096));

  app.option_defaults()->group("Keys");
  flags.Count("--block", result.bus.block_tokens, "tokens per block: the grain of sharing")
      ->check(CLI::Range(1u, bus::kBlockTokensMax));
  flags.Switch("--fold-context", result.bus.fold_context, "servers with another context length do not share");
  flags.Text("--canary", raw.canary, "compare: servers share if their KV is alike; exact: if it is equal")
      ->check(CLI::IsMember({"compare", "exact"}));
  flags.Count("--prompt-tokens-max", result.bus.prompt_tokens_max, "longer prompts are refused");

  app.option_defaults()->group("Time limits");
  flags.Time("--engine-call-timeout", result.bus.engine_call_timeout, "one short question to a server");
  flags.Time("--slot-action-timeout", result.bus.slot_action_timeout, "save or erase of a slot");
  flags.Time("--prepare-timeout", result.bus.prepare_timeout, "a Prepare, waiting for a leader not counted");
  flags.Time("--probe-timeout", result.bus.probe_timeout, "the canary's evaluation");
  flags.Time("--ticket-ttl", result.bus.ticket_ttl, "a ticket owns its slot so long");
  flags.Time("--ticket-idle", result.bus.ticket_idle, "an idle slot's ticket may be taken over after");
  flags.Time("--flight-wait", result.bus.flight_wait_default, "a Prepare that names no wait_ms waits so long");
  flags.Time("--leader-idle", result.bus.leader_idle, "a leader whose slot idles so long is gone");
  flags.Time("--engine-backoff-min", result.bus.engine_backoff_min, "first pause after an unreachable server");
  flags.Time("--engine-backoff-max", result.bus.engine_backoff_max, "longest pause");
  flags.Time("--drain-timeout", result.drain_timeout, "commits may end so long after SIGTERM");

  app.option_defaults()->group("Behaviour");
  flags.Count("--probe-attempts-max", result.bus.probe_attempts_max, "then an engine is given up until it restarts");
  flags.Count("--commits-max", result.bus.commits_max, "commits queued or running; more are skipped")
      ->check(CLI::Range(1u, 4096u));
  flags.Count("--promises-broken-max", result.bus.promises_broken_max, "in a row, then a model is not restored");
  flags.Count("--promise-probe-every", result.bus.promise_probe_every, "... but every n-th time it is tried again");

  app.option_defaults()->group("Log");
  flags.Text("--log-level", raw.log_level, "debug, info, warn, error or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}));
  flags.Text("--log-format", raw.log_format, "text or json (one object per line)")
      ->check(CLI::IsMember({"text", "json"}));
}

// "127.0.0.1:7878", "[::1]:0", "none".
Result<std::pair<std::string, uint16_t>> ParseAddress(std::string_view flag, const std::string& text) {
  if (text == kNone || text.empty()) return std::pair<std::string, uint16_t>();
  // The same syntax as in a URL, so the same reader.
  const auto endpoint = net::HttpEndpoint::Parse("http://" + text);
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  const bool has_port = colon != text.npos && (bracket == text.npos || colon > bracket);
  if (!has_port || (!endpoint && !text.ends_with(":0"))) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} {} is not ADDRESS:PORT", flag, text));
  }
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";
  return std::pair(host, endpoint ? endpoint->port : uint16_t{0});
}

Result<void> ReadTokens(FileSystem& files, const Path& path, bus::AccessRules& access) {
  constexpr uint32_t kReadableByOthers = 0004;
  MP_ASSIGN_OR_RETURN(const FileInfo info, files.Info(path));
  if ((info.permissions & kReadableByOthers) != 0) {
    return Fail(ErrorCode::kPermission, fmt::format("{} can be read by everybody: chmod 600 it", path.string()));
  }
  MP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, path, kTokenFileBytesMax));
  auto tokens = bus::AccessRules::ParseTokens(text);
  if (!tokens) return Fail(WithContext(tokens.error(), path.string()));
  access.tokens = std::move(*tokens);
  return {};
}

std::string PathOrNone(const std::string& text) { return text == kNone ? "" : text; }

Result<BusOptions> Finish(FileSystem& files, RawOptions raw) {
  BusOptions options = std::move(raw.result);
  options.state_root = raw.state_root;
  options.store = raw.store.empty() ? options.state_root / "store" : Path(raw.store);
  MP_ASSIGN_OR_RETURN(options.engines, ParseEngines(files, raw.engines));
  for (const bus::EngineConfig& engine : options.engines) {
    if (engine.slot_dir.empty()) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("engine {} has no slot directory: give slots=DIR, the server's --slot-save-path", engine.name));
    }
  }

  bus::BusServerOptions& server = options.server;
  MP_ASSIGN_OR_RETURN(const auto http, ParseAddress("--http", raw.http));
  server.http.address = http.first;
  server.http.port = http.second;
  server.http.unix_socket_path = PathOrNone(raw.http_unix);
  MP_ASSIGN_OR_RETURN(const auto grpc, ParseAddress("--grpc", raw.grpc));
  server.grpc.address = grpc.first;
  server.grpc.port = grpc.second;
  server.grpc.unix_socket_path =
      raw.grpc_unix.empty() ? (options.state_root / "bus.sock").string() : PathOrNone(raw.grpc_unix);
  if (!raw.token_file.empty()) MP_RETURN_IF_ERROR(ReadTokens(files, raw.token_file, server.access));
  for (const std::string& rule : raw.bindings) MP_RETURN_IF_ERROR(server.access.Bind(rule));

  options.bus.canary_exact = raw.canary == "exact";
  static const std::map<std::string, log::Level> kLevels = {{"debug", log::Level::kDebug},
                                                            {"info", log::Level::kInfo},
                                                            {"warn", log::Level::kWarn},
                                                            {"error", log::Level::kError},
                                                            {"off", log::Level::kOff}};
  options.log_level = kLevels.at(raw.log_level);
  options.log_format = raw.log_format == "json" ? log::Format::kJsonLines : log::Format::kText;
  return options;
}

}  // namespace

ParsedBusOptions ParseBusOptions(FileSystem& files, const std::vector<std::string>& arguments) {
  CLI::App app("", "moonpool bus");
  RawOptions raw;
  Define(app, raw);
  try {
    // CLI11 takes them from the back.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return {.options = std::nullopt, .exit_code = app.exit(error)};
  }
  auto options = Finish(files, std::move(raw));
  if (!options) {
    fmt::print(stderr, "moonpool bus: {}\n", options.error().message);
    return {.options = std::nullopt, .exit_code = 2};
  }
  return {.options = std::move(*options), .exit_code = 0};
}

std::vector<OptionRow> BusOptionRows() {
  CLI::App app("", "moonpool bus");
  RawOptions raw;
  Define(app, raw);
  std::vector<OptionRow> rows;
  for (const CLI::Option* option : app.get_options()) {
    rows.push_back(
        {.flag = option->get_name(), .default_text = option->get_default_str(), .help = option->get_description()});
  }
  return rows;
}

}  // namespace moonpool::app
