// GgufMetadata: the keys of one GGUF file and what its tensor table says, without its big arrays. The container
// is checked here (every count, length, type, offset); what the keys mean is gguf_model.cc's business.
// Small values are kept as they lie in the file; vocabularies are hashed while they stream past. A value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/sha256.h"
#include "bus/keys/gguf_model.h"
#include "bus/keys/gguf_stream.h"
#include "moonpool/result.h"

namespace moonpool::bus {

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

struct GgufValue {
  GgufType type = GgufType::kUint8;
  GgufType element_type = GgufType::kUint8;  // arrays only
  uint64_t count = 1;                        // elements of an array, bytes of a string
  std::optional<std::string> bytes;          // of the scalar, the string or the elements; absent if large
};

class GgufMetadata {
 public:
  // `name` is for messages. kCorrupt; kUnsupported (versions, big endian, limits passed).
  static Result<GgufMetadata> Read(const File& file, const std::string& name, const GgufLimits& limits);

  const std::string& Name() const { return name_; }
  uint64_t Tensors() const { return tensors_; }
  // Tokens in tokenizer.ggml.tokens; 0 if absent.
  uint32_t Vocabulary() const { return vocabulary_; }
  // Tensors that hold RoPE factors for contexts beyond the trained one are there (longrope).
  bool HasRopeFactorTensors() const { return rope_factor_tensors_; }

  const GgufValue* Find(std::string_view key) const;
  // Whether any key begins with `prefix`.
  bool HasPrefix(std::string_view prefix) const;
  // kCorrupt if the key is there with a value of another kind, negative or too large for the type asked for.
  Result<std::optional<uint64_t>> Uint(const std::string& key, uint64_t value_max) const;
  Result<std::optional<std::string>> Text(const std::string& key) const;
  // A scalar is one element. Elements are whole numbers or bools.
  Result<std::optional<std::vector<uint64_t>>> Uints(const std::string& key, uint64_t value_max) const;

  Digest256 TokenizerHash() const;
  // kUnsupported if one of the values is too large to have been kept: no rope key is.
  Result<Digest256> HashOf(std::string_view prefix) const;

 private:
  friend class GgufMetadataReader;

  std::string name_;
  uint64_t tensors_ = 0;
  uint32_t vocabulary_ = 0;
  bool rope_factor_tensors_ = false;
  std::map<std::string, GgufValue, std::less<>> values_;     // all keys but tokenizer.*
  std::map<std::string, Digest256, std::less<>> tokenizer_;  // tokenizer.* without chat templates
};

}  // namespace moonpool::bus
