// GgmlType: the storage types of tensors and KV rows, as ggml numbers and sizes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace moonpool::bus {

struct GgmlType {
  uint32_t id = 0;
  std::string_view name;        // as in --cache-type-k: "f16", "q8_0"
  uint32_t block_elements = 1;  // elements that are packed together
  uint32_t block_bytes = 0;

  // Nothing unless `elements` is a whole number of blocks and the size fits 64 bits.
  std::optional<uint64_t> RowBytes(uint64_t elements) const;
};

// Nothing for a type that this build does not know; newer ggml versions add some.
std::optional<GgmlType> FindGgmlType(uint32_t id);
std::optional<GgmlType> FindGgmlType(std::string_view name);

}  // namespace moonpool::bus
