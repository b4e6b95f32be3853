// Bare sockets for tests of HTTP code: RawSocket says exactly the bytes it is told to; RawServer plays a server
// whose every connection is a function of the test. Blocking, with a generous limit so that a hang fails the test.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"

namespace moonpool::testing {

class RawSocket {
 public:
  static RawSocket ToPort(uint16_t port) {
    RawSocket raw(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    raw.connected_ = ::connect(raw.fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    return raw;
  }
  static RawSocket ToPath(const std::string& path) {
    RawSocket raw(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    MP_CHECK(path.size() < sizeof(address.sun_path));
    std::memcpy(address.sun_path, path.data(), path.size());
    raw.connected_ = ::connect(raw.fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    return raw;
  }
  // Takes the descriptor over.
  explicit RawSocket(int fd) : fd_(fd) {
    MP_CHECK(fd_ >= 0);
    timeval limit{.tv_sec = 100, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  RawSocket(RawSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), unread_(std::move(other.unread_)) {}
  RawSocket& operator=(RawSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(connected_, other.connected_);
    std::swap(unread_, other.unread_);
    return *this;
  }
  ~RawSocket() { Close(); }

  bool connected() const { return connected_; }
  // False once the peer has gone.
  bool Say(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }
  // Everything up to and with `mark`; shorter if the stream ends before.
  std::string HearUntil(std::string_view mark) {
    while (true) {
      const size_t found = unread_.find(mark);
      if (found != std::string::npos) {
        std::string heard = unread_.substr(0, found + mark.size());
        unread_.erase(0, heard.size());
        return heard;
      }
      if (!More()) return std::exchange(unread_, {});
    }
  }
  std::string HearBytes(size_t count) {
    while (unread_.size() < count && More()) {
    }
    std::string heard = unread_.substr(0, count);
    unread_.erase(0, heard.size());
    return heard;
  }
  // Everything until the peer ends the stream (or resets it).
  std::string HearAll() {
    while (More()) {
    }
    return std::exchange(unread_, {});
  }
  // True if the peer ends the stream, also by a reset; false if it says something or the limit passes.
  bool HearEnd() { return unread_.empty() && !More() && ended_; }

  void EndSending() { ::shutdown(fd_, SHUT_WR); }
  // The peer sees a reset instead of an end.
  void Reset() {
    const linger hard{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    Close();
  }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  bool More() {
    char bytes[16384];
    const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (count <= 0) ended_ = count == 0 || errno == ECONNRESET || errno == EPIPE;
    if (count > 0) unread_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }

  int fd_ = -1;
  bool connected_ = true;
  bool ended_ = false;
  std::string unread_;
};

class RawServer {
 public:
  // `serve` runs for one connection after another, with their number from 0.
  explicit RawServer(std::function<void(RawSocket&, int)> serve)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    MP_CHECK(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(fd_, 16) == 0);
    MP_CHECK(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, serve = std::move(serve)] {
      for (int number = 0;; ++number) {
        const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) return;
        RawSocket socket(fd);
        ++connections_;
        serve(socket, number);
      }
    });
  }
  ~RawServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  uint16_t port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int connections() const { return connections_; }

 private:
  int fd_;
  uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::thread thread_;
};

}  // namespace moonpool::testing
