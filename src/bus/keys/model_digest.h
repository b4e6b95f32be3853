// ModelDigest: SHA-256 over the whole model file (all shards), remembered by device, inode, size and nanosecond
// times in the state root, taken again when any of them moved (decision 6, field report B02).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "moonpool/result.h"

namespace moonpool::bus {

// Thread-safe.
class ModelDigests {
 public:
  // `memory` is a file in the state root; it is read and rewritten whole, and ignored if damaged.
  ModelDigests(FileSystem& files, Rng& rng, Path memory);

  // Bytes hashed so far and in all; for a progress bar. May be null.
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // kFailedPrecondition if a file changed while it was read: the digest of one file, never a mix.
  Result<Digest256> Of(const std::vector<Path>& shards, const Progress& progress = {}) EXCLUDES(mutex_);

 private:
  FileSystem& files_;
  Rng& rng_;
  const Path memory_;
  Mutex mutex_;
  std::map<std::string, Digest256> known_ GUARDED_BY(mutex_);
};

}  // namespace moonpool::bus
