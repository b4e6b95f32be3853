#include "bus/server/http_door.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "bus/server/json_message.h"
#include "bus/server/message_translation.h"
#include "bus/server/metrics_page.h"
#include "bus/server/rpc_code.h"
#include "bus/server/utf8_text.h"
#include "kvcache_bus.pb.h"

namespace moonpool::bus {
namespace {

constexpr char kJson[] = "application/json";

net::HttpResponse ErrorResponse(int status, std::string_view code, std::string_view message) {
  const nlohmann::json body = {{"error", {{"code", code}, {"message", Utf8Text(message)}}}};
  return net::MakeResponse(status, kJson, body.dump());
}

net::HttpResponse ErrorResponse(RpcCode code, std::string_view message) {
  return ErrorResponse(HttpStatusOf(code), RpcCodeName(code), message);
}

net::HttpResponse ErrorResponse(const Error& error) { return ErrorResponse(RpcCodeOf(error.code), error.message); }

template <class Reply>
net::HttpResponse ReplyResponse(const Result<Reply>& reply) {
  if (!reply) return ErrorResponse(reply.error());
  return net::MakeResponse(200, kJson, WriteJson(*reply));
}

// The body as a message, then the call.
template <class Request, class Call>
net::HttpResponse Answer(const net::HttpRequest& http, const Call& call) {
  Request request;
  if (const auto read = ReadJson(http.body, request); !read) return ErrorResponse(read.error());
  return ReplyResponse(call(request));
}

net::HttpResponse AnswerVerb(BusCalls& calls, Verb verb, const net::HttpRequest& http, const Caller& caller) {
  switch (verb) {
    case Verb::kLookup:
      return Answer<v1::PromptRequest>(http, [&](const auto& request) { return calls.Lookup(request, caller); });
    case Verb::kPrepare:
      return Answer<v1::PromptRequest>(http, [&](const auto& request) {
        return calls.Prepare(request, caller, [&http] { return http.cancelled(); });
      });
    case Verb::kCommit:
      return Answer<v1::CommitRequest>(http, [&](const auto& request) { return calls.Commit(request, caller); });
    case Verb::kRelease:
      return Answer<v1::ReleaseRequest>(http, [&](const auto& request) { return calls.Release(request, caller); });
    case Verb::kProbe:
      return Answer<v1::ProbeRequest>(http, [&](const auto& request) { return calls.Probe(request, caller); });
  }
  return ErrorResponse(RpcCode::kInternal, "no such verb");
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// "127.0.0.1" of "127.0.0.1:7878", "[::1]" of "[::1]:7878".
std::string HostName(std::string_view host) {
  const size_t colon =
      host.starts_with('[') ? host.find(':', host.find(']') == host.npos ? 0 : host.find(']')) : host.find(':');
  // What follows the name is a port, or the whole is no host that we know.
  if (colon != host.npos && host.find_first_not_of("0123456789", colon + 1) != host.npos) return Lower(host);
  return Lower(host.substr(0, colon));
}

bool IsJson(std::string_view content_type) {
  const std::string type = Lower(content_type.substr(0, content_type.find(';')));
  return type.substr(0, type.find_last_not_of(" \t") + 1) == kJson;
}

MetricsInput Measure(const BusCalls& calls) {
  MetricsInput input;
  input.counts = calls.front().Counts();
  input.engines = calls.front().Engines();
  if (const auto store = calls.front().Store()) input.store = *store;
  input.calls = calls.Calls();
  input.ready = calls.front().Ready() && !calls.draining();
  return input;
}

}  // namespace

struct HttpDoor::Route {
  enum class Kind { kHealth, kReady, kMetrics, kStats, kVerb };
  std::string_view path;
  std::string_view method;
  Kind kind;
  Verb verb = Verb::kLookup;
};

HttpDoor::HttpDoor(BusCalls& calls, const AccessPolicy& access, WorkLanes& lanes, std::set<std::string> host_names,
                   bool any_host)
    : calls_(calls), access_(access), lanes_(lanes), host_names_(std::move(host_names)), any_host_(any_host) {}

const HttpDoor::Route* HttpDoor::FindRoute(std::string_view path) {
  static constexpr std::array<Route, 9> kRoutes = {{
      {"/healthz", "GET", Route::Kind::kHealth},
      {"/readyz", "GET", Route::Kind::kReady},
      {"/metrics", "GET", Route::Kind::kMetrics},
      {"/v1/stats", "GET", Route::Kind::kStats},
      {"/v1/lookup", "POST", Route::Kind::kVerb, Verb::kLookup},
      {"/v1/prepare", "POST", Route::Kind::kVerb, Verb::kPrepare},
      {"/v1/commit", "POST", Route::Kind::kVerb, Verb::kCommit},
      {"/v1/release", "POST", Route::Kind::kVerb, Verb::kRelease},
      {"/v1/probe", "POST", Route::Kind::kVerb, Verb::kProbe},
  }};
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
  }
  return nullptr;
}

std::string HttpDoor::WhyForeign(const net::HttpRequest& request) const {
  if (request.headers.Find("Origin")) return "requests from web pages are not answered";
  if (request.via_unix_socket || any_host_) return "";
  const auto host = request.headers.Find("Host");
  if (!host) return "a Host header is needed";
  const std::string name = HostName(*host);
  if (name == "localhost" || name == "127.0.0.1" || name == "[::1]" || host_names_.contains(name)) return "";
  return "this name does not lead here: use the address that the bus listens on";
}

net::HttpResponse HttpDoor::Ready() const {
  nlohmann::json engines = nlohmann::json::array();
  for (const EngineStatus& engine : calls_.front().Engines()) {
    engines.push_back({{"name", Utf8Text(engine.name)}, {"state", engine.state}, {"reason", Utf8Text(engine.reason)}});
  }
  const bool ready = calls_.front().Ready() && !calls_.draining();
  const nlohmann::json body = {{"ready", ready}, {"engines", engines}};
  return net::MakeResponse(ready ? 200 : 503, kJson, body.dump());
}

void HttpDoor::Handle(net::HttpRequest request, net::HttpReply reply) {
  if (const std::string why = WhyForeign(request); !why.empty()) {
    return reply(ErrorResponse(RpcCode::kPermissionDenied, why));
  }
  const Route* route = FindRoute(request.path());
  if (route == nullptr) return reply(ErrorResponse(RpcCode::kNotFound, "there is nothing under this path"));
  if (request.method != route->method) {
    net::HttpResponse response =
        ErrorResponse(405, "METHOD_NOT_ALLOWED", fmt::format("{} takes {}", route->path, route->method));
    response.headers.Add("Allow", std::string(route->method));
    return reply(std::move(response));
  }
  if (route->kind == Route::Kind::kHealth) return reply(net::MakeResponse(200, kJson, R"({"status":"ok"})"));
  if (route->kind == Route::Kind::kReady) return reply(Ready());

  const std::optional<Caller> caller =
      access_.Admit({.listener = request.via_unix_socket ? Listener::kHttpUnix : Listener::kHttpTcp,
                     .authorization = request.headers.Find("Authorization").value_or(""),
                     .peer_uid = request.peer_uid});
  if (!caller) {
    net::HttpResponse response =
        ErrorResponse(RpcCode::kUnauthenticated, "a valid token is needed: Authorization: Bearer TOKEN");
    response.headers.Add("WWW-Authenticate", "Bearer");
    return reply(std::move(response));
  }

  // Metrics and statistics ask the store and the engines' locks: not on the server's own threads.
  if (route->kind != Route::Kind::kVerb) {
    const bool metrics = route->kind == Route::Kind::kMetrics;
    const bool posted = lanes_.PostQuick([this, metrics, reply] {
      reply(metrics ? net::MakeResponse(200, "text/plain; version=0.0.4; charset=utf-8", RenderMetrics(Measure(calls_)))
                    : net::MakeResponse(200, kJson, WriteJson(calls_.Stats())));
    });
    if (!posted) reply(ErrorResponse(RpcCode::kResourceExhausted, "too many calls are waiting; try again later"));
    return;
  }

  const auto type = request.headers.Find("Content-Type");
  if (!request.body.empty() && (!type || !IsJson(*type))) {
    return reply(ErrorResponse(415, "UNSUPPORTED_MEDIA_TYPE", "send Content-Type: application/json"));
  }
  const Verb verb = route->verb;
  // Shared, because an executor's work is copyable and a body of 64 MiB should not be.
  const auto shared = std::make_shared<const net::HttpRequest>(std::move(request));
  const bool posted = lanes_.Post(verb, [this, verb, shared, caller = *caller, reply] {
    // A client that only closed its sending side still listens, so quick calls are answered; a Prepare would leave a
    // ticket with nobody to use it.
    if (verb == Verb::kPrepare && shared->cancelled()) {
      return reply(ErrorResponse(RpcCode::kUnavailable, "the client went away while the call was queued"));
    }
    reply(AnswerVerb(calls_, verb, *shared, caller));
  });
  if (!posted) {
    calls_.CountRejected(verb);
    reply(ErrorResponse(RpcCode::kResourceExhausted, "too many calls are waiting; try again later"));
  }
}

}  // namespace moonpool::bus
