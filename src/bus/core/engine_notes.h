// EngineNotes: what probes found out about server processes, kept in one file of the state root, so that a bus which
// is started again need not probe servers that went on running: their slots hold conversations, and those are not
// given up for a probe. A note is about one server process (its incarnation) and is worth nothing for another.
//
// Owner of the file. Thread-safe. A file that is damaged or cannot be written costs a probe, nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "bus/blobs/blob_store.h"
#include "bus/kvstate/sequence_state.h"

namespace moonpool::bus {

// What only the canary's file could tell, and the family it joined.
struct EngineNote {
  std::string incarnation;
  std::string kv_types;
  std::string layout;
  MemoryClass memory = MemoryClass::kPlain;
  uint32_t streams = 1;
  bool rewritable = false;
  uint64_t bytes_per_token = 0;
  CanaryRef canary;
  Digest256 family;
};

class EngineNotes {
 public:
  // Without a path nothing is remembered.
  EngineNotes(FileSystem& files, Rng& rng, Path path);

  std::optional<EngineNote> Find(const std::string& url, const std::string& incarnation) const EXCLUDES(mutex_);
  void Keep(const std::string& url, const EngineNote& note) EXCLUDES(mutex_);

 private:
  FileSystem& files_;
  Rng& rng_;
  const Path path_;
  mutable Mutex mutex_;
  std::map<std::string, EngineNote> notes_ GUARDED_BY(mutex_);  // by URL; as many as engines were ever named
};

}  // namespace moonpool::bus
