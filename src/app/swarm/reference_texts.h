// ReferenceTexts: what each agent should have answered (decision 13a): the same server, slot erased, evaluates the
// first n tokens by themselves (n_predict 0), then the whole prompt, greedily. Computed when first asked for and
// remembered, because each costs a whole evaluation. One thread. Uses slot 0 of the servers and leaves it changed.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "app/swarm/swarm_agent.h"

namespace moonpool::app {

class ReferenceTexts {
 public:
  // Whether `run`, an answer to `task` given by server number `server`, is the reference's, token by token.
  // Errors: the server's; kInternal if it did not keep the first n tokens, so that there is no reference.
  Result<bool> Equal(size_t server, const AgentTask& task, const AgentRun& run, const Deadline& deadline);

  // Declares `run` the reference of its split: a cold run on an erased slot is the reference for 0 by definition.
  void Remember(size_t server, const AgentTask& task, const AgentRun& run);
  // Whether Equal would have to compute.
  bool Knows(size_t server, const AgentTask& task, const AgentRun& run) const;

 private:
  using Key = std::tuple<size_t, std::vector<TokenId>, uint64_t, uint32_t>;  // server, prompt, n, predict_max
  static Key KeyOf(size_t server, const AgentTask& task, const AgentRun& run) {
    return {server, task.prompt, run.reference_split, task.predict_max};
  }

  std::map<Key, std::vector<TokenId>> texts_;
};

}  // namespace moonpool::app
