// What one agent does with its prompt, with and without the bus, and what is noted about it. Functions without state;
// safe to run side by side.
#pragma once

#include <string>
#include <vector>

#include "app/swarm/bus_door.h"
#include "base/clock.h"
#include "base/token_id.h"
#include "bus/engine/inference_engine.h"
#include "moonpool/result.h"

namespace moonpool::app {

struct AgentTask {
  bus::InferenceEngine& engine;
  std::string engine_name;  // the bus's name for it
  std::vector<TokenId> prompt;
  uint32_t predict_max = 16;
};

struct AgentRun {
  std::vector<TokenId> tokens;    // of the answer
  uint64_t evaluated_tokens = 0;  // prompt_n of all its requests, also those with n_predict 0
  uint64_t cached_tokens = 0;     // cache_n of the request that answered
  // Decision 13a: so many tokens of the prompt were in the slot before the answer was computed, as if evaluated by a
  // request of their own. The whole prompt for a leader that prefilled; otherwise cache_n.
  uint64_t reference_split = 0;
  Duration first_token_after{};  // from the agent's start, Prepare included, to the answer's first token
  Duration wall{};               // from the agent's start to the end of its last call

  // With the bus only.
  std::string decision = "-";  // DecisionName, "-" without a bus
  std::string reason{};
  uint64_t promised_tokens = 0;
  Duration bus_calls{};  // Prepare and Commits together

  // Whether the agent profited. With the bus: it was promised something and the promise was kept. Without: the server
  // had something left in its slot.
  bool Hit() const {
    return decision == "-" ? cached_tokens > 0 : promised_tokens > 0 && cached_tokens >= promised_tokens;
  }
};

// One completion on slot 0.
Result<AgentRun> AnswerAlone(const AgentTask& task, const Clock& clock, const Deadline& deadline);

// Prepare, the completion on the slot that the bus names, Commit; a leader prefills and commits before it answers.
// Where the bus bypasses, the completion goes to slot 0: these servers have one slot, so this is no choice.
Result<AgentRun> AnswerWithBus(const AgentTask& task, BusDoor& door, const std::string& name_space, const Clock& clock,
                               const Deadline& deadline);

}  // namespace moonpool::app
