// HttpDoor: the bus over HTTP, with the same messages as over gRPC, as proto3 JSON.
//
//   POST /v1/lookup /v1/prepare /v1/commit /v1/release /v1/probe     the verbs
//   GET  /v1/stats                                                   StatsReply
//   GET  /healthz (the process lives), /readyz (503 until every engine is probed or given up), /metrics (Prometheus)
//
// Errors are {"error":{"code":"INVALID_ARGUMENT","message":"..."}} with the code that gRPC would use. /healthz and
// /readyz need no token. Thread-safe; owned by BusServer, which owns the HttpServer in front of it too.
#pragma once

#include <set>
#include <string>

#include "bus/server/access_policy.h"
#include "bus/server/bus_calls.h"
#include "bus/server/work_lanes.h"
#include "net/http_server.h"

namespace moonpool::bus {

class HttpDoor final : public net::HttpHandler {
 public:
  // The borrowed ones outlive the door. `host_names` are accepted in the Host header of TCP requests beside loopback's
  // own names; with `any_host` all are (tokens are needed then).
  HttpDoor(BusCalls& calls, const AccessPolicy& access, WorkLanes& lanes, std::set<std::string> host_names,
           bool any_host);

  void Handle(net::HttpRequest request, net::HttpReply reply) override;

 private:
  struct Route;
  static const Route* FindRoute(std::string_view path);

  // Empty if the request may come from where it does; otherwise why it is refused. A page in somebody's browser can
  // send requests to loopback: it gives itself away by its Origin, or by the name under which it found us.
  std::string WhyForeign(const net::HttpRequest& request) const;
  net::HttpResponse Ready() const;

  BusCalls& calls_;
  const AccessPolicy& access_;
  WorkLanes& lanes_;
  const std::set<std::string> host_names_;
  const bool any_host_;
};

}  // namespace moonpool::bus
