#include "bus/blobs/temp_files.h"

#include <fmt/format.h>

#include <map>

#include "base/log.h"

namespace moonpool::bus {

Result<std::unique_ptr<TempFiles>> TempFiles::Open(FileSystem& files, DirectoryLayout layout, Rng& rng,
                                                   const DirectoryLock::Hold&) {
  // Under the directory's lock, because between making the file and locking it a sweeper would take it for a
  // dead owner's.
  std::string owner = rng.HexId(8);
  const Path path = layout.Temp() / (owner + ".owner");
  MP_ASSIGN_OR_RETURN(auto file, files.Create(path));
  if (auto locked = file->TryLock(File::LockKind::kExclusive); !locked) {
    (void)files.Remove(path);
    return Fail(std::move(locked).error());
  }
  return std::unique_ptr<TempFiles>(new TempFiles(files, std::move(layout), std::move(owner), std::move(file)));
}

TempFiles::~TempFiles() {
  std::vector<Path> undeleted;
  {
    MutexLock lock(mutex_);
    undeleted.swap(undeleted_);
  }
  for (const Path& path : undeleted) (void)files_.Remove(path);
  if (!files_.Remove(OwnerPath(owner_))) (void)files_.Remove(OwnerPath(owner_));
}

TempFile TempFiles::Next(std::string_view what) {
  return TempFile(*this, layout_.Temp() / fmt::format("{}.{}.{}", owner_, next_.fetch_add(1), what));
}

void TempFiles::Discard(const Path& path) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto removed = files_.Remove(path);
    if (removed || removed.error().code == ErrorCode::kNotFound) return;
  }
  log::Warn("temp_file_kept path={} until=next_sweep", path.string());
  MutexLock lock(mutex_);
  undeleted_.push_back(path);
}

bool TempFiles::Alive(const std::string& owner) {
  if (owner == owner_) return true;
  const auto file = files_.Open(OwnerPath(owner));
  // In doubt it lives: leaving a file is cheaper than taking one away from a writer.
  if (!file) return file.error().code != ErrorCode::kNotFound;
  const auto locked = (*file)->TryLock(File::LockKind::kShared);
  return !locked;
}

Result<uint64_t> TempFiles::SweepLeftovers(const DirectoryLock::Hold&) {
  std::vector<Path> undeleted;
  {
    MutexLock lock(mutex_);
    undeleted.swap(undeleted_);
  }
  for (const Path& path : undeleted) Discard(path);

  MP_ASSIGN_OR_RETURN(const auto names, files_.List(layout_.Temp()));
  std::map<std::string, std::vector<std::string>> by_owner;
  for (const std::string& name : names) {
    const auto parsed = ParseTempFileName(name);
    if (!parsed) continue;
    auto& owned = by_owner[parsed->owner];
    if (!parsed->is_owner_file) owned.push_back(name);
  }
  uint64_t removed = 0;
  for (const auto& [owner, owned] : by_owner) {
    if (Alive(owner)) continue;
    bool all = true;
    for (const std::string& name : owned) {
      const bool gone = files_.Remove(layout_.Temp() / name).has_value();
      removed += gone ? 1 : 0;
      all = all && gone;
    }
    // The owner file goes last: as long as it stands, what it reserved stays counted.
    if (all) {
      (void)files_.Remove(OwnerPath(owner));
      ++removed;
    }
    log::Info("leftovers_swept owner={} files={}", owner, owned.size());
  }
  return removed;
}

}  // namespace moonpool::bus
