// ServerTest: a running HttpServer whose handler is a function of the test, and clients for it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "net/http_client.h"
#include "net/http_server.h"
#include "support/raw_socket.h"

namespace moonpool::net {

// Only limits for a hang; no test waits for it to pass.
inline constexpr Duration kLong = std::chrono::minutes(3);

class FunctionHandler final : public HttpHandler {
 public:
  using Function = std::function<void(HttpRequest, HttpReply)>;
  explicit FunctionHandler(Function function) : function_(std::move(function)) {}
  void Handle(HttpRequest request, HttpReply reply) override { function_(std::move(request), std::move(reply)); }

 private:
  const Function function_;
};

inline HttpResponse Text(std::string text) { return MakeResponse(200, "text/plain", std::move(text)); }

// A server whose handler is a function; answers with method, target and body length by default.
class ServerTest : public ::testing::Test {
 protected:
  void Serve(FunctionHandler::Function function, HttpServerOptions options = {}) {
    handler_ = std::make_unique<FunctionHandler>(std::move(function));
    Result<std::unique_ptr<HttpServer>> server = HttpServer::Start(options, *handler_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  void ServeEcho(HttpServerOptions options = {}) {
    Serve(
        [](HttpRequest request, HttpReply reply) {
          reply(Text(request.method + " " + request.target + " " + std::to_string(request.body.size())));
        },
        options);
  }
  testing::RawSocket Raw() const { return testing::RawSocket::ToPort(server_->port()); }
  HttpClient& Client() {
    if (!client_) {
      client_ =
          std::make_unique<HttpClient>(HttpEndpoint{.host = "127.0.0.1", .port = server_->port()}, HttpClientOptions{});
    }
    return *client_;
  }
  Deadline Soon() const { return Deadline(clock_, kLong); }
  bool Alive() {
    const Result<HttpResponse> response = Client().Send({.target = "/alive", .fresh_connection = true}, Soon());
    return response && response->status == 200;
  }
  // The status line's number of a raw answer; 0 if there is none.
  static int Status(const std::string& answer) { return answer.size() < 12 ? 0 : std::atoi(answer.c_str() + 9); }
  template <class Condition>
  static void Eventually(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + kLong;
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "did not happen";
      std::this_thread::yield();
    }
  }

  SystemClock clock_;
  std::unique_ptr<FunctionHandler> handler_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<HttpClient> client_;
};

}  // namespace moonpool::net
