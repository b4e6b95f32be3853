#include "net/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/blocking_socket.h"

namespace moonpool::net {
namespace {

namespace http = boost::beast::http;

constexpr size_t kPieceBytes = 64 * 1024;
// A server may announce itself with 1xx answers; more of them than this is no HTTP that we know.
constexpr int kInterimAnswersMax = 8;

// Real time, whatever clock the deadline was made with: a socket knows no other.
RealTime RealTimeOf(Duration left) {
  return std::chrono::steady_clock::now() + std::min<Duration>(left, std::chrono::hours(24));
}

// Feeds what a socket brings to Beast's parser and hands the body on, piece by piece.
class AnswerReader {
 public:
  AnswerReader(BlockingSocket& socket, const HttpCall& call, uint64_t body_bytes_max, uint32_t header_bytes_max,
               RealTime until)
      : socket_(socket),
        call_(call),
        body_bytes_max_(body_bytes_max),
        header_bytes_max_(header_bytes_max),
        until_(until),
        received_(kPieceBytes),
        piece_(kPieceBytes) {}

  Result<HttpResponse> Read(HttpProgress& progress);
  // After Read: whether the connection may carry another call.
  bool Reusable() const { return reusable_; }

 private:
  using Parser = http::response_parser<http::buffer_body>;

  // One step of parsing; false when more bytes are needed.
  Result<bool> Step(Parser& parser);
  Result<void> Deliver(std::string_view bytes, const Parser& parser);
  void TakeHead(const Parser& parser);

  BlockingSocket& socket_;
  const HttpCall& call_;
  const uint64_t body_bytes_max_;
  const uint32_t header_bytes_max_;
  const RealTime until_;
  std::vector<char> received_;
  size_t begin_ = 0;  // what of received_ is not parsed yet
  size_t end_ = 0;
  std::vector<char> piece_;
  uint64_t body_bytes_ = 0;
  bool head_taken_ = false;
  bool cancelled_ = false;
  bool reusable_ = false;
  HttpResponse response_;
};

Result<HttpResponse> AnswerReader::Read(HttpProgress& progress) {
  std::optional<Parser> parser;
  for (int answers = 0; answers <= kInterimAnswersMax; ++answers) {
    parser.emplace();
    parser->eager(true);
    parser->header_limit(header_bytes_max_);
    parser->body_limit(boost::none);  // counted here, where the error can say which limit it was
    if (call_.method == "HEAD") parser->skip(true);
    bool stream_ended = false;
    while (!parser->is_done() && !cancelled_) {
      MP_ASSIGN_OR_RETURN(const bool progressed, Step(*parser));
      if (progressed) continue;
      if (stream_ended) return Fail(ErrorCode::kUnavailable, "the server ended its answer early");
      // The parser wants its unparsed bytes in one piece: keep them at the front.
      std::copy(received_.begin() + static_cast<ptrdiff_t>(begin_), received_.begin() + static_cast<ptrdiff_t>(end_),
                received_.begin());
      end_ -= std::exchange(begin_, 0);
      if (end_ == received_.size()) {
        if (end_ > kPieceBytes + 2 * header_bytes_max_)
          return Fail(ErrorCode::kCorrupt, "a line of the answer never ends");
        received_.resize(end_ + header_bytes_max_);
      }
      MP_ASSIGN_OR_RETURN(const size_t count, socket_.Receive(std::span(received_).subspan(end_), until_));
      progress.answered = progress.answered || count > 0;
      end_ += count;
      if (count == 0) {
        stream_ended = true;
        if (!parser->got_some()) return Fail(ErrorCode::kUnavailable, "the server closed the connection unanswered");
        boost::beast::error_code error;
        parser->put_eof(error);
        if (error) return Fail(ErrorCode::kUnavailable, "the server ended its answer early");
      }
    }
    if (cancelled_) break;
    if (parser->get().result_int() / 100 != 1) {
      TakeHead(*parser);
      reusable_ = parser->keep_alive() && begin_ == end_;
      break;
    }
    if (answers == kInterimAnswersMax) return Fail(ErrorCode::kCorrupt, "the server sends interim answers only");
  }
  return std::move(response_);
}

Result<bool> AnswerReader::Step(Parser& parser) {
  auto& body = parser.get().body();
  body.data = piece_.data();
  body.size = piece_.size();
  boost::beast::error_code error;
  size_t consumed = 0;
  if (begin_ < end_) {
    consumed = parser.put(boost::asio::const_buffer(received_.data() + begin_, end_ - begin_), error);
    begin_ += consumed;
  }
  const size_t delivered = piece_.size() - body.size;
  if (error == http::error::need_buffer) error = {};
  const bool starving = error == http::error::need_more;
  if (error && !starving) {
    return Fail(ErrorCode::kCorrupt, fmt::format("the answer is not HTTP: {}", error.message()));
  }
  if (delivered > 0) {
    TakeHead(parser);
    MP_RETURN_IF_ERROR(Deliver(std::string_view(piece_.data(), delivered), parser));
  }
  return consumed > 0 || delivered > 0 || parser.is_done();
}

void AnswerReader::TakeHead(const Parser& parser) {
  if (std::exchange(head_taken_, true)) return;
  response_.status = static_cast<int>(parser.get().result_int());
  for (const auto& field : parser.get()) {
    response_.headers.Add(std::string(field.name_string()), std::string(field.value()));
  }
}

Result<void> AnswerReader::Deliver(std::string_view bytes, const Parser& parser) {
  body_bytes_ += bytes.size();
  if (body_bytes_ > body_bytes_max_) {
    return Fail(ErrorCode::kQuota, fmt::format("the answer is larger than the {} bytes allowed", body_bytes_max_));
  }
  if (call_.on_body && parser.get().result_int() / 100 == 2) {
    cancelled_ = !call_.on_body(bytes);
  } else {
    response_.body += bytes;
  }
  return {};
}

}  // namespace

class HttpClient::Impl {
 public:
  Impl(HttpEndpoint endpoint, HttpClientOptions options)
      : endpoint_(std::move(endpoint)), options_(std::move(options)) {}

