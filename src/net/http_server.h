// HttpServer: answers HTTP/1.1 on a loopback port, a unix socket, or both, with a few threads of its own.
// Owned by app/ (and by fakes in tests). Thread-safe.
//
// Everything a client can make grow is bounded: header and body sizes, bodies in memory altogether, the time for
// each step, the number of connections. At the last bound the connection that has been idle longest makes room;
// if none is idle the newcomer gets 503. What is not HTTP gets 400, a header too large 431, a body too large 413
// without being read to its end. One connection carries one request at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "moonpool/result.h"
#include "net/http_message.h"

namespace moonpool::net {

class ReplyChannel;

// The way back to one client. Copies refer to the same answer; any thread may use them, also after the server
// is gone (then nothing happens). An answer is either one Send, or Begin, any number of Write, Finish; what comes
// after the end of the answer is ignored. When the last copy goes without an end, the client gets 500, or a
// reset if the answer had begun.
class HttpReply {
 public:
  explicit HttpReply(std::shared_ptr<ReplyChannel> channel) : channel_(std::move(channel)) {}

  void Send(HttpResponse response) const;
  void operator()(HttpResponse response) const { Send(std::move(response)); }

  // Streams the body in chunks as they are written; `head.body` is the first of them.
  void Begin(HttpResponse head) const;
  // False if the client has gone or does not read what is queued for it (then the connection is closed).
  bool Write(std::string bytes) const;
  void Finish() const;
  // Ends the connection at once, whatever has been sent, so that the client sees a reset.
  void Abort() const;

 private:
  std::shared_ptr<ReplyChannel> channel_;  // shared with the connection: either side may end first
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Called on a server thread, which serves other connections too: hand long work to an executor and reply from
  // there. Several calls run at the same time. Exceptions end as status 500.
  virtual void Handle(HttpRequest request, HttpReply reply) = 0;
};

struct HttpServerOptions {
  // An address to listen on ("127.0.0.1", "::1"), with port 0 for any free one. Empty: no TCP.
  std::string address = "127.0.0.1";
  uint16_t port = 0;
  // Without this an address that is not loopback is refused.
  bool allow_remote = false;
  // Empty: no unix socket.
  std::string unix_socket_path{};

  int threads = 2;
  uint32_t connections_max = 512;
  uint32_t header_bytes_max = 16 * 1024;
  uint64_t body_bytes_max = 64ull << 20;
  // All request bodies that are being received or handled; above it newcomers get 503.
  uint64_t bodies_bytes_max = 512ull << 20;
  // Answer bytes that a streaming handler may be ahead of its client.
  uint64_t stream_ahead_bytes_max = 16ull << 20;
  Duration idle_timeout = std::chrono::seconds(60);    // between requests
  Duration header_timeout = std::chrono::seconds(10);  // first to last byte of a header
  Duration body_timeout = std::chrono::seconds(60);    // the whole body
  Duration write_timeout = std::chrono::seconds(30);   // an answer, or a part of a streamed one
};

struct HttpServerStats {
  uint64_t connections_open = 0;
  uint64_t connections_accepted = 0;
  uint64_t connections_evicted = 0;  // idle ones, closed to make room
  uint64_t connections_refused = 0;  // by 503
  uint64_t requests_handled = 0;
  uint64_t requests_rejected = 0;  // 400, 413, 431, 503 before any handler saw them
};

class HttpServer {
 public:
  // Listens when it returns. `handler` outlives the server. Errors: kAlreadyExists (address or socket in use, by
  // name), kInvalidArgument (no or bad address, path too long), kPermission, kIo.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options, HttpHandler& handler);
  // Stop(0).
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The TCP port in use; 0 without TCP.
  uint16_t port() const;
  HttpServerStats Stats() const;

  // Takes no new connections and closes idle ones at once; requests being handled may be answered within `grace`
  // (real time), then they are cut off. Returns when no server thread runs any more. Not from a handler. Idempotent.
  void Stop(Duration grace);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace moonpool::net
