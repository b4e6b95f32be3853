#include "bus/core/preparer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fault.h"
#include "base/log.h"
#include "bus/core/reason.h"
#include "bus/keys/block_key.h"

namespace moonpool::bus {
namespace {

uint64_t CommonPrefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return static_cast<uint64_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// A miss's reason in a word of the closed set of error codes.
std::string MissReason(const Error& error) { return "failed_" + std::string(ErrorCodeName(error.code)); }

}  // namespace

Result<Preparer::Question> Preparer::Ask(const PromptRequest& request, const Deadline& deadline) {
  Question question;
  if (request.text.has_value() == !request.tokens.empty()) {
    if (request.text) return Fail(ErrorCode::kInvalidArgument, "give either tokens or text, not both");
    return Fail(ErrorCode::kInvalidArgument, "the prompt is empty: give tokens or text");
  }
  if (request.tokens.size() > owners_.config.prompt_tokens_max) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("the prompt has {} tokens; the limit is {}",
                                                         request.tokens.size(), owners_.config.prompt_tokens_max));
  }
  for (size_t i = 0; i < request.tokens.size(); ++i) {
    if (request.tokens[i] < 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("tokens[{}] is {}: ids are not negative", i, request.tokens[i]));
    }
  }
  question.session = owners_.engines.Find(request.engine);
  if (!question.session) {
    return Fail(ErrorCode::kNotFound, fmt::format("there is no engine '{}'; /v1/stats lists them", request.engine));
  }
  question.prompt = std::make_shared<TicketPrompt>();
  question.prompt->name_space = request.name_space;
  question.prompt->tokens = request.tokens;
  if (request.has_media) {
    question.reason = "media";
    question.detail = "images and audio hide behind placeholder tokens";
    return question;
  }
  auto profile = question.session->Current(deadline.AtMost(owners_.config.engine_call_timeout));
  if (!profile) {
    const std::string& message = profile.error().message;
    std::tie(question.reason, question.detail) = SplitReason(message).value_or(std::pair("not_probed", message));
    return question;
  }
  question.profile = *profile;
  if (request.slot && (*request.slot < 0 || *request.slot >= question.profile->total_slots)) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("slot {} is out of range: {} has slots 0 to {}", *request.slot,
                                                         request.engine, question.profile->total_slots - 1));
  }
  if (request.text) {
    auto tokens =
        question.session->engine().Tokenize(*request.text, deadline.AtMost(owners_.config.engine_call_timeout));
    if (!tokens || tokens->empty()) {
      question.profile = nullptr;
      question.reason = "tokenize_failed";
      question.detail = tokens ? "the server found no tokens in the text" : tokens.error().message;
      return question;
    }
    question.prompt->tokens = std::move(*tokens);
  }
  const uint32_t vocabulary = question.profile->model.vocabulary;
  for (size_t i = 0; vocabulary > 0 && i < question.prompt->tokens.size(); ++i) {
    if (static_cast<uint32_t>(question.prompt->tokens[i]) >= vocabulary) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("tokens[{}] is {}, the model has {} tokens", i, question.prompt->tokens[i], vocabulary));
    }
  }
  question.prompt->keys = BlockKeys(ChainRoot(question.profile->fingerprint, request.name_space),
                                    question.prompt->tokens, owners_.config.block_tokens);
  return question;
}

ArbiterQuestion Preparer::Cost(const Question& question, const StoredPrefix& stored, bool server_busy) const {
  ArbiterQuestion cost;
  cost.model = RateFamily(*question.session, *question.profile);
  cost.store = kStoreName;
  cost.prompt_tokens = question.prompt->tokens.size();
  cost.restored_tokens = stored.restorable_tokens;
  if (stored.object) cost.payload_bytes = stored.object->payload_bytes;
  if (server_busy) cost.server_wait_ms = question.session->ServerWaitMs();
  return cost;
}

