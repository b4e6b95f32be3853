// HttpClient: blocking HTTP/1.1 calls to one server, with a deadline and a size limit on every call. Knows
// http:// with a numeric address or localhost, and unix sockets; never reads proxy settings from the environment
// and follows no redirects. Thread-safe: calls of several threads use connections of their own; up to
// `idle_connections_max` of them are kept for later calls.
//
// Errors: kUnavailable (refused, reset, ended early), kDeadlineExceeded, kQuota (answer above its limit), kCorrupt
// (the answer is not HTTP). Any status code is an answer, not an error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "moonpool/result.h"
#include "net/http_message.h"

namespace moonpool::net {

// Where a server is. A value.
struct HttpEndpoint {
  std::string host{};  // a numeric address, or "localhost" (127.0.0.1, then ::1)
  uint16_t port = 0;
  std::string unix_socket_path{};  // not empty: used in place of host and port
  std::string base_path{};         // "/v1" of "http://host:1/v1"; no slash at its end

  // "http://127.0.0.1:8080", "http://[::1]:8080/base", "http://localhost:8080", "unix:/run/x.sock".
  // kInvalidArgument for anything else; https and user names are named in the message.
  static Result<HttpEndpoint> Parse(std::string_view url);
  std::string ToString() const;
};

struct HttpClientOptions {
  std::string bearer_token{};  // empty: none
  HttpHeaders headers{};       // sent with every call
  uint64_t response_bytes_max = 64ull << 20;
  uint32_t response_header_bytes_max = 64 * 1024;
  uint32_t idle_connections_max = 4;
  Duration connect_timeout = std::chrono::seconds(5);
};

// How far a call came; tells a caller whether the server can have acted on it.
struct HttpProgress {
  bool sent = false;      // the server may have received (part of) the request
  bool answered = false;  // at least one byte of the answer came
  bool complete = false;  // the whole answer came, whatever its status
};

struct HttpCall {
  std::string method = "GET";
  std::string target = "/";  // path and query, appended to the endpoint's base path
  std::string body{};
  std::string content_type = "application/json";  // sent if there is a body
  HttpHeaders headers{};
  uint64_t response_bytes_max = 0;  // 0: the client's
  // A fresh connection costs a round trip, but cannot have been closed by the server in the meantime. Calls that
  // must not fail for that reason and must not be repeated ask for one.
  bool fresh_connection = false;
  // Receives the body of a 2xx answer piece by piece (then the response's body stays empty); false cancels the call,
  // which is then answered as complete. response_bytes_max bounds the sum. Other statuses come whole, in the body.
  std::function<bool(std::string_view)> on_body{};
  HttpProgress* progress = nullptr;  // filled in, also on errors
};

class HttpClient {
 public:
  HttpClient(HttpEndpoint endpoint, HttpClientOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // The time left of `deadline` when the call begins is spent in real time. A kept connection that the server has
  // closed is noticed before use; if it breaks in between, a GET of which no answer byte came is sent once more.
  Result<HttpResponse> Send(const HttpCall& call, const Deadline& deadline);

  const HttpEndpoint& endpoint() const;
  uint32_t IdleConnections() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace moonpool::net
