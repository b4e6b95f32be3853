// UnixSocketGuard: the right to serve on one unix socket path. Held by whoever listens there (HttpServer; the
// gRPC server, which would otherwise take the path from a running instance). One owner, one thread.
//
// Exclusive through an flock on PATH.lock, which ends with the process however that dies; the lock file stays. A
// socket left behind by a killed process is replaced; one that somebody answers on, and anything that is not a
// socket, is refused and left alone. A socket is bound in a private directory and renamed, so it is never reachable
// with wider permissions than 0600.
#pragma once

#include <cstdint>
#include <string>

#include "moonpool/result.h"

namespace moonpool::net {

class UnixSocketGuard {
 public:
  // The longest path that fits a socket address.
  static constexpr size_t kPathBytesMax = 107;

  // Errors: kAlreadyExists (in use, or not a socket; the message names the path), kInvalidArgument (empty, too long,
  // NUL inside), kNotFound (no such directory), kPermission, kIo.
  static Result<UnixSocketGuard> Acquire(const std::string& path);

  UnixSocketGuard(UnixSocketGuard&& other) noexcept;
  UnixSocketGuard& operator=(UnixSocketGuard&&) = delete;
  // Removes the socket if it is still the one that was published here, then gives the lock back.
  ~UnixSocketGuard();

  const std::string& path() const { return path_; }
  // Where to bind: a name that nobody else can reach. For servers that insist on binding by themselves, between
  // Acquire and Publish; gRPC is given "unix:" + BindPath().
  const std::string& BindPath() const { return bind_path_; }
  // Gives what is bound at BindPath() mode 0600 and its real name, in one step for clients. Once.
  Result<void> Publish();
  // Binds, listens, publishes. The caller closes the descriptor (non-blocking, close-on-exec).
  Result<int> Listen(int backlog);
  // Removes the name now: no new clients. The lock stays until the end.
  void Unpublish();

 private:
  UnixSocketGuard() = default;
  void RemovePrivateDirectory();

  std::string path_;
  std::string private_directory_;
  std::string bind_path_;
  int lock_fd_ = -1;
  int directory_fd_ = -1;  // keeps a /proc/self/fd bind path alive; -1 if the plain path was short enough
  bool published_ = false;
  uint64_t device_ = 0;  // of the published socket
  uint64_t inode_ = 0;
};

}  // namespace moonpool::net
