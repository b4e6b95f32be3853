// `moonpool bench NAME`: figures on real servers, each held against its bar.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/bench_flight.h"
#include "app/bench_prepare.h"
#include "app/bench_row.h"
#include "app/bench_swarm.h"
#include "app/commands.h"
#include "app/swarm/machine.h"
#include "app/swarm/swarm_flags.h"

namespace moonpool::app {
namespace {

constexpr Duration kTimeAllowed = std::chrono::hours(3);  // a hang limit

struct BenchFlags {
  SwarmFlags swarm;
  std::string name;
  BenchOptions options;
  bool check = false;
};

uint64_t LongestContext(const BenchOptions& options) {
  uint64_t longest = std::max(options.context_tokens, options.prepare_context_tokens);
  for (const uint64_t tokens : options.long_contexts) longest = std::max(longest, tokens);
  return longest;
}

Result<std::unique_ptr<SwarmStage>> OpenStage(const BenchFlags& flags, size_t servers, uint64_t context_tokens,
                                              ProgressBar& bar, InterruptWatch& interrupts, Rng& rng,
                                              const Clock& clock) {
  MP_ASSIGN_OR_RETURN(const StageOptions options,
                      MakeStageOptions(flags.swarm, servers, context_tokens, flags.options.predict));
  bar.Begin("starting servers and bus", 1);
  MP_ASSIGN_OR_RETURN(auto stage, SwarmStage::Open(options, interrupts, rng, clock));
  bar.Step();
  return stage;
}

Result<std::vector<BenchRow>> Measure(const BenchFlags& flags, ProgressBar& bar, InterruptWatch& interrupts, Rng& rng,
                                      const Clock& clock) {
  const BenchOptions& options = flags.options;
  const Deadline deadline(clock, kTimeAllowed);
  const bool everything = flags.name == "swarm";
  std::vector<BenchRow> rows;
  if (everything || flags.name == "prepare") {
    MP_ASSIGN_OR_RETURN(const auto stage, OpenStage(flags, 2, LongestContext(options), bar, interrupts, rng, clock));
    const BenchScene scene{.stage = *stage, .bar = bar, .clock = clock, .rng = rng, .deadline = deadline};
    if (everything) {
      MP_ASSIGN_OR_RETURN(rows, MeasureSwarm(options, scene));
    }
    MP_ASSIGN_OR_RETURN(BenchRow prepare, MeasurePrepare(options, scene));
    rows.push_back(std::move(prepare));
  }
  if (everything || flags.name == "flight") {
    // A stage of its own: a third server that idles would disturb the figures above.
    MP_ASSIGN_OR_RETURN(const auto stage,
                        OpenStage(flags, kFlightAgents, options.context_tokens, bar, interrupts, rng, clock));
    const BenchScene scene{.stage = *stage, .bar = bar, .clock = clock, .rng = rng, .deadline = deadline};
    MP_ASSIGN_OR_RETURN(const std::vector<BenchRow> flight, MeasureFlight(options, scene));
    rows.insert(rows.end(), flight.begin(), flight.end());
  }
  return rows;
}

int RunBench(const BenchFlags& flags) {
  InterruptWatch interrupts;  // before any other thread
  const SystemClock clock;
  SystemRng rng;
  BenchReport report{.bench = flags.name, .machine = Machine::Here()};
  if (!CheckJsonFile(flags.swarm.json, "moonpool bench")) return 1;
  Result<std::vector<BenchRow>> rows = [&] {
    ProgressBar bar(stderr, StderrIsTerminal(), clock);
    return Measure(flags, bar, interrupts, rng, clock);
  }();
  if (!rows) {
    fmt::print(stderr, "moonpool bench: {}\n", rows.error().message);
    return 1;
  }
  report.rows = std::move(*rows);
  report.machine.NoteEnd();
  fmt::print("\n{}\n{}\n", report.Table(), report.machine.Describe());
  if (const int status = WriteJsonFile(flags.swarm.json, report.Json(), "moonpool bench"); status != 0) return status;
  return flags.check && !report.AllPass() ? 1 : 0;
}

}  // namespace

void AddBenchCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();  // shared with the callback, which outlives this function
  BenchOptions& options = flags->options;
  CLI::App* command = app.add_subcommand("bench", "figures on real servers, each held against its bar");
  command
      ->add_option("name", flags->name,
                   "swarm: everything; prepare: what a hit costs beyond the server's restore; flight: three agents at "
                   "once on a cold prefix")
      ->required()
      ->check(CLI::IsMember({"swarm", "prepare", "flight"}));
  command->add_flag("--check", flags->check, "exit with 1 if a bar is missed");
  command->add_option("--context-tokens", options.context_tokens, "length of the shared context")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20));
  command->add_option("--long-contexts", options.long_contexts, "further lengths, for the count rows only")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--prepare-context-tokens", options.prepare_context_tokens, "length for prepare.added")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20));
  command->add_option("--predict", options.predict, "tokens that every agent generates")
      ->capture_default_str()
      ->check(CLI::Range(1u, 4096u));
  command->add_option("--repeats", options.repeats, "of everything whose time counts")
      ->capture_default_str()
      ->check(CLI::Range(size_t{1}, size_t{1000}));
  AddSwarmFlags(*command, flags->swarm);
  command->callback([flags, &exit_code] { exit_code = RunBench(*flags); });
}

}  // namespace moonpool::app
