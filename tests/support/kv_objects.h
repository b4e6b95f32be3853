// Conversations, chains of keys, headers and payloads for tests of the blob store. All of it follows from the tokens
// alone, so that another process can tell from a header which bytes its payload must have.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "bus/blobs/blob_store.h"

namespace moonpool::testing {

inline constexpr uint32_t kTestBlockTokens = 4;

// The first `count` tokens of the endless conversation number `seed`.
inline std::vector<TokenId> Conversation(uint64_t seed, size_t count) {
  SeededRng rng(seed);
  std::vector<TokenId> tokens;
  while (tokens.size() < count) tokens.push_back(static_cast<TokenId>(rng.Next() % 50'000));
  return tokens;
}

// Chained like bus/keys does it, over a root that contains the namespace.
inline std::vector<Digest256> ChainKeys(const std::vector<TokenId>& tokens, const std::string& name_space = "test") {
  std::vector<Digest256> keys;
  Digest256 previous = Sha256Of(std::string_view("root/" + name_space));
  for (size_t end = kTestBlockTokens; end <= tokens.size(); end += kTestBlockTokens) {
    Sha256 hash;
    hash.Update(previous.bytes);
    hash.Update(std::as_bytes(std::span(tokens).subspan(end - kTestBlockTokens, kTestBlockTokens)));
    previous = hash.Finish();
    keys.push_back(previous);
  }
  return keys;
}

inline bus::ObjectHeader HeaderFor(std::vector<TokenId> tokens, const std::string& name_space = "test") {
  bus::ObjectHeader header;
  header.fingerprint = Sha256Of(std::string_view("fingerprint"));
  header.fingerprint_text = "a fingerprint for people";
  header.model_name = "test-model";
  header.name_space = name_space;
  header.block_tokens = kTestBlockTokens;
  header.keys = ChainKeys(tokens, name_space);
  header.layout = "plain f16 streams=1";
  header.tokens = std::move(tokens);
  return header;
}

// About 200 bytes per token, the same for the same tokens.
inline std::string PayloadFor(const std::vector<TokenId>& tokens) {
  const Digest256 digest = Sha256Of(std::as_bytes(std::span(tokens)));
  uint64_t seed = 0;
  std::memcpy(&seed, digest.bytes.data(), sizeof seed);
  SeededRng rng(seed);
  std::string payload(tokens.size() * 200 + seed % 100 + 1, '\0');
  for (size_t at = 0; at < payload.size(); at += sizeof(uint64_t)) {
    const uint64_t word = rng.Next();
    std::memcpy(payload.data() + at, &word, std::min(sizeof word, payload.size() - at));
  }
  return payload;
}

inline void WriteFile(const Path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string ReadFile(const Path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace moonpool::testing
