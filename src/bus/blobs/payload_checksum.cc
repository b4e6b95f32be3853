#include "bus/blobs/payload_checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/checksum.h"

namespace moonpool::bus {
namespace {

constexpr uint64_t kBufferBytes = 256u << 10;

class ChunkReader {
 public:
  explicit ChunkReader(const File& file) : file_(file), buffer_(new std::byte[kBufferBytes]) {}

  Result<uint64_t> Checksum(uint64_t offset, uint64_t count) {
    while (count > 0) {
      const std::span<std::byte> piece(buffer_.get(), std::min(count, kBufferBytes));
      MP_RETURN_IF_ERROR(file_.ReadExactly(offset, piece));
      hash_.Update(piece);
      offset += piece.size();
      count -= piece.size();
    }
    return hash_.Finish();
  }

 private:
  const File& file_;
  std::unique_ptr<std::byte[]> buffer_;
  Xxh3Stream hash_;
};

}  // namespace

Result<std::vector<uint64_t>> ChecksumChunks(const File& file, uint64_t payload_bytes, uint64_t chunk_bytes) {
  ChunkReader reader(file);
  std::vector<uint64_t> sums;
  sums.reserve(payload_bytes / chunk_bytes + 1);
  for (uint64_t offset = 0; offset < payload_bytes; offset += chunk_bytes) {
    MP_ASSIGN_OR_RETURN(const uint64_t sum, reader.Checksum(offset, std::min(chunk_bytes, payload_bytes - offset)));
    sums.push_back(sum);
  }
  return sums;
}

Result<void> VerifyPayload(const File& file, const ObjectHeader& header, const Deadline* deadline) {
  MP_ASSIGN_OR_RETURN(const FileInfo info, file.Info());
  if (info.size_bytes != header.payload_bytes) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("the payload has {} bytes, its header says {}", info.size_bytes, header.payload_bytes));
  }
  ChunkReader reader(file);
  for (size_t index = 0; index < header.chunk_checksums.size(); ++index) {
    if (deadline != nullptr && deadline->Passed()) {
      return Fail(ErrorCode::kDeadlineExceeded,
                  fmt::format("the deadline passed at chunk {} of {}", index, header.chunk_checksums.size()));
    }
    const uint64_t offset = index * header.chunk_bytes;
    const uint64_t count = std::min(header.chunk_bytes, header.payload_bytes - offset);
    MP_ASSIGN_OR_RETURN(const uint64_t sum, reader.Checksum(offset, count));
    if (sum != header.chunk_checksums[index]) {
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("chunk {} of {} (bytes {} to {} of {}) has the checksum {:016x}, {:016x} was expected",
                              index, header.chunk_checksums.size(), offset, offset + count, header.payload_bytes, sum,
                              header.chunk_checksums[index]));
    }
  }
  return {};
}

}  // namespace moonpool::bus
