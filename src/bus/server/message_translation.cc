#include "bus/server/message_translation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bus/server/utf8_text.h"

namespace moonpool::bus {
namespace {

// Counts of tokens fit 32 bits by far; a number that does not is shown as the largest.
uint32_t Narrow(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, std::numeric_limits<uint32_t>::max()));
}

v1::Estimates ToMessage(const ArbiterVerdict& verdict) {
  v1::Estimates message;
  message.set_choice(verdict.choice == Choice::kRestore ? v1::Estimates::RESTORE : v1::Estimates::RECOMPUTE);
  message.set_explored(verdict.explored);
  message.set_reason(Utf8Text(verdict.reason));
  message.set_restore_ms(verdict.restore_ms);
  message.set_recompute_ms(verdict.recompute_ms);
  message.set_restore_bytes_per_second(verdict.restore_bytes_per_second);
  message.set_prefill_tokens_per_second(verdict.prefill_tokens_per_second);
  message.set_break_even_bytes_per_second(verdict.break_even_bytes_per_second);
  return message;
}

v1::PhaseTimes ToMessage(const PhaseTimes& times) {
  v1::PhaseTimes message;
  message.set_lookup_ms(times.lookup_ms);
  message.set_flight_wait_ms(times.flight_wait_ms);
  message.set_fetch_ms(times.fetch_ms);
  message.set_verify_ms(times.verify_ms);
  message.set_rewrite_ms(times.rewrite_ms);
  message.set_server_wait_ms(times.server_wait_ms);
  message.set_restore_ms(times.restore_ms);
  message.set_save_ms(times.save_ms);
  message.set_publish_ms(times.publish_ms);
  return message;
}

v1::CommitReply::Status ToMessage(CommitStatus status) {
  switch (status) {
    case CommitStatus::kAccepted: return v1::CommitReply::ACCEPTED;
    case CommitStatus::kSaved: return v1::CommitReply::SAVED;
    case CommitStatus::kPublished: return v1::CommitReply::PUBLISHED;
    case CommitStatus::kSkipped: return v1::CommitReply::SKIPPED;
    case CommitStatus::kFailed: return v1::CommitReply::FAILED;
  }
  return v1::CommitReply::STATUS_UNSPECIFIED;
}

template <class Counts, class Add>
void AddReasons(const Counts& counts, const Add& add) {
  for (const auto& [key, count] : counts) {
    v1::ReasonCount* message = add();
    message->set_outcome(Utf8Text(key.first));
    message->set_reason(Utf8Text(key.second));
    message->set_count(static_cast<double>(count));
  }
}

}  // namespace

Result<PromptRequest> FromMessage(const v1::PromptRequest& message) {
  if (message.engine().empty()) return Fail(ErrorCode::kInvalidArgument, "engine: a name is needed");
  if (message.has_text() && message.tokens_size() > 0) {
    return Fail(ErrorCode::kInvalidArgument, "tokens and text: give one of them, not both");
  }
  if (!message.has_text() && message.tokens_size() == 0) {
    return Fail(ErrorCode::kInvalidArgument, "tokens: a prompt is needed, as tokens or as text");
  }
  const auto negative = std::find_if(message.tokens().begin(), message.tokens().end(), [](int32_t t) { return t < 0; });
  if (negative != message.tokens().end()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("tokens[{}]: {} is negative", negative - message.tokens().begin(), *negative));
  }
  if (message.has_slot() && message.slot() < 0) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("slot: {} is negative", message.slot()));
  }
  if (message.has_wait_ms() && message.wait_ms() < 0) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("waitMs: {} is negative", message.wait_ms()));
  }

  PromptRequest request;
  request.engine = message.engine();
  request.name_space = message.namespace_();
  request.tokens.assign(message.tokens().begin(), message.tokens().end());
  if (message.has_text()) request.text = message.text();
  if (message.has_slot()) request.slot = message.slot();
  if (message.has_wait_ms()) request.wait_ms = message.wait_ms();
  request.has_media = message.has_media();
  return request;
}

Result<CommitRequest> FromMessage(const v1::CommitRequest& message) {
  if (message.ticket().empty()) return Fail(ErrorCode::kInvalidArgument, "ticket: the one that Prepare gave is needed");
  CommitRequest request;
  request.ticket = message.ticket();
  if (message.has_timings()) {
    const v1::Timings& timings = message.timings();
    if (!std::isfinite(timings.prompt_ms()) || timings.prompt_ms() < 0) {
      return Fail(ErrorCode::kInvalidArgument, "timings.promptMs: not a time");
    }
    request.timings = ObservedTimings{.prompt_n = timings.prompt_n(),
                                      .cache_n = timings.cache_n(),
                                      .prompt_ms = timings.prompt_ms(),
                                      .predicted_n = timings.predicted_n()};
  }
  switch (message.wait()) {
    case v1::CommitRequest::NONE: request.wait = CommitWait::kNone; break;
    case v1::CommitRequest::SAVED: request.wait = CommitWait::kSaved; break;
    case v1::CommitRequest::PUBLISHED: request.wait = CommitWait::kPublished; break;
    // Proto3 enumerations are open: gRPC lets any number through.
    default: return Fail(ErrorCode::kInvalidArgument, fmt::format("wait: {} is unknown", int{message.wait()}));
  }
  request.keep = message.keep();
  request.truncated = message.truncated();
  return request;
}

