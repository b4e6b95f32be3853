// The swarm figures of `moonpool bench`: what is evaluated, how close to the ideal, what one agent pays, whether the
// texts are right. Functions without state; they use the stage's servers, one agent at a time.
#pragma once

#include <vector>

#include "app/bench_row.h"
#include "app/bench_scene.h"

namespace moonpool::app {

// swarm.tokens.N and swarm.hits.N for N = 1, 2, 4, 6, 8, swarm.long.* for the long contexts, swarm.ideal.6,
// swarm.single, swarm.texts. Agents alternate over all servers of the stage; the figures are meant for two.
Result<std::vector<BenchRow>> MeasureSwarm(const BenchOptions& options, BenchScene bench);

}  // namespace moonpool::app
