// `moonpool demo`: two real llama.cpp servers, six agents, one long context; with and without the bus.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/demo_report.h"
#include "app/swarm/machine.h"
#include "app/swarm/progress_bar.h"
#include "app/swarm/reference_texts.h"
#include "app/swarm/swarm_flags.h"
#include "app/swarm/swarm_stage.h"

namespace moonpool::app {
namespace {

constexpr Duration kTimeAllowed = std::chrono::hours(1);  // a hang limit; on two idle cores minutes are enough

struct DemoFlags {
  SwarmFlags swarm;
  size_t agents = 6;
  uint64_t context_tokens = 2000;
  uint32_t predict = 16;
};

// Whether each agent's text is the reference's. Computes what is not known yet.
Result<DemoColumn> Compared(SwarmRound round, const SwarmRunner& runner, ReferenceTexts& references, ProgressBar& bar,
                            const Deadline& deadline) {
  DemoColumn column{.round = std::move(round), .text_equal = {}};
  for (size_t agent = 0; agent < runner.agents(); ++agent) {
    MP_ASSIGN_OR_RETURN(const bool equal, references.Equal(runner.ServerOf(agent), runner.task(agent),
                                                           column.round.agents[agent], deadline));
    column.text_equal.push_back(equal);
    bar.Step();
  }
  return column;
}

Result<DemoReport> Run(const DemoFlags& flags, ProgressBar& bar, const Clock& clock, Rng& rng,
                       InterruptWatch& interrupts) {
  const Deadline deadline(clock, kTimeAllowed);
  constexpr size_t kServers = 2;
  MP_ASSIGN_OR_RETURN(const StageOptions options,
                      MakeStageOptions(flags.swarm, kServers, flags.context_tokens, flags.predict));
  bar.Begin("starting servers and bus", 1);
  MP_ASSIGN_OR_RETURN(const auto stage, SwarmStage::Open(options, interrupts, rng, clock));
  bar.Step();
  MP_ASSIGN_OR_RETURN(const SwarmPrompts prompts,
                      MakeSwarmPrompts(stage->engine(0), flags.context_tokens, flags.agents, deadline));
  SwarmRunner runner(ServersOf(*stage), prompts, flags.predict, clock);
  const auto step = [&bar] { bar.Step(); };

  bar.Begin("none: erased slots", flags.agents);
  MP_ASSIGN_OR_RETURN(SwarmRound none, runner.RunWithoutSharing(step, deadline));
  bar.Begin("own: servers keep slots", flags.agents);
  MP_ASSIGN_OR_RETURN(SwarmRound own, runner.RunWithOwnSlots(step, deadline));
  // Right after `own`: the slots have the context, only its evaluation on the first server is still to be timed.
  bar.Begin("ideal: context in the slots", flags.agents + 1);
  MP_ASSIGN_OR_RETURN(const SwarmRound ideal, runner.RunIdeal(step, deadline));
  bar.Begin("bus: erased slots, with bus", flags.agents);
  MP_ASSIGN_OR_RETURN(SwarmRound bus, runner.RunWithBus(stage->door(), rng.HexId(8), step, deadline));

  DemoReport report{.context_tokens = prompts.context.size(),
                    .tail_tokens = prompts.LongestTail(),
                    .evaluation_bound = prompts.EvaluationBound(),
                    .servers = stage->servers()};
  report.ideal_wall = ideal.wall;
  ReferenceTexts references;
  for (size_t agent = 0; agent < flags.agents; ++agent) {
    references.Remember(runner.ServerOf(agent), runner.task(agent), none.agents[agent]);
  }
  bar.Begin("reference texts", 3 * flags.agents);
  MP_ASSIGN_OR_RETURN(report.none, Compared(std::move(none), runner, references, bar, deadline));
  MP_ASSIGN_OR_RETURN(report.own, Compared(std::move(own), runner, references, bar, deadline));
  MP_ASSIGN_OR_RETURN(report.bus, Compared(std::move(bus), runner, references, bar, deadline));
  return report;
}

int RunDemo(const DemoFlags& flags) {
  InterruptWatch interrupts;  // before any other thread
  const SystemClock clock;
  SystemRng rng;
  Machine machine = Machine::Here();
  if (!CheckJsonFile(flags.swarm.json, "moonpool demo")) return 1;
  Result<DemoReport> report = [&] {
    ProgressBar bar(stderr, StderrIsTerminal(), clock);
    return Run(flags, bar, clock, rng, interrupts);
  }();
  if (!report) {
    fmt::print(stderr, "moonpool demo: {}\n", report.error().message);
    return 1;
  }
  machine.NoteEnd();
  fmt::print("\n{}\n{}\n", report->Table(), machine.Describe());
  return WriteJsonFile(flags.swarm.json, report->Json(), "moonpool demo");
}

}  // namespace

void AddDemoCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<DemoFlags>();  // shared with the callback, which outlives this function
  CLI::App* command =
      app.add_subcommand("demo", "two real llama.cpp servers and a swarm of agents, with and without the bus");
  command->add_option("--agents", flags->agents, "agents that share the context")
      ->capture_default_str()
      ->check(CLI::Range(size_t{1}, kAgentsMax));
  command->add_option("--context-tokens", flags->context_tokens, "length of the shared context")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20));
  command->add_option("--predict", flags->predict, "tokens that every agent generates")
      ->capture_default_str()
      ->check(CLI::Range(1u, 4096u));
  AddSwarmFlags(*command, flags->swarm);
  command->callback([flags, &exit_code] { exit_code = RunDemo(*flags); });
}

}  // namespace moonpool::app
