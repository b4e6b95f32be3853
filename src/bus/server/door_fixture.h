// A BusServer on all four listeners over a ScriptedFront, and a client for each of them, behind one face: so that a
// test can ask the same of every door.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bus/server/bus_server.h"
#include "bus/server/grpc_library.h"
#include "bus/server/json_message.h"
#include "bus/server/scripted_front.h"
#include "kvcache_bus.grpc.pb.h"
#include "net/http_client.h"
#include "support/temp_dir.h"

namespace moonpool::testing {

inline constexpr Duration kHangLimit = std::chrono::seconds(60);

// What a door answered: a code of gRPC's vocabulary, whatever the door.
struct DoorAnswer {
  std::string code;  // "OK", "INVALID_ARGUMENT", ...
  std::string message;
  bool operator==(const DoorAnswer&) const = default;
};

class DoorFixture : public ::testing::Test {
 protected:
  void Open(bus::BusServerOptions options = {}) {
    options.http.address = "127.0.0.1";
    options.http.unix_socket_path = directory_ / "http.sock";
    options.grpc.address = "127.0.0.1";
    options.grpc.unix_socket_path = directory_ / "grpc.sock";
    auto server = bus::BusServer::Start(options, front_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }

  Result<net::HttpResponse> Http(const net::HttpCall& call, bool over_unix = false) {
    net::HttpEndpoint endpoint;
    endpoint.host = "127.0.0.1";
    endpoint.port = server_->http_port();
    if (over_unix) endpoint.unix_socket_path = directory_ / "http.sock";
    net::HttpClientOptions options;
    options.bearer_token = token_;
    net::HttpClient client(endpoint, options);
    return client.Send(call, Deadline(clock_, kHangLimit));
  }
  net::HttpResponse Post(const std::string& target, std::string body, bool over_unix = false) {
    const auto response = Http({.method = "POST", .target = target, .body = std::move(body)}, over_unix);
    EXPECT_TRUE(response) << target << ": " << response.error().message;
    return response.value_or(net::HttpResponse{.status = 0});
  }
  net::HttpResponse Get(const std::string& target) {
    const auto response = Http({.target = target});
    EXPECT_TRUE(response) << target << ": " << response.error().message;
    return response.value_or(net::HttpResponse{.status = 0});
  }

  std::unique_ptr<v1::KVCacheBus::Stub> Stub(bool over_unix = false) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    // A pool of its own: channels to one address would share a connection, and with it a server that is gone.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const std::string target =
        over_unix ? "unix:" + (directory_ / "grpc.sock").string() : "127.0.0.1:" + std::to_string(server_->grpc_port());
    return v1::KVCacheBus::NewStub(grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
  }
  // A deadline against hangs, and the token.
  void FurnishCall(grpc::ClientContext& context) const {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
  }

  static constexpr int kDoors = 4;
  static std::string DoorName(int door) {
    return std::vector<std::string>{"http", "http-unix", "grpc", "grpc-unix"}[static_cast<size_t>(door)];
  }
  // The same Lookup through door 0..3.
  DoorAnswer LookupThrough(int door, const v1::PromptRequest& request, v1::LookupReply* reply = nullptr) {
    v1::LookupReply unused;
    if (reply == nullptr) reply = &unused;
    if (door < 2) {
      const net::HttpResponse response = Post("/v1/lookup", bus::WriteJson(request), door == 1);
      if (response.status == 200) {
        EXPECT_TRUE(bus::ReadJson(response.body, *reply));
        return {.code = "OK", .message = ""};
      }
      return ErrorOf(response);
    }
    grpc::ClientContext context;
    FurnishCall(context);
    const grpc::Status status = Stub(door == 3)->Lookup(&context, request, reply);
    return {.code = CodeName(status.error_code()), .message = status.error_message()};
  }

  static DoorAnswer ErrorOf(const net::HttpResponse& response);
  static std::string CodeName(grpc::StatusCode code);

  TempDir directory_;
  SystemClock clock_;
  ScriptedFront front_;
  std::string token_;  // shown by all clients if not empty
  std::unique_ptr<bus::BusServer> server_;
};

}  // namespace moonpool::testing
