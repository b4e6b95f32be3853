// ModelDigests: SHA-256 over the whole model file (all shards), remembered by device, inode, size and nanosecond
// times in the state root, taken again when any of them moved (decision 6, field report B02).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "moonpool/result.h"

namespace moonpool::bus {

// Thread-safe: several files may be hashed at once, no lock is held meanwhile.
class ModelDigests {
 public:
  // `memory` is a file in the state root; it is read and rewritten whole, and ignored if damaged. Everything given
  // outlives this object.
  ModelDigests(FileSystem& files, const Clock& clock, Rng& rng, Path memory);

  // Bytes hashed so far and in all; for a progress bar. May be null. Not called for what is remembered.
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // kFailedPrecondition if a file changed or was replaced while it was read: the digest of one file, never a mix
  // and never of a file that is no longer there. kInvalidArgument without shards.
  Result<Digest256> Of(const std::vector<Path>& shards, const Progress& progress = {}) EXCLUDES(mutex_);

 private:
  // What tells one content of a file from another. The change time is the one that nobody can set back.
  struct FileKey {
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t size_bytes = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    auto operator<=>(const FileKey&) const = default;
  };
  using Memory = std::map<FileKey, Digest256>;

  static FileKey KeyOf(const FileInfo& info);
  Result<Digest256> OfFile(const Path& path, const FileInfo& info, const std::function<void(uint64_t)>& advance)
      EXCLUDES(mutex_);
  std::optional<Digest256> Recall(const FileKey& key) EXCLUDES(mutex_);
  void Remember(const FileKey& key, const Digest256& digest) EXCLUDES(mutex_);
  // A change within the file system's own grain of time would leave the key as it is.
  bool Settled(const FileKey& key) const;

  // The memory file; damage is an empty memory.
  Memory Load() const;
  Result<void> Save(const Memory& memory) const;

  FileSystem& files_;
  const Clock& clock_;
  Rng& rng_;
  const Path memory_;
  Mutex mutex_;
  Memory known_ GUARDED_BY(mutex_);
};

}  // namespace moonpool::bus
