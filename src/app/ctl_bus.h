// The ctl commands that ask a running bus over HTTP: stats, explain, probe. Each prints to stdout and answers the exit
// status: 0, or 1 where the answer is bad news.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "moonpool/result.h"

namespace moonpool::app {

struct BusAddress {
  std::string url = "http://127.0.0.1:7878";  // or unix:/path
  Path token_file;                            // its first token is shown; empty: none
  bool json = false;
};

struct ExplainedPrompt {
  std::string engine;
  std::string name_space;
  std::optional<std::string> text;
  Path text_file;    // in place of text
  Path tokens_file;  // a JSON array of token ids, in place of both
};

Result<int> ShowStats(const BusAddress& bus);
Result<int> ExplainPrompt(const BusAddress& bus, const ExplainedPrompt& prompt);
Result<int> ProbeEngine(const BusAddress& bus, const std::string& engine, std::optional<uint32_t> slot);

}  // namespace moonpool::app
