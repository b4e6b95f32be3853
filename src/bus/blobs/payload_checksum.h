// The one read-and-checksum pass over a payload: XXH3 of each chunk. Reads into a small buffer that stays in the
// processor's cache and never maps the file, so a file that shrinks meanwhile is an error and not a signal.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "bus/blobs/blob_store.h"

namespace moonpool::bus {

inline constexpr uint64_t kChunkBytes = 4u << 20;

// The checksums of the first `payload_bytes` of `file`. kCorrupt if it ends before.
Result<std::vector<uint64_t>> ChecksumChunks(const File& file, uint64_t payload_bytes, uint64_t chunk_bytes);

// Compares `file` with what `header` says. kCorrupt names the first difference (size, or chunk with both
// checksums); kDeadlineExceeded between two chunks. `deadline` may be null.
Result<void> VerifyPayload(const File& file, const ObjectHeader& header, const Deadline* deadline);

}  // namespace moonpool::bus
