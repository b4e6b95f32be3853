// What every measurement of `moonpool bench` works with. Values.
#pragma once

#include <cstdint>
#include <vector>

#include "app/swarm/progress_bar.h"
#include "app/swarm/swarm_stage.h"

namespace moonpool::app {

struct BenchOptions {
  uint64_t context_tokens = 2000;
  std::vector<uint64_t> long_contexts = {4000, 6000};
  size_t long_agents = 2;  // on the long contexts
  uint64_t prepare_context_tokens = 4096;
  uint32_t predict = 16;
  size_t repeats = 5;  // of everything whose time counts
};

// What a measurement needs beside its options. The borrowed ones outlive it.
struct BenchScene {
  SwarmStage& stage;
  ProgressBar& bar;
  const Clock& clock;
  Rng& rng;
  Deadline deadline;
};

}  // namespace moonpool::app
