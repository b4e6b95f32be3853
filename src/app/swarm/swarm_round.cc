#include "app/swarm/swarm_round.h"

#include <algorithm>

#include "app/swarm/figures.h"

namespace moonpool::app {
namespace {

std::vector<double> TtftsMs(const SwarmRound& round) {
  std::vector<double> times;
  for (const AgentRun& agent : round.agents) times.push_back(ToMs(agent.first_token_after));
  return times;
}

}  // namespace

uint64_t SwarmRound::EvaluatedTokens() const {
  uint64_t total = 0;
  for (const AgentRun& agent : agents) total += agent.evaluated_tokens;
  return total;
}

uint64_t SwarmRound::Hits() const {
  return static_cast<uint64_t>(std::ranges::count_if(agents, [](const AgentRun& agent) { return agent.Hit(); }));
}

double SwarmRound::TtftMsMean() const { return Mean(TtftsMs(*this)); }
double SwarmRound::TtftMsP95() const { return Percentile(TtftsMs(*this), 95); }

SwarmRunner::SwarmRunner(std::vector<SwarmServer> servers, const SwarmPrompts& prompts, uint32_t predict_max,
                         const Clock& clock)
    : servers_(std::move(servers)), prompts_(prompts), clock_(clock) {
  for (size_t agent = 0; agent < prompts_.agents(); ++agent) {
    const SwarmServer& server = servers_.at(ServerOf(agent));
    tasks_.push_back({.engine = server.engine,
                      .engine_name = server.name,
                      .prompt = prompts_.Whole(agent),
                      .predict_max = predict_max});
  }
}

Result<void> SwarmRunner::EraseAll(const Deadline& deadline) {
  for (const SwarmServer& server : servers_) MP_RETURN_IF_ERROR(server.engine.EraseSlot(0, deadline));
  return {};
}

Result<SwarmRound> SwarmRunner::Run(bool erase_before_each, const Answer& answer, const Progress& progress,
                                    const Deadline& deadline) {
  SwarmRound round;
  for (const AgentTask& task : tasks_) {
    if (erase_before_each) MP_RETURN_IF_ERROR(task.engine.EraseSlot(0, deadline));
    MP_ASSIGN_OR_RETURN(AgentRun run, answer(task));
    round.wall += run.wall;
    round.agents.push_back(std::move(run));
    progress();
  }
  return round;
}

Result<SwarmRound> SwarmRunner::RunWithoutSharing(const Progress& progress, const Deadline& deadline) {
  return Run(
      true, [&](const AgentTask& task) { return AnswerAlone(task, clock_, deadline); }, progress, deadline);
}

Result<SwarmRound> SwarmRunner::RunWithOwnSlots(const Progress& progress, const Deadline& deadline) {
  MP_RETURN_IF_ERROR(EraseAll(deadline));
  return Run(
      false, [&](const AgentTask& task) { return AnswerAlone(task, clock_, deadline); }, progress, deadline);
}

Result<SwarmRound> SwarmRunner::RunWithBus(BusDoor& door, const std::string& name_space, const Progress& progress,
                                           const Deadline& deadline) {
  return Run(
      true, [&](const AgentTask& task) { return AnswerWithBus(task, door, name_space, clock_, deadline); }, progress,
      deadline);
}

Result<SwarmRound> SwarmRunner::RunIdeal(const Progress& progress, const Deadline& deadline) {
  Duration evaluation{};
  const size_t used = std::min(servers_.size(), tasks_.size());
  for (size_t i = used; i-- > 0;) {
    bus::InferenceEngine& engine = servers_[i].engine;
    // Only the evaluation on the first server is part of the ideal; on the others the context may be there already.
    if (i == 0) MP_RETURN_IF_ERROR(engine.EraseSlot(0, deadline));
    const TimePoint started = clock_.Now();
    MP_RETURN_IF_ERROR(engine.Complete({.prompt = prompts_.context, .predict_max = 0, .slot = 0}, deadline));
    evaluation = clock_.Now() - started;
  }
  progress();
  MP_ASSIGN_OR_RETURN(
      SwarmRound round,
      Run(
          false, [&](const AgentTask& task) { return AnswerAlone(task, clock_, deadline); }, progress, deadline));
  round.wall += evaluation;
  return round;
}

}  // namespace moonpool::app
