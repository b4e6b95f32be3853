#include "app/swarm/scratch_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace moonpool::app {
namespace {

constexpr std::string_view kNamePrefix = "moonpool-swarm-";
constexpr std::string_view kLockName = "lock";

// The lock file of a folder, locked; -1 if it is somebody else's or cannot be had.
int LockOf(const Path& folder, int flags) {
  const Path name = folder / kLockName;
  const int fd = open(name.c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  struct stat held {};
  struct stat named {};
  // The name may have been removed, and its lock with it, before we got the lock.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &held) == 0 && lstat(name.c_str(), &named) == 0 &&
      held.st_ino == named.st_ino && held.st_uid == geteuid()) {
    return fd;
  }
  close(fd);
  return -1;
}

void RemoveLeftovers(const Path& parent) {
  std::error_code ignored;  // what cannot be read or removed stays where it is
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(kNamePrefix)) continue;
    const int fd = LockOf(entry.path(), 0);
    if (fd < 0) continue;
    std::filesystem::remove_all(entry.path(), ignored);
    close(fd);
  }
}

}  // namespace

std::vector<Path> ScratchDirectory::DefaultParents() {
  std::error_code none;
  const Path temporary = std::filesystem::temp_directory_path(none);
  return {"/dev/shm", none ? Path("/tmp") : temporary};
}

Result<ScratchDirectory> ScratchDirectory::Make(Rng& rng, const std::vector<Path>& parents) {
  std::string why;
  for (const Path& parent : parents) {
    RemoveLeftovers(parent);
    const Path path = parent / fmt::format("{}{}", kNamePrefix, rng.HexId(6));
    if (mkdir(path.c_str(), 0700) != 0) {
      why += fmt::format("; {}: {}", path.string(), std::strerror(errno));
      continue;
    }
    const int fd = LockOf(path, O_CREAT);
    if (fd >= 0) return ScratchDirectory(path, fd);
    why += fmt::format("; {}: cannot be locked", path.string());
    rmdir(path.c_str());
  }
  return Fail(ErrorCode::kIo, "no place for a temporary folder" + why);
}

ScratchDirectory::ScratchDirectory(ScratchDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

ScratchDirectory::~ScratchDirectory() {
  if (lock_fd_ < 0) return;
  std::error_code ignored;  // a leftover is removed by the next run
  std::filesystem::remove_all(path_, ignored);
  close(lock_fd_);
}

}  // namespace moonpool::app
