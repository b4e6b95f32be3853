#include "bus/core/committer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fault.h"
#include "base/log.h"
#include "bus/core/reason.h"

namespace moonpool::bus {
namespace {

std::pair<std::string, std::string> ReasonOf(const Error& error) {
  if (error.code == ErrorCode::kFailedPrecondition) {
    if (auto split = SplitReason(error.message)) return *std::move(split);
  }
  return {std::string(ErrorCodeName(error.code)), error.message};
}

bool Describes(const ObservedTimings& timings, const TicketPrompt& prompt) {
  return timings.cache_n <= prompt.tokens.size() && timings.prompt_n == prompt.tokens.size() - timings.cache_n;
}

}  // namespace

CommitReply Committer::Answer(CommitStatus status, std::string reason, std::string detail) const {
  CommitReply reply;
  reply.status = status;
  reply.reason = std::move(reason);
  reply.detail = std::move(detail);
  return reply;
}

bool Committer::TakePermit() {
  MutexLock lock(mutex_);
  if (running_ >= owners_.config.commits_max) return false;
  ++running_;
  return true;
}

void Committer::ReturnPermit() {
  MutexLock lock(mutex_);
  --running_;
  idle_.NotifyAll();
}

bool Committer::AwaitIdle(const Deadline& deadline) {
  MutexLock lock(mutex_);
  while (running_ > 0 && !deadline.Passed()) owners_.clock.WaitUntil(idle_, mutex_, deadline.At());
  return running_ == 0;
}

void Committer::CountEvaluation(const CommitRequest& request, const Ticket& ticket) {
  // What does not describe the ticket's prompt is nobody's evaluation.
  if (!request.timings || !Describes(*request.timings, *ticket.prompt)) return;
  ReuseOutcome outcome;
  // A kept ticket commits twice; its restore is counted with the first completion only.
  if (!ticket.promise_checked) {
    outcome.restored = ticket.restored;
    outcome.resident = ticket.resident;
    outcome.promised_tokens = ticket.promised_tokens;
  }
  owners_.counters.Evaluated(*request.timings, outcome);
}

std::optional<CommitReply> Committer::SkipEarly(const Job& job) {
  const CommitRequest& request = job.request;
  const auto skip = [&](const char* reason, std::string detail) {
    return Answer(CommitStatus::kSkipped, reason, std::move(detail));
  };
  if (!job.session || !job.profile) return skip("engine_gone", "the engine was removed or is not probed any more");
  if (job.profile->incarnation != job.ticket.incarnation) return skip("restarted", "the server was started anew");
  const auto untouched = job.session->ModelUntouched(*job.profile);
  if (!untouched || !*untouched) {
    return skip("model_changed", "the model's file is not the one that the server loaded");
  }
  if (request.truncated) return skip("truncated", "the context was shifted or cut");
  const uint64_t prompt_tokens = job.ticket.prompt->tokens.size();
  if (!owners_.ledger.AllowsCommit(PromiseKeyOf(*job.profile, job.ticket.prompt->name_space))) {
    return skip("promises_broken", "what is stored of this model is of no use to its servers");
  }
  if (!request.timings) return std::nullopt;
  if (!Describes(*request.timings, *job.ticket.prompt)) {
    return skip("prompt_differs", fmt::format("the completion evaluated {} + {} tokens, the ticket's prompt has {}",
                                              request.timings->prompt_n, request.timings->cache_n, prompt_tokens));
  }
  const uint32_t block = owners_.config.block_tokens;
  const uint64_t total = prompt_tokens + std::max<uint64_t>(request.timings->predicted_n, 1) - 1;
  if (total < block) return skip("short_prompt", "the slot holds less than one block");
  if (total / block > job.ticket.prompt->keys.size()) return std::nullopt;  // the reply completes a new block
  const auto stored = owners_.finder.StoredBlocks(job.ticket.prompt->keys);
  if (stored && *stored == job.ticket.prompt->keys.size()) {
    return skip("exists", "every block of the prompt is stored, and the reply completes no new one");
  }
  return std::nullopt;
}

Result<uint64_t> Committer::LookAtSlot(const Job& job) {
  EngineSession& session = *job.session;
  MP_FAULT("core.commit.look");
  MP_RETURN_IF_ERROR(session.Confirm(*job.profile, Deadline(owners_.clock, owners_.config.engine_call_timeout)));
  MP_ASSIGN_OR_RETURN(const auto slots,
                      session.engine().Slots(Deadline(owners_.clock, owners_.config.engine_call_timeout)));
  const auto info =
      std::find_if(slots.begin(), slots.end(), [&](const SlotInfo& slot) { return slot.id == job.ticket.slot; });
  if (info == slots.end()) return Fail(ErrorCode::kFailedPrecondition, "restarted: the slot does not exist any more");
  const uint64_t prompt_tokens = job.ticket.prompt->tokens.size();
  uint64_t expected_min = prompt_tokens;
  uint64_t expected_max = UINT64_MAX;
  if (job.request.timings) {
    const uint64_t predicted = std::max<uint64_t>(job.request.timings->predicted_n, 1);
    expected_min = prompt_tokens + predicted - 1;
    expected_max = prompt_tokens + predicted;
  }
  const bool ours = info->tokens_cached >= expected_min && info->tokens_cached <= expected_max && !info->processing;
  if (ours) {
    session.Remember(info->id, {.prompt = job.ticket.prompt, .task = info->task});
  } else {
    session.Forget(info->id);
  }

  // A promise is broken only by a completion that ran here, on this prompt, and was not disturbed.
  const Ticket& ticket = job.ticket;
  if (ticket.restored && !ticket.promise_checked && job.request.timings) {
    const ObservedTimings& timings = *job.request.timings;
    const PromiseKey key = PromiseKeyOf(*job.profile, ticket.prompt->name_space);
    if (timings.cache_n >= ticket.promised_tokens) {
      owners_.ledger.Kept(key);
    } else if (ours && Describes(timings, *ticket.prompt)) {
      // Memory that cannot be rolled back either works on this build or does not: one look is enough.
      const bool plain = job.profile->memory == MemoryClass::kPlain;
      owners_.ledger.Broken(key, plain ? 1 : owners_.config.promises_broken_max);
      owners_.counters.Ineffective();
      log::Warn("promise_broken engine={} promised={} cached={}", session.config().name, ticket.promised_tokens,
                timings.cache_n);
    }
  }
  if (!ours) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("slot_changed: slot {} holds {} tokens, the ticket's prompt has {}{}", info->id,
                            info->tokens_cached, prompt_tokens, info->processing ? " and it is busy" : ""));
  }
  return info->tokens_cached;
}