Result<LookupReply> Preparer::Lookup(const PromptRequest& request) {
  const TimePoint from = owners_.clock.Now();
  const Deadline deadline(owners_.clock, owners_.config.prepare_timeout);
  MP_ASSIGN_OR_RETURN(const Question question, Ask(request, deadline));
  LookupReply reply;
  reply.block_tokens = owners_.config.block_tokens;
  reply.prompt_tokens = question.prompt->tokens.size();
  if (!question.profile) {
    reply.reason = question.reason;
    reply.detail = question.detail;
    return reply;
  }
  const auto stored = owners_.finder.Find(*question.profile, *question.prompt);
  owners_.counters.Observed(Phase::kLookup, ToMs(owners_.clock.Now() - from));
  reply.decision = Decision::kRecompute;
  if (!stored) {
    reply.reason = MissReason(stored.error());
    reply.detail = stored.error().message;
    return reply;
  }
  reply.reason = stored->reason;
  reply.stored_tokens = stored->blocks * owners_.config.block_tokens;
  if (!stored->object) return reply;
  reply.restorable_tokens = stored->restorable_tokens;
  reply.object = stored->object->id;
  reply.estimates = owners_.arbiter.Peek(Cost(question, *stored, false));
  if (owners_.ledger.Declined(PromiseKeyOf(*question.profile, request.name_space))) {
    reply.reason = "promises_broken";
    reply.detail = "restores of this model were of no use to this server lately";
  } else if (reply.estimates.choice == Choice::kRestore) {
    reply.decision = Decision::kRestore;
  } else {
    reply.reason = reply.estimates.reason;
  }
  return reply;
}

Result<PrepareReply> Preparer::Prepare(const PromptRequest& request, const std::function<bool()>& cancelled) {
  PrepareReply reply;
  if (request.wait_ms && *request.wait_ms < 0) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("wait_ms is {}: it must not be negative", *request.wait_ms));
  }
  const Duration wait = request.wait_ms ? std::min<Duration>(std::chrono::milliseconds(*request.wait_ms),
                                                             owners_.config.flight_wait_default * 10)
                                        : owners_.config.flight_wait_default;
  const Call call{.request = request, .wait_until = owners_.clock.Now() + wait, .cancelled = cancelled};
  bool may_wait = wait > Duration::zero();
  while (true) {
    // Asked anew in every round: while this one waited, the server may have been started anew.
    const Deadline deadline(owners_.clock, owners_.config.prepare_timeout);
    MP_ASSIGN_OR_RETURN(const Question question, Ask(request, deadline));
    reply.prompt_tokens = question.prompt->tokens.size();
    if (request.text) reply.tokens = question.prompt->tokens;
    if (!question.profile) {
      reply.decision = Decision::kBypass;
      reply.reason = question.reason;
      reply.detail = question.detail;
      break;
    }
    if (question.profile->context_tokens > 0 && reply.prompt_tokens > question.profile->context_tokens) {
      reply.decision = Decision::kBypass;
      reply.reason = "exceeds_context";
      reply.detail = fmt::format("the prompt has {} tokens, a slot of this server {}", reply.prompt_tokens,
                                 question.profile->context_tokens);
      break;
    }
    MP_ASSIGN_OR_RETURN(const Next next, TryOnce(call, question, may_wait, reply));
    if (next == Next::kDone) break;
  }
  // Nobody would ever give this slot back.
  if (!reply.ticket.empty() && cancelled && cancelled()) {
    owners_.tickets.Release(reply.ticket);
    owners_.flights.Abandon(reply.ticket);
    return Fail(ErrorCode::kUnavailable, "the caller went away");
  }
  Finish(reply);
  return reply;
}

Result<Preparer::Next> Preparer::TryOnce(const Call& call, const Question& question, bool& may_wait,
                                         PrepareReply& reply) {
  const Deadline deadline(owners_.clock, owners_.config.prepare_timeout);
  const StoredPrefix stored = FindStored(question, may_wait, reply);
  const bool declined = owners_.ledger.Declined(PromiseKeyOf(*question.profile, call.request.name_space));
  if (may_wait && !declined) {
    const size_t stored_blocks = stored.object ? stored.restorable_tokens / owners_.config.block_tokens : 0;
    const auto flight = owners_.flights.Find(question.prompt->keys, stored_blocks);
    if (flight) return WaitFor(flight, call, may_wait, reply);
  }

  bool server_busy = false;
  const auto slot = ChooseSlot(call.request, question, deadline, server_busy, reply);
  if (!slot) return WaitForSlot(call, deadline, reply);
  const auto ticket = TakeTicket(question, *slot);
  if (!ticket) return Next::kAgain;  // somebody was faster: choose anew
  reply.slot = slot->id;
  reply.ticket = *ticket;
  reply.ticket_ttl_ms = std::chrono::duration_cast<std::chrono::milliseconds>(owners_.config.ticket_ttl).count();

  if (call.Cancelled()) {
    owners_.tickets.Release(*ticket);
    return Fail(ErrorCode::kUnavailable, "the caller went away");
  }
  if (slot->foreign && !EraseForeign(question, *slot, deadline, reply)) return Next::kDone;
  // What the slot holds already costs nothing to keep.
  if (slot->resident_tokens > 0 && slot->resident_tokens >= stored.restorable_tokens) {
    reply.decision = Decision::kRestore;
    reply.reason = "resident";
    reply.restored_tokens = slot->resident_tokens;
    owners_.tickets.SetOutcome(*ticket, slot->resident_tokens, false, true);
    return Next::kDone;
  }
  const bool missing = Fill(question, stored, *slot, server_busy, deadline, reply);
  if (!missing || declined || !owners_.tickets.Find(*ticket)) return Next::kDone;
  return LeadOrFollow(call, question, may_wait, reply);
}

