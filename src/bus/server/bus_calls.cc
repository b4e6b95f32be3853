#include "bus/server/bus_calls.h"

#include <fmt/format.h>

#include <utility>

#include "bus/server/message_translation.h"
#include "kvcache_bus.pb.h"

namespace moonpool::bus {
namespace {

template <class Message, class Value>
Result<Message> Translated(const Result<Value>& result) {
  if (!result) return Fail(result.error());
  return ToMessage(*result);
}

}  // namespace

std::string_view VerbName(Verb verb) {
  switch (verb) {
    case Verb::kLookup: return "lookup";
    case Verb::kPrepare: return "prepare";
    case Verb::kCommit: return "commit";
    case Verb::kRelease: return "release";
    case Verb::kProbe: return "probe";
  }
  return "unknown";
}

template <class Reply>
Result<Reply> BusCalls::Counted(Verb verb, Result<Reply> result) {
  ++(result ? ok_ : failed_)[static_cast<size_t>(verb)];
  return result;
}

Result<PromptRequest> BusCalls::Admitted(const v1::PromptRequest& message, const Caller& caller) const {
  if (draining_) return Fail(ErrorCode::kUnavailable, "the bus is shutting down");
  MP_ASSIGN_OR_RETURN(PromptRequest request, FromMessage(message));
  MP_ASSIGN_OR_RETURN(request.name_space, caller.NamespaceFor(request.name_space));
  return request;
}

Result<v1::LookupReply> BusCalls::Lookup(const v1::PromptRequest& message, const Caller& caller) {
  return Counted(Verb::kLookup, [&]() -> Result<v1::LookupReply> {
    MP_ASSIGN_OR_RETURN(const PromptRequest request, Admitted(message, caller));
    return Translated<v1::LookupReply>(front_.Lookup(request));
  }());
}

Result<v1::PrepareReply> BusCalls::Prepare(const v1::PromptRequest& message, const Caller& caller,
                                           const std::function<bool()>& cancelled) {
  return Counted(Verb::kPrepare, [&]() -> Result<v1::PrepareReply> {
    MP_ASSIGN_OR_RETURN(const PromptRequest request, Admitted(message, caller));
    return Translated<v1::PrepareReply>(
        front_.Prepare(request, [&] { return draining_.load() || (cancelled && cancelled()); }));
  }());
}

Result<v1::CommitReply> BusCalls::Commit(const v1::CommitRequest& message, const Caller&) {
  return Counted(Verb::kCommit, [&]() -> Result<v1::CommitReply> {
    MP_ASSIGN_OR_RETURN(const CommitRequest request, FromMessage(message));
    return Translated<v1::CommitReply>(front_.Commit(request));
  }());
}

Result<v1::ReleaseReply> BusCalls::Release(const v1::ReleaseRequest& message, const Caller&) {
  return Counted(Verb::kRelease, [&]() -> Result<v1::ReleaseReply> {
    if (message.ticket().empty()) {
      return Fail(ErrorCode::kInvalidArgument, "ticket: the one that Prepare gave is needed");
    }
    return ToMessage(front_.Release(message.ticket()));
  }());
}

Result<v1::EngineStatus> BusCalls::Probe(const v1::ProbeRequest& message, const Caller& caller) {
  return Counted(Verb::kProbe, [&]() -> Result<v1::EngineStatus> {
    if (draining_) return Fail(ErrorCode::kUnavailable, "the bus is shutting down");
    if (caller.bound_namespace) {
      return Fail(ErrorCode::kPermission, "probing an engine is for callers that are bound to no namespace");
    }
    if (message.engine().empty()) return Fail(ErrorCode::kInvalidArgument, "engine: a name is needed");
    if (message.has_slot() && message.slot() < 0) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("slot: {} is negative", message.slot()));
    }
    std::optional<uint32_t> slot;
    if (message.has_slot()) slot = static_cast<uint32_t>(message.slot());
    return Translated<v1::EngineStatus>(front_.Probe(message.engine(), slot));
  }());
}

v1::StatsReply BusCalls::Stats() const {
  v1::StatsReply reply;
  reply.set_version(MOONPOOL_VERSION);
  reply.set_ready(front_.Ready() && !draining_);
  for (const EngineStatus& engine : front_.Engines()) *reply.add_engines() = ToMessage(engine);
  // A store that cannot be asked is simply absent from the answer; its own errors are counted elsewhere.
  if (const auto store = front_.Store()) *reply.mutable_store() = ToMessage(*store);
  AddCounts(front_.Counts(), reply);
  return reply;
}

CallCounts BusCalls::Calls() const {
  CallCounts counts;
  for (size_t i = 0; i < kVerbs; ++i) {
    counts.ok[i] = ok_[i];
    counts.failed[i] = failed_[i];
    counts.rejected[i] = rejected_[i];
  }
  return counts;
}

}  // namespace moonpool::bus
