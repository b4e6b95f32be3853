// ReplyChannel: what an HttpReply and its connection share. The reply may outlive the connection and the
// connection the reply; whoever ends first cuts the link under the mutex. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "net/http_server.h"

namespace moonpool::net {

class HttpConnection;

class ReplyChannel {
 public:
  ReplyChannel(HttpConnection& connection, uint64_t ahead_bytes_max)
      : ahead_bytes_max_(ahead_bytes_max), connection_(&connection) {}
  ReplyChannel(const ReplyChannel&) = delete;
  ReplyChannel& operator=(const ReplyChannel&) = delete;

  void Send(HttpResponse response) EXCLUDES(mutex_);
  void Begin(HttpResponse head) EXCLUDES(mutex_);
  bool Write(std::string bytes) EXCLUDES(mutex_);
  void Finish() EXCLUDES(mutex_);
  void Abort() EXCLUDES(mutex_);
  // The last copy of the reply went: ends an answer that nobody ended.
  void Abandon() EXCLUDES(mutex_);

  // By the connection: nothing reaches it from now on.
  void Detach() EXCLUDES(mutex_);
  // By the connection: that many streamed bytes are out of the queue.
  void Written(uint64_t bytes) { ahead_bytes_ -= bytes; }

 private:
  const uint64_t ahead_bytes_max_;
  std::atomic<uint64_t> ahead_bytes_{0};  // queued by Write, not sent; a bound, so exactness at an instant is enough
  Mutex mutex_;
  HttpConnection* connection_ GUARDED_BY(mutex_);  // cut by Detach before the connection dies
  bool begun_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;
};

// A reply whose last copy abandons the channel when it goes.
HttpReply ReplyOver(std::shared_ptr<ReplyChannel> channel);

}  // namespace moonpool::net