void Committer::EndSave(const Job& job, bool published_later) {
  owners_.tickets.EndCommit(job.ticket.id, job.request.keep, owners_.config.ticket_ttl);
  if (!published_later) owners_.flights.Abandon(job.ticket.id);
}

CommitReply Committer::SaveNow(const JobRef& job) {
  const auto fail = [&](const Error& error) {
    auto [reason, detail] = ReasonOf(error);
    const bool skipped = error.code == ErrorCode::kFailedPrecondition;
    if (!skipped) log::Warn("commit_failed engine={} reason={} detail=\"{}\"", job->ticket.engine, reason, detail);
    EndSave(*job, false);
    CommitReply reply = Answer(skipped ? CommitStatus::kSkipped : CommitStatus::kFailed, reason, detail);
    reply.times = job->times;
    return reply;
  };
  const auto tokens = LookAtSlot(*job);
  if (!tokens) return fail(tokens.error());
  // Without timings the size of the reply is known only now.
  const uint32_t block = owners_.config.block_tokens;
  const auto stored = owners_.finder.StoredBlocks(job->ticket.prompt->keys);
  if (stored && *stored == job->ticket.prompt->keys.size() && *tokens / block <= *stored) {
    return fail(Error{ErrorCode::kFailedPrecondition,
                      "exists: every block of the prompt is stored, and the reply completes no new one"});
  }
  std::optional<uint64_t> predicted;
  if (job->request.timings) predicted = std::max<uint64_t>(job->request.timings->predicted_n, 1);
  auto saved = owners_.saver.Save(*job->session, *job->profile, job->ticket, predicted, *tokens,
                                  Deadline(owners_.clock, owners_.config.slot_action_timeout), job->times);
  if (!saved) return fail(saved.error());
  job->saved = std::move(*saved);
  EndSave(*job, true);
  CommitReply reply = Answer(CommitStatus::kSaved, "saved", "");
  reply.times = job->times;
  return reply;
}

