// BusOptions: what `moonpool bus` was told, by command line, configuration file and environment, in this order of
// precedence. Every flag has the same name in the file; its variable is MOONPOOL_ and the name in capitals.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/log.h"
#include "bus/core/bus_config.h"
#include "bus/server/bus_server.h"

namespace moonpool::app {

struct BusOptions {
  Path state_root;
  Path store;
  uint64_t quota_bytes = uint64_t{20} << 30;
  std::vector<bus::EngineConfig> engines;
  bus::BusConfig bus;
  bus::BusServerOptions server;
  Duration drain_timeout = std::chrono::seconds(10);
  log::Level log_level = log::Level::kInfo;
  log::Format log_format = log::Format::kText;
};

// Either options, or what the process should end with at once (help was asked for, or something is wrong; both have
// been printed).
struct ParsedBusOptions {
  std::optional<BusOptions> options;
  int exit_code = 0;
};

// `arguments` are those after "bus". Also used on SIGHUP, to read the file again.
ParsedBusOptions ParseBusOptions(FileSystem& files, const std::vector<std::string>& arguments);

// One row per flag, for the documentation's table and the test that compares it with the constants.
struct OptionRow {
  std::string flag;
  std::string default_text;  // as --help prints it; empty: none
  std::string help;
};
std::vector<OptionRow> BusOptionRows();

}  // namespace moonpool::app