  Result<HttpResponse> Send(const HttpCall& call, const Deadline& deadline) EXCLUDES(mutex_);
  const HttpEndpoint& endpoint() const { return endpoint_; }
  uint32_t IdleConnections() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return static_cast<uint32_t>(idle_.size());
  }

 private:
  Result<BlockingSocket> Connect(RealTime until) const;
  std::optional<BlockingSocket> TakeIdle() EXCLUDES(mutex_);
  void Keep(BlockingSocket socket) EXCLUDES(mutex_);
  std::string RequestHead(const HttpCall& call) const;
  Result<HttpResponse> Exchange(BlockingSocket& socket, const HttpCall& call, RealTime until, HttpProgress& progress,
                                bool& reusable) const;

  const HttpEndpoint endpoint_;
  const HttpClientOptions options_;
  mutable Mutex mutex_;
  std::vector<BlockingSocket> idle_ GUARDED_BY(mutex_);  // last used at the back
};

Result<HttpResponse> HttpClient::Impl::Send(const HttpCall& call, const Deadline& deadline) {
  HttpProgress ignored;
  HttpProgress& progress = call.progress != nullptr ? *call.progress : ignored;
  const RealTime until = RealTimeOf(deadline.Left());
  const auto context = [&](Error error) {
    return WithContext(std::move(error), fmt::format("{} {}{}", call.method, endpoint_.ToString(), call.target));
  };
  progress = {};
  if (deadline.Passed()) return Fail(context(Error{ErrorCode::kDeadlineExceeded, "the time allowed is over"}));
  for (int attempt = 0;; ++attempt) {
    progress = {};
    std::optional<BlockingSocket> kept;
    if (!call.fresh_connection && attempt == 0) kept = TakeIdle();
    const bool was_kept = kept.has_value();
    if (!was_kept) {
      Result<BlockingSocket> connected = Connect(until);
      if (!connected) return Fail(context(connected.error()));
      kept.emplace(std::move(*connected));
    }
    bool reusable = false;
    Result<HttpResponse> response = Exchange(*kept, call, until, progress, reusable);
    if (response) {
      if (reusable) Keep(std::move(*kept));
      return response;
    }
    const bool server_hung_up = response.error().code == ErrorCode::kUnavailable && !progress.answered;
    if (was_kept && server_hung_up && call.method == "GET") continue;
    return Fail(context(response.error()));
  }
}

