#include "app/bench_flight.h"

#include <algorithm>
#include <cstdlib>
#include <latch>
#include <optional>
#include <thread>

#include "app/swarm/figures.h"
#include "app/swarm/swarm_flags.h"
#include "base/check.h"

namespace moonpool::app {
namespace {

Result<SwarmRound> StartTogether(const SwarmRunner& runner, BusDoor& door, const std::string& name_space,
                                 const BenchScene& scene) {
  std::vector<std::optional<Result<AgentRun>>> runs(runner.agents());
  std::latch start(static_cast<std::ptrdiff_t>(runner.agents()));
  std::vector<std::thread> threads;
  for (size_t agent = 0; agent < runner.agents(); ++agent) {
    threads.emplace_back([&, agent] {
      start.arrive_and_wait();
      runs[agent] = AnswerWithBus(runner.task(agent), door, name_space, scene.clock, scene.deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  SwarmRound round;
  for (auto& run : runs) {
    if (!*run) return Fail(run->error());
    round.wall = std::max(round.wall, (*run)->wall);
    round.agents.push_back(std::move(**run));
  }
  return round;
}

}  // namespace

Result<std::vector<BenchRow>> MeasureFlight(const BenchOptions& options, BenchScene scene) {
  scene.bar.Begin("three agents at once", options.repeats);
  MP_ASSIGN_OR_RETURN(const SwarmPrompts prompts,
                      MakeSwarmPrompts(scene.stage.engine(0), options.context_tokens, kFlightAgents, scene.deadline));
  SwarmRunner runner(ServersOf(scene.stage), prompts, options.predict, scene.clock);
  std::vector<SwarmRound> rounds;
  for (size_t repeat = 0; repeat < options.repeats; ++repeat) {
    MP_RETURN_IF_ERROR(runner.EraseAll(scene.deadline));
    MP_ASSIGN_OR_RETURN(SwarmRound round, StartTogether(runner, scene.stage.door(), scene.rng.HexId(8), scene));
    rounds.push_back(std::move(round));
    scene.bar.Step();
  }
  return FlightRows(rounds, prompts);
}

std::vector<BenchRow> FlightRows(const std::vector<SwarmRound>& rounds, const SwarmPrompts& prompts) {
  std::optional<int> prefills_worst;
  std::vector<double> firsts;
  std::vector<double> lasts;
  std::vector<double> ratios;
  for (const SwarmRound& round : rounds) {
    MP_CHECK(round.agents.size() == prompts.agents());
    int prefills = 0;
    std::optional<size_t> leader;
    for (size_t agent = 0; agent < round.agents.size(); ++agent) {
      const AgentRun& run = round.agents[agent];
      if (run.evaluated_tokens > prompts.tails[agent].size() + 1) ++prefills;
      if (run.decision == bus::DecisionName(bus::Decision::kLead)) leader = agent;
    }
    // One is what is wanted, in every repeat: the number that is farthest from it is shown.
    if (!prefills_worst || std::abs(prefills - 1) > std::abs(*prefills_worst - 1)) prefills_worst = prefills;
    const auto ttft = [&](size_t agent) { return ToMs(round.agents[agent].first_token_after); };
    if (!leader) {
      leader = 0;
      for (size_t agent = 1; agent < round.agents.size(); ++agent) {
        if (ttft(agent) < ttft(*leader)) leader = agent;
      }
    }
    double last = 0;
    for (size_t agent = 0; agent < round.agents.size(); ++agent) {
      if (agent != *leader) last = std::max(last, ttft(agent));
    }
    firsts.push_back(ttft(*leader));
    lasts.push_back(last);
    ratios.push_back(last / ttft(*leader));
  }
  BenchRow ttft{.name = "flight.ttft",
                .value = Median(lasts),
                .unit = "ms",
                .reference = Median(firsts),
                .ratio = Median(ratios),
                .bar = kFlightTtftBar};
  ttft.pass = ttft.ratio <= ttft.bar;
  return {Exactly("flight.prefills", prefills_worst.value_or(0), "prefills", 1), ttft};
}

}  // namespace moonpool::app
