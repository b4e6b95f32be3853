#include "app/engine_option.h"

#include <fmt/format.h>

#include <set>

#include "net/http_client.h"

namespace moonpool::app {
namespace {

constexpr uint64_t kKeyFileBytesMax = 4096;
constexpr size_t kNameBytesMax = 64;

bool IsEngineName(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) return false;
  for (const char c : name) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      std::string_view("._:-[]").find(c) != std::string_view::npos;
    if (!fits) return false;
  }
  return true;
}

Result<std::string> ReadKey(FileSystem& files, const Path& path) {
  MP_ASSIGN_OR_RETURN(std::string key, ReadWholeFile(files, path, kKeyFileBytesMax));
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r' || key.back() == ' ')) key.pop_back();
  if (key.empty() || key.find('\n') != key.npos) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} does not hold one key", path.string()));
  }
  return key;
}

Result<void> SetPart(FileSystem& files, std::string_view key, std::string_view value, bus::EngineConfig& engine) {
  if (key == "name") {
    engine.name = value;
  } else if (key == "url") {
    engine.url = value;
  } else if (key == "slots") {
    engine.slot_dir = value;
  } else if (key == "model") {
    engine.model = value;
  } else if (key == "projector") {
    engine.projector = value;
  } else if (key == "router-model") {
    engine.router_model = value;
  } else if (key == "epoch") {
    engine.epoch = value;
  } else if (key == "api-key-file") {
    MP_ASSIGN_OR_RETURN(engine.api_key, ReadKey(files, value));
  } else {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" is none of name, url, slots, model, projector, router-model, epoch, api-key-file, "
                            "swa-full",
                            key));
  }
  return {};
}

}  // namespace

Result<bus::EngineConfig> ParseEngine(FileSystem& files, std::string_view text) {
  bus::EngineConfig engine;
  std::set<std::string_view> seen;
  int position = 0;
  for (std::string_view rest = text; !rest.empty() || position == 0; ++position) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(part.size() == rest.size() ? rest.size() : part.size() + 1);
    const size_t equals = part.find('=');
    if (part == "swa-full") {
      engine.swa_full = true;
    } else if (equals == part.npos && position == 0 && !part.empty()) {
      engine.url = part;
      seen.insert("url");
    } else if (equals == part.npos && position == 1 && seen.contains("url") && !part.empty()) {
      engine.slot_dir = part;
      seen.insert("slots");
    } else if (equals == part.npos || equals + 1 == part.size()) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("engine \"{}\": \"{}\" is not KEY=VALUE", text, part));
    } else {
      const std::string_view key = part.substr(0, equals);
      if (!seen.insert(key).second) {
        return Fail(ErrorCode::kInvalidArgument, fmt::format("engine \"{}\": {} is given twice", text, key));
      }
      if (const auto set = SetPart(files, key, part.substr(equals + 1), engine); !set) {
        return Fail(WithContext(set.error(), fmt::format("engine \"{}\"", text)));
      }
    }
  }
  const auto endpoint = net::HttpEndpoint::Parse(engine.url);
  if (!endpoint) return Fail(WithContext(endpoint.error(), fmt::format("engine \"{}\"", text)));
  if (engine.name.empty()) {
    engine.name = endpoint->unix_socket_path.empty() ? fmt::format("{}:{}", endpoint->host, endpoint->port)
                                                     : Path(endpoint->unix_socket_path).filename().string();
  }
  if (!IsEngineName(engine.name)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("engine \"{}\": a name has 1 to {} letters, digits and . _ : - [ ]", text, kNameBytesMax));
  }
  return engine;
}

Result<std::vector<bus::EngineConfig>> ParseEngines(FileSystem& files, const std::vector<std::string>& texts) {
  std::vector<bus::EngineConfig> engines;
  std::set<std::string> names;
  for (const std::string& text : texts) {
    MP_ASSIGN_OR_RETURN(bus::EngineConfig engine, ParseEngine(files, text));
    if (!names.insert(engine.name).second) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("two engines are named {}", engine.name));
    }
    engines.push_back(std::move(engine));
  }
  return engines;
}

}  // namespace moonpool::app
