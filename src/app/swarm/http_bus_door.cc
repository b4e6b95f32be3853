#include "app/swarm/http_bus_door.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

namespace moonpool::app {
namespace {

using nlohmann::json;

Result<bus::Decision> DecisionNamed(const std::string& name) {
  for (const bus::Decision decision :
       {bus::Decision::kRestore, bus::Decision::kRecompute, bus::Decision::kLead, bus::Decision::kBypass}) {
    if (name == bus::DecisionName(decision)) return decision;
  }
  return Fail(ErrorCode::kInternal, fmt::format("the bus decided \"{}\", which is unknown here", name));
}

Result<bus::CommitStatus> StatusNamed(const std::string& name) {
  for (const bus::CommitStatus status :
       {bus::CommitStatus::kAccepted, bus::CommitStatus::kSaved, bus::CommitStatus::kPublished,
        bus::CommitStatus::kSkipped, bus::CommitStatus::kFailed}) {
    if (name == bus::CommitStatusName(status)) return status;
  }
  return Fail(ErrorCode::kInternal, fmt::format("the bus answered status \"{}\", which is unknown here", name));
}

const char* WaitName(bus::CommitWait wait) {
  switch (wait) {
    case bus::CommitWait::kSaved: return "SAVED";
    case bus::CommitWait::kPublished: return "PUBLISHED";
    case bus::CommitWait::kNone: break;
  }
  return "NONE";
}

bus::PhaseTimes TimesOf(const json& answer) {
  const json times = answer.value("times", json::object());
  return {.lookup_ms = times.value("lookupMs", 0.0),
          .flight_wait_ms = times.value("flightWaitMs", 0.0),
          .fetch_ms = times.value("fetchMs", 0.0),
          .verify_ms = times.value("verifyMs", 0.0),
          .rewrite_ms = times.value("rewriteMs", 0.0),
          .server_wait_ms = times.value("serverWaitMs", 0.0),
          .restore_ms = times.value("restoreMs", 0.0),
          .save_ms = times.value("saveMs", 0.0),
          .publish_ms = times.value("publishMs", 0.0)};
}

// Our own bus is the peer, but a field of another type must still be an error and no exception.
Result<void> Inside(std::string_view what, const std::function<void()>& read) {
  try {
    read();
  } catch (const json::exception& error) {
    return Fail(ErrorCode::kInternal, fmt::format("the answer to {} makes no sense: {}", what, error.what()));
  }
  return {};
}

}  // namespace

Result<json> HttpBusDoor::Call(const char* method, const char* path, const json* body, const Deadline& deadline) {
  net::HttpCall call{.method = method, .target = path};
  if (body != nullptr) call.body = body->dump();
  MP_ASSIGN_OR_RETURN(const net::HttpResponse response, client_.Send(call, deadline));
  json answer = json::parse(response.body, nullptr, false);
  if (response.status == 200 && answer.is_object()) return answer;
  std::string message = response.body.substr(0, 300);
  if (answer.is_object() && answer.contains("error")) message = answer["error"].dump();
  return Fail(response.status == 503 ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument,
              fmt::format("{} of the bus: HTTP {}: {}", path, response.status, message));
}

Result<bus::PrepareReply> HttpBusDoor::Prepare(const bus::PromptRequest& request, const Deadline& deadline) {
  json body = {{"engine", request.engine}, {"namespace", request.name_space}, {"tokens", request.tokens}};
  if (request.slot) body["slot"] = *request.slot;
  if (request.wait_ms) body["waitMs"] = *request.wait_ms;
  MP_ASSIGN_OR_RETURN(const json answer, Call("POST", "/v1/prepare", &body, deadline));
  bus::PrepareReply reply;
  std::string decision;
  MP_RETURN_IF_ERROR(Inside("/v1/prepare", [&] {
    decision = answer.at("decision").get<std::string>();
    if (answer.contains("slot")) reply.slot = answer["slot"].get<uint32_t>();
    reply.restored_tokens = answer.value("restoredTokens", uint64_t{0});
    reply.reason = answer.value("reason", "");
    reply.detail = answer.value("detail", "");
    reply.ticket = answer.value("ticket", "");
    reply.times = TimesOf(answer);
  }));
  MP_ASSIGN_OR_RETURN(reply.decision, DecisionNamed(decision));
  return reply;
}

Result<bus::CommitReply> HttpBusDoor::Commit(const bus::CommitRequest& request, const Deadline& deadline) {
  json body = {{"ticket", request.ticket},
               {"wait", WaitName(request.wait)},
               {"keep", request.keep},
               {"truncated", request.truncated}};
  if (request.timings) {
    body["timings"] = {{"promptN", request.timings->prompt_n},
                       {"cacheN", request.timings->cache_n},
                       {"promptMs", request.timings->prompt_ms},
                       {"predictedN", request.timings->predicted_n}};
  }
  MP_ASSIGN_OR_RETURN(const json answer, Call("POST", "/v1/commit", &body, deadline));
  bus::CommitReply reply;
  std::string status;
  MP_RETURN_IF_ERROR(Inside("/v1/commit", [&] {
    status = answer.at("status").get<std::string>();
    reply.reason = answer.value("reason", "");
    reply.detail = answer.value("detail", "");
    reply.stored_tokens = answer.value("storedTokens", uint64_t{0});
    reply.times = TimesOf(answer);
  }));
  MP_ASSIGN_OR_RETURN(reply.status, StatusNamed(status));
  return reply;
}

Result<void> HttpBusDoor::Release(const std::string& ticket, const Deadline& deadline) {
  const json body = {{"ticket", ticket}};
  MP_RETURN_IF_ERROR(Call("POST", "/v1/release", &body, deadline));
  return {};
}

Result<bool> HttpBusDoor::Ready(const Deadline& deadline) {
  MP_ASSIGN_OR_RETURN(const net::HttpResponse response, client_.Send({.target = "/readyz"}, deadline));
  return response.status == 200;
}

Result<json> HttpBusDoor::Stats(const Deadline& deadline) { return Call("GET", "/v1/stats", nullptr, deadline); }

}  // namespace moonpool::app
