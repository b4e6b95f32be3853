// HttpConnection: one client of an HttpServer, from accept to close: waits for a request, reads it within the
// limits, hands it to the handler, writes the answer, begins again. Private to net.
//
// Lives on a strand: everything but the Post... calls runs there. Kept alive by the ConnectionHost's table and by
// its own pending operations.
#pragma once

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "net/http_server.h"

namespace moonpool::net {

class HttpConnection;

// What a connection needs of its server. Thread-safe; outlives the connections.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const HttpServerOptions& options() const = 0;
  virtual HttpHandler& handler() = 0;
  virtual bool stopping() const = 0;
  // Moves bytes into the budget of bodies in memory; false (and nothing moved) if they do not fit.
  virtual bool ReserveBodyBytes(uint64_t bytes) = 0;
  virtual void ReleaseBodyBytes(uint64_t bytes) = 0;
  // Idle connections may be closed to make room.
  virtual void SetIdle(HttpConnection& connection, bool idle) = 0;
  virtual void CountHandled() = 0;
  virtual void CountRejected() = 0;
  // The last call of a connection.
  virtual void Closed(HttpConnection& connection) = 0;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  static std::shared_ptr<HttpConnection> Make(Socket socket, bool via_unix_socket, ConnectionHost& host);
  virtual ~HttpConnection() = default;

  // Serves requests until the client goes, a limit is hit or the server stops.
  virtual void Start() = 0;
  // Says 503 and closes: the server is full.
  virtual void StartRefusing() = 0;

  // From any thread; the work happens on the strand.
  virtual void PostSend(HttpResponse response) = 0;
  virtual void PostBegin(HttpResponse head) = 0;
  virtual void PostWrite(std::string bytes) = 0;
  virtual void PostFinish() = 0;
  virtual void PostAbort() = 0;
  virtual void PostClose() = 0;
  // Closes at once if no request is being handled, else after its answer.
  virtual void PostStop() = 0;
  // Cuts the link to the reply; only when no server thread runs any more.
  virtual void Orphan() = 0;
};

}  // namespace moonpool::net
