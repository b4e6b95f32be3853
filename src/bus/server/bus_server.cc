#include "bus/server/bus_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <set>
#include <utility>

#include "bus/server/bus_calls.h"
#include "bus/server/http_door.h"

namespace moonpool::bus {

bool IsLoopback(const std::string& address) {
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

class BusServer::Impl {
 public:
  Impl(const BusServerOptions& options, BusFront& front)
      : access_(options.access),
        calls_(front),
        lanes_(options.lanes),
        http_door_(calls_, access_, lanes_, HostNames(options), AnyHost(options)) {}
  ~Impl() { Stop(Duration::zero()); }

  Result<void> Start(const BusServerOptions& options) {
    MP_RETURN_IF_ERROR(CheckReach("http", options.http.address, options));
    MP_RETURN_IF_ERROR(CheckReach("grpc", options.grpc.address, options));
    if (!options.grpc.address.empty() || !options.grpc.unix_socket_path.empty()) {
      MP_ASSIGN_OR_RETURN(grpc_, GrpcDoor::Start(options.grpc, calls_, access_, lanes_));
    }
    if (!options.http.address.empty() || !options.http.unix_socket_path.empty()) {
      net::HttpServerOptions http = options.http;
      http.allow_remote = options.listen_any;
      MP_ASSIGN_OR_RETURN(http_, net::HttpServer::Start(http, http_door_));
    }
    return {};
  }

  uint16_t http_port() const { return http_ ? http_->port() : uint16_t{0}; }
  uint16_t grpc_port() const { return grpc_ ? grpc_->port() : uint16_t{0}; }
  void SetServing(bool serving) {
    if (grpc_) grpc_->SetServing(serving);
  }
  void BeginDrain() {
    calls_.BeginDrain();
    SetServing(false);
  }

  void Stop(Duration grace) {
    // The doors first: their calls end on the lanes, which must still be there.
    calls_.BeginDrain();
    if (http_) http_->Stop(grace);
    if (grpc_) grpc_->Stop(grace);
    lanes_.Shutdown();
  }

 private:
  static bool AnyHost(const BusServerOptions& options) { return options.listen_any && !options.access.tokens.empty(); }
  static std::set<std::string> HostNames(const BusServerOptions& options) {
    const std::string& address = options.http.address;
    return {address.find(':') == address.npos ? address : "[" + address + "]"};
  }

  // Decision 13: wider than this machine only on demand, and then only with tokens.
  static Result<void> CheckReach(std::string_view door, const std::string& address, const BusServerOptions& options) {
    if (address.empty() || IsLoopback(address)) return {};
    if (!options.listen_any) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{} address {} is not loopback: other machines would reach the bus. If that is meant, add "
                      "--listen-any and --token-file",
                      door, address));
    }
    if (options.access.tokens.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} address {} is not loopback: that needs tokens, give --token-file", door, address));
    }
    return {};
  }

  // Destroyed from the bottom up: the doors before what they use.
  const AccessPolicy access_;
  BusCalls calls_;
  WorkLanes lanes_;
  HttpDoor http_door_;
  std::unique_ptr<GrpcDoor> grpc_;
  std::unique_ptr<net::HttpServer> http_;
};

BusServer::BusServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BusServer::~BusServer() = default;

Result<std::unique_ptr<BusServer>> BusServer::Start(const BusServerOptions& options, BusFront& front) {
  auto impl = std::make_unique<Impl>(options, front);
  MP_RETURN_IF_ERROR(impl->Start(options));
  return std::unique_ptr<BusServer>(new BusServer(std::move(impl)));
}

uint16_t BusServer::http_port() const { return impl_->http_port(); }
uint16_t BusServer::grpc_port() const { return impl_->grpc_port(); }
void BusServer::SetServing(bool serving) { impl_->SetServing(serving); }
void BusServer::BeginDrain() { impl_->BeginDrain(); }
void BusServer::Stop(Duration grace) { impl_->Stop(grace); }

}  // namespace moonpool::bus
