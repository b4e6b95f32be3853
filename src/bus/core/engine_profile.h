// EngineProfile: what is known of one probed engine. Immutable once made; a restart of the server makes a new one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bus/blobs/blob_store.h"
#include "bus/engine/inference_engine.h"
#include "bus/keys/gguf_model.h"
#include "bus/keys/model_fingerprint.h"
#include "bus/kvstate/sequence_state.h"

namespace moonpool::bus {

// What tells one content of a file from another without reading it.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // nobody can set this one back
  bool operator==(const FileStamp&) const = default;
};
// Of each shard; an error if one of them cannot be seen.
Result<std::vector<FileStamp>> StampsOf(FileSystem& files, const std::vector<Path>& shards);

// The model that one server process computes with.
struct LoadedModel {
  std::string incarnation;
  Digest256 digest;
};

struct EngineProfile {
  std::string incarnation;
  std::string build;
  std::string model_name;
  GgufModel model;
  std::vector<FileStamp> model_stamps;  // of model.shards, from before they were hashed
  MemoryClass memory = MemoryClass::kPlain;
  ModelFingerprint fingerprint;
  std::string fingerprint_hex;  // of fingerprint.Id()
  Digest256 fingerprint_id;
  CanaryRef canary;                   // that founded the fingerprint's family
  std::vector<LoraAdapter> adapters;  // as they were at the probe
  std::string kv_types;               // "f16/f16"
  std::string layout;                 // the canary's LayoutDescriptor()
  uint32_t streams = 1;               // KV streams of this server's files
  bool rewritable = false;            // files of another stream count can be used, and files can be cut
  uint64_t bytes_per_token = 0;
  uint32_t total_slots = 0;
  uint32_t context_tokens = 0;
};

std::string MemoryClassName(MemoryClass memory);

// What a state file of this model may look like.
ParseLimits StateLimits(const GgufModel& model);

}  // namespace moonpool::bus
