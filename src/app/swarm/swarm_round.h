// SwarmRound: one passage of a swarm over the servers, agents one after another, alternating over the servers. What its
// result says of time is what the agents spent; erasing slots between them belongs to the experiment and is not
// counted. SwarmRunner owns nothing but the list of tasks; one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/swarm/swarm_agent.h"
#include "app/swarm/swarm_prompts.h"

namespace moonpool::app {

// Where an agent's requests go. `engine` outlives the runner.
struct SwarmServer {
  bus::InferenceEngine& engine;
  std::string name;
};

struct SwarmRound {
  std::vector<AgentRun> agents;
  Duration wall{};

  uint64_t EvaluatedTokens() const;
  uint64_t Hits() const;
  double TtftMsMean() const;
  double TtftMsP95() const;
};

class SwarmRunner {
 public:
  // Called after every agent.
  using Progress = std::function<void()>;

  SwarmRunner(std::vector<SwarmServer> servers, const SwarmPrompts& prompts, uint32_t predict_max, const Clock& clock);

  size_t agents() const { return tasks_.size(); }
  const SwarmPrompts& prompts() const { return prompts_; }
  const AgentTask& task(size_t agent) const { return tasks_.at(agent); }
  // Which server an agent talks to.
  size_t ServerOf(size_t agent) const { return agent % servers_.size(); }

  // Nothing is shared and nothing is kept: the slot is erased before every agent.
  Result<SwarmRound> RunWithoutSharing(const Progress& progress, const Deadline& deadline);
  // The servers begin empty and then keep what they have.
  Result<SwarmRound> RunWithOwnSlots(const Progress& progress, const Deadline& deadline);
  // The slot is erased before every agent, so that only the bus can help. `name_space` must be fresh.
  Result<SwarmRound> RunWithBus(BusDoor& door, const std::string& name_space, const Progress& progress,
                                const Deadline& deadline);
  // The best that can be: the context is evaluated once (that time is part of the wall, the tokens are not part of any
  // agent's), and every agent finds it in its slot.
  Result<SwarmRound> RunIdeal(const Progress& progress, const Deadline& deadline);

  Result<void> EraseAll(const Deadline& deadline);

 private:
  using Answer = std::function<Result<AgentRun>(const AgentTask&)>;
  Result<SwarmRound> Run(bool erase_before_each, const Answer& answer, const Progress& progress,
                         const Deadline& deadline);

  const std::vector<SwarmServer> servers_;
  const SwarmPrompts prompts_;
  const Clock& clock_;
  std::vector<AgentTask> tasks_;
};

}  // namespace moonpool::app
