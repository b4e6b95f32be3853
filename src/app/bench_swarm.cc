#include "app/bench_swarm.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "app/swarm/figures.h"
#include "app/swarm/reference_texts.h"
#include "app/swarm/swarm_flags.h"

namespace moonpool::app {
namespace {

constexpr size_t kAgentCounts[] = {1, 2, 4, 6, 8};
constexpr size_t kIdealAgents = 6;
constexpr double kThroughputBar = 0.95;
constexpr double kSingleBar = 0.03;

// All runs with the bus of one benchmark: their texts are compared at the end, so that no reference disturbs a time.
struct AnsweredRun {
  SwarmRunner* runner;
  SwarmRound round;
};

// The worst of several runs of the same swarm: tokens and hits are promises for every run, not for the median.
struct Worst {
  uint64_t evaluated = 0;
  std::optional<uint64_t> hits;

  void Add(const SwarmRound& round) {
    evaluated = std::max(evaluated, round.EvaluatedTokens());
    hits = std::min(hits.value_or(round.Hits()), round.Hits());
  }
};

void AddCountRows(const std::string& prefix, const std::string& suffix, const SwarmPrompts& prompts, const Worst& worst,
                  std::vector<BenchRow>& rows) {
  rows.push_back(AtMost(prefix + "tokens." + suffix, static_cast<double>(worst.evaluated), "tokens",
                        static_cast<double>(prompts.EvaluationBound()), 1));
  const auto followers = static_cast<double>(prompts.agents() - 1);
  BenchRow hits = Exactly(prefix + "hits." + suffix, static_cast<double>(worst.hits.value_or(0)), "agents", followers);
  if (followers == 0) hits.ratio = hits.pass ? 1 : 0;  // nobody could have hit
  rows.push_back(hits);
}

// Prepare and Commits as a share of the request's wall.
double BusShare(const AgentRun& run) { return ToSeconds(run.bus_calls) / ToSeconds(run.wall); }

}  // namespace

Result<std::vector<BenchRow>> MeasureSwarm(const BenchOptions& options, BenchScene bench) {
  SwarmStage& stage = bench.stage;
  ProgressBar& bar = bench.bar;
  const auto step = [&bar] { bar.Step(); };
  const auto name_space = [&bench] { return bench.rng.HexId(8); };
  const std::vector<SwarmServer> servers = ServersOf(stage);

  std::vector<BenchRow> rows;
  std::vector<std::unique_ptr<SwarmRunner>> runners;  // by pointer: answered runs refer to them
  std::vector<AnsweredRun> answered;
  const auto runner_for = [&](const SwarmPrompts& prompts) -> SwarmRunner& {
    runners.push_back(std::make_unique<SwarmRunner>(servers, prompts, options.predict, bench.clock));
    return *runners.back();
  };
  const auto run_with_bus = [&](SwarmRunner& runner) -> Result<const SwarmRound*> {
    MP_ASSIGN_OR_RETURN(SwarmRound round, runner.RunWithBus(stage.door(), name_space(), step, bench.deadline));
    answered.push_back({.runner = &runner, .round = std::move(round)});
    return &answered.back().round;
  };

  MP_ASSIGN_OR_RETURN(const SwarmPrompts prompts,
                      MakeSwarmPrompts(stage.engine(0), options.context_tokens, kAgentsMax, bench.deadline));
  std::vector<double> walls;
  std::vector<double> ideals;
  std::vector<double> shares;
  for (const size_t agents : kAgentCounts) {
    SwarmRunner& runner = runner_for(prompts.First(agents));
    const bool timed = agents == kIdealAgents || agents == 1;
    Worst worst;
    bar.Begin(fmt::format("swarm of {}", agents),
              (timed ? options.repeats : 1) * (agents == kIdealAgents ? 2 * agents + 1 : agents));
    for (size_t repeat = 0; repeat < (timed ? options.repeats : 1); ++repeat) {
      MP_ASSIGN_OR_RETURN(const SwarmRound* round, run_with_bus(runner));
      worst.Add(*round);
      if (agents == 1) shares.push_back(BusShare(round->agents.front()));
      if (agents != kIdealAgents) continue;
      walls.push_back(ToMs(round->wall));
      MP_ASSIGN_OR_RETURN(const SwarmRound ideal, runner.RunIdeal(step, bench.deadline));
      ideals.push_back(ToMs(ideal.wall));
    }
    AddCountRows("swarm.", std::to_string(agents), runner.prompts(), worst, rows);
  }
  for (const uint64_t context_tokens : options.long_contexts) {
    MP_ASSIGN_OR_RETURN(const SwarmPrompts longer,
                        MakeSwarmPrompts(stage.engine(0), context_tokens, options.long_agents, bench.deadline));
    SwarmRunner& runner = runner_for(longer);
    bar.Begin(fmt::format("context of {}", context_tokens), runner.agents());
    MP_ASSIGN_OR_RETURN(const SwarmRound* round, run_with_bus(runner));
    Worst worst;
    worst.Add(*round);
    AddCountRows("swarm.long.", std::to_string(context_tokens), longer, worst, rows);
  }
  rows.push_back(AgainstIdeal(fmt::format("swarm.ideal.{}", kIdealAgents), walls, ideals, kThroughputBar));
  const double share = Median(shares);
  rows.push_back(AtMost("swarm.single", share, "of the wall", 1, kSingleBar));

  ReferenceTexts references;
  size_t texts = 0;
  size_t equal = 0;
  for (const AnsweredRun& run : answered) texts += run.round.agents.size();
  bar.Begin("reference texts", texts);
  for (const AnsweredRun& run : answered) {
    for (size_t agent = 0; agent < run.round.agents.size(); ++agent) {
      MP_ASSIGN_OR_RETURN(const bool same, references.Equal(run.runner->ServerOf(agent), run.runner->task(agent),
                                                            run.round.agents[agent], bench.deadline));
      if (same) ++equal;
      bar.Step();
    }
  }
  const double share_equal = static_cast<double>(equal) / static_cast<double>(texts);
  rows.push_back(AtLeast("swarm.texts", share_equal, fmt::format("of {} texts", texts), 1, 1));
  return rows;
}

}  // namespace moonpool::app
