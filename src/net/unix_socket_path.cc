#include "net/unix_socket_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace moonpool::net {
namespace {

Error FromErrno(int error, std::string_view doing, const std::string& path) {
  ErrorCode code = ErrorCode::kIo;
  if (error == ENOENT || error == ENOTDIR) code = ErrorCode::kNotFound;
  if (error == EACCES || error == EPERM || error == EROFS) code = ErrorCode::kPermission;
  if (error == ENOSPC || error == EDQUOT) code = ErrorCode::kNoSpace;
  return Error{code, fmt::format("cannot {} {}: {}", doing, path, std::strerror(error))};
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  MP_CHECK(path.size() < sizeof(address.sun_path));
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Whether somebody accepts connections there. Asked without blocking: a full backlog counts as yes.
bool SomebodyListens(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return true;  // nothing can be said, so nothing is taken away
  const sockaddr_un address = AddressOf(path);
  const int result = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  ::close(fd);
  return result == 0 || (error != ECONNREFUSED && error != ENOENT);
}

}  // namespace

Result<UnixSocketGuard> UnixSocketGuard::Acquire(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "the path of a unix socket is empty or holds a NUL byte");
  }
  if (path.size() > kPathBytesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the unix socket path {} has {} bytes; at most {} fit", path, path.size(), kPathBytesMax));
  }
  UnixSocketGuard guard;
  guard.path_ = path;

  const std::string lock_path = path + ".lock";
  guard.lock_fd_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (guard.lock_fd_ < 0) return Fail(FromErrno(errno, "open the lock file", lock_path));
  if (::flock(guard.lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Fail(FromErrno(errno, "lock", lock_path));
    return Fail(ErrorCode::kAlreadyExists,
                fmt::format("the unix socket {} is in use by another process, which holds {}", path, lock_path));
  }

  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return Fail(ErrorCode::kAlreadyExists,
                  fmt::format("{} exists and is not a socket; it is left alone, choose another path", path));
    }
    if (SomebodyListens(path)) {
      return Fail(ErrorCode::kAlreadyExists, fmt::format("another program listens on the unix socket {}", path));
    }
  } else if (errno != ENOENT) {
    return Fail(FromErrno(errno, "look at", path));
  }

  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  std::string directory = (slash == std::string::npos ? "" : parent) + ".mpXXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) return Fail(FromErrno(errno, "make a directory in", parent));
  guard.private_directory_ = directory;
  guard.bind_path_ = directory + "/s";
  if (guard.bind_path_.size() > kPathBytesMax) {
    guard.directory_fd_ = ::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (guard.directory_fd_ < 0) return Fail(FromErrno(errno, "open", directory));
    guard.bind_path_ = fmt::format("/proc/self/fd/{}/s", guard.directory_fd_);
  }
  return guard;
}

UnixSocketGuard::UnixSocketGuard(UnixSocketGuard&& other) noexcept
    : path_(std::move(other.path_)),
      private_directory_(std::exchange(other.private_directory_, {})),
      bind_path_(std::move(other.bind_path_)),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      directory_fd_(std::exchange(other.directory_fd_, -1)),
      published_(std::exchange(other.published_, false)),
      device_(other.device_),
      inode_(other.inode_) {}

UnixSocketGuard::~UnixSocketGuard() {
  Unpublish();
  RemovePrivateDirectory();
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

void UnixSocketGuard::RemovePrivateDirectory() {
  if (private_directory_.empty()) return;
  ::unlink((private_directory_ + "/s").c_str());
  ::rmdir(private_directory_.c_str());
  private_directory_.clear();
  if (directory_fd_ >= 0) ::close(std::exchange(directory_fd_, -1));
}

Result<void> UnixSocketGuard::Publish() {
  MP_CHECK(!published_ && !private_directory_.empty());
  const std::string bound = private_directory_ + "/s";
  struct stat info {};
  if (::lstat(bound.c_str(), &info) != 0) return Fail(FromErrno(errno, "look at", bound));
  if (::chmod(bound.c_str(), 0600) != 0) return Fail(FromErrno(errno, "restrict", bound));
  if (::rename(bound.c_str(), path_.c_str()) != 0) return Fail(FromErrno(errno, "publish a unix socket as", path_));
  published_ = true;
  device_ = info.st_dev;
  inode_ = info.st_ino;
  RemovePrivateDirectory();
  return {};
}

Result<int> UnixSocketGuard::Listen(int backlog) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Fail(FromErrno(errno, "make a unix socket for", path_));
  const sockaddr_un address = AddressOf(bind_path_);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 || ::listen(fd, backlog) != 0) {
    const int error = errno;
    ::close(fd);
    return Fail(FromErrno(error, "listen on", path_));
  }
  if (Result<void> published = Publish(); !published) {
    ::close(fd);
    return Fail(published.error());
  }
  return fd;
}

void UnixSocketGuard::Unpublish() {
  if (!std::exchange(published_, false)) return;
  struct stat info {};
  if (::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_) ::unlink(path_.c_str());
}

}  // namespace moonpool::net
