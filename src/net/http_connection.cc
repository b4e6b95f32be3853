#include "net/http_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "net/reply_channel.h"

namespace moonpool::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using beast::error_code;

constexpr size_t kPieceBytes = 64 * 1024;
// After a refusal the client may still be sending: so much is read and dropped, so that it sees the answer and not
// a reset caused by its own unread bytes.
constexpr size_t kLingerBytesMax = 4 * 1024 * 1024;
constexpr auto kLingerTime = std::chrono::seconds(2);

class BeastConnection final : public HttpConnection {
 public:
  BeastConnection(Socket socket, bool via_unix_socket, ConnectionHost& host)
      : host_(host), stream_(std::move(socket)), buffer_(host.options().header_bytes_max + kPieceBytes) {
    via_unix_socket_ = via_unix_socket;
    if (!via_unix_socket) return;
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (::getsockopt(stream_.socket().native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
      peer_uid_ = peer.uid;
    }
  }
  ~BeastConnection() override { Orphan(); }

  void Start() override {
    Post([](BeastConnection& self) { self.AwaitRequest(); });
  }
  void StartRefusing() override {
    Post([](BeastConnection& self) { self.Reject(503, "too many connections"); });
  }
  void PostSend(HttpResponse response) override {
    Post([response = std::move(response)](BeastConnection& self) mutable { self.Answer(std::move(response)); });
  }
  void PostBegin(HttpResponse head) override {
    Post([head = std::move(head)](BeastConnection& self) mutable { self.BeginStream(std::move(head)); });
  }
  void PostWrite(std::string bytes) override {
    Post([bytes = std::move(bytes)](BeastConnection& self) mutable { self.StreamBytes(std::move(bytes)); });
  }
  void PostFinish() override {
    Post([](BeastConnection& self) { self.FinishStream(); });
  }
  void PostAbort() override {
    Post([](BeastConnection& self) { self.Abort(); });
  }
  void PostClose() override {
    Post([](BeastConnection& self) { self.Close(); });
  }
  void PostStop() override {
    Post([](BeastConnection& self) {
      self.keep_alive_ = false;
      if (self.state_ == State::kIdle) self.Close();
    });
  }
  void Orphan() override {
    if (cancel_flag_) cancel_flag_->store(true);
    if (channel_) channel_->Detach();
  }

 private:
  enum class State { kIdle, kReading, kHandling, kClosing, kClosed };
  struct Outgoing {
    std::string bytes;
    uint64_t streamed_bytes = 0;  // of a Write, given back to the channel's bound when sent
  };

  template <class Work>
  void Post(Work work) {
    // A connection that is being destroyed has no strand to work on.
    if (std::shared_ptr<HttpConnection> self = weak_from_this().lock()) {
      asio::post(stream_.get_executor(), [this, self = std::move(self), work = std::move(work)]() mutable {
        if (state_ != State::kClosed) work(*this);
      });
    }
  }
  // A completion handler that keeps the connection alive and does nothing once it is closed.
  template <class Next>
  auto Then(Next next) {
    return [this, self = shared_from_this(), next](error_code error, size_t bytes = 0) {
      if (state_ != State::kClosed) next(error, bytes);
    };
  }

  void AwaitRequest();
  void ReadHeader();
  void OnHeader(error_code error);
  void ReadBody();
  void OnBody(error_code error);
  void Dispatch();
  void WatchClient();
  void Reject(int status, std::string_view why);
  void Linger();
  void Discard();

  void Answer(HttpResponse response);
  void BeginStream(HttpResponse head);
  void StreamBytes(std::string bytes);
  void FinishStream();
  std::string Head(const HttpResponse& response, std::optional<uint64_t> content_length) const;
  void Enqueue(Outgoing out);
  void PumpWrites();
  void OnAnswered();
  void Abort();
  void Close();
  void ReleaseBody() { host_.ReleaseBodyBytes(std::exchange(body_reserved_, 0)); }

  ConnectionHost& host_;
  beast::basic_stream<asio::generic::stream_protocol> stream_;
  beast::flat_buffer buffer_;
  bool via_unix_socket_ = false;
  std::optional<uint32_t> peer_uid_;

  State state_ = State::kIdle;
  bool keep_alive_ = true;
  // The request being read.
  std::optional<http::request_parser<http::buffer_body>> parser_;
  std::vector<char> piece_;
  std::string body_;
  uint64_t body_reserved_ = 0;
  // The request being handled.
  bool head_request_ = false;
  unsigned http_version_ = 11;
  std::shared_ptr<std::atomic<bool>> cancel_flag_;  // shared with the request
  std::shared_ptr<ReplyChannel> channel_;           // shared with the reply, which may live on
  bool watching_ = false;
  // The answer being written.
  std::deque<Outgoing> outgoing_;
  bool writing_ = false;
  bool streaming_ = false;
  bool chunked_ = false;
  bool answer_complete_ = false;
  size_t linger_bytes_ = 0;
};

void BeastConnection::AwaitRequest() {
  if (host_.stopping()) return Close();
  state_ = State::kIdle;
  if (buffer_.size() > 0) return ReadHeader();
  host_.SetIdle(*this, true);
  stream_.expires_after(host_.options().idle_timeout);
  stream_.async_read_some(buffer_.prepare(4096), Then([this](error_code error, size_t bytes) {
                            host_.SetIdle(*this, false);
                            if (error) return Close();
                            buffer_.commit(bytes);
                            ReadHeader();
                          }));
}

void BeastConnection::ReadHeader() {
  state_ = State::kReading;
  parser_.emplace();
  parser_->header_limit(host_.options().header_bytes_max);
  parser_->body_limit(host_.options().body_bytes_max);
  stream_.expires_after(host_.options().header_timeout);
  http::async_read_header(stream_, buffer_, *parser_, Then([this](error_code error, size_t) { OnHeader(error); }));
}

void BeastConnection::OnHeader(error_code error) {
  if (error == http::error::body_limit) return Reject(413, "the body is larger than the server takes");
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Reject(431, "the header is larger than the server takes");
  }
  if (error == beast::error::timeout) return Close();  // the stream has closed its socket already
  if (error == http::error::end_of_stream || error == asio::error::connection_reset) return Close();
  if (error) return Reject(400, "this is not an HTTP request");
  const auto& message = parser_->get();
  if (message.version() != 10 && message.version() != 11) return Reject(400, "only HTTP/1.0 and 1.1 are understood");
  http_version_ = message.version();
  keep_alive_ = message.keep_alive();
  head_request_ = message.method() == http::verb::head;
  body_.clear();
  stream_.expires_after(host_.options().body_timeout);
  if (beast::iequals(message[http::field::expect], "100-continue") && !parser_->is_done()) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue), Then([this](error_code failed, size_t) {
                        if (failed) return Close();
                        ReadBody();
                      }));
    return;
  }
  ReadBody();
}