StoredPrefix Preparer::FindStored(const Question& question, bool& may_wait, PrepareReply& reply) {
  const TimePoint from = owners_.clock.Now();
  auto stored = owners_.finder.Find(*question.profile, *question.prompt);
  reply.times.lookup_ms += ToMs(owners_.clock.Now() - from);
  if (stored) return *std::move(stored);
  // A store that does not answer is a miss, not an error.
  owners_.counters.Failed(MissReason(stored.error()));
  reply.detail = stored.error().message;
  may_wait = false;
  StoredPrefix nothing;
  nothing.reason = MissReason(stored.error());
  return nothing;
}

bool Preparer::Fill(const Question& question, const StoredPrefix& stored, const Slot& slot, bool server_busy,
                    const Deadline& deadline, PrepareReply& reply) {
  reply.decision = Decision::kRecompute;
  if (!stored.object) {
    reply.reason = stored.reason;
    return true;
  }
  if (!owners_.ledger.Allows(PromiseKeyOf(*question.profile, question.prompt->name_space))) {
    reply.reason = "promises_broken";
    return false;
  }
  reply.estimates = owners_.arbiter.Decide(Cost(question, stored, server_busy));
  if (reply.estimates.choice == Choice::kRecompute) {
    reply.reason = reply.estimates.reason;
    return false;
  }
  const bool lost = RestoreInto(question, stored, slot, deadline, reply);
  if (reply.decision == Decision::kRestore) {
    // A long new stretch after a short stored prefix is worth leading, too.
    const size_t restored_blocks = reply.restored_tokens / owners_.config.block_tokens;
    return 2 * restored_blocks < question.prompt->keys.size();
  }
  return lost;  // otherwise it is still there for others: publishing it again would bring nothing
}

Result<Preparer::Next> Preparer::LeadOrFollow(const Call& call, const Question& question, bool& may_wait,
                                              PrepareReply& reply) {
  const size_t have = reply.restored_tokens / owners_.config.block_tokens;
  if (question.prompt->keys.size() <= have) return Next::kDone;
  FlightLeader leader{
      .ticket = reply.ticket, .engine = call.request.engine, .slot = *reply.slot, .recompute = std::nullopt};
  const double rate = owners_.arbiter.PrefillTokensPerSecond(RateFamily(*question.session, *question.profile));
  if (rate > 0) {
    const double seconds = static_cast<double>(question.prompt->tokens.size() - reply.restored_tokens) / rate;
    leader.recompute = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }
  const auto flight = owners_.flights.FindOrLead(question.prompt->keys, have, leader);
  if (!flight) {
    reply.decision = Decision::kLead;
    return Next::kDone;
  }
  if (!may_wait) return Next::kDone;
  GiveBack(reply);
  reply.restored_tokens = 0;
  return WaitFor(flight, call, may_wait, reply);
}

Result<Preparer::Next> Preparer::WaitFor(const SingleFlight::FlightRef& flight, const Call& call, bool& may_wait,
                                         PrepareReply& reply) {
  const TimePoint from = owners_.clock.Now();
  const SingleFlight::WaitLimits limits{.wait_max = call.wait_until - from, .leader_idle = owners_.config.leader_idle};
  const auto outcome = owners_.flights.Await(
      flight, limits, [this](const FlightLeader& leader) { return LookAtLeader(leader); }, call.cancelled);
  reply.times.flight_wait_ms += ToMs(owners_.clock.Now() - from);
  if (outcome == SingleFlight::Outcome::kCancelled) {
    return Fail(ErrorCode::kUnavailable, "the caller went away while waiting for a leader");
  }
  if (outcome == SingleFlight::Outcome::kTimedOut) may_wait = false;
  return Next::kAgain;
}

