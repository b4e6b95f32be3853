// SlotDirectory: the bus's right to one server's slot directory. Two buses on one directory would sweep each other's
// files, so it is exclusive, by a flock on DIR/.moonpool.lock, which ends with the process however that dies.
// What stands in the directory is other people's prompts: it must belong to this user and be closed to all others
// (field report B62 e). Owned by the bus command, one thread.
#pragma once

#include <memory>

#include "base/file_system.h"
#include "moonpool/result.h"

namespace moonpool::app {

class SlotDirectory {
 public:
  // Makes the directory if it is absent (0700), takes the lock, sweeps files that a bus left behind when it died; no
  // other file is touched. A directory that others may only read is closed to them. Errors name the directory:
  // kAlreadyExists (another bus has it), kPermission (another owner, others may write, an access list), kUnsupported
  // (a symbolic link, or no directory), kIo.
  static Result<std::unique_ptr<SlotDirectory>> Acquire(FileSystem& files, const Path& path);

  // Whether Acquire would accept the directory as it is, without touching anything. kNotFound where it is absent;
  // kFailedPrecondition where Acquire would put it right (others may read in it); the rest as Acquire.
  static Result<void> Inspect(FileSystem& files, const Path& path);

  const Path& path() const { return path_; }

 private:
  SlotDirectory(Path path, std::unique_ptr<File> lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  const Path path_;
  const std::unique_ptr<File> lock_;  // held as long as this lives; the file itself stays
};

}  // namespace moonpool::app