void BeastConnection::ReadBody() {
  if (parser_->is_done()) return Dispatch();
  piece_.resize(kPieceBytes);
  parser_->get().body().data = piece_.data();
  parser_->get().body().size = piece_.size();
  http::async_read_some(stream_, buffer_, *parser_, Then([this](error_code error, size_t) { OnBody(error); }));
}

void BeastConnection::OnBody(error_code error) {
  const size_t bytes = piece_.size() - parser_->get().body().size;
  if (error == http::error::need_buffer) error = {};
  if (error == http::error::body_limit) return Reject(413, "the body is larger than the server takes");
  if (error == beast::error::timeout) return Close();
  if (error == http::error::partial_message) return Reject(400, "the body is shorter than announced");
  if (error == asio::error::connection_reset) return Close();
  if (error) return Reject(400, "the body is not well formed");
  if (bytes > 0) {
    if (!host_.ReserveBodyBytes(bytes)) return Reject(503, "too many large requests at once");
    body_reserved_ += bytes;
    body_.append(piece_.data(), bytes);
  }
  ReadBody();
}

void BeastConnection::Dispatch() {
  state_ = State::kHandling;
  stream_.expires_never();
  piece_ = {};
  const auto& message = parser_->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message) request.headers.Add(std::string(field.name_string()), std::string(field.value()));
  request.body = std::move(body_);
  request.via_unix_socket = via_unix_socket_;
  request.peer_uid = peer_uid_;
  cancel_flag_ = std::make_shared<std::atomic<bool>>(false);
  request.cancel_flag = cancel_flag_;
  parser_.reset();
  body_ = {};
  outgoing_.clear();
  streaming_ = chunked_ = answer_complete_ = false;

  channel_ = std::make_shared<ReplyChannel>(*this, host_.options().stream_ahead_bytes_max);
  WatchClient();
  host_.CountHandled();
  const HttpReply reply = ReplyOver(channel_);
  try {
    host_.handler().Handle(std::move(request), reply);
  } catch (const std::exception& exception) {
    log::Error("http_handler_threw what={}", exception.what());
    reply.Send(MakeResponse(500, "text/plain", "internal error\n"));
  }
}

// A client that hangs up while its request is being handled makes its socket readable with nothing to read.
void BeastConnection::WatchClient() {
  if (watching_ || buffer_.size() > 0) return;
  watching_ = true;
  stream_.socket().async_wait(asio::socket_base::wait_read, Then([this](error_code error, size_t) {
                                watching_ = false;
                                if (error || state_ != State::kHandling || !cancel_flag_) return;
                                char byte = 0;
                                const ssize_t count =
                                    ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
                                const bool quiet = count < 0 && (errno == EAGAIN || errno == EINTR);
                                if (quiet) return WatchClient();
                                // An end of stream may be one-sided: the answer is still tried, by a handler that
                                // has one. Readable bytes are the next request.
                                if (count <= 0) cancel_flag_->store(true);
                              }));
}