Preparer::Next Preparer::WaitForSlot(const Call& call, const Deadline& deadline, PrepareReply& reply) {
  // A slot that is only being saved is free in a moment.
  const Deadline free_by = deadline.AtMost(call.wait_until - owners_.clock.Now());
  if (reply.reason != "slot_busy" || !owners_.tickets.AnyCommitting(call.request.engine) || free_by.Passed()) {
    return Next::kDone;
  }
  const TimePoint from = owners_.clock.Now();
  owners_.tickets.AwaitEnd(free_by.AtMost(std::chrono::seconds(1)));
  reply.times.server_wait_ms += ToMs(owners_.clock.Now() - from);
  return Next::kAgain;
}

std::optional<Preparer::Slot> Preparer::ChooseSlot(const PromptRequest& request, const Question& question,
                                                   const Deadline& deadline, bool& server_busy, PrepareReply& reply) {
  EngineSession& session = *question.session;
  const auto slots = session.engine().Slots(deadline.AtMost(owners_.config.engine_call_timeout));
  reply.decision = Decision::kBypass;
  if (!slots) {
    reply.reason = "slots_unknown";
    reply.detail = slots.error().message;
    return std::nullopt;
  }
  std::optional<Slot> best;
  std::tuple<uint64_t, bool, bool> best_rank;
  bool in_doubt = false;
  std::vector<uint32_t> owned;
  for (const SlotInfo& info : *slots) {
    server_busy = server_busy || info.processing;
    owners_.tickets.SlotSeen(request.engine, info.id, !info.processing);
    if (request.slot && info.id != static_cast<uint64_t>(*request.slot)) continue;
    if (session.InDoubt(info.id)) {
      in_doubt = true;
      continue;
    }
    if (info.processing || info.id >= question.profile->total_slots) continue;
    if (owners_.tickets.Owned(request.engine, info.id)) {
      owned.push_back(info.id);
      continue;
    }
    Slot slot{.id = info.id, .resident_tokens = 0};
    const auto tenant = session.Tenant(info.id);
    slot.foreign = info.tokens_cached > 0 && tenant && *tenant != request.name_space;
    const auto resident = session.Resident(info.id);
    if (!slot.foreign && resident && resident->task == info.task) {
      const uint64_t common = CommonPrefix(resident->prompt->tokens, question.prompt->tokens);
      // Memory that cannot be rolled back serves only what goes on where it stands.
      const bool usable = question.profile->memory == MemoryClass::kPlain || common == info.tokens_cached;
      if (usable && info.tokens_cached >= common && !question.prompt->tokens.empty()) {
        slot.resident_tokens = std::min<uint64_t>(common, question.prompt->tokens.size() - 1);
      }
    }
    // Best: holds the most of this prompt; then empty; then one whose content the bus knows (it is stored).
    const std::tuple rank(slot.resident_tokens, info.tokens_cached == 0, resident.has_value());
    if (!best || rank > best_rank) {
      best = slot;
      best_rank = rank;
    }
  }
  for (size_t i = 0; !best && i < owned.size(); ++i) {
    const auto ended = owners_.tickets.TakeOver(request.engine, owned[i], owners_.config.ticket_idle);
    if (!ended) continue;
    owners_.flights.Abandon(*ended);
    const auto tenant = session.Tenant(owned[i]);
    best = Slot{.id = owned[i], .resident_tokens = 0, .foreign = tenant && *tenant != request.name_space};
  }
  if (!best && in_doubt) {
    reply.decision = Decision::kRecompute;
    reply.reason = "slot_in_doubt";
    reply.detail = "a slot action has not been answered yet; the server may still carry it out";
  } else if (!best) {
    reply.reason = "slot_busy";
    reply.detail = request.slot ? fmt::format("slot {} is in use", *request.slot) : "every slot is in use";
  }
  return best;
}

std::optional<std::string> Preparer::TakeTicket(const Question& question, const Slot& slot) {
  Ticket ticket;
  ticket.engine = question.session->config().name;
  ticket.incarnation = question.profile->incarnation;
  ticket.slot = slot.id;
  ticket.prompt = question.prompt;
  auto taken = owners_.tickets.Take(std::move(ticket), owners_.config.ticket_ttl);
  if (taken) question.session->SetTenant(slot.id, question.prompt->name_space);
  return taken;
}

