// The bytes of an object's header file (docs/formats/kv-object.md), and back. Pure; input may be hostile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bus/blobs/blob_store.h"

namespace moonpool::bus {

inline constexpr uint32_t kObjectHeaderVersion = 1;
inline constexpr uint64_t kTokensMax = 16u << 20;
inline constexpr uint64_t kChunkBytesMin = 4096;
inline constexpr uint64_t kChunkBytesMax = 1u << 30;
inline constexpr uint64_t kHeaderTextBytesMax = 1u << 20;  // of each text field
// A header of kTokensMax tokens in blocks of 4, with its texts and checksums.
inline constexpr uint64_t kHeaderBytesMax = 256u << 20;

// What must hold in every header, read or about to be written: counts agree, sizes are within the bounds above.
// kInvalidArgument names the first thing that does not.
Result<void> CheckObjectHeader(const ObjectHeader& header);

// `header` has passed CheckObjectHeader. The length depends on the counts and texts alone, not on the values.
std::string EncodeObjectHeader(const ObjectHeader& header);

// kCorrupt: not a whole header; kUnsupported: a whole header's beginning, of a version that this build does not know.
Result<ObjectHeader> DecodeObjectHeader(std::string_view bytes);

}  // namespace moonpool::bus
