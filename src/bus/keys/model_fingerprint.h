// ModelFingerprint: everything that changes KV bytes or their meaning (decision 6). Two servers share KV only if
// their fingerprints are equal; what cannot be known means bypass, never a guess. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/sha256.h"

namespace moonpool::bus {

struct LoraIdentity {
  Digest256 digest;  // of the adapter file
  double scale = 0;
  bool operator==(const LoraIdentity&) const = default;
};

// What a server declares or its model file says. Servers with one declared identity compare canaries.
struct DeclaredIdentity {
  Digest256 model_digest;    // SHA-256 of the whole file, all shards
  Digest256 tokenizer_hash;  // of the tokenizer.* metadata
  Digest256 rope_hash;       // of the rope.* metadata
  std::string kv_types;      // "f16/f16": K and V, from the layout
  std::string layout;        // SequenceState::LayoutDescriptor(): state version, V layout, rotation, windows ...
  std::optional<uint32_t> context_tokens;  // only where RoPE depends on it, or the operator wants it folded in
  uint32_t block_tokens = 0;
  std::vector<LoraIdentity> adapters;  // in the server's order
  std::optional<Digest256> projector_digest;
  uint32_t sliding_window = 0;  // 0: none
  std::string operator_epoch;   // free text of the operator ("layout epoch"), usually empty

  // Injective: tagged, length-prefixed fields, format version first (docs/formats/block-key.md).
  std::string CanonicalEncoding() const;
  Digest256 Id() const;
  bool operator==(const DeclaredIdentity&) const = default;
};

struct ModelFingerprint {
  DeclaredIdentity declared;
  Digest256 canary_family;  // SHA-256 of the canary object that founded the family

  std::string CanonicalEncoding() const;
  Digest256 Id() const;
  // One line for people: "SmolLM2 Q4_1 f16/f16 ..." parts, no secrets.
  std::string Describe() const;
  bool operator==(const ModelFingerprint&) const = default;
};

}  // namespace moonpool::bus
