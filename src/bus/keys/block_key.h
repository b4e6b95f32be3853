// BlockKey: names the KV of one block of tokens and everything before it, for one model and namespace:
// h_i = SHA-256(h_{i-1} || block_i), h_{-1} = SHA-256(canonical encoding of fingerprint and namespace)
// (decision 5; docs/formats/block-key.md). Equal keys mean equal fingerprint, namespace and tokens through block i.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "base/token_id.h"
#include "bus/keys/model_fingerprint.h"

namespace moonpool::bus {

using BlockKey = Digest256;

inline constexpr uint32_t kDefaultBlockTokens = 256;
inline constexpr uint32_t kBlockTokensMax = 1u << 20;

// h_{-1}.
Digest256 ChainRoot(const ModelFingerprint& fingerprint, std::string_view name_space);

// One key per whole block; the tokens after the last whole block have none. block_tokens must be in
// [1, kBlockTokensMax].
std::vector<BlockKey> BlockKeys(const Digest256& root, std::span<const TokenId> tokens, uint32_t block_tokens);

}  // namespace moonpool::bus
