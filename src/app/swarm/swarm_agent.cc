#include "app/swarm/swarm_agent.h"

namespace moonpool::app {
namespace {

bus::CompletionRequest RequestFor(const AgentTask& task, uint32_t slot, uint32_t predict_max) {
  return {.prompt = task.prompt, .predict_max = predict_max, .slot = slot};
}

bus::ObservedTimings Observed(const bus::EvaluationTimings& timings) {
  return {.prompt_n = timings.prompt_tokens_evaluated,
          .cache_n = timings.prompt_tokens_cached,
          .prompt_ms = timings.prompt_ms,
          .predicted_n = timings.predicted_tokens};
}

// Notes the answer, which was asked for at `asked`.
void Note(bus::Completion completion, TimePoint started, TimePoint asked, AgentRun& run) {
  run.evaluated_tokens += completion.timings.prompt_tokens_evaluated;
  run.cached_tokens = completion.timings.prompt_tokens_cached;
  run.first_token_after = asked - started + completion.first_token_after;
  run.tokens = std::move(completion.tokens);
}

}  // namespace

Result<AgentRun> AnswerAlone(const AgentTask& task, const Clock& clock, const Deadline& deadline) {
  AgentRun run;
  const TimePoint started = clock.Now();
  MP_ASSIGN_OR_RETURN(bus::Completion completion,
                      task.engine.Complete(RequestFor(task, 0, task.predict_max), deadline));
  Note(std::move(completion), started, started, run);
  run.reference_split = run.cached_tokens;
  run.wall = clock.Now() - started;
  return run;
}

Result<AgentRun> AnswerWithBus(const AgentTask& task, BusDoor& door, const std::string& name_space, const Clock& clock,
                               const Deadline& deadline) {
  AgentRun run;
  const TimePoint started = clock.Now();
  MP_ASSIGN_OR_RETURN(
      const bus::PrepareReply prepared,
      door.Prepare({.engine = task.engine_name, .name_space = name_space, .tokens = task.prompt}, deadline));
  run.bus_calls = clock.Now() - started;
  run.decision = bus::DecisionName(prepared.decision);
  run.reason = prepared.reason;
  run.promised_tokens = prepared.restored_tokens;
  const uint32_t slot = prepared.slot.value_or(0);

  const auto commit = [&](const bus::Completion& completion, bus::CommitWait wait, bool keep) -> Result<void> {
    const TimePoint asked = clock.Now();
    MP_RETURN_IF_ERROR(door.Commit({.ticket = prepared.ticket,
                                    .timings = Observed(completion.timings),
                                    .wait = wait,
                                    .keep = keep,
                                    .truncated = completion.truncated},
                                   deadline));
    run.bus_calls += clock.Now() - asked;
    return {};
  };

  const bool leads = prepared.decision == bus::Decision::kLead;
  if (leads) {
    // Others wait for this prefix: they get it before the answer is written.
    MP_ASSIGN_OR_RETURN(const bus::Completion prefill, task.engine.Complete(RequestFor(task, slot, 0), deadline));
    run.evaluated_tokens += prefill.timings.prompt_tokens_evaluated;
    MP_RETURN_IF_ERROR(commit(prefill, bus::CommitWait::kSaved, true));
  }
  const TimePoint asked = clock.Now();
  MP_ASSIGN_OR_RETURN(bus::Completion completion,
                      task.engine.Complete(RequestFor(task, slot, task.predict_max), deadline));
  const bus::Completion noted = completion;
  Note(std::move(completion), started, asked, run);
  run.reference_split = leads ? task.prompt.size() : run.cached_tokens;
  if (!prepared.ticket.empty()) MP_RETURN_IF_ERROR(commit(noted, bus::CommitWait::kNone, false));
  run.wall = clock.Now() - started;
  return run;
}

}  // namespace moonpool::app