v1::Decision ToMessage(Decision decision) {
  switch (decision) {
    case Decision::kRestore: return v1::RESTORE;
    case Decision::kRecompute: return v1::RECOMPUTE;
    case Decision::kLead: return v1::LEAD;
    case Decision::kBypass: return v1::BYPASS;
  }
  return v1::DECISION_UNSPECIFIED;
}

v1::LookupReply ToMessage(const LookupReply& reply) {
  v1::LookupReply message;
  message.set_decision(ToMessage(reply.decision));
  message.set_reason(Utf8Text(reply.reason));
  message.set_detail(Utf8Text(reply.detail));
  message.set_prompt_tokens(Narrow(reply.prompt_tokens));
  message.set_stored_tokens(Narrow(reply.stored_tokens));
  message.set_restorable_tokens(Narrow(reply.restorable_tokens));
  message.set_object(Utf8Text(reply.object));
  message.set_block_tokens(reply.block_tokens);
  *message.mutable_estimates() = ToMessage(reply.estimates);
  return message;
}

v1::PrepareReply ToMessage(const PrepareReply& reply) {
  v1::PrepareReply message;
  if (reply.slot) message.set_slot(*reply.slot);
  message.set_restored_tokens(Narrow(reply.restored_tokens));
  message.set_decision(ToMessage(reply.decision));
  message.set_reason(Utf8Text(reply.reason));
  message.set_detail(Utf8Text(reply.detail));
  message.set_ticket(Utf8Text(reply.ticket));
  message.set_ticket_ttl_ms(
      static_cast<int32_t>(std::clamp<int64_t>(reply.ticket_ttl_ms, 0, std::numeric_limits<int32_t>::max())));
  message.set_prompt_tokens(Narrow(reply.prompt_tokens));
  message.mutable_tokens()->Assign(reply.tokens.begin(), reply.tokens.end());
  *message.mutable_estimates() = ToMessage(reply.estimates);
  *message.mutable_times() = ToMessage(reply.times);
  return message;
}

v1::CommitReply ToMessage(const CommitReply& reply) {
  v1::CommitReply message;
  message.set_status(ToMessage(reply.status));
  message.set_reason(Utf8Text(reply.reason));
  message.set_detail(Utf8Text(reply.detail));
  message.set_stored_tokens(Narrow(reply.stored_tokens));
  message.set_object(Utf8Text(reply.object));
  *message.mutable_times() = ToMessage(reply.times);
  return message;
}

v1::ReleaseReply ToMessage(const ReleaseReply& reply) {
  v1::ReleaseReply message;
  message.set_released(reply.released);
  return message;
}

v1::EngineStatus ToMessage(const EngineStatus& status) {
  v1::EngineStatus message;
  message.set_name(Utf8Text(status.name));
  message.set_url(Utf8Text(status.url));
  message.set_state(Utf8Text(status.state));
  message.set_reason(Utf8Text(status.reason));
  message.set_model(Utf8Text(status.model));
  message.set_fingerprint(status.fingerprint);
  message.set_describe(Utf8Text(status.describe));
  message.set_memory_class(status.memory_class);
  message.set_total_slots(status.total_slots);
  message.set_context_tokens(status.context_tokens);
  message.set_bytes_per_token(static_cast<double>(status.bytes_per_token));
  message.set_tickets(status.tickets);
  message.set_restarts_seen(Narrow(status.restarts_seen));
  message.set_promised_total(static_cast<double>(status.promised_total));
  message.set_kept_total(static_cast<double>(status.kept_total));
  message.set_restores_declined(status.restores_declined);
  return message;
}

v1::StoreStatus ToMessage(const StoreStats& stats) {
  v1::StoreStatus message;
  message.set_objects(static_cast<double>(stats.objects));
  message.set_aliases(static_cast<double>(stats.aliases));
  message.set_bytes(static_cast<double>(stats.bytes));
  message.set_reserved_bytes(static_cast<double>(stats.reserved_bytes));
  message.set_quota_bytes(static_cast<double>(stats.quota_bytes));
  message.set_quarantined(static_cast<double>(stats.quarantined));
  message.set_evictions_total(static_cast<double>(stats.evictions_total));
  message.set_corrupt_total(static_cast<double>(stats.corrupt_total));
  return message;
}

void AddCounts(const BusCounts& counts, v1::StatsReply& reply) {
  reply.set_prefill_tokens_saved_total(static_cast<double>(counts.prefill_tokens_saved_total));
  reply.set_prefill_tokens_resident_total(static_cast<double>(counts.prefill_tokens_resident_total));
  reply.set_prefill_tokens_evaluated_total(static_cast<double>(counts.prefill_tokens_evaluated_total));
  reply.set_promised_tokens_total(static_cast<double>(counts.promised_tokens_total));
  reply.set_kept_tokens_total(static_cast<double>(counts.kept_tokens_total));
  reply.set_restores_ineffective_total(static_cast<double>(counts.restores_ineffective_total));
  reply.set_restored_bytes_total(static_cast<double>(counts.restored_bytes_total));
  reply.set_published_bytes_total(static_cast<double>(counts.published_bytes_total));
  AddReasons(counts.decisions, [&] { return reply.add_decisions(); });
  AddReasons(counts.commits, [&] { return reply.add_commits(); });
  for (const auto& [reason, count] : counts.failures) {
    v1::ReasonCount* message = reply.add_failures();
    message->set_reason(Utf8Text(reason));
    message->set_count(static_cast<double>(count));
  }
}

}  // namespace moonpool::bus