Result<HttpResponse> HttpClient::Impl::Exchange(BlockingSocket& socket, const HttpCall& call, RealTime until,
                                                HttpProgress& progress, bool& reusable) const {
  const std::string head = RequestHead(call);
  bool all_sent = true;
  for (const std::string_view part : {std::string_view(head), std::string_view(call.body)}) {
    if (!all_sent) break;
    progress.sent = true;
    MP_ASSIGN_OR_RETURN(const size_t sent, socket.SendUntilAnswered(part, until));
    all_sent = sent == part.size();
  }
  const uint64_t body_bytes_max = call.response_bytes_max != 0 ? call.response_bytes_max : options_.response_bytes_max;
  AnswerReader reader(socket, call, body_bytes_max, options_.response_header_bytes_max, until);
  Result<HttpResponse> response = reader.Read(progress);
  progress.complete = response.has_value();
  reusable = all_sent && !call.fresh_connection && reader.Reusable();
  return response;
}

std::string HttpClient::Impl::RequestHead(const HttpCall& call) const {
  std::string head = fmt::format("{} {}{} HTTP/1.1\r\n", call.method, endpoint_.base_path, call.target);
  const bool v6 = endpoint_.host.find(':') != std::string::npos;
  AppendHeaderField(head, "Host",
                    endpoint_.unix_socket_path.empty()
                        ? fmt::format("{}{}{}:{}", v6 ? "[" : "", endpoint_.host, v6 ? "]" : "", endpoint_.port)
                        : "localhost");
  AppendHeaderField(head, "User-Agent", "moonpool/" MOONPOOL_VERSION);
  if (!options_.bearer_token.empty()) AppendHeaderField(head, "Authorization", "Bearer " + options_.bearer_token);
  for (const HttpHeaders* headers : {&options_.headers, &call.headers}) {
    for (const auto& [name, value] : headers->fields()) AppendHeaderField(head, name, value);
  }
  if (!call.body.empty()) AppendHeaderField(head, "Content-Type", call.content_type);
  if (!call.body.empty() || (call.method != "GET" && call.method != "HEAD")) {
    AppendHeaderField(head, "Content-Length", std::to_string(call.body.size()));
  }
  if (call.fresh_connection) AppendHeaderField(head, "Connection", "close");
  head += "\r\n";
  return head;
}

Result<BlockingSocket> HttpClient::Impl::Connect(RealTime until) const {
  const RealTime soon = std::min(until, RealTimeOf(options_.connect_timeout));
  // Not answering at all within the connect limit is unavailability; only the caller's own time is a deadline.
  const auto meaning = [&](Result<BlockingSocket> result) {
    if (!result && result.error().code == ErrorCode::kDeadlineExceeded && soon < until) {
      result.error().code = ErrorCode::kUnavailable;
    }
    return result;
  };
  if (!endpoint_.unix_socket_path.empty()) {
    return meaning(BlockingSocket::ConnectUnix(endpoint_.unix_socket_path, soon));
  }
  if (endpoint_.host != "localhost") return meaning(BlockingSocket::ConnectTcp(endpoint_.host, endpoint_.port, soon));
  Result<BlockingSocket> v4 = BlockingSocket::ConnectTcp("127.0.0.1", endpoint_.port, soon);
  if (v4) return v4;
  Result<BlockingSocket> v6 = BlockingSocket::ConnectTcp("::1", endpoint_.port, soon);
  return v6 ? std::move(v6) : meaning(std::move(v4));
}

std::optional<BlockingSocket> HttpClient::Impl::TakeIdle() {
  while (true) {
    std::optional<BlockingSocket> socket;
    {
      MutexLock lock(mutex_);
      if (idle_.empty()) return std::nullopt;
      socket.emplace(std::move(idle_.back()));
      idle_.pop_back();
    }
    if (socket->QuietAndOpen()) return socket;
  }
}

void HttpClient::Impl::Keep(BlockingSocket socket) {
  std::vector<BlockingSocket> closed;  // outside the lock
  MutexLock lock(mutex_);
  idle_.push_back(std::move(socket));
  while (idle_.size() > options_.idle_connections_max) {
    closed.push_back(std::move(idle_.front()));
    idle_.erase(idle_.begin());
  }
}

HttpClient::HttpClient(HttpEndpoint endpoint, HttpClientOptions options)
    : impl_(std::make_unique<Impl>(std::move(endpoint), std::move(options))) {}
HttpClient::~HttpClient() = default;

Result<HttpResponse> HttpClient::Send(const HttpCall& call, const Deadline& deadline) {
  return impl_->Send(call, deadline);
}
const HttpEndpoint& HttpClient::endpoint() const { return impl_->endpoint(); }
uint32_t HttpClient::IdleConnections() const { return impl_->IdleConnections(); }

}  // namespace moonpool::net
