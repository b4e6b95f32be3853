// GgufModel: what a GGUF file says about itself. The file is untrusted: no count, length or offset is believed
// before it was compared with the bytes left; tensor data is never touched (only ModelDigest reads it).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/sha256.h"
#include "moonpool/result.h"

namespace moonpool::bus {

class GgufMetadata;

struct GgufModel {
  std::string architecture;  // letters, digits, '-', '_' and '.' only
  std::string name;          // free text of the file, at most 256 bytes; quote it before printing
  uint64_t file_type = 0;
  std::vector<Path> shards;  // all parts of a split model, in order, links resolved; one for a whole file
  Digest256 tokenizer_hash;  // streamed over tokenizer.* (chat template left out: tokens carry it)
  Digest256 rope_hash;       // over <arch>.rope.*
  uint32_t vocabulary = 0;   // number of tokens; 0 if absent
  uint32_t blocks = 0;       // layers
  uint32_t context_train = 0;
  uint32_t sliding_window = 0;           // 0: none that the engine uses
  bool recurrent = false;                // state-space or linear-attention layers present
  bool attention = true;                 // attention layers present
  bool sparse = false;                   // indexed or compressed attention: the state has parts of its own
  bool rope_depends_on_context = false;  // longrope and the like: fold n_ctx into the key
  bool media_capable = false;            // the file hints at it; /props of a server with a projector knows

  // Geometry of the KV; empty or 0 where the file does not tell.
  std::vector<uint32_t> kv_heads;  // per layer; 0: that layer keeps no rows of its own
  uint32_t key_length = 0;         // elements per head
  uint32_t value_length = 0;       // 0 with MLA: no V rows

  // Plain full attention in every layer: the only kind whose state serves every prefix of its tokens.
  bool Plain() const { return attention && !recurrent && !sparse && sliding_window == 0; }
  // Bytes of K and V per token, the 12 bytes of its cell included; an upper bound where layers have windows.
  // Types as the server's flags spell them ("f16", "q8_0"). Nothing for unknown types or geometry.
  std::optional<uint64_t> KvBytesPerToken(std::string_view k_type, std::string_view v_type) const;
};

struct GgufLimits {
  uint64_t keys_max = 16 * 1024;
  uint64_t tensors_max = 256 * 1024;
  // Keys and tensor table of one shard. The largest known have 20 MiB; twice that is still read and hashed in a
  // good deal less than 100 ms, so that a lie at its end is refused in time.
  uint64_t metadata_bytes_max = 40ull << 20;
  uint32_t layers_max = 4096;
};

// Metadata of the model at `path` (its first shard if split; links are followed, as in model caches).
// kCorrupt, kUnsupported (version 1, big endian, no language model, limits passed), kInvalidArgument (a later
// shard), kNotFound (a shard is missing).
Result<GgufModel> ReadGgufModel(FileSystem& files, const Path& path, const GgufLimits& limits = {});

// The model that one file's metadata describes, without shards.
Result<GgufModel> DescribeGgufModel(const GgufMetadata& metadata, const GgufLimits& limits = {});

}  // namespace moonpool::bus
