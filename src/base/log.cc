#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace moonpool::log {
namespace {

// Off until app/ configures it: libraries and tests are silent.
std::atomic<Level> g_level{Level::kOff};
std::atomic<bool> g_json{false};

spdlog::logger& Sink() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("moonpool", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(spdlog::level::debug);
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
    case Level::kOff: return spdlog::level::off;
  }
  return spdlog::level::off;
}

}  // namespace

void Configure(Level level, Format format) {
  g_json = format == Format::kJsonLines;
  Sink().set_pattern(g_json ? "{\"time\":\"%Y-%m-%dT%H:%M:%S.%e%z\",\"level\":\"%l\",%v}"
                            : "%Y-%m-%d %H:%M:%S.%e %^%-5l%$ %v");
  g_level = level;
}

bool Enabled(Level level) { return level >= g_level.load(std::memory_order_relaxed); }

void Write(Level level, std::string_view line) {
  if (g_json) {
    const std::string text =
        nlohmann::json(std::string(line)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    Sink().log(ToSpdlog(level), "\"message\":{}", text);
  } else {
    Sink().log(ToSpdlog(level), "{}", line);
  }
}

}  // namespace moonpool::log