void BeastConnection::Reject(int status, std::string_view why) {
  host_.CountRejected();
  ReleaseBody();
  body_ = {};
  state_ = State::kClosing;
  keep_alive_ = false;
  HttpResponse response = MakeResponse(status, "text/plain", fmt::format("{}\n", why));
  Outgoing out{Head(response, response.body.size()) + response.body, 0};
  outgoing_.clear();
  answer_complete_ = true;
  Enqueue(std::move(out));
}

// Ends the sending side and reads on for a moment.
void BeastConnection::Linger() {
  error_code ignored;
  stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
  if (ignored) return Close();
  buffer_.consume(buffer_.size());
  piece_.resize(kPieceBytes);
  stream_.expires_after(kLingerTime);
  Discard();
}

void BeastConnection::Discard() {
  stream_.async_read_some(asio::buffer(piece_), Then([this](error_code error, size_t bytes) {
                            linger_bytes_ += bytes;
                            if (error || linger_bytes_ > kLingerBytesMax) return Close();
                            Discard();
                          }));
}

std::string BeastConnection::Head(const HttpResponse& response, std::optional<uint64_t> content_length) const {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, StatusText(response.status));
  for (const auto& [name, value] : response.headers.fields()) AppendHeaderField(head, name, value);
  if (content_length) AppendHeaderField(head, "Content-Length", std::to_string(*content_length));
  if (chunked_) AppendHeaderField(head, "Transfer-Encoding", "chunked");
  if (!keep_alive_) AppendHeaderField(head, "Connection", "close");
  if (keep_alive_ && http_version_ == 10) AppendHeaderField(head, "Connection", "keep-alive");
  head += "\r\n";
  return head;
}

void BeastConnection::Answer(HttpResponse response) {
  if (state_ != State::kHandling) return;
  if (host_.stopping()) keep_alive_ = false;
  answer_complete_ = true;
  Outgoing head{Head(response, response.body.size()), 0};
  const bool with_body = !head_request_ && !response.body.empty();
  outgoing_.push_back(std::move(head));
  if (with_body) outgoing_.push_back({std::move(response.body), 0});
  PumpWrites();
}

void BeastConnection::BeginStream(HttpResponse head) {
  if (state_ != State::kHandling) return;
  streaming_ = true;
  if (host_.stopping()) keep_alive_ = false;
  chunked_ = http_version_ == 11;
  if (!chunked_) keep_alive_ = false;  // the end of the connection is the end of the body
  std::string first = std::move(head.body);
  head.body.clear();
  Enqueue({Head(head, std::nullopt), 0});
  if (!first.empty()) StreamBytes(std::move(first));
}

void BeastConnection::StreamBytes(std::string bytes) {
  if (state_ != State::kHandling || !streaming_ || answer_complete_) return;
  const uint64_t size = bytes.size();
  if (head_request_) bytes.clear();
  if (chunked_ && !bytes.empty()) bytes = fmt::format("{:x}\r\n", bytes.size()) + std::move(bytes) + "\r\n";
  Enqueue({std::move(bytes), size});
}

void BeastConnection::FinishStream() {
  if (state_ != State::kHandling || !streaming_) return;
  answer_complete_ = true;
  Enqueue({chunked_ && !head_request_ ? "0\r\n\r\n" : "", 0});
}

void BeastConnection::Enqueue(Outgoing out) {
  outgoing_.push_back(std::move(out));
  PumpWrites();
}

void BeastConnection::PumpWrites() {
  if (writing_) return;
  if (outgoing_.empty()) {
    if (answer_complete_) OnAnswered();
    return;
  }
  writing_ = true;
  stream_.expires_after(host_.options().write_timeout);
  asio::async_write(stream_, asio::buffer(outgoing_.front().bytes), Then([this](error_code error, size_t) {
                      writing_ = false;
                      if (error) return Close();
                      stream_.expires_never();
                      if (channel_) channel_->Written(outgoing_.front().streamed_bytes);
                      outgoing_.pop_front();
                      PumpWrites();
                    }));
}

void BeastConnection::OnAnswered() {
  answer_complete_ = false;
  ReleaseBody();
  Orphan();
  channel_.reset();
  cancel_flag_.reset();
  if (state_ == State::kClosing) return Linger();
  if (!keep_alive_) {
    state_ = State::kClosing;
    return Linger();
  }
  AwaitRequest();
}

void BeastConnection::Abort() {
  error_code ignored;
  stream_.socket().set_option(asio::socket_base::linger(true, 0), ignored);
  Close();
}

void BeastConnection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  ReleaseBody();
  Orphan();
  stream_.close();
  host_.Closed(*this);
}

}  // namespace

std::shared_ptr<HttpConnection> HttpConnection::Make(Socket socket, bool via_unix_socket, ConnectionHost& host) {
  return std::make_shared<BeastConnection>(std::move(socket), via_unix_socket, host);
}

}  // namespace moonpool::net
