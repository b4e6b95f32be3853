// ScratchDirectory: a fresh folder for slot files, the store and logs, in memory (/dev/shm) where that exists, else
// where temporary files go. Removed with everything in it at the end. Owned by the SwarmStage; one thread.
//
// A process that is killed leaves its folder behind: every folder holds a locked file as long as its process lives, and
// the next ScratchDirectory removes those whose lock is free.
#pragma once

#include "base/file_system.h"
#include "base/rng.h"
#include "moonpool/result.h"

namespace moonpool::app {

class ScratchDirectory {
 public:
  // kIo, kNoSpace, kPermission: neither place took a folder. `parents`: where to try, in this order.
  static Result<ScratchDirectory> Make(Rng& rng, const std::vector<Path>& parents = DefaultParents());
  static std::vector<Path> DefaultParents();

  ScratchDirectory(ScratchDirectory&& other) noexcept;
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;
  ~ScratchDirectory();

  const Path& path() const { return path_; }

 private:
  ScratchDirectory(Path path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  Path path_;
  int lock_fd_;
};

}  // namespace moonpool::app
