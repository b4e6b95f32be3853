#include "net/reply_channel.h"

#include <utility>

#include "net/http_connection.h"

namespace moonpool::net {

HttpReply ReplyOver(std::shared_ptr<ReplyChannel> channel) {
  ReplyChannel* const raw = channel.get();
  // The connection holds the channel too, so its end does not tell when the handler let go; this count does.
  return HttpReply(
      std::shared_ptr<ReplyChannel>(raw, [channel = std::move(channel)](ReplyChannel* left) { left->Abandon(); }));
}

void ReplyChannel::Abandon() {
  MutexLock lock(mutex_);
  if (connection_ == nullptr || ended_) return;
  ended_ = true;
  if (begun_) {
    connection_->PostAbort();
  } else {
    connection_->PostSend(MakeResponse(500, "text/plain", "the request was dropped unanswered\n"));
  }
}

void ReplyChannel::Send(HttpResponse response) {
  MutexLock lock(mutex_);
  if (connection_ == nullptr || begun_ || ended_) return;
  ended_ = true;
  connection_->PostSend(std::move(response));
}

void ReplyChannel::Begin(HttpResponse head) {
  MutexLock lock(mutex_);
  if (connection_ == nullptr || begun_ || ended_) return;
  begun_ = true;
  ahead_bytes_ += head.body.size();
  connection_->PostBegin(std::move(head));
}

bool ReplyChannel::Write(std::string bytes) {
  MutexLock lock(mutex_);
  if (connection_ == nullptr || !begun_ || ended_) return false;
  if (bytes.empty()) return true;
  ahead_bytes_ += bytes.size();
  if (ahead_bytes_ > ahead_bytes_max_) {
    ended_ = true;
    connection_->PostAbort();
    return false;
  }
  connection_->PostWrite(std::move(bytes));
  return true;
}

void ReplyChannel::Finish() {
  MutexLock lock(mutex_);
  if (connection_ == nullptr || !begun_ || ended_) return;
  ended_ = true;
  connection_->PostFinish();
}

void ReplyChannel::Abort() {
  MutexLock lock(mutex_);
  if (connection_ == nullptr || ended_) return;
  ended_ = true;
  connection_->PostAbort();
}

void ReplyChannel::Detach() {
  MutexLock lock(mutex_);
  connection_ = nullptr;
}

void HttpReply::Send(HttpResponse response) const { channel_->Send(std::move(response)); }
void HttpReply::Begin(HttpResponse head) const { channel_->Begin(std::move(head)); }
bool HttpReply::Write(std::string bytes) const { return channel_->Write(std::move(bytes)); }
void HttpReply::Finish() const { channel_->Finish(); }
void HttpReply::Abort() const { channel_->Abort(); }

}  // namespace moonpool::net
