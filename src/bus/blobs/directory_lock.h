// DirectoryLock: one holder at a time among all threads of all processes that share a store directory. Held while
// names or sums change, never while payload bytes move, so a holder is done in milliseconds.
//
// A flock on ROOT/lock, which the kernel drops with its process, plus a flag for the threads of this one (a flock
// does not tell them apart). Thread-safe.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"

namespace moonpool::bus {

class DirectoryLock {
 public:
  // The proof of holding; functions that need the lock take one by reference.
  class Hold {
   public:
    Hold(Hold&& other) noexcept : lock_(std::exchange(other.lock_, nullptr)) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (lock_ != nullptr) lock_->Release();
    }

   private:
    friend class DirectoryLock;
    explicit Hold(DirectoryLock& lock) : lock_(&lock) {}
    DirectoryLock* lock_;
  };

  // `wait_max` bounds every Acquire: a holder that was stopped must not stop everybody else for ever.
  static Result<std::unique_ptr<DirectoryLock>> Open(FileSystem& files, const Clock& clock, const Path& path,
                                                     Duration wait_max);

  // kBusy after `wait_max`.
  Result<Hold> Acquire() EXCLUDES(mutex_);

 private:
  DirectoryLock(const Clock& clock, Duration wait_max, std::unique_ptr<File> file)
      : clock_(clock), wait_max_(wait_max), file_(std::move(file)) {}
  void Release() EXCLUDES(mutex_);

  const Clock& clock_;
  const Duration wait_max_;
  const std::unique_ptr<File> file_;
  Mutex mutex_;
  CondVar released_;
  bool held_ GUARDED_BY(mutex_) = false;
};

}  // namespace moonpool::bus
