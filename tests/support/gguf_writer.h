// GgufWriter: builds GGUF files for tests, honest ones by default and hostile ones on demand: every count, length,
// type and offset can be replaced by a lie. Only what a test writes is there.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace moonpool::testing {

class GgufWriter {
 public:
  // The format's numbers for value types.
  enum Type : uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kI16 = 3,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kU64 = 10,
    kI64 = 11,
    kF64 = 12,
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint32_t alignment = 32;            // of the padding; writes no key
  std::vector<uint64_t> lie_keys;     // if not empty, the first is written as the number of keys
  std::vector<uint64_t> lie_tensors;  // the same for tensors

  // Little-endian bytes of a number.
  template <class T>
  static std::string Raw(T value) {
    static_assert(std::is_arithmetic_v<T>);
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  static std::string Text(std::string_view text) { return Raw<uint64_t>(text.size()) + std::string(text); }

  // A key whose type and value bytes are taken as they are.
  GgufWriter& RawKey(std::string_view key, uint32_t type, std::string_view value) {
    keys_ += Text(key) + Raw(type);
    keys_ += value;
    ++key_count_;
    return *this;
  }
  GgufWriter& U32(std::string_view key, uint32_t value) { return RawKey(key, kU32, Raw(value)); }
  GgufWriter& U16(std::string_view key, uint16_t value) { return RawKey(key, kU16, Raw(value)); }
  GgufWriter& F32(std::string_view key, float value) { return RawKey(key, kF32, Raw(value)); }
  GgufWriter& Str(std::string_view key, std::string_view value) { return RawKey(key, kString, Text(value)); }
  template <class T>
  GgufWriter& Array(std::string_view key, uint32_t element_type, const std::vector<T>& values) {
    std::string bytes = Raw(element_type) + Raw<uint64_t>(values.size());
    for (const T& value : values) {
      if constexpr (std::is_arithmetic_v<T>) {
        bytes += Raw(value);
      } else {
        bytes += Text(value);
      }
    }
    return RawKey(key, kArray, bytes);
  }

  // A tensor of `type` (1: f16) with `bytes` of data; returns its place in the data.
  uint64_t Tensor(std::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
                  std::string_view bytes) {
    const uint64_t offset = data_.size();
    RawTensor(name, dimensions, type, offset);
    data_ += bytes;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
    return offset;
  }
  GgufWriter& RawTensor(std::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
                        uint64_t offset) {
    tensors_ += Text(name) + Raw<uint32_t>(static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t size : dimensions) tensors_ += Raw(size);
    tensors_ += Raw(type) + Raw(offset);
    ++tensor_count_;
    return *this;
  }

  // Everything before the padding that precedes tensor data.
  std::string Header() const {
    return magic + Raw(version) + Raw(lie_tensors.empty() ? tensor_count_ : lie_tensors[0]) +
           Raw(lie_keys.empty() ? key_count_ : lie_keys[0]) + keys_ + tensors_;
  }
  std::string File() const {
    std::string bytes = Header();
    if (alignment > 0) bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
    return bytes + data_;
  }

  // A small but complete language model of two layers; tests add to it or take it apart.
  static GgufWriter Model(std::string_view architecture = "llama") {
    GgufWriter writer;
    const std::string prefix = std::string(architecture) + ".";
    writer.Str("general.architecture", architecture)
        .Str("general.name", "tiny")
        .U32("general.file_type", 1)
        .U32(prefix + "block_count", 2)
        .U32(prefix + "context_length", 2048)
        .U32(prefix + "embedding_length", 64)
        .U32(prefix + "attention.head_count", 4)
        .U32(prefix + "attention.head_count_kv", 2)
        .F32(prefix + "rope.freq_base", 10000.0f)
        .U32(prefix + "rope.dimension_count", 16)
        .Str("tokenizer.ggml.model", "gpt2")
        .Array<std::string>("tokenizer.ggml.tokens", kString, {"a", "b", "ab", "<s>"})
        .Array<float>("tokenizer.ggml.scores", kF32, {0, 0, 0, 0})
        .Array<int32_t>("tokenizer.ggml.token_type", kI32, {1, 1, 1, 3})
        .Array<std::string>("tokenizer.ggml.merges", kString, {"a b"})
        .U32("tokenizer.ggml.bos_token_id", 3);
    writer.Tensor("token_embd.weight", {64, 4}, 1, std::string(512, '\1'));
    return writer;
  }

 private:
  std::string keys_;
  std::string tensors_;
  std::string data_;
  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
};

}  // namespace moonpool::testing
