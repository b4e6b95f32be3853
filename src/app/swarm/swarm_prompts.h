// SwarmPrompts: what the agents of a swarm ask: one long context that all share, and a short tail for each. A value.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/token_id.h"
#include "bus/engine/inference_engine.h"
#include "moonpool/result.h"

namespace moonpool::app {

struct SwarmPrompts {
  std::vector<TokenId> context;
  std::vector<std::vector<TokenId>> tails;  // one per agent

  size_t agents() const { return tails.size(); }
  std::vector<TokenId> Whole(size_t agent) const;
  uint64_t LongestTail() const;
  // The first `agents` of them. There must be so many.
  SwarmPrompts First(size_t agents) const;
  // The most tokens that a swarm may evaluate with the bus: the context once, every tail once, and one per agent,
  // because a server always evaluates at least one token of a request.
  uint64_t EvaluationBound() const;
};

// So many different instructions there are.
inline constexpr size_t kAgentsMax = 8;

// A context of exactly `context_tokens` of this repository's own text, tokenized by `engine`.
// kInvalidArgument: the text is shorter than that, or more agents than kAgentsMax.
Result<SwarmPrompts> MakeSwarmPrompts(bus::InferenceEngine& engine, uint64_t context_tokens, size_t agents,
                                      const Deadline& deadline);

}  // namespace moonpool::app
