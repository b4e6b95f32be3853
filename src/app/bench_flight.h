// flight.prefills and flight.ttft: three agents meet a cold prefix at the same moment. Functions without state.
#pragma once

#include <vector>

#include "app/bench_row.h"
#include "app/bench_scene.h"
#include "app/swarm/swarm_round.h"

namespace moonpool::app {

inline constexpr size_t kFlightAgents = 3;
inline constexpr double kFlightTtftBar = 1.1;

// Each repeat starts one agent per server together, on a fresh namespace. The stage needs kFlightAgents servers.
Result<std::vector<BenchRow>> MeasureFlight(const BenchOptions& options, BenchScene scene);

// The pure part: the rounds of all repeats. An agent prefilled if it evaluated more than its own tail and one token.
// The first agent is the one that led (the fastest, if nobody was told to).
std::vector<BenchRow> FlightRows(const std::vector<SwarmRound>& rounds, const SwarmPrompts& prompts);

}  // namespace moonpool::app
