#include "net/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "net/connection_table.h"
#include "net/http_connection.h"
#include "net/unix_socket_path.h"

namespace moonpool::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Stream = asio::generic::stream_protocol;

constexpr int kBacklog = 512;

struct TcpListener {
  int fd = -1;
  uint16_t port = 0;
};

// Without SO_REUSEPORT, so that the port is ours alone. SO_REUSEADDR only lets a restart ignore connections of the
// past that linger in the kernel.
Result<TcpListener> ListenTcp(const std::string& address, uint16_t port, bool allow_remote) {
  const bool v6 = address.find(':') != std::string::npos;
  const std::string name = fmt::format("{}{}{}:{}", v6 ? "[" : "", address, v6 ? "]" : "", port);
  sockaddr_storage storage{};
  socklen_t size = 0;
  bool loopback = false;
  if (v6) {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(storage);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    size = sizeof(in6);
    if (::inet_pton(AF_INET6, address.c_str(), &in6.sin6_addr) != 1) size = 0;
    loopback = IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
  } else {
    auto& in4 = reinterpret_cast<sockaddr_in&>(storage);
    in4.sin_family = AF_INET;
    in4.sin_port = htons(port);
    size = sizeof(in4);
    if (::inet_pton(AF_INET, address.c_str(), &in4.sin_addr) != 1) size = 0;
    loopback = (ntohl(in4.sin_addr.s_addr) >> 24) == 127;
  }
  if (size == 0) return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is not a numeric address", address));
  if (!loopback && !allow_remote) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} can be reached from other machines, which was not asked for", name));
  }
  const int fd = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Fail(ErrorCode::kIo, fmt::format("cannot make a socket for {}: {}", name, std::strerror(errno)));
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&storage), size) != 0 || ::listen(fd, kBacklog) != 0) {
    const int error = errno;
    ::close(fd);
    ErrorCode code = ErrorCode::kIo;
    if (error == EADDRINUSE) code = ErrorCode::kAlreadyExists;
    if (error == EACCES) code = ErrorCode::kPermission;
    if (error == EADDRNOTAVAIL) code = ErrorCode::kInvalidArgument;
    return Fail(code, fmt::format("cannot listen on {}: {}", name, std::strerror(error)));
  }
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  const uint16_t bound =
      v6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port : reinterpret_cast<sockaddr_in&>(storage).sin_port;
  return TcpListener{fd, ntohs(bound)};
}

}  // namespace

class HttpServer::Impl final : public ConnectionHost {
 public:
  Impl(const HttpServerOptions& options, HttpHandler& handler)
      : options_(options),
        handler_(handler),
        io_(options.threads),
        work_(asio::make_work_guard(io_)),
        table_(options.connections_max) {}
  ~Impl() override {
    // Replies may outlive the server; none may reach a connection of it from here on.
    for (const auto& connection : table_.All()) connection->Orphan();
  }

  Result<void> Listen();
  void StartThreads();
  void Stop(Duration grace) EXCLUDES(stop_mutex_);
  uint16_t port() const { return port_; }
  HttpServerStats Stats() const;

  const HttpServerOptions& options() const override { return options_; }
  HttpHandler& handler() override { return handler_; }
  bool stopping() const override { return stopping_; }
  bool ReserveBodyBytes(uint64_t bytes) override {
    if (body_bytes_.fetch_add(bytes) + bytes <= options_.bodies_bytes_max) return true;
    body_bytes_ -= bytes;
    return false;
  }
  void ReleaseBodyBytes(uint64_t bytes) override { body_bytes_ -= bytes; }
  void SetIdle(HttpConnection& connection, bool idle) override { table_.SetIdle(connection, idle); }
  void CountHandled() override { ++handled_; }
  void CountRejected() override { ++rejected_; }
  void Closed(HttpConnection& connection) override { table_.Remove(connection); }

 private:
  struct Acceptor {
    Acceptor(asio::io_context& io, bool is_unix)
        : strand(asio::make_strand(io)), socket(strand), retry(strand), via_unix_socket(is_unix) {}
    asio::strand<asio::io_context::executor_type> strand;
    asio::basic_socket_acceptor<Stream> socket;
    asio::steady_timer retry;
    const bool via_unix_socket;
  };

  Result<void> AddAcceptor(int fd, int family, bool via_unix_socket);
  void Accept(Acceptor& acceptor);
  void OnAccepted(HttpConnection::Socket socket, bool via_unix_socket);

  const HttpServerOptions options_;
  HttpHandler& handler_;  // outlives the server
  // Counters and flags that stand alone; nothing is ordered by them.
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> body_bytes_{0};
  std::atomic<uint64_t> accepted_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> handled_{0};
  std::atomic<uint64_t> rejected_{0};
  uint16_t port_ = 0;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  ConnectionTable table_;  // sockets in here and in the acceptors use io_, so they go before it
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::optional<UnixSocketGuard> unix_socket_;
  Mutex stop_mutex_;
  std::vector<std::thread> threads_ GUARDED_BY(stop_mutex_);
};

