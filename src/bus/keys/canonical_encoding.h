// CanonicalEncoding: the one way in which identities become bytes before they are hashed
// (docs/formats/block-key.md). Injective: a format version and a kind first, then tagged fields, each with its
// length, in rising order of tags; a field that is absent is left out, which no present value can imitate.
// Everything is little endian. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/sha256.h"

namespace moonpool::bus {

class CanonicalEncoding {
 public:
  // Raised when the meaning of any field changes: every key then changes with it.
  static constexpr uint32_t kFormatVersion = 1;
  enum class Kind : uint8_t { kDeclaredIdentity = 1, kModelFingerprint = 2, kChainRoot = 3 };

  explicit CanonicalEncoding(Kind kind);

  // Tags rise from call to call (checked).
  void Bytes(uint8_t tag, std::string_view bytes);
  void Digest(uint8_t tag, const Digest256& digest);
  void Uint32(uint8_t tag, uint32_t value);

  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
  uint8_t last_tag_ = 0;
};

// Little-endian bytes of a number at the end of `bytes`.
void AppendUint32(std::string& bytes, uint32_t value);
void AppendUint64(std::string& bytes, uint64_t value);
void AppendDigest(std::string& bytes, const Digest256& digest);

}  // namespace moonpool::bus
