#include "net/blocking_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace moonpool::net {
namespace {

Error Broken(int error, std::string_view doing) {
  return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", doing, std::strerror(error))};
}

}  // namespace

Result<BlockingSocket> BlockingSocket::ConnectTcp(const std::string& address, uint16_t port, RealTime until) {
  const std::string name = fmt::format("{}:{}", address, port);
  sockaddr_in v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    return Connect(AF_INET, &v4, sizeof(v4), name, until);
  }
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    return Connect(AF_INET6, &v6, sizeof(v6), name, until);
  }
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is not a numeric address", address));
}

Result<BlockingSocket> BlockingSocket::ConnectUnix(const std::string& path, RealTime until) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("the unix socket path {} is empty or too long", path));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return Connect(AF_UNIX, &address, sizeof(address), path, until);
}

Result<BlockingSocket> BlockingSocket::Connect(int family, const void* address, unsigned size, const std::string& name,
                                               RealTime until) {
  const std::string doing = fmt::format("cannot connect to {}", name);
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Fail(Broken(errno, doing));
  BlockingSocket socket(fd);
  if (family != AF_UNIX) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  if (::connect(fd, static_cast<const sockaddr*>(address), size) != 0) {
    if (errno != EINPROGRESS) return Fail(Broken(errno, doing));
    if (Result<short> ready = socket.Poll(POLLOUT, until); !ready) return Fail(WithContext(ready.error(), doing));
    int error = 0;
    socklen_t error_size = sizeof(error);
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size);
    if (error != 0) return Fail(Broken(error, doing));
  }
  return socket;
}

BlockingSocket::BlockingSocket(BlockingSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

BlockingSocket& BlockingSocket::operator=(BlockingSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

BlockingSocket::~BlockingSocket() {
  if (fd_ >= 0) ::close(fd_);
}

Result<short> BlockingSocket::Poll(short events, RealTime until) const {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) return Fail(ErrorCode::kDeadlineExceeded, "the time allowed is over");
    pollfd entry{.fd = fd_, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1'000'000)));
    if (ready > 0) return entry.revents;
    if (ready < 0 && errno != EINTR) return Fail(Broken(errno, "cannot wait for the peer"));
  }
}

Result<size_t> BlockingSocket::SendUntilAnswered(std::string_view bytes, RealTime until) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    MP_ASSIGN_OR_RETURN(const short ready, Poll(POLLOUT | POLLIN, until));
    if ((ready & POLLIN) != 0) return sent;
    const ssize_t count = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno != EAGAIN && errno != EINTR) {
      return Fail(Broken(errno, "the peer stopped listening"));
    }
  }
  return sent;
}

Result<size_t> BlockingSocket::Receive(std::span<char> into, RealTime until) {
  while (true) {
    MP_RETURN_IF_ERROR(Poll(POLLIN, until));
    const ssize_t count = ::recv(fd_, into.data(), into.size(), 0);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EAGAIN && errno != EINTR) return Fail(Broken(errno, "the connection broke"));
  }
}

bool BlockingSocket::QuietAndOpen() const {
  char byte = 0;
  const ssize_t count = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count < 0 && (errno == EAGAIN || errno == EINTR);
}

}  // namespace moonpool::net