bool Preparer::EraseForeign(const Question& question, const Slot& slot, const Deadline& deadline, PrepareReply& reply) {
  question.session->Forget(slot.id);
  const auto erased =
      question.session->engine().EraseSlot(slot.id, deadline.AtMost(owners_.config.engine_call_timeout));
  if (erased) return true;
  // Out of use until a later erase is answered, for this namespace as for any other.
  question.session->Doubt(slot.id);
  GiveBack(reply);
  reply.decision = Decision::kRecompute;
  reply.reason = "slot_in_doubt";
  reply.detail = "what another namespace left in the slot could not be erased: " + erased.error().message;
  return false;
}

bool Preparer::RestoreInto(const Question& question, const StoredPrefix& stored, const Slot& slot,
                           const Deadline& deadline, PrepareReply& reply) {
  bool touched = false;
  const auto outcome = owners_.restorer.Restore(*question.session, *question.profile, *stored.object, *question.prompt,
                                                slot.id, deadline, reply.times, touched);
  if (outcome) {
    reply.decision = Decision::kRestore;
    reply.reason = reply.estimates.explored ? "explore" : "hit";
    reply.restored_tokens = std::min(stored.restorable_tokens, outcome->reusable_tokens);
    owners_.tickets.SetOutcome(reply.ticket, reply.restored_tokens, true, false);
    owners_.counters.Restored(outcome->payload_bytes);
    owners_.arbiter.ObserveRestore(RateFamily(*question.session, *question.profile), kStoreName, outcome->payload_bytes,
                                   outcome->arbiter_ms);
    owners_.store.Touch(stored.object->id, stored.hotness);
    return false;
  }
  const std::string reason = MissReason(outcome.error());
  log::Warn("restore_failed engine={} object={} touched={} error=\"{}\"", question.session->config().name,
            stored.object->id, touched, outcome.error().message);
  owners_.counters.Failed(reason);
  const bool lost = outcome.error().code == ErrorCode::kNotFound || outcome.error().code == ErrorCode::kCorrupt;
  if (lost) owners_.index.RemoveObject(stored.object->id);
  reply.decision = Decision::kRecompute;
  reply.reason = reason;
  reply.detail = outcome.error().message;
  reply.restored_tokens = 0;
  if (touched && question.session->InDoubt(slot.id)) {
    // The server may restore late. The caller must not be sent to this slot; nobody is until it was erased.
    GiveBack(reply);
  }
  return lost;
}

void Preparer::GiveBack(PrepareReply& reply) {
  owners_.tickets.Release(reply.ticket);
  reply.ticket.clear();
  reply.slot.reset();
}

SingleFlight::LeaderSeen Preparer::LookAtLeader(const FlightLeader& leader) {
  using Seen = SingleFlight::LeaderSeen;
  const SessionRef session = owners_.engines.Find(leader.engine);
  if (!session || !owners_.tickets.Find(leader.ticket)) return Seen::kGone;
  const auto slots = session->engine().Slots(Deadline(owners_.clock, owners_.config.engine_call_timeout));
  if (!slots) return slots.error().code == ErrorCode::kUnavailable ? Seen::kGone : Seen::kBusy;
  for (const SlotInfo& info : *slots) {
    if (info.id == leader.slot) return info.processing ? Seen::kBusy : Seen::kIdle;
  }
  return Seen::kGone;
}

void Preparer::Finish(PrepareReply& reply) {
  owners_.counters.Decided(reply.decision, reply.reason);
  const auto observe = [&](Phase phase, double milliseconds) {
    if (milliseconds > 0) owners_.counters.Observed(phase, milliseconds);
  };
  observe(Phase::kLookup, reply.times.lookup_ms);
  observe(Phase::kFlightWait, reply.times.flight_wait_ms);
  observe(Phase::kFetch, reply.times.fetch_ms);
  observe(Phase::kVerify, reply.times.verify_ms);
  observe(Phase::kRewrite, reply.times.rewrite_ms);
  observe(Phase::kServerWait, reply.times.server_wait_ms);
  observe(Phase::kRestore, reply.times.restore_ms);
}

}  // namespace moonpool::bus
