#include "app/bench_prepare.h"

#include <fmt/format.h>

#include <array>

#include "app/swarm/figures.h"
#include "app/swarm/swarm_flags.h"
#include "base/check.h"
#include "base/checksum.h"

namespace moonpool::app {
namespace {

constexpr std::string_view kBareFile = "bench-bare-restore.bin";

// One pass over the file, in the pieces in which anybody would read it.
Result<Duration> TimeReadAndChecksum(const Path& path, const Clock& clock) {
  PosixFileSystem files;
  std::vector<std::byte> piece(1u << 20);
  const TimePoint started = clock.Now();
  MP_ASSIGN_OR_RETURN(const auto file, files.Open(path));
  Xxh3Stream checksum;
  for (uint64_t offset = 0;;) {
    MP_ASSIGN_OR_RETURN(const size_t count, file->Read(offset, piece));
    if (count == 0) break;
    checksum.Update(std::span(piece).first(count));
    offset += count;
  }
  checksum.Finish();
  return clock.Now() - started;
}

}  // namespace

Result<BenchRow> MeasurePrepare(const BenchOptions& options, BenchScene scene) {
  const Deadline& deadline = scene.deadline;
  const size_t repeats = options.repeats * 2 + 1;  // each takes a fraction of a second
  scene.bar.Begin(fmt::format("prepare, {} tokens", options.prepare_context_tokens), repeats + 1);
  MP_ASSIGN_OR_RETURN(const SwarmPrompts prompts,
                      MakeSwarmPrompts(scene.stage.engine(0), options.prepare_context_tokens, 2, deadline));
  SwarmRunner runner(ServersOf(scene.stage), prompts, options.predict, scene.clock);
  const std::string name_space = scene.rng.HexId(8);
  BusDoor& door = scene.stage.door();

  // The first agent, on server 0, fills the store; the second, on server 1, is the one that hits.
  MP_RETURN_IF_ERROR(runner.EraseAll(deadline));
  MP_RETURN_IF_ERROR(AnswerWithBus(runner.task(0), door, name_space, scene.clock, deadline));
  bus::InferenceEngine& engine = scene.stage.engine(1);
  const bus::PromptRequest request{
      .engine = scene.stage.engine_name(1), .name_space = name_space, .tokens = prompts.Whole(1)};
  struct Prepared {
    Duration wall{};
    bus::PhaseTimes times;
  };
  const auto prepare = [&]() -> Result<Prepared> {
    const TimePoint started = scene.clock.Now();
    MP_ASSIGN_OR_RETURN(const bus::PrepareReply reply, door.Prepare(request, deadline));
    const Duration wall = scene.clock.Now() - started;
    if (reply.decision != bus::Decision::kRestore) {
      return Fail(ErrorCode::kFailedPrecondition, fmt::format("Prepare was to restore, and decided {} ({})",
                                                              bus::DecisionName(reply.decision), reply.reason));
    }
    MP_RETURN_IF_ERROR(door.Release(reply.ticket, deadline));
    return Prepared{.wall = wall, .times = reply.times};
  };
  // The same state as a file of our own in the server's slot folder.
  MP_RETURN_IF_ERROR(prepare());
  MP_RETURN_IF_ERROR(engine.SaveSlot(0, std::string(kBareFile), deadline));
  scene.bar.Step();

  PrepareTimes times;
  for (size_t repeat = 0; repeat < repeats; ++repeat) {
    MP_RETURN_IF_ERROR(engine.EraseSlot(0, deadline));
    MP_ASSIGN_OR_RETURN(const bus::SlotRestore bare, engine.RestoreSlot(0, std::string(kBareFile), deadline));
    MP_ASSIGN_OR_RETURN(const Duration pass,
                        TimeReadAndChecksum(scene.stage.slot_directory(1) / kBareFile, scene.clock));
    MP_RETURN_IF_ERROR(engine.EraseSlot(0, deadline));
    MP_ASSIGN_OR_RETURN(const Prepared prepared, prepare());
    times.prepares.push_back(ToMs(prepared.wall));
    times.restores.push_back(ToMs(bare.wall));
    times.passes.push_back(ToMs(pass));
    times.phases.push_back(prepared.times);
    scene.bar.Step();
  }
  std::error_code ignored;  // the whole folder goes at the end
  std::filesystem::remove(scene.stage.slot_directory(1) / kBareFile, ignored);
  return PrepareRow(times);
}

BenchRow PrepareRow(const PrepareTimes& times) {
  MP_CHECK(times.prepares.size() == times.restores.size() && times.prepares.size() == times.passes.size());
  std::vector<double> added;
  std::vector<double> ratios;
  for (size_t i = 0; i < times.prepares.size(); ++i) {
    added.push_back(times.prepares[i] - times.restores[i]);
    ratios.push_back(added[i] / (times.passes[i] + kPrepareSlackMs));
  }
  BenchRow row{.name = "prepare.added",
               .value = Median(added),
               .unit = "ms",
               .reference = Median(times.passes) + kPrepareSlackMs,
               .ratio = Median(ratios),
               .bar = 1};
  row.pass = row.ratio <= row.bar;
  row.note = fmt::format("Prepare {:.1f} ms, bare restore {:.1f} ms, one pass {:.1f} ms", Median(times.prepares),
                         Median(times.restores), Median(times.passes));
  const auto phase = [&](std::string_view name, double bus::PhaseTimes::*member) {
    std::vector<double> values;
    for (const bus::PhaseTimes& phases : times.phases) values.push_back(phases.*member);
    if (!values.empty()) row.note += fmt::format(", {} {:.1f}", name, Median(values));
  };
  phase("lookup", &bus::PhaseTimes::lookup_ms);
  phase("fetch", &bus::PhaseTimes::fetch_ms);
  phase("verify", &bus::PhaseTimes::verify_ms);
  phase("server wait", &bus::PhaseTimes::server_wait_ms);
  phase("restore", &bus::PhaseTimes::restore_ms);
  return row;
}

}  // namespace moonpool::app
