// RowCodec: the number formats that KV rows come in. A row is a sequence of blocks; a block is one element for the
// plain formats and 32 elements with their own scale for the quantized ones. Types are named by their ggml numbers.
// Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace moonpool::bus {

struct RowCodec {
  uint32_t ggml_type;
  std::string_view name;
  uint32_t block_elements;
  uint32_t block_bytes;
  // Decodes one block: `in` has block_bytes, `out` block_elements.
  void (*decode_block)(const std::byte* in, float* out);

  uint64_t Elements(uint64_t bytes) const { return bytes / block_bytes * block_elements; }
  // `rows` is a whole number of blocks, `into` has their Elements().
  void Decode(std::span<const std::byte> rows, std::span<float> into) const;
};

// nullptr: a type that llama.cpp's KV caches do not use, or one that is newer than this code.
const RowCodec* FindRowCodec(uint32_t ggml_type);

}  // namespace moonpool::bus