Result<void> HttpServer::Impl::Listen() {
  if (options_.address.empty() && options_.unix_socket_path.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "an HTTP server needs an address, a unix socket, or both");
  }
  if (options_.threads < 1 || options_.connections_max < 1) {
    return Fail(ErrorCode::kInvalidArgument, "an HTTP server needs at least one thread and one connection");
  }
  if (!options_.address.empty()) {
    MP_ASSIGN_OR_RETURN(const TcpListener listener, ListenTcp(options_.address, options_.port, options_.allow_remote));
    port_ = listener.port;
    const bool v6 = options_.address.find(':') != std::string::npos;
    MP_RETURN_IF_ERROR(AddAcceptor(listener.fd, v6 ? AF_INET6 : AF_INET, false));
  }
  if (!options_.unix_socket_path.empty()) {
    MP_ASSIGN_OR_RETURN(UnixSocketGuard guard, UnixSocketGuard::Acquire(options_.unix_socket_path));
    unix_socket_.emplace(std::move(guard));
    MP_ASSIGN_OR_RETURN(const int fd, unix_socket_->Listen(kBacklog));
    MP_RETURN_IF_ERROR(AddAcceptor(fd, AF_UNIX, true));
  }
  return {};
}

Result<void> HttpServer::Impl::AddAcceptor(int fd, int family, bool via_unix_socket) {
  auto acceptor = std::make_unique<Acceptor>(io_, via_unix_socket);
  error_code error;
  acceptor->socket.assign(Stream(family, family == AF_UNIX ? 0 : IPPROTO_TCP), fd, error);
  if (error) {
    ::close(fd);
    return Fail(ErrorCode::kIo, fmt::format("cannot watch a listening socket: {}", error.message()));
  }
  acceptors_.push_back(std::move(acceptor));
  return {};
}

void HttpServer::Impl::StartThreads() {
  for (const auto& acceptor : acceptors_) {
    asio::post(acceptor->strand, [this, raw = acceptor.get()] { Accept(*raw); });
  }
  MutexLock lock(stop_mutex_);
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] { io_.run(); });
  }
}

void HttpServer::Impl::Accept(Acceptor& acceptor) {
  if (stopping_) return;
  // Every connection gets a strand of its own.
  auto socket = std::make_shared<HttpConnection::Socket>(asio::make_strand(io_));
  acceptor.socket.async_accept(*socket, [this, &acceptor, socket](error_code error) {
    if (error == asio::error::operation_aborted || stopping_) return;
    if (!error) {
      OnAccepted(std::move(*socket), acceptor.via_unix_socket);
      return Accept(acceptor);
    }
    if (error == asio::error::no_descriptors || error == asio::error::no_buffer_space ||
        error == boost::system::errc::too_many_files_open_in_system) {
      // Out of descriptors: an idle connection gives one back. The pause keeps this from spinning meanwhile.
      log::Warn("http_accept_failed why=\"{}\" evicted={}", error.message(), table_.EvictIdle());
      acceptor.retry.expires_after(std::chrono::milliseconds(50));
      acceptor.retry.async_wait([this, &acceptor](error_code stopped) {
        if (!stopped) Accept(acceptor);
      });
      return;
    }
    Accept(acceptor);  // the client gave up before it was accepted
  });
}

void HttpServer::Impl::OnAccepted(HttpConnection::Socket socket, bool via_unix_socket) {
  ++accepted_;
  if (!via_unix_socket) {
    const int on = 1;
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  std::shared_ptr<HttpConnection> connection = HttpConnection::Make(std::move(socket), via_unix_socket, *this);
  switch (table_.Admit(connection)) {
    case ConnectionTable::Admission::kServe: connection->Start(); break;
    case ConnectionTable::Admission::kRefuse:
      ++refused_;
      connection->StartRefusing();
      break;
    case ConnectionTable::Admission::kDrop: ++refused_; break;
  }
}

void HttpServer::Impl::Stop(Duration grace) {
  MutexLock lock(stop_mutex_);
  if (stopping_.exchange(true)) return;
  if (unix_socket_) unix_socket_->Unpublish();
  for (const auto& acceptor : acceptors_) {
    asio::post(acceptor->strand, [raw = acceptor.get()] {
      error_code ignored;
      raw->socket.close(ignored);
      raw->retry.cancel();
    });
  }
  if (!threads_.empty()) {
    const TimePoint now = std::chrono::steady_clock::now();
    for (const auto& connection : table_.All()) connection->PostStop();
    table_.AwaitEmpty(now + grace);
    for (const auto& connection : table_.All()) connection->PostClose();
  }
  work_.reset();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

HttpServerStats HttpServer::Impl::Stats() const {
  return HttpServerStats{.connections_open = table_.Open(),
                         .connections_accepted = accepted_,
                         .connections_evicted = table_.Evicted(),
                         .connections_refused = refused_,
                         .requests_handled = handled_,
                         .requests_rejected = rejected_};
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(Duration::zero()); }

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options, HttpHandler& handler) {
  auto impl = std::make_unique<Impl>(options, handler);
  MP_RETURN_IF_ERROR(impl->Listen());
  impl->StartThreads();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const { return impl_->port(); }
HttpServerStats HttpServer::Stats() const { return impl_->Stats(); }
void HttpServer::Stop(Duration grace) { impl_->Stop(grace); }

}  // namespace moonpool::net
