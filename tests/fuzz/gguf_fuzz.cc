// Any bytes as a GGUF file: they end in a value or in an error that means "this file", and what is accepted keeps the
// promises that others build on.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "bus/keys/gguf_metadata.h"
#include "bus/keys/gguf_model.h"
#include "support/memory_file.h"

int FuzzGguf(std::span<const uint8_t> input) {
  using namespace moonpool;
  const testing::MemoryFile file(std::as_bytes(input));
  const bus::GgufLimits limits;
  const auto metadata = bus::GgufMetadata::Read(file, "fuzz.gguf", limits);
  if (!metadata) {
    MP_CHECK(metadata.error().code == ErrorCode::kCorrupt || metadata.error().code == ErrorCode::kUnsupported);
    return 0;
  }
  const auto model = bus::DescribeGgufModel(*metadata, limits);
  if (!model) {
    MP_CHECK(model.error().code == ErrorCode::kCorrupt || model.error().code == ErrorCode::kUnsupported);
    return 0;
  }
  MP_CHECK(!model->architecture.empty());
  MP_CHECK(model->blocks >= 1 && model->blocks <= limits.layers_max);
  MP_CHECK(model->kv_heads.empty() || model->kv_heads.size() == model->blocks);
  MP_CHECK(model->attention || model->recurrent);
  (void)model->KvBytesPerToken("f16", "q8_0");
  return 0;
}
