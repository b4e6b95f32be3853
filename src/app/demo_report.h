// DemoReport: what `moonpool demo` found out, as a table for people and as JSON for programs. A value; pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/swarm/swarm_round.h"

namespace moonpool::app {

// One passage of the swarm, and of each agent whether its text is the reference's.
struct DemoColumn {
  SwarmRound round;
  std::vector<bool> text_equal;
};

struct DemoReport {
  uint64_t context_tokens = 0;
  uint64_t tail_tokens = 0;  // of the longest tail
  uint64_t evaluation_bound = 0;
  size_t servers = 0;
  DemoColumn none;
  DemoColumn own;
  DemoColumn bus;
  Duration ideal_wall{};

  bool TextsEqual() const;
  std::string Table() const;
  // Exactly: agents, context_tokens, tail_tokens, without_bus, own, with_bus (each with prefill_tokens, ttft_ms_mean,
  // ttft_ms_p95, wall_ms, hits), ideal_wall_ms, texts_equal.
  nlohmann::ordered_json Json() const;
};

}  // namespace moonpool::app