CommitReply Committer::PublishNow(const JobRef& job) {
  const std::vector<BlockKey> keys = job->saved->header.keys;
  const double hotness = owners_.index.Longest(keys, owners_.clock.Now()).hotness;
  auto receipt = owners_.saver.Publish(std::move(*job->saved), hotness, job->times);
  job->saved.reset();
  CommitReply reply;
  if (receipt) {
    for (const ObjectId& gone : receipt->evicted) owners_.index.RemoveObject(gone);
    for (const ObjectId& gone : receipt->retired) owners_.index.RemoveObject(gone);
    owners_.index.Insert(keys, receipt->object, owners_.clock.Now());
    owners_.counters.Published(receipt->payload_bytes);
    reply = Answer(CommitStatus::kPublished, "published", "");
    reply.object = receipt->object;
    reply.stored_tokens = keys.size() * owners_.config.block_tokens;
  } else if (receipt.error().code == ErrorCode::kAlreadyExists) {
    reply = Answer(CommitStatus::kSkipped, "exists", receipt.error().message);
    reply.stored_tokens = keys.size() * owners_.config.block_tokens;
  } else {
    const auto [reason, detail] = ReasonOf(receipt.error());
    log::Warn("publish_failed engine={} reason={} detail=\"{}\"", job->ticket.engine, reason, detail);
    reply = Answer(CommitStatus::kFailed, reason, detail);
  }
  reply.times = job->times;
  const bool visible = receipt || receipt.error().code == ErrorCode::kAlreadyExists;
  visible ? owners_.flights.Land(job->ticket.id) : owners_.flights.Abandon(job->ticket.id);
  return reply;
}

void Committer::Count(const CommitReply& reply, const PhaseTimes& times) {
  owners_.counters.Committed(reply.status, reply.reason);
  if (times.save_ms > 0) owners_.counters.Observed(Phase::kSave, times.save_ms);
  if (times.publish_ms > 0) owners_.counters.Observed(Phase::kPublish, times.publish_ms);
}

CommitReply Committer::Commit(const CommitRequest& request) {
  const auto ticket = owners_.tickets.BeginCommit(request.ticket, request.timings.has_value());
  if (!ticket) {
    CommitReply reply = Answer(CommitStatus::kSkipped, "unknown_ticket",
                               "no such ticket: it ended, was released, or is being committed");
    Count(reply, {});
    return reply;
  }
  const auto job = std::make_shared<Job>();
  job->request = request;
  job->ticket = *ticket;
  job->session = owners_.engines.Find(ticket->engine);
  if (job->session) job->profile = job->session->GetStatus().profile;
  owners_.flights.Committing(ticket->id);
  CountEvaluation(request, *ticket);
  if (request.timings && job->session && job->profile && Describes(*request.timings, *ticket->prompt)) {
    owners_.arbiter.ObservePrefill(RateFamily(*job->session, *job->profile), request.timings->prompt_n,
                                   request.timings->prompt_ms);
  }
  const auto finish = [&](CommitReply reply) {
    Count(reply, job->times);
    return reply;
  };

  auto skipped = SkipEarly(*job);
  const bool look_only = skipped && (skipped->reason == "exists" || skipped->reason == "short_prompt" ||
                                     skipped->reason == "promises_broken");
  if (skipped && !look_only) {
    EndSave(*job, false);
    return finish(*skipped);
  }
  if (!TakePermit()) {
    EndSave(*job, false);
    return finish(Answer(CommitStatus::kSkipped, "budget",
                         fmt::format("{} commits are queued or running already", owners_.config.commits_max)));
  }
  if (look_only) {
    // Nothing to save, but the promise is to be judged and the slot's content remembered, off the reply's path.
    const bool posted = owners_.executor.Post([this, job] {
      (void)LookAtSlot(*job);
      EndSave(*job, false);
      ReturnPermit();
    });
    if (!posted) {
      EndSave(*job, false);
      ReturnPermit();
    }
    return finish(*skipped);
  }
  const auto publish_counted = [this, job] {
    Count(PublishNow(job), job->times);
    ReturnPermit();
  };
  if (request.wait == CommitWait::kNone) {
    const bool posted = owners_.executor.Post([this, job, publish_counted] {
      const CommitReply saved = SaveNow(job);
      if (saved.status == CommitStatus::kSaved) return publish_counted();
      Count(saved, job->times);
      ReturnPermit();
    });
    if (posted) return Answer(CommitStatus::kAccepted, "accepted", "");
    EndSave(*job, false);
    ReturnPermit();
    return finish(Answer(CommitStatus::kSkipped, "budget", "the queue of commits is full"));
  }

  CommitReply saved = SaveNow(job);
  if (saved.status != CommitStatus::kSaved) {
    ReturnPermit();
    return finish(saved);
  }
  if (request.wait == CommitWait::kSaved && owners_.executor.Post(publish_counted)) return saved;
  CommitReply published = PublishNow(job);
  ReturnPermit();
  return finish(published);
}

ReleaseReply Committer::Release(const std::string& ticket) {
  ReleaseReply reply;
  reply.released = owners_.tickets.Release(ticket);
  // A committing leader's flight goes on: its blocks are on their way.
  if (reply.released && !owners_.tickets.Find(ticket)) owners_.flights.Abandon(ticket);
  return reply;
}

void Committer::Expire() {
  for (const std::string& id : owners_.tickets.Expire()) owners_.flights.Abandon(id);
}

}  // namespace moonpool::bus
