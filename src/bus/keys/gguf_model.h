// GgufModel: what a GGUF file says about itself. The file is untrusted: no count, length or offset is believed
// before it was compared with the bytes left; tensor data is never touched (only ModelDigest reads it).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/sha256.h"
#include "moonpool/result.h"

namespace moonpool::bus {

struct GgufModel {
  std::string architecture;
  std::string name;
  uint64_t file_type = 0;
  std::vector<Path> shards;  // all parts of a split model, in order; one for a whole file
  Digest256 tokenizer_hash;  // streamed over tokenizer.* (chat template left out: tokens carry it)
  Digest256 rope_hash;       // over <arch>.rope.*
  uint32_t vocabulary = 0;   // number of tokens; 0 if absent
  uint32_t blocks = 0;       // layers
  uint32_t context_train = 0;
  uint32_t sliding_window = 0;           // 0: none
  bool recurrent = false;                // state-space or linear-attention layers present
  bool attention = true;                 // attention layers present
  bool rope_depends_on_context = false;  // longrope and the like: fold n_ctx into the key
  bool media_capable = false;
};

struct GgufLimits {
  uint64_t keys_max = 64 * 1024;
  uint64_t string_bytes_max = 64ull << 20;
  uint64_t tensors_max = 1u << 20;
};

// Metadata of the model at `path` (its first shard if split). kCorrupt, kUnsupported (version 1, big endian,
// unknown types), kNotFound (a shard is missing).
Result<GgufModel> ReadGgufModel(FileSystem& files, const Path& path, const GgufLimits& limits = {});

}  // namespace moonpool::bus
