#include "bus/blobs/directory_lock.h"

#include <algorithm>

namespace moonpool::bus {
namespace {
// Another process cannot wake us, so its release is polled for.
constexpr Duration kPoll = std::chrono::milliseconds(1);
}  // namespace

Result<std::unique_ptr<DirectoryLock>> DirectoryLock::Open(FileSystem& files, const Clock& clock, const Path& path,
                                                           Duration wait_max) {
  MP_ASSIGN_OR_RETURN(auto file, files.OpenOrCreate(path));
  return std::unique_ptr<DirectoryLock>(new DirectoryLock(clock, wait_max, std::move(file)));
}

Result<DirectoryLock::Hold> DirectoryLock::Acquire() {
  const TimePoint give_up = clock_.Now() + wait_max_;
  MutexLock lock(mutex_);
  while (true) {
    if (!held_) {
      auto locked = file_->TryLock(File::LockKind::kExclusive);
      if (locked) {
        held_ = true;
        return Hold(*this);
      }
      if (locked.error().code != ErrorCode::kBusy) return Fail(std::move(locked).error());
    }
    const TimePoint now = clock_.Now();
    if (now >= give_up) {
      return Fail(ErrorCode::kBusy, "the store directory stayed locked by another bus; is one of them stopped?");
    }
    clock_.WaitUntil(released_, mutex_, std::min(give_up, now + kPoll));
  }
}

void DirectoryLock::Release() {
  MutexLock lock(mutex_);
  file_->Unlock();
  held_ = false;
  released_.NotifyOne();
}

}  // namespace moonpool::bus
