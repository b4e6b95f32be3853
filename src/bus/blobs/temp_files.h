// TempFiles: the files that one opened store has in the making under tmp/, and the proof that it lives.
//
// Each opened store is an owner with a random id. It holds a flock on tmp/OWNER.owner for as long as it lives, and
// that file also tells what the owner has reserved (QuotaLedger). Whoever finds an owner file that is not locked
// sweeps everything of that owner; a file whose name is not of our form is foreign and never touched.
// Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "bus/blobs/directory_layout.h"
#include "bus/blobs/directory_lock.h"

namespace moonpool::bus {

// A name in tmp/ for one file; what stands there at the end goes away.
class TempFile;

class TempFiles {
 public:
  static Result<std::unique_ptr<TempFiles>> Open(FileSystem& files, DirectoryLayout layout, Rng& rng,
                                                 const DirectoryLock::Hold& hold);
  ~TempFiles();

  const std::string& owner() const { return owner_; }
  File& owner_file() { return *owner_file_; }

  // A name that nobody else uses, now or ever.
  TempFile Next(std::string_view what);

  // Removes what owners left that are gone, and own files that could not be removed when they should have been.
  // Answers the number of files removed.
  Result<uint64_t> SweepLeftovers(const DirectoryLock::Hold& hold);

 private:
  friend class TempFile;
  TempFiles(FileSystem& files, DirectoryLayout layout, std::string owner, std::unique_ptr<File> owner_file)
      : files_(files), layout_(std::move(layout)), owner_(std::move(owner)), owner_file_(std::move(owner_file)) {}
  Path OwnerPath(const std::string& owner) const { return layout_.Temp() / (owner + ".owner"); }
  bool Alive(const std::string& owner);
  void Discard(const Path& path) EXCLUDES(mutex_);

  FileSystem& files_;
  const DirectoryLayout layout_;
  const std::string owner_;
  const std::unique_ptr<File> owner_file_;
  std::atomic<uint64_t> next_{0};  // only has to be unique
  Mutex mutex_;
  std::vector<Path> undeleted_ GUARDED_BY(mutex_);
};

class TempFile {
 public:
  TempFile(TempFile&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)), path_(std::move(other.path_)) {}
  TempFile& operator=(TempFile&&) = delete;
  ~TempFile() {
    if (owner_ != nullptr) owner_->Discard(path_);
  }
  const Path& path() const { return path_; }
  // The file was renamed away: nothing is left to remove.
  void Release() { owner_ = nullptr; }

 private:
  friend class TempFiles;
  TempFile(TempFiles& owner, Path path) : owner_(&owner), path_(std::move(path)) {}
  TempFiles* owner_;  // outlives every file it names
  Path path_;
};

}  // namespace moonpool::bus
