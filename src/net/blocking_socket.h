// BlockingSocket: one connected stream socket whose every call ends by a point in real time. One owner, one thread
// at a time. It polls the descriptor itself: a call that blocks its thread anyway needs no event loop beside it.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "moonpool/result.h"

namespace moonpool::net {

using RealTime = std::chrono::steady_clock::time_point;

class BlockingSocket {
 public:
  // `address` is numeric. Errors: kUnavailable, kDeadlineExceeded, kInvalidArgument.
  static Result<BlockingSocket> ConnectTcp(const std::string& address, uint16_t port, RealTime until);
  static Result<BlockingSocket> ConnectUnix(const std::string& path, RealTime until);

  BlockingSocket(BlockingSocket&& other) noexcept;
  BlockingSocket& operator=(BlockingSocket&& other) noexcept;
  ~BlockingSocket();

  // Sends until everything is gone or the peer has something to say; answers how much was sent. A peer that
  // speaks before it has heard everything has made up its mind. kUnavailable if it has closed.
  Result<size_t> SendUntilAnswered(std::string_view bytes, RealTime until);
  // At least one byte; 0 when the peer has ended the stream. kUnavailable on a reset.
  Result<size_t> Receive(std::span<char> into, RealTime until);
  // Whether a kept connection can be used: open, and nothing unasked-for came.
  bool QuietAndOpen() const;

 private:
  explicit BlockingSocket(int fd) : fd_(fd) {}
  static Result<BlockingSocket> Connect(int family, const void* address, unsigned size, const std::string& name,
                                        RealTime until);
  // The ready events among `events`; kDeadlineExceeded.
  Result<short> Poll(short events, RealTime until) const;

  int fd_ = -1;
};

}  // namespace moonpool::net
